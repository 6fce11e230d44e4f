"""Blocks of partial sums: the rounding error of a sum grows with the logarithm of its length.

A register that has added n values in sequence is off by up to n/2 units in the last place. Here it adds at most
``BLOCK`` values, then its sum is added to another register, which adds at most ``BLOCK`` such sums, and so on: log(n)
levels of at most ``BLOCK`` additions each. The levels are loops around the same innermost body, so they cost only a few
additions a block.

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.kernels.llvm.folds import State
from einturnip.kernels.llvm.ir import IrBuilder, IrValue
from einturnip.kernels.llvm.values import flat, like_states

BLOCK = 64  # additions in a row; half of it bounds the error of a level, in units in the last place
Span = tuple[IrValue, IrValue, int]  # begin, end, step


def block_sizes(steps: Sequence[int]) -> list[tuple[int, ...]]:
    """Return, by label of a loop nest, the steps of each level of blocks, smallest first.

    ``steps``: the maximum steps of each label, outermost first. They count as the next power of two, so that nests of
    similar size share their code.
    """
    chain, found = 1, []
    for count in reversed(steps):
        sizes, size, left = [], 1, 1 << max(0, count - 1).bit_length()
        while chain * left > BLOCK:
            each = BLOCK // chain
            size, left, chain = size * each, -(-left // each), 1
            sizes.append(size)
        chain *= left
        found.append(tuple(sizes))
    return found[::-1]


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
