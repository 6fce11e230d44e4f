"""Drawn programs in the memory that their refusals name, and in more: no run takes more than its limit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.units import parse_size
from tests.drawn import examples
from tests.robustness.drawn_programs import Drawn, drawn, stored
from tests.robustness.measuring import evict, measured, refused
from tests.robustness.test_memory import usable_folder

# About what Python and its libraries take: hardly any program fits.
SMALL = "56MiB"
COMMON = dict(deadline=None, suppress_health_check=list(HealthCheck))


def runs_within(program: Drawn, factor: float, warm: bool) -> None:
    """Refuse the program in too little memory, then run it in ``factor`` times the limit that the refusal names.

    ``warm``: plans, kernels and the grammar's tables are in the cache by then.
    """
    with tempfile.TemporaryDirectory(dir=usable_folder()) as name, tempfile.TemporaryDirectory() as cache:
        folder = Path(name)
        (folder / "p.ein").write_text(program.text)
        words = [f"--dim={dim}={size}" for dim, size in program.dims.items()]
        bf16 = "bf16" in program.text  # which one format alone can name
        for (key, array), given in zip(program.inputs.items(), program.kinds, strict=False):
            kind = "safetensors" if bf16 else given
            words += ["-i", f"{key}={stored(folder, key, array, kind)}"]
        if program.output_kind:
            for output in et.compile(program.text).outputs:
                kind = "safetensors" if bf16 else program.output_kind
                words += ["-o", f"{output}=out_{output}.{kind}"]
        smallest = refused(folder, parse_size(SMALL), *words, cache=Path(cache))
        if smallest.code == 0:
            return
        stated = int(smallest.least * factor)
        for _ in range(1 + warm):
            evict(folder)
            ran = measured(folder, stated, *words, cache=Path(cache))
            note(f"{ran.peak / 2**20:.1f} of {stated / 2**20:.1f} MiB")
            assert ran.code == 0, ran.error
            assert ran.peak <= stated


ROUNDS = """
input A : f32[n, m]
B[i, j] = A[i, j]
for t in 0 .. 60 {
  B[i, j] = 0.2 * (B[i, j] + (B[i-1 ? 0, j]) + (B[i+1 ? 0, j]) + (B[i, j-1 ? 0]) + (B[i, j+1 ? 0]))
}
output B
"""


def test_what_a_refusal_of_a_loop_names_will_do() -> None:
    """The plan takes more than the tiles, and is estimated from the part that was made within the limit."""
    with tempfile.TemporaryDirectory(dir=usable_folder()) as name:
        folder = Path(name)
        (folder / "p.ein").write_text(ROUNDS)
        np.save(folder / "A.npy", np.ones((1200, 1200), np.float32))
        words = ["-i", "A=A.npy", "-o", "B=B.npy"]
        named = refused(folder, 58 << 20, *words).least
        evict(folder)
        ran = measured(folder, named, *words)
        assert ran.code == 0 and ran.peak <= named, (named, ran)


@given(drawn(), st.sampled_from((1.0, 1.1, 2.0)))
@settings(max_examples=examples(6), **COMMON)
def test_drawn_programs_keep_the_limit(program: Drawn, factor: float) -> None:
    runs_within(program, factor, warm=False)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@given(drawn(), st.sampled_from((1.0, 1.1, 2.0)), st.booleans())
@settings(max_examples=500, derandomize=False, print_blob=True, **COMMON)
def test_five_hundred_drawn_programs_keep_the_limit(program: Drawn, factor: float, warm: bool) -> None:
    runs_within(program, factor, warm)
