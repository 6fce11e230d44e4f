"""Kernels of prepared plans on the caller's arrays: prepared once, then moved to the arrays of each run."""

from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.api import plan_cache
from einturnip.kernels import select
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.runtime.host import compilation

HEADS = "input X : f64[n,m], Y : f64[n,m], v : f64[m]\n"
PROGRAMS: dict[str, tuple[type[MachineCodeKernel | ContractionKernel], Any]] = {
    "Z[i,j] = exp(min(X[i,j], 0)) * 2 + Y[i,j]": (MachineCodeKernel, lambda x, y, v: np.exp(np.minimum(x, 0)) * 2 + y),
    "Z[i] = sum[j] X[i,j] * v[j]": (ContractionKernel, lambda x, y, v: x @ v),
}


@pytest.mark.parametrize("equation", PROGRAMS)
def test_a_call_on_new_arrays_prepares_no_kernel(equation, monkeypatch, tmp_path):
    kind, expected = PROGRAMS[equation]
    if kind is MachineCodeKernel:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for name in ("WORTH_LOADING", "START_SECONDS", "COMPILE_SECONDS"):
            monkeypatch.setattr(compilation, name, 0.0)
    plan_cache.forget()
    prepared, prepare = [], kind.prepare
    monkeypatch.setattr(kind, "prepare", lambda self, arguments: prepared.append(1) or prepare(self, arguments))
    rng, program, counts = np.random.default_rng(0), et.compile(HEADS + equation + "\noutput Z\n"), []
    for _ in range(12):
        x, y, v = rng.standard_normal((100, 100)), rng.standard_normal((100, 100)), rng.standard_normal(100)
        given = dict(X=x, Y=y, v=v)
        result = program(**{name: given[name] for name in program.inputs if name in given})["Z"]
        np.testing.assert_allclose(result, expected(x, y, v), rtol=1e-12)
        counts.append(len(prepared))
    assert counts[-1] > 0 and counts[-1] == counts[8]
    plan_cache.forget()
    code_cache.forget()
    select.forget()
