"""The whole language on devices with streams, under drawn delays, in ample, half and the least memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.drawn import examples
from tests.examples.harness import Example, assert_close
from tests.examples.test_examples import PROGRAMS
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

from .conftest import put

KINDS = ("sim", "cuda")
DELAYS = ([1e-3], [1.0, 1e-6, 1e-3, 10.0, 1e-2], [1e-3, 1e-3, 1e-3, 30.0])
PORTION = 40  # one in PORTION of the sentences and examples is run in the gate

Run = Callable[[int | None], et.Plan]


def plans(plan: Run) -> Iterator[et.Plan]:
    """In ample memory; in the least that does; in half way between that and what ample memory holds at most."""
    ample = plan(None)
    yield ample
    try:
        least = plan(1)
        needed = 1
    except et.CapacityError as error:
        needed = error.needed
        least = plan(needed)
    yield plan(max(needed, (needed + ample._job.planned.memgraph.peak_nbytes) // 2))
    yield least


def run_sentence(sentence: Sentence, kind: str) -> None:
    program = et.compile(sentence.text, dims=sentence.dims)
    for plan in plans(lambda arena: program.plan(arena=arena, workers=1, data=sentence.inputs, device=kind)):
        result = plan.run()
        for name, expected in sentence.expected.items():
            assert_agrees(result[name], np.asarray(expected), sentence.exact)


def run_example(path: Any, kind: str) -> None:
    reference: Callable[[np.random.Generator], Example]
    reference = getattr(import_module(f"tests.examples.{path.parent.name}"), path.stem)
    example = reference(np.random.default_rng(7))
    program = et.compile(path, dims=example.dims)

    def plan(arena: int | None) -> et.Plan:
        return program.plan(arena=arena, workers=1, data=example.inputs, device=kind)

    if re.search("^while ", path.read_text(), re.MULTILINE):  # devices unroll loops
        with pytest.raises(et.SourceError, match="E216"):
            plan(None)
        return
    for planned in plans(plan):
        result = planned.run()
        for name, expected in example.expected.items():
            assert_close(result[name], expected, example.looser)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_a_sentence(sentence: Sentence, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[1])
    run_sentence(sentence, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[len(sentence.text) % len(DELAYS)])
    run_sentence(sentence, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", PROGRAMS[::PORTION], ids=lambda path: path.stem)
def test_an_example(path: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[1])
    run_example(path, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[len(path.stem) % len(DELAYS)])
    run_example(path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["fixed", "double-buffering"])
def test_another_order(kind: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baselines that free order is held against: they wait more, and give the same."""
    put(monkeypatch, kind, DELAYS[1])
    program = et.compile(
        "input A : f32[i,k], B : f32[k,j]\nC[i,j] = A[i,k] * B[k,j]\nD[i,j] = C[i,k] * B[k,j]\noutput D\n"
    )
    a, b = (np.random.default_rng(n).integers(-3, 4, (4, 4)).astype(np.float32) for n in (0, 1))
    data = {"A": a, "B": b}
    for plan in plans(lambda arena: program.plan(arena=arena, workers=1, data=data, policy=policy, device=kind)):
        np.testing.assert_array_equal(plan.run()["D"], a @ b @ b)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(12), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_program_under_any_delays(kind: str, data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    delays = data.draw(st.lists(st.sampled_from([1e-6, 1e-3, 1.0, 100.0]), min_size=1, max_size=12))
    expected = evaluate(case.program, case.inputs, case.dims)
    program = et.compile(case.text, dims=case.dims)
    with pytest.MonkeyPatch.context() as patch:
        put(patch, kind, delays)
        for plan in plans(lambda arena: program.plan(arena=arena, workers=2, data=case.inputs, device=kind)):
            result = dict(plan.run())
            for name, answer in expected.items():
                assert_agrees(result[name], answer)
