"""Order of a product's labels, chosen so that each cache line is used up while it is cached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Strides = Mapping[int, int]  # bytes by label
# One loop: points, and the strides (bytes) of each operand and of the result.
Label = tuple[int, ...]
_MIN_ADJACENT = 4  # minimum contiguous elements of the right operand that a square takes together
_LINES = 16  # adjacent cache lines that memory delivers at its full rate


@dataclass(frozen=True)
class SquareOrder:
    """Loops, outermost first, with the positions of elements that are adjacent in the right operand.

    They are ``step`` points apart, ``part`` of them. If step is 0 they are consecutive points, or there are none.
    """

    labels: Sequence[int | Label]
    step: int = 0
    part: int = 0


def by_strides(group: Sequence[int], strides: Strides) -> list[int]:
    """Return labels in a tensor's memory order, fastest last."""
    return sorted(group, key=lambda p: -abs(strides[p]))


def merged_labels(labels: Sequence[int | Label], extents: Mapping[int, int], strides: Sequence[Strides]) -> list[Label]:
    """Return the loops over labels, merging those that form one axis in every tensor.

    Without any, one loop of one point.
    """
    found: list[Label] = []
    for p in labels:
        n, *steps = _label(p, extents[p], 1, strides) if isinstance(p, int) else p
        if n == 1:
            continue
        if found and all(outer == n * inner for outer, inner in zip(found[-1][1:], steps, strict=True)):
            n *= found.pop()[0]
        found.append((n, *steps))
    return found or [(1, *(0 for _ in strides))]


def _label(p: int, n: int, times: int, strides: Sequence[Strides]) -> Label:
    """Return the loop of ``n`` steps of ``times`` points each."""
    return (n, *(times * s.get(p, 0) for s in strides))


def squares(
    group: Sequence[int],
    extents: Mapping[int, int],
    strides: Sequence[Strides],
    inner: int,
    right: int,
    along: Sequence[int],
    max_points: int,
) -> SquareOrder:
    """Return labels in the order of the left or the result, in squares if the right is ordered otherwise.

    A cache line of the right operand's elements is then used up while it is cached. ``inner``, ``right``: tensors, the
    left or the result, and the right. ``along``: sizes of a square's side in the first, best first; the first that
    divides its label is taken, and the last is a cache line. ``max_points``: maximum points of a square.
    """
    labels = by_strides(group, strides[inner])
    size = 64 // along[-1]
    fast, adjacent = (next((p for p in labels if abs(strides[t][p]) == size), None) for t in (inner, right))
    if fast is None:
        return SquareOrder(by_strides(group, strides[right]))
    if adjacent is None or fast == adjacent:
        return SquareOrder(labels)
    step = next((d for d in along if extents[fast] % d == 0), extents[fast])
    run = [adjacent, *_behind(adjacent, [p for p in labels if p != fast], extents, strides[right])]
    part = _part([extents[p] for p in run], step, along[-1], max_points)
    walks: list[int | Label] = [p for p in labels if p not in (*run, fast)]
    inside, left = [_label(fast, step, 1, strides)], part
    outside = [_label(fast, extents[fast] // step, step, strides)]
    for p in run:
        n = min(extents[p], left)
        inside.insert(0, _label(p, n, 1, strides))
        outside.insert(0, _label(p, extents[p] // n, n, strides))
        left //= n
    found = [*walks, *outside, *inside]
    return (
        SquareOrder(found, step, part)
        if part >= _MIN_ADJACENT and strides[right][adjacent] == size
        else SquareOrder(found)
    )


def _behind(p: int, labels: Sequence[int], extents: Mapping[int, int], strides: Strides) -> Iterator[int]:
    """Yield the labels that continue a label's axis in memory."""
    while True:
        following = next((q for q in labels if strides[q] == extents[p] * strides[p] and q != p), None)
        if following is None:
            return
        yield following
        p = following


def _part(run: Sequence[int], step: int, line: int, max_points: int) -> int:
    """Return how many adjacent elements to take at once: full lines, full panels, long runs."""
    fitting, whole = [1], 1
    for n in run:
        fitting += [whole * d for d in range(2, n + 1) if n % d == 0 and whole * d * step <= max_points]
        whole *= n

    def cost(d: int) -> float:
        points = d * step
        return (-points % (2 * line)) / points + 0.3 / min(d, line) + 0.3 / min(d, _LINES * line)

    return min(fitting, key=lambda d: (cost(d), -d))
