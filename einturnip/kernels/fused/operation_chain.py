"""Maps as chains of NumPy operations, each of which overwrites the previous result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarConst
from einturnip.kernels.fused.program import ChainLink, StepRead

# Operations that may overwrite their argument, and their ufuncs for f32 and f64.
IN_PLACE: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.absolute,
    "min": np.minimum,
    "max": np.maximum,
}

_LOG2_E = np.array(math.log2(math.e), np.float32)


def chain_of(einsum: Einsum, reads: Sequence[StepRead]) -> tuple[StepRead, tuple[ChainLink, ...]] | None:
    """Return a map in f32 or f64 as the operand it starts from and its operations; None if it is no chain.

    A chain starts from one operand over all labels of the output; each operation has one computed argument.
    """
    if einsum.aggregation is not None or einsum.keys or einsum.dtype not in (F32, F64):
        return None
    whole = tuple(range(einsum.n_out))
    links: list[ChainLink] = []
    expr = einsum.join
    while isinstance(expr, ScalarCall) and expr.op in IN_PLACE and expr.dtype == einsum.dtype:
        inner: list[Scalar] = [a for a in expr.arguments if isinstance(a, ScalarCall)]
        inner = inner or [a for a in expr.arguments if isinstance(a, OperandRef) and einsum.accesses[a.slot] == whole]
        arguments = [None if a is inner[0] else _argument(einsum, reads, a) for a in expr.arguments if inner]
        if not inner or any(a is None and b is not inner[0] for a, b in zip(arguments, expr.arguments, strict=True)):
            return None
        links += _exponential() if _computed_exponential(expr) else [ChainLink(IN_PLACE[expr.op], tuple(arguments))]
        expr = inner[0]
    if not isinstance(expr, OperandRef) or expr.dtype != einsum.dtype or not links:
        return None
    return reads[expr.slot], tuple(reversed(links))


def _computed_exponential(expr: ScalarCall) -> bool:
    """Return True for exp in f32 of a computed, hence rounded, argument."""
    return expr.op == "exp" and expr.dtype == F32 and isinstance(expr.arguments[0], ScalarCall)


@cache
def _exponential() -> list[ChainLink]:
    """Return exp as 2^(x log2 e), last operation first, where NumPy has a vectorised exp2: twice as fast.

    Rounding the product costs as much accuracy as rounding x did: both add |x| 2^-24 to the relative error.
    """
    from numpy.lib import introspect

    found = introspect.opt_func_info(func_name="^exp2$").get("exp2", {}).get("ff", {})
    if "baseline" in str(found.get("current", "baseline")):
        return [ChainLink(np.exp, (None,))]
    return [ChainLink(np.exp2, (None,)), ChainLink(np.multiply, (None, _LOG2_E))]


def _argument(einsum: Einsum, reads: Sequence[StepRead], expr: Scalar) -> Any:
    """Return a number, or an operand with its broadcast to the output; None for anything else."""
    if isinstance(expr, ScalarConst):
        return np.asarray(expr.value, expr.dtype.numpy)
    if not isinstance(expr, OperandRef) or expr.dtype != einsum.dtype or not reads[expr.slot].plain:
        return None
    access = einsum.accesses[expr.slot]
    if len(set(access)) != len(access):
        return None
    order = tuple(access.index(p) for p in range(einsum.n_out) if p in access)
    return reads[expr.slot], (order, (*(slice(None) if p in access else None for p in range(einsum.n_out)), ...))
