"""Plans and generated CUDA code of a dozen programs, compared with stored texts.

A change that should not alter any plan or kernel alters none of these files. One that should is reviewed by their diff:
``pytest tests/golden --update-golden`` stores the present texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import einturnip as et
from einturnip.eingraph.types import EinsumNode
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.select import Mode
from einturnip.report.emit import emit_text

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "docs" / "examples"
ARENA = 1 << 20
MAX_KERNELS = 4  # per program, so that the texts stay readable
PROGRAMS: dict[str, tuple[str, dict[str, int]]] = {
    "product": ("input A : f32[n,k], B : f32[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n", dict(n=900, k=700, m=800)),
    "sum": ("input X : f32[n]\ns = sum[i] X[i] * X[i]\noutput s\n", dict(n=3_000_000)),
    "softmax": (
        "input X : f32[n,m]\nM[i] = max[j] X[i,j]\nE[i,j] = exp(X[i,j] - M[i])\nS[i] = sum[j] E[i,j]\n"
        "Y[i,j] = E[i,j] / S[i]\noutput Y\n",
        dict(n=500, m=3000),
    ),
    "attention": (
        "input Q : f32[h,s,d], K : f32[h,t,d], V : f32[h,t,d]\nP[h,s,t] = sum[d] Q[h,s,d] * K[h,t,d]\n"
        "W[h,s,t] = exp(P[h,s,t] - max[t] P[h,s,t])\nO[h,s,d] = (sum[t] W[h,s,t] * V[h,t,d]) / (sum[t] W[h,s,t])\n"
        "output O\n",
        dict(h=4, s=500, t=500, d=64),
    ),
    "stencil": (
        "input A : f32[n,m]\nB[i,j] = (A[i-1 ? 0,j] + A[i+1 ? 0,j] + A[i,j-1 ? 0] + A[i,j+1 ? 0]) / 4\noutput B\n",
        dict(n=900, m=900),
    ),
    "distances": (
        "input X : f32[n,d], Y : f32[m,d]\nD[i,j] = sqrt(sum[k] (X[i,k] - Y[j,k]) ^ 2)\noutput D\n",
        dict(n=700, m=600, d=32),
    ),
    "shortest": ("input A : f64[n,n]\nB[i,j] = min[k] (A[i,k] + A[k,j])\noutput B\n", dict(n=600)),
    "argmax": ("input X : f32[n,m]\nY[i] = argmax[j] X[i,j]\noutput Y\n", dict(n=2000, m=900)),
    "transpose": ("input A : f64[n,m]\nB[j,i] = A[i,j]\noutput B\n", dict(n=800, m=900)),
    "mttkrp": (
        "input X : f64[a,b,c], B : f64[b,r], C : f64[c,r]\nM[i,r] = sum[j,k] X[i,j,k] * B[j,r] * C[k,r]\noutput M\n",
        dict(a=90, b=80, c=70, r=16),
    ),
    "ccd_residual": ((EXAMPLES / "physics" / "ccd_residual.ein").read_text(), dict(o=4, v=10)),
    "lora": ((EXAMPLES / "models" / "lora_merge.ein").read_text(), dict(L=4, q=256, k=128, d=256, rank=8)),
}


def described(text: str, dims: dict[str, int]) -> Iterator[str]:
    """The decomposition, and the source of each distinct CUDA kernel."""
    job = et.compile(text, dims=dims).plan(arena=ARENA, workers=2, device="cpu")._job
    yield from emit_text(job.planned, "decomposition", {})
    seen = set[str]()
    for node in job.planned.graph.nodes:
        if not isinstance(node, EinsumNode) or node.einsum.keys:
            continue
        modes: tuple[Mode, ...] = ("full", "accumulate", "finalize") if node.einsum.aggregated else ("full",)
        for mode in modes:
            source = generate(node.einsum, mode).source
            if source not in seen:
                seen.add(source)
                if len(seen) > MAX_KERNELS:
                    return
                yield f"\n// {node.name}, {mode}"
                yield source


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_and_code_are_as_stored(name: str, request: pytest.FixtureRequest) -> None:
    found = "\n".join(described(*PROGRAMS[name])) + "\n"
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text(), f"{name} has changed; see the docstring of this file"
