"""Plans, generated CUDA code and generated LLVM IR of a dozen programs, compared with stored texts.

A change that should not alter any plan or kernel alters none of these files. One that should is reviewed by their diff:
``pytest tests/golden --update-golden`` stores the present texts.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import einturnip as et
from einturnip.core import process_resources
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.llvm.code_cache import llvm_ir
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import machine_code, product_code
from einturnip.planner.planner import PlannedProgram
from einturnip.report.emit import emit_text

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "docs" / "examples"
ARENA = 1 << 20
MAX_IR = 16_000  # characters; longer IR is stored as an outline
MAX_KERNELS = 4  # CUDA, per program, so that the texts stay readable
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


def forget_kernels() -> None:
    """Clear all caches that may hold code or kernels made for another processor."""
    select.forget()
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper) and found.__module__.startswith("einturnip.kernels"):
            found.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def fixed_processor() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_resources, "processor_features", lambda: frozenset({"avx512f", "avx512dq"}))
        forget_kernels()
        yield
    forget_kernels()


@functools.lru_cache(maxsize=1)
def planned(name: str) -> PlannedProgram:
    text, dims = PROGRAMS[name]
    return et.compile(text, dims=dims).plan(arena=ARENA, workers=2, device="cpu")._job.planned


def kernels(program: PlannedProgram) -> Iterator[tuple[EinsumNode, Mode]]:
    """The einsums and regions that are computed, each with its modes."""
    for node in program.graph.nodes:
        if isinstance(node, EinsumNode) and not node.einsum.keys:
            modes: tuple[Mode, ...] = ("full", "accumulate", "finalize") if node.einsum.aggregated else ("full",)
            yield from ((node, mode) for mode in modes)


def described(program: PlannedProgram) -> Iterator[str]:
    """The decomposition, and the source of each distinct CUDA kernel."""
    yield from emit_text(program, "decomposition", {})
    seen = dict[str, str]()
    for node, mode in kernels(program):
        seen.setdefault(generate(node.einsum, mode).source, f"\n// {node.name}, {mode}")
        if len(seen) == MAX_KERNELS:
            break
    for source, title in seen.items():
        yield title
        yield source


def machine_codes(program: PlannedProgram) -> Iterator[str]:
    """The LLVM IR of each distinct kernel; of a long one the number of instructions by function, and a digest."""
    seen = dict[str, str]()
    for node, mode in kernels(program):
        product = product_code(node.einsum, node.einsum.bounds, mode) if isinstance(node.einsum, Einsum) else None
        for code in (*filter(None, [product]), *machine_code(node.einsum, mode)):
            seen.setdefault(llvm_ir(code), f"; {node.name}, {mode}, {type(code).__name__}")
    if not seen:
        yield "; NumPy computes all kernels"
    for text, title in seen.items():
        yield title
        if len(text) <= MAX_IR:
            yield text
            continue
        yield f"; sha256 {hashlib.sha256(text.encode()).hexdigest()}"
        for function in text.split("\ndefine "):
            head, *lines = function.removeprefix("define ").splitlines()
            counts = Counter(re.sub(r"%\S+ = ", "", line).split()[0] for line in lines if line.startswith("  "))
            yield f"define {head}"
            yield f"  {', '.join(f'{n} {op}' for op, n in sorted(counts.items()))}\n"


def compare(name: str, suffix: str, lines: Iterator[str], request: pytest.FixtureRequest) -> None:
    """Compare a text with the stored one, or store it."""
    found = "\n".join(lines) + "\n"
    path = FOLDER / f"{name}{suffix}"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text(), f"{path.name} has changed; see the docstring of this file"


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_and_code_are_as_stored(name: str, request: pytest.FixtureRequest) -> None:
    compare(name, ".txt", described(planned(name)), request)


@pytest.mark.parametrize("name", PROGRAMS)
def test_llvm_ir_is_as_stored(name: str, request: pytest.FixtureRequest) -> None:
    compare(name, ".ll", machine_codes(planned(name)), request)
