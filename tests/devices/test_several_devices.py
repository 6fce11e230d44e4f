"""Runs on several sites under drawn delays, in ample, half and the least memory.

The sites are simulated devices, or GPUs over the fake, alone or with the CPU.
"""

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
SITES = (*KINDS, *(f"{kind}+cpu" for kind in KINDS))


def devices_of(sites: str, number: int) -> int:
    """The number of devices among that many sites."""
    return number - sites.endswith("+cpu")


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_a_sentence(sentence: Sentence, sites: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, sites, DELAYS[1], devices_of(sites, 2))
    run_sentence(sentence, sites)


@pytest.mark.slow
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, sites: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = devices_of(sites, 2 + len(sentence.text) % 3)
    put(monkeypatch, sites, DELAYS[len(sentence.text) % len(DELAYS)], devices)
    run_sentence(sentence, sites)


@pytest.mark.slow
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Any, sites: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = devices_of(sites, 2 + len(path.stem) % 3)
    put(monkeypatch, sites, DELAYS[len(path.stem) % len(DELAYS)], devices)
    run_example(path, sites)


@pytest.mark.parametrize("sites", SITES)
@settings(max_examples=examples(8), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_program_under_any_delays(sites: str, data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    delays = data.draw(st.lists(st.sampled_from([1e-6, 1e-3, 1.0, 100.0]), min_size=1, max_size=12))
    devices = devices_of(sites, data.draw(st.integers(2, 5)))
    expected = evaluate(case.program, case.inputs, case.dims)
    program = et.compile(case.text, dims=case.dims)
    with pytest.MonkeyPatch.context() as patch:
        put(patch, sites, delays, devices)
        for plan in plans(lambda arena: program.plan(arena=arena, workers=2, data=case.inputs, device=sites)):
            result = dict(plan.run())
            for name, answer in expected.items():
                assert_agrees(result[name], answer)


@pytest.mark.parametrize("device", ["sim:1,2", "sim+cpu"])
def test_several_programs_are_refused(device: str) -> None:
    with pytest.raises(et.DeviceError, match="on one device only"):
        shared_job([], Options(device=device))
