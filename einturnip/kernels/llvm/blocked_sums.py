"""Loops that sum in blocks of partial sums.

The levels of ``block_sizes`` are loops around the same innermost body, so they cost only a few additions a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.kernels.llvm.folds import State
from einturnip.kernels.llvm.ir import IrBuilder, IrValue
from einturnip.kernels.llvm.values import flat, like_states

Span = tuple[IrValue, IrValue, int]  # begin, end, step


def sum_in_blocks(
    code: IrBuilder,
    span: Span,
    sizes: Sequence[int],
    states: list[State],
    empty: Callable[[], list[State]],
    combine: Callable[[list[State], list[State]], list[State]],
    inside: Callable[[Span, list[State]], list[State]],
) -> list[State]:
    """Run ``inside`` over the span in blocks, each from empty states, and combine the results."""
    if not sizes:
        return inside(span, states)
    begin, end, step = span
    size = sizes[-1] * step

    def block(index: IrValue, carried: list[IrValue]) -> list[IrValue]:
        stop = code.intrinsic("smin", code.integer("add", index, size), end)
        part = sum_in_blocks(code, (index, stop, step), sizes[:-1], empty(), empty, combine, inside)
        return flat(combine(like_states(carried, states), part))

    return like_states(code.loop(begin, end, size, flat(states), block), states)
