"""Whole programs on the GPU's device whose every launch runs the generated CUDA source, compiled as C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.testing import assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.examples.test_examples import PROGRAMS
from tests.kernels.cuda.emulation import SourceExecutor, why_not
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

from .conftest import put
from .test_language import DELAYS, PORTION, plans, run_example, run_sentence

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceExecutor:
    """An executor that compiles each kernel once for all tests."""
    return SourceExecutor(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> SourceExecutor:
    """The same, with a check of every access: memory, values that were never written, races."""
    return SourceExecutor(tmp_path_factory.mktemp("checked"), checked=True)


@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_a_sentence(sentence: Sentence, source: SourceExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[1], source=source)
    run_sentence(sentence, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, source: SourceExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[len(sentence.text) % len(DELAYS)], 1 + len(sentence.text) % 3, source)
    run_sentence(sentence, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Path, source: SourceExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[len(path.stem) % len(DELAYS)], 1 + len(path.stem) % 3, source)
    run_example(path, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("sentence", SENTENCES[:: PORTION // 4], ids=str)
def test_every_access_of_a_sentence(
    sentence: Sentence, checked: SourceExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, "cuda", DELAYS[2], source=checked)
    run_sentence(sentence, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS[::4], ids=lambda path: path.stem)
def test_every_access_of_an_example(path: Path, checked: SourceExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", DELAYS[2], source=checked)
    run_example(path, "cuda")


@settings(max_examples=8, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_program(source: SourceExecutor, data: st.DataObject) -> None:
    _drawn(source, data)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_many_programs(source: SourceExecutor, data: st.DataObject) -> None:
    _drawn(source, data)


def _drawn(source: SourceExecutor, data: st.DataObject) -> None:
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
