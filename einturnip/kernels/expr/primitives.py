"""Array operations of kernels, ``operation(*arguments, out=...)``, which allocate nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from einturnip.ir.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]
Operation = Callable[..., Any]

_LINE_NBYTES = 64
BLOCK_LENGTH = 128  # maximum values or partial sums that are added in sequence
# An f32 times this overflows just where rounding to bf16 gives infinity: at (1 - 2**-9) 2**128
BF16_EDGE = np.array(1 / (1 - 2.0**-9), np.float32)

_INTEGERS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


def copy(x: Array, *, out: Array) -> None:
    """``out[...] = x``, converted."""
    np.copyto(out, x, casting="unsafe")


def gather(x: Array, *, out: Array) -> None:
    """Copy an operand that is not contiguous along the last axis, one cache line of columns at a time.

    Whole rows of a transposed power-of-two matrix would map to a few cache sets: 4 times slower.
    """
    width = max(1, _LINE_NBYTES // out.itemsize)
    for start in range(0, out.shape[-1], width):
        columns = (..., slice(start, start + width))
        np.copyto(out[columns], x[columns])


def real(x: Array, *, out: Array) -> None:
    """Copy the real part."""
    np.copyto(out, x.real)


def imag(x: Array, *, out: Array) -> None:
    """Copy the imaginary part."""
    np.copyto(out, x.imag)


def narrow_bf16(x: Array, scratch: Array, *, out: Array) -> None:
    """Convert f32 to bf16.

    The conversion itself raises no flag, so values that round to infinity are made to overflow in f32.
    """
    np.multiply(x, BF16_EDGE, out=scratch)
    np.copyto(out, x, casting="unsafe")


def exp_quiet(x: Array, *, out: Array) -> None:
    """exp without the overflow flag where the result is infinite."""
    with np.errstate(over="ignore"):
        np.exp(x, out=out)


def select_runs(condition: Array, yes: Array, no: Array, *, out: Array) -> None:
    """``where`` for conditions that are constant over long runs."""
    np.copyto(out, no)
    np.copyto(out, yes, where=condition)


def select_bits(condition: Array, yes: Array, no: Array, mask: Array, *, out: Array) -> None:
    """``where`` by bit operations, without branches, for any condition; ``mask`` is scratch."""
    integer = _INTEGERS[out.itemsize]
    bits, other = out.view(integer), no.view(integer)
    np.copyto(mask, condition.view(np.int8))
    np.negative(mask, out=mask)
    np.bitwise_xor(yes.view(integer), other, out=bits)
    np.bitwise_and(bits, mask, out=bits)
    np.bitwise_xor(bits, other, out=bits)


def flat_arg(operation: Operation, n_folded: int, x: Array, scratch: Array, *, out: Array) -> None:
    """argmax or argmin over the last ``n_folded`` axes as one, without NumPy's copy of strided operands."""
    if not x.flags.c_contiguous:
        np.copyto(scratch, x)
        x = scratch
    kept = x.shape[: x.ndim - n_folded]
    operation(x.reshape((*kept, -1)), axis=-1, out=out.reshape(kept))


def first_along(
    axis: int, x: Array, best: Array, same: Array, ranks: Array, lost: Array, top: Array, *, out: Array
) -> None:
    """Find where the extremum ``best`` first occurs along an axis that is not the last.

    Points equal to it are ranked, the first highest, and the maximum rank is taken: all passes are contiguous. The
    other arguments are scratch.
    """
    n = x.shape[axis]
    np.equal(x, best, out=same)
    np.not_equal(best, best, out=lost)
    if lost.any():  # NaN is the extremum wherever there is one
        np.not_equal(x, x, out=same, where=lost)
    falling = np.arange(n, 0, -1, dtype=ranks.dtype).reshape([n if a == axis else 1 for a in range(x.ndim)])
    np.copyto(ranks, same)
    np.multiply(ranks, falling, out=ranks)
    np.maximum.reduce(ranks, axis=axis, keepdims=True, out=top)
    np.copyto(out, top)
    np.subtract(n, out, out=out)


def reduction(ufunc: np.ufunc, axes: tuple[int, ...]) -> Operation:
    """Return the reduction of a ufunc over axes, which are kept with size 1."""
    return copy if not axes else partial(ufunc.reduce, axis=axes, keepdims=True)


def summed(axes: tuple[int, ...], x: Array, *halves: Array, out: Array) -> None:
    """Sum over axes, which are kept with size 1, without adding too many values in sequence.

    NumPy sums pairwise along the axis that is contiguous in memory, but adds whole rows in sequence; long sums are
    therefore split into halves. ``halves``: an array of ``out``'s shape for each level of halves.
    """
    if not halves or _added_in_sequence(x, axes) <= BLOCK_LENGTH:
        np.add.reduce(x, axis=axes, keepdims=True, out=out)
        return
    axis = max(axes, key=lambda a: x.shape[a])
    middle, ahead = (x.shape[axis] + 1) // 2, (slice(None),) * axis
    summed(axes, x[(*ahead, slice(0, middle))], *halves[1:], out=out)
    summed(axes, x[(*ahead, slice(middle, None))], *halves[1:], out=halves[0])
    np.add(out, halves[0], out=out)


def _added_in_sequence(x: Array, axes: tuple[int, ...]) -> int:
    """Return how many values or pairwise sums NumPy adds in sequence for one element of a sum."""
    long = sorted((abs(x.strides[a]), x.shape[a], a in axes) for a in range(x.ndim) if x.shape[a] > 1)
    count, pairwise, end = 1, True, -1
    for step, size, folded in long:
        pairwise = pairwise and folded and end in (-1, step)  # one run so far
        end = step * size
        count *= size if folded and not pairwise else 1
    return count


_NAMED: dict[str, Operation] = {
    "convert": copy,
    "gather": gather,
    "real": real,
    "imag": imag,
    "narrow_bf16": narrow_bf16,
    "exp_quiet": exp_quiet,
    "select_runs": select_runs,
    "select_bits": select_bits,
}


def operation(name: str) -> Operation:
    """Return the primitive of a graph node's op."""
    found = _NAMED.get(name)
    return found if found is not None else getattr(np, name)


def in_place(name: str) -> bool:
    """Return True if the output may be an argument of the same type and shape (of select_bits: ``yes``)."""
    return name not in ("", "fetch", "convert", "narrow_bf16", "gather", "real", "imag", "select_runs")


def mask_type(dtype: DType) -> np.dtype[Any]:
    """Return the integer type of the same width, for select_bits."""
    return _INTEGERS[dtype.itemsize]
