"""Products whose tiles cuBLAS cannot use in place: copied, multiplied, and copied back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.testing import assert_agrees
from tests.kernels.cuda.emulation import LaunchExecutor, why_not

from .conftest import put
from .fake_cuda import FakeCalls

CASES = {
    "left": ("A : f32[k,i,l], B : f32[k,l,j]", "C[i,j] = A[k,i,l] * B[k,l,j]", "kil,klj->ij"),
    "right": ("A : f32[i,k,l], B : f32[k,j,l]", "C[i,j] = A[i,k,l] * B[k,j,l]", "ikl,kjl->ij"),
    "result": ("A : f32[i,l,k], B : f32[k,j]", "C[i,j,l] = A[i,l,k] * B[k,j]", "ilk,kj->ijl"),
    "another type": ("A : f64[i,k], B : f32[k,j]", "C[i,j] = A[i,k] * B[k,j]", "ik,kj->ij"),
    "batches": ("A : f32[b,k,i,l], B : f32[k,l,j,b]", "C[b,i,j] = A[b,k,i,l] * B[k,l,j,b]", "bkil,kljb->bij"),
}
SIZES = {"i": 40, "j": 36, "k": 6, "l": 8, "b": 3}


@pytest.mark.parametrize("name", CASES)
def test_a_product_of_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(name, put(monkeypatch, "cuda", [1e-3]))


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("name", ["batches", "result"])
def test_copies_by_generated_kernels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(name, put(monkeypatch, "cuda", [1e-3], source=LaunchExecutor(tmp_path)))


def run(name: str, made: list[FakeCalls]) -> None:
    inputs, equation, spec = CASES[name]
    sizes = SIZES | ({"k": 48} if "l" not in spec.split("->")[0] or name == "result" else {})
    rng = np.random.default_rng(0)
    arrays = {
        tensor: rng.integers(-4, 5, [sizes[x] for x in labels]).astype("f8" if "f64" in part else "f4")
        for tensor, labels, part in zip("AB", spec.split("->")[0].split(","), inputs.split("], "), strict=True)
    }
    expected = np.einsum(spec, *arrays.values())
    program = et.compile(f"input {inputs}\n{equation}\noutput C\n")
    for arena in (None, 48 << 10):
        plan = program.plan(arena=arena, workers=1, data=arrays, device="cuda")
        assert_agrees(plan.run()["C"], expected)
        # Smaller tiles go to a generated kernel.
        assert made[-1].counts["multiply"] or arena is not None
