"""Every function of the standard library against NumPy and SciPy, in f32, f64, and some in f16."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.harness import assert_close, runs
from tests.std import graph, image, linalg, nn, optim, prob, stats
from tests.std.harness import Call

CALLS = [*nn.CALLS, *linalg.CALLS, *stats.CALLS, *graph.CALLS, *prob.CALLS, *image.CALLS, *optim.CALLS]
FIRST = list({(call.module, call.function): call for call in reversed(CALLS)}.values())  # of each function
LIBRARY = sorted((Path(__file__).parents[2] / "grammar/std").glob("*.ein"))


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        pytest.param(call, dtype, id=f"{call}-{dtype}", marks=() if call in FIRST else pytest.mark.slow)
        for call in CALLS
        for dtype in ("float32", "float64")
    ],
)
def test_call(call: Call, dtype: str) -> None:
    inputs, expected = call.cast(call.inputs, dtype), call.cast(call.expected, dtype)
    program = call.program(dtype)
    assert not program._program.warnings
    for result in runs(program, inputs, least=dtype == "float64" and call in FIRST).values():
        for name, answer in expected.items():
            assert_close(result[name], answer, call.looser)


@pytest.mark.parametrize("function", ["softmax", "layernorm", "rmsnorm", "attention", "causal_attention"])
def test_half_precision(function: str) -> None:
    for call in (call for call in nn.CALLS if call.function == function):
        inputs, expected = call.cast(call.inputs, "float16"), call.cast(call.expected, "float16")
        for result in runs(call.program("float16"), inputs).values():
            for name, answer in expected.items():
                assert_close(result[name], answer)


def test_every_function_is_called() -> None:
    functions = {(path.stem, name) for path in LIBRARY for name in re.findall(r"^fn (\w+)", path.read_text(), re.M)}
    assert functions == {(call.module, call.function) for call in CALLS}
    for call in CALLS:
        assert f"{call.function}(" in call.equation


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_every_function_says_what_it_computes(path: Path) -> None:
    lines = path.read_text().splitlines()
    for before, line in zip(lines, lines[1:], strict=False):
        assert not line.startswith("fn ") or before.startswith("# "), line


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_page_lists_every_function_as_it_is_declared(path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/library.md").read_text()
    listed = page.split(f"## std.{path.stem}\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", listed, re.M))
    declared = re.findall(r"((?:^# .*\n)+)fn (\w+\(.*?\)) *(?:=|\{)", path.read_text(), re.M)
    assert rows == {head: " ".join(line[2:] for line in comment.splitlines()) for comment, head in declared}
