"""Contractions: recognizes einsums that a matrix product can compute, and the role of each label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum, labels_read
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst


@dataclass(frozen=True, slots=True)
class ContractionRoles:
    """``out = alpha * sum over k of left * right``; roles are positions in the einsum's ``labels``.

    ``left`` and ``right`` are operand slots. Labels of role ``batch`` are on both operands and the output, ``m`` on
    left and output, ``n`` on right and output, and ``k`` on both operands, summed; each in the order of the einsum's
    labels. An operand has the labels of its affine indices: a convolution's ``X[b, c, i+p, j+q]`` has b, c, i, p, j and
    q. ``product`` is the dtype to which both operands are converted; ``accumulator`` is that of the sum. ``alpha`` is
    None where the program has no constant factor.
    """

    left: int
    right: int
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    product: DType
    accumulator: DType
    alpha: ScalarConst | None


def _factors(expr: Scalar) -> list[Scalar]:
    """The factors of a tree of ``mul``, left to right."""
    if isinstance(expr, ScalarCall) and expr.op == "mul":
        return [f for argument in expr.arguments for f in _factors(argument)]
    return [expr]


def _slot(expr: Scalar) -> int | None:
    """The slot of an operand, possibly converted; None for other expressions."""
    while isinstance(expr, ScalarCast):
        expr = expr.argument
    return expr.slot if isinstance(expr, OperandRef) else None


@lru_cache(maxsize=4096)
def contraction(einsum: Einsum) -> ContractionRoles | None:
    """Match an einsum to a product of two operands summed over common labels; None where it is not one."""
    if einsum.aggregation is None or not einsum.aggregation.is_sum or not einsum.aggregated or einsum.keys:
        return None
    factors = _factors(einsum.join)
    constants = [f for f in factors if isinstance(f, ScalarConst)]
    slots = [s for s in map(_slot, factors) if s is not None]
    if len(constants) > 1 or len(slots) != 2 or slots[0] == slots[1] or len(factors) != 2 + len(constants):
        return None
    product = einsum.join.dtype
    if product.kind == "b" or len(einsum.accesses) != 2:
        return None
    if not all(isinstance(p, int) or p.affine for access in einsum.accesses for p in access):
        return None
    left, right = (labels_read(einsum.accesses[s]) for s in slots)
    out, summed = range(einsum.n_out), einsum.aggregated
    if any(p not in left and p not in right for p in out) or any(p not in left or p not in right for p in summed):
        return None
    return ContractionRoles(
        left=slots[0],
        right=slots[1],
        batch=tuple(p for p in out if p in left and p in right),
        m=tuple(p for p in out if p in left and p not in right),
        n=tuple(p for p in out if p in right and p not in left),
        k=tuple(summed),
        product=product,
        accumulator=einsum.aggregation.state[0],
        alpha=constants[0] if constants else None,
    )
