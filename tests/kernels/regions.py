"""Regions made by hand: attention, logsumexp of distances, weighted sums, and what NumPy says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, F32, F64, I64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region, RegionStep, Rescale
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Made:
    """A region, operands for it, and the result that it should have."""

    region: Region
    operands: tuple[Array, ...]
    expected: Array


def call(op: str, *arguments: Scalar, dtype: DType | None = None) -> Scalar:
    """An operator; its type is the last argument's unless stated."""
    return ScalarCall(op, arguments, dtype or arguments[-1].dtype)


def einsum(
    labels: str, n_out: int, bounds: Sequence[int], accesses: Sequence[str], dtypes: Sequence[DType], join: Scalar,
    op: str | None = None,
) -> Einsum:  # fmt: skip
    """An einsum over one-letter labels."""
    return Einsum(
        tuple(labels),
        tuple(bounds),
        n_out,
        tuple(tuple(map(labels.index, a)) for a in accesses),
        tuple(dtypes),
        join,
        None if op is None else aggregation(op, join.dtype),
    )


def attention(
    rng: np.random.Generator,
    b: int,
    h: int,
    s: int,
    t: int,
    d: int,
    e: int,
    mask: str | Scalar = "",
    dtype: DType = F32,
    tempered: bool = False,
) -> Made:
    """Softmax of scores times values, by the streaming law.

    ``mask``: "" (none), "causal", "window", or a condition on labels 2 (rows) and 3 (columns), of which nothing is
    expected. ``tempered``: scores are multiplied by a sum of squares of their row of queries.
    """
    labels, bounds = "bhsetd", dict(zip("bhsetd", (b, h, s, e, t, d), strict=True))
    o = [OperandRef(i, dtype) for i in range(3)]
    steps: list[RegionStep] = []

    def add(
        own: str, n_out: int, accesses: Sequence[str], operands: Sequence[int], join: Scalar, op: str | None
    ) -> int:
        made = einsum(own, n_out, [bounds[x] for x in own], accesses, [dtype] * len(accesses), join, op)
        steps.append(RegionStep(made, tuple(map(labels.index, own)), tuple(operands)))
        return ~(len(steps) - 1)

    scaled = call("mul", call("mul", o[0], o[1]), ScalarConst(float(d) ** -0.5, dtype))
    scores = add("bhstd", 4, ["bhsd", "bhtd"], [0, 1], scaled, "sum")
    row, column = LabelValue(2), LabelValue(3)
    if tempered:
        heat = add("bhsd", 3, ["bhsd"], [0], call("mul", o[0], o[0]), "sum")
        scores = add("bhst", 4, ["bhst", "bhs"], [scores, heat], call("mul", o[0], o[1]), None)
    if mask:
        holds = call("le", column, row, dtype=BOOL) if isinstance(mask, str) else mask
        if mask == "window":
            near = call("lt", call("sub", row, column, dtype=I64), ScalarConst(3, I64), dtype=BOOL)
            holds = call("and", holds, near, dtype=BOOL)
        scores = add("bhst", 4, ["bhst"], [scores], call("where", holds, o[0], ScalarConst(-np.inf, dtype)), None)
    top = add("bhst", 3, ["bhst"], [scores], o[0], "max")
    weights = add("bhst", 4, ["bhst", "bhs"], [scores, top], call("exp", call("sub", o[0], o[1])), None)
    total = add("bhst", 3, ["bhst"], [weights], o[0], "sum")
    mixed = add("bhset", 4, ["bhst", "bhte"], [weights, 2], call("mul", o[0], o[1]), "sum")
    add("bhse", 4, ["bhse", "bhs"], [mixed, total], call("div", o[0], o[1]), None)
    rescales = tuple(Rescale(~x, ~top, -1.0) for x in (total, mixed))
    region = Region(
        tuple(labels), tuple(bounds.values()), 4, 1, ((0, 1, 2, 5), (0, 1, 4, 5), (0, 1, 4, 3)), (dtype,) * 3,
        tuple(steps), rescales,
    )  # fmt: skip
    q, k, v = (rng.standard_normal(x).astype(dtype.numpy) for x in ((b, h, s, d), (b, h, t, d), (b, h, t, e)))
    score = np.einsum("bhsd,bhtd->bhst", q.astype("d"), k.astype("d")) * float(d) ** -0.5
    score *= (q.astype("d") ** 2).sum(-1)[..., None] if tempered else 1
    if isinstance(mask, str) and mask:
        rows, columns = np.arange(s)[:, None], np.arange(t)
        score = np.where((columns <= rows) & ((rows - columns < 3) | (mask == "causal")), score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return Made(region, (q, k, v), np.einsum("bhst,bhte->bhse", weight / weight.sum(-1, keepdims=True), v))


def distances(rng: np.random.Generator, i: int, j: int, k: int, dtype: DType = F64) -> Made:
    """logsumexp over j of -sum[k] (X[i,k] - Y[j,k])^2."""
    x, y = OperandRef(0, dtype), OperandRef(1, dtype)
    gap = call("sub", x, y)
    square = call("neg", call("mul", gap, gap))
    steps = (
        RegionStep(einsum("ijk", 2, (i, j, k), ["ik", "jk"], [dtype] * 2, square, "sum"), (0, 1, 2), (0, 1)),
        RegionStep(einsum("ij", 1, (i, j), ["ij"], [dtype], x, "logsumexp"), (0, 1), (~0,)),
    )
    region = Region(("i", "j", "k"), (i, j, k), 1, 1, ((0, 2), (1, 2)), (dtype,) * 2, steps, ())
    a, b = (rng.standard_normal(n).astype(dtype.numpy) for n in ((i, k), (j, k)))
    found = -((a[:, None].astype("d") - b) ** 2).sum(-1)
    top = found.max(1, initial=-np.inf)
    with np.errstate(divide="ignore"):
        return Made(region, (a, b), top + np.log(np.exp(found - top[:, None]).sum(1)))


def nearest(rng: np.random.Generator, i: int, j: int, k: int) -> Made:
    """Of the rows of Y, the value that goes with the one nearest to a row of X: argmin, then its place and distance."""
    x, y = OperandRef(0, F64), OperandRef(1, F64)
    gap = call("sub", x, y)
    both = call("add", x, call("mul", ScalarConst(100.0, F64), ScalarCast(OperandRef(1, I64), F64)))
    steps = (
        RegionStep(
            einsum("ijk", 2, (i, j, k), ["ik", "jk"], [F64] * 2, call("mul", gap, gap), "sum"), (0, 1, 2), (0, 1)
        ),
        RegionStep(einsum("ij", 1, (i, j), ["ij"], [F64], x, "min"), (0, 1), (~0,)),
        RegionStep(einsum("ij", 1, (i, j), ["ij"], [F64], x, "argmin"), (0, 1), (~0,)),
        RegionStep(einsum("i", 1, (i,), ["i", "i"], [F64, I64], both), (0,), (~1, ~2)),
    )
    region = Region(("i", "j", "k"), (i, j, k), 1, 1, ((0, 2), (1, 2)), (F64,) * 2, steps, ())
    a, b = rng.integers(-3, 4, (i, k)).astype("d"), rng.integers(-3, 4, (j, k)).astype("d")
    found = ((a[:, None] - b) ** 2).sum(-1)
    return Made(region, (a, b), found.min(1) + 100 * found.argmin(1))


def moments(rng: np.random.Generator, i: int, j: int, k: int) -> Made:
    """Mean and mean of squares over two streamed labels: the variance."""
    x, y = OperandRef(0, F64), OperandRef(1, F64)
    steps = (
        RegionStep(einsum("ijk", 3, (i, j, k), ["ij", "k"], [F64] * 2, call("mul", x, y), None), (0, 1, 2), (0, 1)),
        RegionStep(einsum("ijk", 1, (i, j, k), ["ijk"], [F64], x, "mean"), (0, 1, 2), (~0,)),
        RegionStep(einsum("ijk", 1, (i, j, k), ["ijk"], [F64], call("mul", x, x), "mean"), (0, 1, 2), (~0,)),
        RegionStep(
            einsum("i", 1, (i,), ["i", "i"], [F64] * 2, call("sub", y, call("mul", x, x)), None), (0,), (~1, ~2)
        ),
    )
    region = Region(("i", "j", "k"), (i, j, k), 1, 2, ((0, 1), (2,)), (F64,) * 2, steps, ())
    a, b = rng.integers(-3, 4, (i, j)).astype("d"), rng.integers(-3, 4, k).astype("d")
    whole = (a[:, :, None] * b).reshape(i, -1)
    return Made(region, (a, b), (whole**2).mean(1) - whole.mean(1) ** 2)


CASES: tuple[Callable[[np.random.Generator], Made], ...] = (
    lambda rng: attention(rng, 1, 2, 7, 9, 3, 4),
    lambda rng: attention(rng, 2, 1, 9, 9, 2, 3, "causal"),
    lambda rng: attention(rng, 1, 1, 11, 13, 2, 3, "window", F64),
    lambda rng: distances(rng, 5, 7, 3),
    lambda rng: nearest(rng, 6, 9, 2),
    lambda rng: moments(rng, 4, 5, 6),
)
