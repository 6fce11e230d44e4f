"""Checks the keyword arguments of ``einsum``: casting, order, dtype and out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from einturnip.core.errors import BindError, DTypeError
from einturnip.ir.dtypes import DType, from_numpy, promote
from einturnip.storage.device_arrays import gpu_of

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
Order: TypeAlias = Literal["K", "A", "C", "F"]

_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


def require_casting(casting: object) -> None:
    """Refuse a casting rule that NumPy lacks."""
    if casting not in _CASTINGS:
        error = BindError if isinstance(casting, str) else DTypeError
        raise error(f"casting={casting!r} is no rule for casts. help: one of {', '.join(map(repr, _CASTINGS))}")


def memory_order(order: object, operands: Sequence[Any]) -> Literal["C", "F"]:
    """The order of a new result: F if requested, or for ``A`` if all operands are in F order.

    NumPy's ``K`` follows the operands' order as closely as possible; einturnip uses C for it.
    """
    requested = order.upper() if isinstance(order, str) else "K" if order is None else ""
    if requested not in ("K", "A", "C", "F"):
        error = BindError if isinstance(order, str) else DTypeError
        raise error(f"order={order!r} is no memory order. help: one of 'C', 'F', 'A' or 'K'")
    arrays = [value for value in operands if isinstance(value, np.ndarray)]
    is_f_order = (
        bool(arrays) and all(a.flags.f_contiguous for a in arrays) and not all(a.flags.c_contiguous for a in arrays)
    )
    return "F" if requested == "F" or (requested == "A" and is_f_order) else "C"


def require_target(out: object) -> None:
    """Refuse a target that is neither an array nor a path."""
    if out is not None and not isinstance(out, np.ndarray | str | os.PathLike) and gpu_of(out) is None:
        raise DTypeError(f"out= is a {type(out).__name__}. help: an array or a path")


def computed_dtype(dtypes: Sequence[DType], requested: Any, casting: Casting, out: object) -> DType:
    """The dtype of the computation: the requested one, or the common one of operands and ``out``.

    Raises:
        DTypeError: einturnip lacks it, or the rule does not allow an operand, or the result, to be converted.
    """
    target = _checked_dtype(out.dtype) if isinstance(out, np.ndarray) else None
    found = (
        _checked_dtype(requested)
        if requested is not None
        else reduce(promote, dtypes if target is None else [*dtypes, target])
    )
    for position, dtype in enumerate(dtypes):
        _require_cast(dtype, found, casting, f"operand {position}")
    if target is not None:
        _require_cast(found, target, casting, "the result")
    return found


def _checked_dtype(dtype: Any) -> DType:
    try:
        return from_numpy(np.dtype(dtype))
    except (KeyError, TypeError):
        raise DTypeError(f"einsum cannot give dtype {dtype!r}") from None


def _require_cast(source: DType, target: DType, casting: Casting, what: str) -> None:
    if source != target and not np.can_cast(source.numpy, target.numpy, casting):
        raise DTypeError(
            f"{what} of einsum is {source}, which casting={casting!r} does not allow to become {target}. "
            "help: casting='same_kind' allows a narrower type of the same kind, 'unsafe' any"
        )
