"""Whole programs on the GPU's device whose every launch runs the generated CUDA source, or its PTX, compiled as C++."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.examples.test_examples import PROGRAMS
from tests.kernels.cuda.emulation import Form, LaunchExecutor, no_nvrtc, why_not
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

from .conftest import put
from .test_language import DELAYS, PORTION, plans, run_example, run_sentence

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


FORMS: tuple[Form, ...] = ("source", "checked", "ptx")
Executors = Callable[[Form], LaunchExecutor]


@pytest.fixture(scope="session")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Executors:
    """Executors that compile each kernel once for all tests of all processes."""
    scratch = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        scratch = scratch.parent
    (scratch / "kernels").mkdir(exist_ok=True)
    return lru_cache(lambda form: _executor(scratch / "kernels", form))


def _executor(scratch: Path, form: Form) -> LaunchExecutor:
    if form == "ptx" and no_nvrtc():
        pytest.skip(no_nvrtc())
    return LaunchExecutor(scratch, form)


@pytest.mark.parametrize(
    ("sentence", "form"),
    [(s, "source") for s in SENTENCES[::PORTION]]
    + [(s, "ptx") for s in SENTENCES[PORTION // 2 :: 2 * PORTION]]
    + [(s, "checked") for s in SENTENCES if s.says == "nothing to group"],
    ids=str,
)
def test_a_sentence(sentence: Sentence, form: Form, executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[1], source=executors(form))
    run_sentence(sentence, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, form: Form, executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[len(sentence.text) % len(DELAYS)], _devices(sentence.text, form), executors(form))
    run_sentence(sentence, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Path, form: Form, executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[len(path.stem) % len(DELAYS)], _devices(path.stem, form), executors(form))
    run_example(path, "cuda")


def _devices(name: str, form: Form) -> int:
    """Several devices with the source; the other forms take longer."""
    return 1 + len(name) % 3 if form == "source" else 1


@settings(max_examples=8, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_program(executors: Executors, data: st.DataObject) -> None:
    _drawn(executors("source"), data)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=200, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_many_programs(executors: Executors, form: Form, data: st.DataObject) -> None:
    _drawn(executors(form), data)


def _drawn(source: LaunchExecutor, data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    devices = data.draw(st.integers(1, 3))
    expected = evaluate(case.program, case.inputs, case.dims)
    program = et.compile(case.text, dims=case.dims)
    with pytest.MonkeyPatch.context() as patch:
        put(patch, "cuda", DELAYS[devices % len(DELAYS)], devices, source)
        for plan in plans(lambda arena: program.plan(arena=arena, workers=2, data=case.inputs, device="cuda")):
            result: dict[str, Any] = dict(plan.run())
            for name, answer in expected.items():
                assert_agrees(result[name], answer)
