"""Sums drawn over every kind of kernel, and how far each result is from the exact one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels.select import HostKernel
from einturnip.lang import compile_text

Array = np.ndarray[Any, np.dtype[Any]]
# Equations, what each term is of its operands, and its value by NumPy in any precision.
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
DTYPES = {"f32": np.float32, "f64": np.float64}
ULPS = 4  # times log2(n): the error that a sum of n terms may have, in units in the last place of the sum of magnitudes


@dataclass(frozen=True)
class Sum:
    """One sum: its program, its operand, and the exact result."""

    equation: str
    dtype: str
    operand: Array

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

    def ulps(self, found: Any) -> float:
        """The largest error over what the bound allows: at most 1."""
        exactly, wide = EQUATIONS[self.equation], self.operand.astype(np.longdouble)
        error, scale = abs(found - exactly(wide)), exactly(abs(wide))
        terms = max(2.0, self.operand.size / max(1, np.asarray(found).size))
        bound = (ULPS * math.log2(terms) + 1) * np.finfo(self.operand.dtype).eps * scale
        return float((error / np.where(bound == 0, 1, bound)).max())


def drawn(rng: np.random.Generator, count: int, most: int) -> Iterator[Sum]:
    """Sums over at most ``most`` values, of any shape, all equal, positive or of both signs."""
    for _ in range(count):
        equation = str(rng.choice([*EQUATIONS]))
        rank = next(len(x) for name, x in LABELS.items() if f"{name}[" in equation)
        cuts = np.sort(rng.random(rank - 1))
        shares = np.diff(np.concatenate([[0], cuts, [1]]))
        size = float(rng.uniform(3, math.log(most)))
        shape = tuple(max(1, int(math.exp(size * share))) for share in shares)
        dtype = "f32" if rng.random() < 0.8 else "f64"
        kind = rng.integers(3)
        values = np.full(shape, 0.1) if kind == 0 else rng.random(shape) if kind == 1 else rng.standard_normal(shape)
        yield Sum(equation, dtype, values.astype(DTYPES[dtype]))


def ran(kernel: HostKernel, einsum: Einsum, operand: Array, accumulate: bool = False) -> Array:
    """What a kernel over the whole tensor gives."""
    out = np.empty(einsum.shape, (einsum.state_dtypes[0] if accumulate else einsum.dtype).numpy)
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    kernel((out,), (operand,) * len(einsum.accesses), (0,) * len(einsum.bounds), True, workspace)
    return out
