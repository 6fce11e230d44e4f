"""Counts of typical kernels against the stored ones; after an intended change: cuda_counts.py --write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from einturnip.kernels.cuda.nvrtc import nvrtc

from .counts import KERNELS, CountedKernel, counted
from .emulation import no_nvrtc, why_not

pytestmark = pytest.mark.skipif(bool(why_not() or no_nvrtc()), reason=why_not() or no_nvrtc())
STORED = json.loads(Path(__file__).with_name("counts.json").read_text())
SAMPLE = ("transpose f32", "max-plus f32", "squared distances f32", "gather f32, rows of 16")
TOLERANCE = {True: 1.01, False: 1.15}
"""By whether the compiler's version is that of the stored counts."""


def _cases() -> list[object]:
    made = [(make, make().name) for make in KERNELS]
    return [pytest.param(m, id=n, marks=[] if n in SAMPLE else [pytest.mark.slow]) for m, n in made]


@pytest.mark.parametrize("make", _cases())
def test_no_count_has_grown(make: Callable[[], CountedKernel], tmp_path: Path) -> None:
    kernel = make()
    found, stored = counted(kernel, tmp_path), STORED["kernels"][kernel.name]
    limit = TOLERANCE[".".join(map(str, nvrtc().version)) == STORED["nvrtc"]]
    for name in ("instructions", "read", "written", "sectors", "shared", "local"):
        assert getattr(found, name) <= stored[name] * limit + 0.01, name


def test_every_kernel_has_a_stored_count() -> None:
    assert {make().name for make in KERNELS} == set(STORED["kernels"])
