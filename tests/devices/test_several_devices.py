"""Runs on several devices, simulated and faked, under drawn delays, in ample, half and the least memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.api.multi_program import shared_job
from einturnip.compiler import Options
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.drawn import examples
from tests.examples.test_examples import PROGRAMS
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

from .conftest import put
from .test_language import DELAYS, KINDS, plans, run_example, run_sentence

PORTION = 32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_a_sentence(sentence: Sentence, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[1], 2)
    run_sentence(sentence, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[len(sentence.text) % len(DELAYS)], 2 + len(sentence.text) % 3)
    run_sentence(sentence, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, DELAYS[len(path.stem) % len(DELAYS)], 2 + len(path.stem) % 3)
    run_example(path, kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(8), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_program_under_any_delays(kind: str, data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    delays = data.draw(st.lists(st.sampled_from([1e-6, 1e-3, 1.0, 100.0]), min_size=1, max_size=12))
    devices = data.draw(st.integers(2, 5))
    expected = evaluate(case.program, case.inputs, case.dims)
    program = et.compile(case.text, dims=case.dims)
    with pytest.MonkeyPatch.context() as patch:
        put(patch, kind, delays, devices)
        for plan in plans(lambda arena: program.plan(arena=arena, workers=2, data=case.inputs, device=kind)):
            result = dict(plan.run())
            for name, answer in expected.items():
                assert_agrees(result[name], answer)


def test_several_programs_are_refused() -> None:
    with pytest.raises(et.DeviceError, match="on one device only"):
        shared_job([], Options(device="sim:1,2"))
