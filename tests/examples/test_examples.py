"""Every program under docs/examples against an independent reference, in ample memory and in the least that does.

The reference of ``docs/examples/FIELD/NAME.ein`` is the function NAME of ``tests/examples/FIELD.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from tests.examples.harness import Example, assert_close, runs

FOLDER = Path(__file__).parents[2] / "docs/examples"
OTHERS = {"diffusion", "models", "training"}  # what takes weights, steps or downloads has tests and pages of its own
PROGRAMS = [path for path in sorted(FOLDER.glob("*/*.ein")) if path.parent.name not in OTHERS]


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


# The gate runs every program in ample memory, and one in three in the least as well.
RUNS = [pytest.param(path, k % 3 == 0, id=_name(path)) for k, path in enumerate(PROGRAMS)]
RUNS += [
    pytest.param(path, True, id=f"{_name(path)}-least", marks=pytest.mark.slow)
    for k, path in enumerate(PROGRAMS)
    if k % 3
]


@pytest.mark.parametrize(("path", "least"), RUNS)
def test_example(path: Path, least: bool) -> None:
    reference: Callable[[np.random.Generator], Example]
    reference = getattr(import_module(f"tests.examples.{path.parent.name}"), path.stem)
    example = reference(np.random.default_rng(7))
    program = et.compile(path, dims=example.dims)
    assert not program._program.warnings
    for result in runs(program, example.inputs, least).values():
        assert list(result) == list(example.expected)
        for name, expected in example.expected.items():
            assert_close(result[name], expected, example.looser)


@pytest.mark.parametrize("path", PROGRAMS, ids=_name)
def test_example_says_what_it_computes(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_there_are_many_from_many_fields() -> None:
    assert len(PROGRAMS) >= 30 and len({path.parent for path in PROGRAMS}) >= 6


def test_the_page_lists_every_program_as_it_introduces_itself() -> None:
    page = (FOLDER.parent / "examples.md").read_text()
    rows = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", page, re.MULTILINE))
    introductions = {}
    for path in PROGRAMS:
        comment = takewhile(lambda line: line.startswith("# "), path.read_text().splitlines())
        introductions[f"{path.parent.name}/{path.name}"] = " ".join(line[2:] for line in comment).replace("|", "\\|")
    assert rows == introductions
