"""Sums drawn over every kind of kernel, and how far each result is from the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

import einturnip as et
from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.protocol import HostKernel, Mode
from einturnip.kernels.select import compile_kernel, compile_tile
from einturnip.lang import compile_text
from tests.eingraph.fused import graphs, regions

Array = np.ndarray[Any, np.dtype[Any]]
Result: TypeAlias = tuple[str, Array]  # the way by which it was computed, and the result
# Equations, and their values by NumPy in any precision.
EQUATIONS: dict[str, Any] = {
    "Z = sum[i] X[i]": lambda x: x.sum(),
    "Z = sum[i] X[i]^2": lambda x: (x * x).sum(),
    "Z = mean[i] abs(X[i])": lambda x: abs(x).mean(),
    "Z[n] = sum[m] A[n,m]": lambda a: a.sum(1),
    "Z[m] = sum[n] A[n,m]": lambda a: a.sum(0),
    "Z[m] = mean[n] A[n,m]^2": lambda a: (a * a).mean(0),
    "Z = sum[n,m] abs(A[n,m])": lambda a: abs(a).sum(),
    "Z[a,c] = sum[b] T[a,b,c]": lambda t: t.sum(1),
    "Z[b] = sum[a,c] T[a,b,c]^2": lambda t: (t * t).sum((0, 2)),
    "Z[c] = mean[a,b] T[a,b,c]": lambda t: t.mean((0, 1)),
    "Z[a] = sum[b,c] T[a,b,c]": lambda t: t.sum((1, 2)),
}
LABELS = {"X": "i", "A": "nm", "T": "abc"}
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}
NARROW = {"f16": 2.0**-10, "bf16": 2.0**-7}  # types that are summed in f32, and their unit in the last place
ULPS = 4  # times log2(n): the error that a sum of n terms may have, in units in the last place of the sum of magnitudes
ARENAS = ("128KiB", "1MiB", None)


def bound(terms: float, dtype: str) -> float:
    """The relative error that a sum may have; a narrow type's term and result are rounded once each."""
    eps = 2.0**-23 if dtype in NARROW else float(np.finfo(DTYPES[dtype]).eps)
    return (ULPS * math.log2(max(2.0, terms)) + 1) * eps + 1.5 * NARROW.get(dtype, 0.0)


def largest(error: Any, allowed: Any) -> float:
    """The largest error over what is allowed."""
    return float((error / np.where(allowed == 0, 1, allowed)).max(initial=0))


@dataclass(frozen=True)
class Sum:
    """One sum: its program, its operand, and the exact result."""

    equation: str
    dtype: str
    operand: Array

    @property
    def kind(self) -> str:
        """Of sum, for statistics."""
        return f"{self.dtype} sum"

    @property
    def name(self) -> str:
        """Of the operand."""
        return next(x for x in LABELS if f"{x}[" in self.equation)

    @property
    def text(self) -> str:
        """The program."""
        labels = ", ".join(LABELS[self.name])
        return f"input {self.name} : {self.dtype}[{labels}]\n{self.equation}\noutput Z\n"

    @property
    def einsum(self) -> Einsum:
        """The program's one einsum."""
        graph = build(compile_text(self.text, "sum.ein"), {self.name: self.operand.shape}, {})
        (node,) = [n for n in graph.nodes if isinstance(n, EinsumNode)]
        assert isinstance(node.einsum, Einsum)
        return node.einsum

    @property
    def code(self) -> Sequence[tuple[Einsum | Region, Mode]]:
        """The kernels to prepare as machine code."""
        return [(self.einsum, "full"), (self.einsum, "accumulate")]

    def ulps(self, found: Any) -> float:
        """The largest error over what the bound allows: at most 1."""
        exactly = EQUATIONS[self.equation]
        wide = self.operand.astype(np.clongdouble if self.dtype.startswith("c") else np.longdouble)
        terms = self.operand.size / max(1, np.asarray(found).size)
        error = abs(np.asarray(found).astype(wide.dtype) - exactly(wide))
        tiny = 2.0**-24 * (self.dtype == "f16")  # the last place of the smallest f16, to which products are rounded
        return largest(error, bound(terms, self.dtype) * exactly(abs(wide)) + terms * tiny)

    def results(self, rng: np.random.Generator) -> Iterator[Result]:
        """The sum by machine code, by NumPy, in tiles that are accumulated, and as a program in some arena."""
        einsum = self.einsum
        for way, native in (("machine code", True), ("NumPy", False)):
            yield way, ran(compile_tile(einsum, einsum.bounds, "full", native), einsum, self.operand)
        kernel = compile_tile(einsum, einsum.bounds, "accumulate", bool(rng.integers(2)))
        state = ran(kernel, einsum, self.operand, accumulate=True)
        finalize = compile_kernel(einsum, einsum.bounds, "finalize")
        made = np.empty(einsum.shape, einsum.dtype.numpy)
        call(finalize, [made], [state], (0,) * len(einsum.bounds))
        yield "a state", made
        for workers in (1, 2):
            arena = ARENAS[int(rng.integers(3))]
            out = et.compile(self.text)(workers=workers, arena=arena, data={self.name: self.operand})["Z"]
            yield f"{workers} workers in {arena}", out


@dataclass(frozen=True)
class Contraction:
    """A product of matrices, judged by NumPy's error on the same operands where that is above the bound of sums."""

    subscripts: str
    dtype: str
    operands: tuple[Array, Array]

    code: Sequence[tuple[Einsum | Region, Mode]] = ()

    @property
    def kind(self) -> str:
        """Of sum, for statistics."""
        return f"{self.dtype} contraction"

    @property
    def equation(self) -> str:
        """For messages."""
        return f"{self.subscripts} of {self.operands[0].shape} and {self.operands[1].shape}"

    def ulps(self, found: Any) -> float:
        """The largest error over twice that of the better of np.matmul and np.einsum, or the bound of sums."""
        left, right = (x if axes[-1] == "k" else x.T for x, axes in zip(self.operands, self._axes, strict=True))
        exact_types = {"f32": np.float64, "c64": np.complex128, "f64": np.longdouble, "c128": np.clongdouble}
        wide = [x.astype(exact_types[self.dtype]) for x in (left, right)]
        exact, scale = wide[0] @ wide[1].T, abs(left) @ abs(right).T
        numpys = [left @ right.T, np.einsum(self.subscripts, *self.operands)]
        error, *others = (float((abs(x - exact) / np.where(scale == 0, 1, scale)).max()) for x in (found, *numpys))
        return error / max(2 * min(others), bound(left.shape[1], self.dtype))

    @property
    def _axes(self) -> list[str]:
        return self.subscripts.split("->")[0].split(",")

    def results(self, rng: np.random.Generator) -> Iterator[Result]:
        """The product by ``et.einsum`` in some arena."""
        for workers in (1, 2):
            arena = ARENAS[int(rng.integers(3))]
            yield (
                f"{workers} workers in {arena}",
                et.einsum(self.subscripts, *self.operands, workers=workers, arena=arena),
            )


def _softmax(x: Array, v: Array) -> tuple[Array, Array]:
    weights = np.exp(x - x.max(1, keepdims=True))
    total = weights.sum(1, keepdims=True)
    return weights @ v / total, 2 * (weights @ abs(v)) / total


def _exponentials(x: Array, v: Array) -> tuple[Array, Array]:
    total = np.exp(x).sum(1) + np.exp(2 * x).sum(1)
    return total, total


def _deviations(x: Array, v: Array) -> tuple[Array, Array]:
    mean = x.mean(1, keepdims=True)
    # The mean's own error is squared too: a deviation is as exact as the values that are subtracted.
    return ((x - mean) ** 2).mean(1), ((x - mean) ** 2 + 2 * abs(x - mean) * abs(x)).mean(1)


FUSED: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "M[n] = max[m] X[n,m]\nS[n] = sum[m] exp(X[n,m]-M[n])\nZ[n,d] = sum[m] exp(X[n,m]-M[n])*V[m,d] / S[n]": _softmax,
    "T[n,m] = exp(X[n,m])\nA[n] = sum[m] T[n,m]\nB[n] = sum[m] T[n,m]^2\nZ[n] = A[n]+B[n]": _exponentials,
    "mu[n] = mean[m] X[n,m]\nZ[n] = mean[m] (X[n,m]-mu[n])^2": _deviations,
}
EXPONENTIAL_ULPS = 8  # of one term: exp, and its argument of at most 4, which is rounded


@dataclass(frozen=True)
class FusedSum:
    """Sums that a region carries along."""

    equation: str
    dtype: str
    operands: tuple[Array, Array]

    @property
    def kind(self) -> str:
        """Of sum, for statistics."""
        return f"{self.dtype} fused"

    @property
    def data(self) -> dict[str, Array]:
        """The inputs by name."""
        return {name: x for name, x in zip("XV", self.operands, strict=True) if f"{name}[" in self.equation}

    @property
    def text(self) -> str:
        """The program."""
        inputs = {"X": "n,m", "V": "m,d"}
        lines = [f"input {name} : {self.dtype}[{inputs[name]}]" for name in self.data]
        return "\n".join([*lines, self.equation, "output Z\n"])

    @property
    def region(self) -> Region:
        """The program, fused."""
        (node,) = regions(graphs(self.text, {name: x.shape for name, x in self.data.items()})[1])
        assert isinstance(node.einsum, Region)
        return node.einsum

    @property
    def code(self) -> Sequence[tuple[Einsum | Region, Mode]]:
        """The kernels to prepare as machine code."""
        return [(self.region, "full"), (self.region, "accumulate")]

    def ulps(self, found: Any) -> float:
        """The largest error over what the bound allows."""
        exact, scale = FUSED[self.equation](*(x.astype(np.longdouble) for x in self.operands))
        allowed = bound(self.operands[0].shape[1], self.dtype) + EXPONENTIAL_ULPS * np.finfo(DTYPES[self.dtype]).eps
        return largest(abs(found - exact), allowed * scale)

    def results(self, rng: np.random.Generator) -> Iterator[Result]:
        """The region by machine code, in two states that are combined, and as a program in some arena."""
        region, operands = self.region, [*self.data.values()]
        out = np.empty(region.shape, region.dtype.numpy)
        whole = (0,) * len(region.bounds)
        call(compile_kernel(region, region.bounds, "full"), [out], operands, whole)
        yield "a region", out
        states = []
        p = max(q for q in region.aggregated if q not in region.whole)
        half = region.bounds[p] // 2
        for ends in ((0, half), (half, region.bounds[p])):
            box = tuple(ends if q == p else (0, n) for q, n in enumerate(region.bounds))
            states.append([np.empty(shape, d.numpy) for shape, d in region.components(region.bounds)])
            parts = [x[tuple(slice(*e) for e in region.operand_box(s, box))] for s, x in enumerate(operands)]
            kernel = compile_kernel(region, tuple(b - a for a, b in box), "accumulate")
            call(kernel, states[-1], parts, tuple(a for a, _ in box))
        call(compile_kernel(region, region.bounds, "combine"), states[0], states[1], whole, first=False)
        call(compile_kernel(region, region.bounds, "finalize"), [out], states[0], whole)
        yield "two states", out
        arena = ARENAS[int(rng.integers(3))]
        yield f"a program in {arena}", et.compile(self.text)(arena=arena, data=self.data)["Z"]


Drawn: TypeAlias = Sum | Contraction | FusedSum


def drawn(rng: np.random.Generator, count: int, most: int) -> Iterator[Drawn]:
    """Sums over at most ``most`` values, of any shape, all equal, positive or of both signs."""
    for _ in range(count):
        match rng.choice(["sum", "contraction", "fused"], p=[0.6, 0.2, 0.2]):
            case "sum":
                yield _drawn_sum(rng, most)
            case "contraction":
                yield _drawn_contraction(rng, most)
            case _:
                yield _drawn_fused(rng, most)


def _drawn_sum(rng: np.random.Generator, most: int) -> Sum:
    equation = str(rng.choice([*EQUATIONS]))
    rank = next(len(x) for name, x in LABELS.items() if f"{name}[" in equation)
    cuts = np.sort(rng.random(rank - 1))
    shares = np.diff(np.concatenate([[0], cuts, [1]]))
    size = float(rng.uniform(3, math.log(most)))
    shape = tuple(max(1, int(math.exp(size * share))) for share in shares)
    dtype = str(rng.choice([*DTYPES], p=[0.1, 0.1, 0.4, 0.15, 0.15, 0.1]))
    scale = min(1.0, 3000 / math.prod(shape)) if dtype == "f16" else 1.0  # sums are below the largest f16
    return Sum(equation, dtype, values(rng, shape, dtype, scale))


def _drawn_contraction(rng: np.random.Generator, most: int) -> Contraction:
    sides = [int(rng.choice([1, 2, 3, 4, 5, 8, 16, 33, 64])) for _ in range(2)]
    terms = max(2, int(math.exp(rng.uniform(3, math.log(most))) / max(sides)))
    axes = [str(rng.choice([f"{x}k", f"k{x}"])) for x in "ij"]
    dtype = str(rng.choice(["f32", "f64", "c64", "c128"], p=[0.6, 0.2, 0.1, 0.1]))
    shapes = [(n, terms) if x[-1] == "k" else (terms, n) for n, x in zip(sides, axes, strict=True)]
    left, right = (values(rng, shape, dtype) for shape in shapes)
    return Contraction(f"{axes[0]},{axes[1]}->ij", dtype, (left, right))


def _drawn_fused(rng: np.random.Generator, most: int) -> FusedSum:
    rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    terms = max(4, int(math.exp(rng.uniform(3, math.log(most))) / max(rows, columns)))
    dtype = str(rng.choice(["f32", "f64"], p=[0.8, 0.2]))
    x, v = values(rng, (rows, terms), dtype), values(rng, (terms, columns), dtype)
    return FusedSum(str(rng.choice([*FUSED])), dtype, (np.clip(x, -4, 4), v))


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Array:
    """Terms: all equal, positive, or of both signs."""

    def part() -> Array:
        match rng.integers(3):
            case 0:
                return np.full(shape, rng.uniform(0.05, 1))
            case 1:
                return rng.random(shape)
            case _:
                return rng.standard_normal(shape)

    made = part() + 1j * part() if dtype.startswith("c") else part()
    return (made * scale).astype(DTYPES[dtype])


def call(
    kernel: HostKernel,
    outs: Sequence[Array],
    operands: Sequence[Array],
    origins: Sequence[int],
    first: bool = True,
) -> None:
    """Call a kernel with the workspace that it needs."""
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    kernel(tuple(outs), tuple(operands), tuple(origins), first, workspace)


def ran(kernel: HostKernel, einsum: Einsum, operand: Array, accumulate: bool = False) -> Array:
    """The result, or the first component of the state, of a kernel over the whole tensor."""
    out = np.empty(einsum.shape, (einsum.state_dtypes[0] if accumulate else einsum.dtype).numpy)
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    kernel((out,), (operand,) * len(einsum.accesses), (0,) * len(einsum.bounds), True, workspace)
    return out
