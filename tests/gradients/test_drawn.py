"""Drawn programs of the whole language: the gradient of a loss of what they give, against its definition.

The strategy's programs are taken to f64 and c128, and to points that are not whole numbers, where most kinks are. What
is left of them shows in a definition that changes with the step: such programs are passed over, as are those that
overflow, give no number, or are too large to be derived by steps.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from einturnip.core.errors import EinturnipError, OutOfRange
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.ir.operators import Array
from einturnip.lang import compile_text
from einturnip.testing import DrawnCase, programs
from tests.gradients.harness import graph_of
from tests.reference import gradient as gradient
from tests.reference.eingraph import evaluate
from tests.reference.program import evaluate as by_definition

_LARGEST = 40  # elements to derive by
_INPUT = re.compile(r"input (\w+) : (\w+)(\[.*\])?$")


@dataclass
class Derived:
    """A drawn program with gradients: its text, and what it runs on."""

    text: str
    inputs: dict[str, Array]


@dataclass
class _Parts:
    dims: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    derived: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)


def _labels(letter: str, rank: int) -> str:
    return f"[{', '.join(f'{letter}{k}' for k in range(rank))}]" if rank else ""


def derived(case: DrawnCase) -> Derived | None:
    """The case in f64 and c128, with the gradient of a loss by each of its inputs; None where it has none."""
    parts = _Parts()
    noise = np.random.default_rng(len(case.text))
    text = re.sub(r"\bc64\b", "c128", re.sub(r"\b(f16|bf16|f32)\b", "f64", case.text))
    for line in text.rstrip().split("\n"):
        found = _INPUT.match(line)
        if found and found[1] in case.inputs:
            _input(parts, found, np.asarray(case.inputs[found[1]]), noise)
        else:
            kind = (
                parts.dims if line.startswith("dim ") else parts.outputs if line.startswith("output ") else parts.body
            )
            kind.append(line)
    base = "\n".join([*parts.dims, *parts.inputs, *parts.body])
    loss = _loss(compile_text("\n".join([base, *parts.outputs, ""])))
    if not loss or not parts.derived or sum(parts.arrays[name].size for name in parts.derived) > _LARGEST:
        return None
    grads = [
        f"g_{name}{_labels('w', rank)} = grad(the_loss, {name}{_labels('w', rank)})"
        for name, rank in parts.derived.items()
    ]
    wanted = ", ".join(["the_loss", *(f"g_{name}" for name in parts.derived)])
    return Derived("\n".join([base, f"the_loss = {loss}", *grads, f"output {wanted}", ""]), parts.arrays)


def _input(parts: _Parts, found: re.Match[str], array: Array, noise: np.random.Generator) -> None:
    """An input to derive by, under another name, as the program may define the name anew; or one as it is."""
    name, dtype, shape = found[1], found[2], found[3] or ""
    if name.startswith("K") or dtype == "bool":
        parts.inputs.append(found[0])
        parts.arrays[name] = array
        return
    array = array.astype(np.complex128 if dtype == "c128" else np.float64)
    array += noise.uniform(0.07, 0.43, array.shape) * noise.choice([-1, 1], array.shape)
    if dtype == "c128":
        array += 1j * noise.uniform(0.07, 0.43, array.shape)
    labels = _labels("v", array.ndim)
    parts.inputs.append(f"input in_{name} : {'c128' if dtype == 'c128' else 'f64'}{shape}")
    parts.body.insert(len(parts.derived), f"{name}{labels} = in_{name}{labels}")
    parts.derived[f"in_{name}"] = array.ndim
    parts.arrays[f"in_{name}"] = array


def _loss(program: object) -> str:
    """A weighted sum of all that a program gives."""
    terms = []
    for output in program.outputs:  # type: ignore[attr-defined]
        tensor = program.tensors[output.tensor]  # type: ignore[attr-defined]
        if tensor.dtype.is_inexact:
            value = f"{output.name}{_labels('u', tensor.rank)}"
            value = f"(real({value}) + 0.7 * imag({value}))" if tensor.dtype.kind == "c" else value
            weight = " + ".join(["1.3", *(f"0.{3 + 2 * k} * sin(u{k} + {k})" for k in range(tensor.rank))])
            terms.append((f"sum{_labels('u', tensor.rank)} " if tensor.rank else "") + f"{value} * ({weight})")
    return " + ".join(terms)


def _defined(case: Derived, dims: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> dict[str, Array] | None:
    """The outputs by definition, where two steps agree on them."""
    program = compile_text(case.text)
    found = []
    for step in (1e-3, 4e-4):
        monkeypatch.setattr(gradient, "_STEP", step)
        try:
            found.append(by_definition(program, case.inputs, dims))
        except (EinturnipError, OutOfRange):
            return None
        if not all(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e6 for a in found[-1].values()):
            return None
    agree = all(np.allclose(found[0][name], found[1][name], rtol=1e-6, atol=1e-7) for name in found[0])
    return found[1] if agree else None


def compare(case: DrawnCase, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the gradients of a drawn program, as built and as rewritten, against their definition."""
    try:
        made = derived(case)
    except EinturnipError:
        made = None
    expected = None if made is None else _defined(made, dict(case.dims), monkeypatch)
    if made is None or expected is None:
        counts["passed over"] += 1
        return
    graph = graph_of(made.text, made.inputs, case.dims)
    built, small = evaluate(graph, made.inputs), evaluate(rewrite(graph), made.inputs)
    if not all(np.isfinite(array).all() for array in built.values()):
        counts["infinite on the way"] += 1
        return
    if re.search("%|//|floor|ceil|round", made.text) and not np.allclose(
        small["the_loss"], built["the_loss"], rtol=1e-7
    ):
        counts["at a jump"] += 1  # 3 % (0.1 + ... + 0.1) is 0 or 0.6, as the sum was rounded
        return
    for name, array in expected.items():
        np.testing.assert_allclose(built[name], array, rtol=2e-5, atol=1e-6, err_msg=f"{name}:\n{made.text}")
        np.testing.assert_allclose(small[name], built[name], rtol=1e-7, atol=1e-9, err_msg=f"{name}:\n{made.text}")
    counts["agree"] += 1
    counts["not all zero"] += any(array.any() for name, array in expected.items() if name != "the_loss")


def _drawn(number: int, which: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    @seed(which)
    @settings(max_examples=number, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs(exact=False))
    def each(case: DrawnCase) -> None:
        compare(case, counts, monkeypatch)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        each()
    return counts


def test_gradients_of_drawn_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = _drawn(80, 1, monkeypatch)
    assert counts["not all zero"] >= 20, counts
    assert counts["infinite on the way"] <= 4, counts


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_gradients_of_many_drawn_programs(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 500 programs in all that have gradients other than zero; a part takes some ten seconds."""
    counts = _drawn(250, 10 + part, monkeypatch)
    assert counts["not all zero"] >= 63, counts
    assert counts["infinite on the way"] <= 6 and counts["at a jump"] <= 1, counts
