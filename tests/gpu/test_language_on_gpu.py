"""The language on a GPU: sentences and examples in ample, half and the least memory."""

from typing import Any

import pytest

from einturnip.devices.cuda.probe import probe
from tests.devices.test_language import run_example, run_sentence
from tests.examples.test_examples import PROGRAMS
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

# Asking for a GPU loads CuPy, so only a run that wants these tests asks.
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not probe().gpus:
        pytest.skip(probe().reason())


@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_sentence(sentence: Sentence) -> None:
    run_sentence(sentence, "cuda")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_example(path: Any) -> None:
    run_example(path, "cuda")
