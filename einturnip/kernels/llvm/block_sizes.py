"""Sizes of blocks of partial sums: the rounding error of a sum grows with the logarithm of its length.

A register that has added n values in sequence is off by up to n/2 units in the last place. Here it adds at most
``BLOCK`` values, then its sum is added to another register, which adds at most ``BLOCK`` such sums, and so on: log(n)
levels of at most ``BLOCK`` additions each.

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 64  # additions in a row; half of it bounds the error of a level, in units in the last place


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
