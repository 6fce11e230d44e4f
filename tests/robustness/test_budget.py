"""The named minimum works, and so does any larger budget; a smaller one changes nothing."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import CapacityError, NeedsMore
from einturnip.core.units import parse_size
from einturnip.report.budgets import min_budget
from einturnip.storage.io.file_source import StoredTensor
from tests.robustness.programs import ATTENTION, GEMM, PIPELINE, SCALAR, SOFTMAX, finished


def digits(*shape: int):
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


def attention(n: int):
    return {"Q": digits(2, n, 8), "K": digits(2, n, 8), "V": digits(2, n, 8)}


CASES = {
    "product": (GEMM, lambda n: {"A": digits(n, n), "B": digits(n, n).T.copy()}),
    "softmax": (SOFTMAX, lambda n: {"X": digits(n, n)}),
    "attention": (ATTENTION, attention),
    "elementwise": (PIPELINE, lambda n: {"X": digits(n, n), "b": digits(n)}),
    "scalar": (SCALAR, lambda n: {"a": 5.0}),
}


def sweep(name: str, n: int, budgets: int) -> None:
    text, inputs = CASES[name]
    program, given = et.compile(text), inputs(n)
    expected = program(arena="64MiB", **given)
    with pytest.raises(et.CapacityError) as refused:
        program(arena=1, **given)
    least = refused.value.needed
    with pytest.raises(et.CapacityError) as again:
        program(arena=least - 1, **given)
    assert again.value.needed == least
    for arena in np.linspace(least, 4 * least, budgets).astype(int).tolist():
        result = program(arena=arena, **given)
        assert result.report.arena_peak_nbytes <= arena
        for output, value in expected.items():
            np.testing.assert_allclose(result[output], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_every_arena_from_the_least_to_four_times_as_much(name):
    sweep(name, 9, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_arena_for_larger_tensors(name):
    sweep(name, 24, 20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(name: str, n: int) -> list[str]:
    """The program and its inputs in files of this folder; the words of a command line that runs it."""
    text, inputs = CASES[name]
    Path("p.ein").write_text(text)
    words = ["run", "p.ein"]
    for key, value in inputs(n).items():
        np.save(f"{key}.npy", value)
        words += ["-i", f"{key}={key}.npy"]
    for output in et.compile(text).outputs:
        words += ["-o", f"{output}=out_{output}.npy"]
    return words


def minimum_memory(refusal: Callable[[int], str]) -> int:
    """The minimum that refusals name; ``refusal`` returns the error in a limit in bytes."""
    memory = 2 << 20
    while (found := re.search(r"needs at least ([\d.]+ \w+)", error := refusal(memory))) is not None:
        assert parse_size(found[1]) > memory
        memory = parse_size(found[1])
    found = re.search(r"the minimum is ([\d.]+ \w+)", error)
    assert found, error
    return parse_size(found[1])


@pytest.mark.parametrize("name", CASES)
def test_below_the_least_budget_nothing_is_touched(folder, capsys, monkeypatch, name):
    words = prepared(name, 64)

    def read(*arguments):
        raise AssertionError("something was read")

    monkeypatch.setattr(StoredTensor, "read", read)
    before = sorted(os.listdir())

    def refusal(memory: int) -> str:
        assert run([*words, "--memory", str(memory)]) == 3
        return capsys.readouterr().err

    assert minimum_memory(refusal) > 2 << 20
    assert sorted(os.listdir()) == before


def within_the_budget_named(name: str, n: int, factors: tuple[float, ...]) -> None:
    folder = Path()
    words = prepared(name, n)

    def refusal(memory: int) -> str:
        code, _, err = finished(*words, "--memory", memory, cwd=folder)
        assert code == 3 and not list(folder.glob("out_*"))
        return err

    least = minimum_memory(refusal)
    text, inputs = CASES[name]
    expected = et.compile(text)(arena="256MiB", **inputs(n))
    for factor in factors:
        code, _, err = finished(*words, "--memory", int(least * factor), cwd=folder)
        assert code == 0, err
        for output, value in expected.items():
            np.testing.assert_allclose(np.load(f"out_{output}.npy"), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "n"), [("product", 1024), pytest.param("softmax", 1500, marks=pytest.mark.slow), ("scalar", 1)]
)
def test_the_budget_named_works(folder, name, n):
    within_the_budget_named(name, n, (1.0, 1.4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n"), [("product", 2048), ("softmax", 3000), ("attention", 800), ("elementwise", 3000), ("scalar", 1)]
)
def test_every_budget_from_the_one_named_to_four_times_as_much(folder, name, n):
    within_the_budget_named(name, n, tuple(np.linspace(1, 4, 20)))


@pytest.mark.parametrize(("name", "n"), [("softmax", 1500), ("elementwise", 1500)])
def test_the_minimum_that_a_plan_charts_works(folder, name, n):
    words = prepared(name, n)
    code, printed, err = finished("plan", *words[1:], "--format", "json", "--budgets", cwd=folder)
    assert code == 0, err
    least = json.loads(printed)["least_bytes"]
    code, _, err = finished(*words, "--memory", least, cwd=folder)
    assert code == 0, err
    code, _, err = finished(*words, "--memory", least // 2, cwd=folder)
    assert code == 3


def test_a_lower_bound_is_no_minimum():
    """Planning that stops at its own limit names a bound, at which the program may be refused."""
    asked = []

    def plan_for(budget):
        asked.append(budget)
        raise NeedsMore("", 50) if budget < 50 else CapacityError("", 65)

    assert min_budget(plan_for, 1000) == (65, True) and asked == [1, 50]
    assert min_budget(plan_for, 1000, patience=-1.0) == (50, False)
    assert min_budget(plan_for, 60) == (60, True)
