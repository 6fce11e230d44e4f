"""In which order a product's labels run: so that each line of the cache is used up while it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Strides = Mapping[int, int]  # bytes by label
# A label that runs, outermost first: points, and what a step moves left, right and out by (bytes).
Label = tuple[int, int, int, int]
LEFT, RIGHT, OUT = range(3)
_LEAST_ASIDE = 4  # of what lies side by side in the right operand, taken together
_LINES = 16  # of the cache, side by side, that memory gives at its full rate


@dataclass(frozen=True)
class SquareOrder:
    """Labels, outermost first; what lies side by side on the right comes every ``step`` points, ``part`` times.

    Where step is 0 it comes one after the other, or not at all.
    """

    labels: Sequence[int | Label]
    step: int = 0
    part: int = 0


def by_strides(group: Sequence[int], strides: Strides) -> list[int]:
    """Labels in the order in which a tensor has them, its fastest one last."""
    return sorted(group, key=lambda p: -abs(strides[p]))


def merged_labels(labels: Sequence[int | Label], extents: Mapping[int, int], strides: Sequence[Strides]) -> list[Label]:
    """What runs, with labels that are one axis in every tensor as one; one point where nothing does."""
    found: list[Label] = []
    for p in labels:
        n, *steps = _label(p, extents[p], 1, strides) if isinstance(p, int) else p
        if n == 1:
            continue
        if found and all(outer == n * inner for outer, inner in zip(found[-1][1:], steps, strict=True)):
            n *= found.pop()[0]
        found.append((n, steps[0], steps[1], steps[2]))
    return found or [(1, 0, 0, 0)]


def _label(p: int, n: int, times: int, strides: Sequence[Strides]) -> Label:
    """``n`` steps of so many points each."""
    left, right, out = (times * s.get(p, 0) for s in strides)
    return n, left, right, out


def squares(
    group: Sequence[int],
    extents: Mapping[int, int],
    strides: Sequence[Strides],
    inner: int,
    along: Sequence[int],
    most: int,
) -> SquareOrder:
    """Labels as left or out (``inner``) has them; where the right has another one fastest, in squares of the two.

    So a line of the cache that the right's elements are taken from is used up while it is there. ``along``: points of
    the inner tensor that are best taken together, where one of these divides its label, a line last. ``most``: points
    of a square.
    """
    labels = by_strides(group, strides[inner])
    size = 64 // along[-1]
    fast, aside = (next((p for p in labels if abs(strides[t][p]) == size), None) for t in (inner, RIGHT))
    if fast is None:
        return SquareOrder(by_strides(group, strides[RIGHT]))
    if aside is None or fast == aside:
        return SquareOrder(labels)
    step = next((d for d in along if extents[fast] % d == 0), extents[fast])
    run = [aside, *_behind(aside, [p for p in labels if p != fast], extents, strides[RIGHT])]
    part = _part([extents[p] for p in run], step, along[-1], most)
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
        SquareOrder(found, step, part) if part >= _LEAST_ASIDE and strides[RIGHT][aside] == size else SquareOrder(found)
    )


def _behind(p: int, labels: Sequence[int], extents: Mapping[int, int], strides: Strides) -> Iterator[int]:
    """The labels that go on where another ends."""
    while True:
        following = next((q for q in labels if strides[q] == extents[p] * strides[p] and q != p), None)
        if following is None:
            return
        yield following
        p = following


def _part(run: Sequence[int], step: int, line: int, most: int) -> int:
    """How many of what lies side by side go together: whole lines, whole panels of two vectors, long runs."""
    fitting, whole = [1], 1
    for n in run:
        fitting += [whole * d for d in range(2, n + 1) if n % d == 0 and whole * d * step <= most]
        whole *= n

    def cost(d: int) -> float:
        points = d * step
        return (-points % (2 * line)) / points + 0.3 / min(d, line) + 0.3 / min(d, _LINES * line)

    return min(fitting, key=lambda d: (cost(d), -d))
