"""Elements of the inputs that a graph's outputs depend on: a lower bound over all plans.

Boxes are propagated from the outputs to the inputs. A box of a tensor is kept only if *every* element of it is needed.
For an access that reads an irregular set (a diagonal, a stride, a gather) only the number of elements counts. Whatever
cannot be decided is left out, so that the result never exceeds the reads of any plan.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Box, Einsum, Index
from einturnip.ir.predicates import conditions, truth
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarConst, children, labels_of
from einturnip.tiling.pieces import ConcatPieces, points, union_points
from einturnip.tuning.search import MAX_BOXES, MAX_INPUT_BOXES, MAX_SPLITS


@dataclass(slots=True)
class _Reads:
    """Reads of one tensor: boxes that are read completely, and the largest count of any single access."""

    boxes: dict[Box, None] = field(default_factory=dict)
    count: int = 0

    def add(self, box: Box | None, count: int) -> None:
        self.count = max(self.count, count)
        if box is not None and count:
            self.boxes[box] = None


def needed_elements(graph: EinGraph) -> tuple[dict[int, int], dict[int, tuple[Box, ...]]]:
    """Return the elements that any plan reads of each input, and the boxes it computes of other nodes."""
    reads: dict[int, _Reads] = {}
    boxes: dict[int, tuple[Box, ...]] = {}
    counts: dict[int, int] = {}
    for _, i in graph.outputs:
        reads.setdefault(i, _Reads()).add(*_whole(graph.nodes[i].shape))
    for i in range(len(graph.nodes) - 1, -1, -1):
        node, mine = graph.nodes[i], reads.pop(i, None)
        if mine is None:
            continue
        if isinstance(node, InputNode):
            counts[i] = max(mine.count, union_points(_largest(merged(mine.boxes), MAX_INPUT_BOXES)))
            continue
        full, _ = _whole(node.shape)
        boxes[i] = (full,) if full in mine.boxes else _largest(merged(mine.boxes), MAX_BOXES)
        if isinstance(node, ConcatNode):
            pieces = ConcatPieces(graph, node)
            for part in (part for box in boxes[i] for part in pieces.parts(box)):
                reads.setdefault(part.operand, _Reads()).add(part.within, points(part.within))
            continue
        for slot, box, count in _space_reads(node, boxes[i]):
            reads.setdefault(node.operands[slot], _Reads()).add(box, count)
    return counts, boxes


def _whole(shape: Sequence[int]) -> tuple[Box, int]:
    return tuple((0, n) for n in shape), math.prod(shape)


def _largest(boxes: Iterable[Box], n: int) -> tuple[Box, ...]:
    found = tuple(boxes)
    return found if len(found) <= n else tuple(heapq.nlargest(n, found, key=points))


def merged(boxes: Iterable[Box]) -> list[Box]:
    """Return the boxes, with boxes that are adjacent along one axis merged."""
    found = list(dict.fromkeys(boxes))
    for axis in range(len(found[0]) if len(found) > 1 else 0):
        lines: dict[Box, list[tuple[int, int]]] = {}
        for box in found:
            lines.setdefault((*box[:axis], *box[axis + 1 :]), []).append(box[axis])
        found = [(*rest[:axis], ends, *rest[axis:]) for rest, line in lines.items() for ends in _united(line)]
    return found


def _united(line: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals as disjoint intervals."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(line):
        if found and lo <= found[-1][1]:
            found[-1] = found[-1][0], max(hi, found[-1][1])
        else:
            found.append((lo, hi))
    return found


def _space_reads(node: EinsumNode, boxes: Iterable[Box]) -> Iterator[tuple[int, Box | None, int]]:
    """Yield the reads of a node that computes boxes of its output: slot, box (None if irregular), count.

    A region reads what its steps read.
    """
    space = node.einsum
    if not isinstance(space, Region):
        for box in boxes:
            yield from _einsum_reads(space, box)
        return
    needed: dict[int, _Reads] = {len(space.steps) - 1: _Reads(dict.fromkeys(boxes))}
    for k in range(len(space.steps) - 1, -1, -1):
        step = space.steps[k]
        for box in _largest(merged(needed[k].boxes), MAX_BOXES) if k in needed else ():
            for slot, read, count in _einsum_reads(step.einsum, box):
                operand = step.operands[slot]
                if operand >= 0:
                    yield operand, read, count
                else:
                    needed.setdefault(~operand, _Reads()).add(read, count)


def _einsum_reads(e: Einsum, box: Box) -> Iterator[tuple[int, Box | None, int]]:
    """Yield the reads of an einsum that computes a box of its output."""
    space = (*box, *((0, e.bounds[p]) for p in e.aggregated))
    if any(lo >= hi for lo, hi in space):
        return
    keyed = frozenset(key.label for key in e.keys)
    for slots, part in _certain_reads(e, space):
        # A key selects the points of its label that are read. The reads are known only if the box contains the whole
        # label, and the label has a single key.
        decided = len(keyed) == len(e.keys) and all(part[p] == (0, e.bounds[p]) for p in keyed)
        for slot in slots if decided else ():
            yield slot, *_accessed(e, slot, part, keyed)
        for key in e.keys if slots or not conditions(e.join) else ():
            for slot in _always_read(key.value, dict.fromkeys(conditions(key.value))):
                yield slot, *_accessed(e, slot, part, keyed)


def _certain_reads(e: Einsum, space: Box) -> Iterator[tuple[frozenset[int], Box]]:
    """Yield boxes of labels with the slots that the join reads at every point of the box.

    A condition of ``where`` over labels alone (a causal mask, the edge of a stencil) is decided for a box, or the box
    is halved along a label of the condition; the largest boxes come first.
    """
    undecided = conditions(e.join)
    queue = [(-points(space), space)]
    for _ in range(MAX_SPLITS):
        if not queue:
            return
        _, box = heapq.heappop(queue)
        holds = {c: truth(c, box) for c in undecided}
        open_ = [c for c in undecided if holds[c] is None]
        yield _always_read(e.join, holds), box
        along = [p for p in sorted(frozenset[int]().union(*map(labels_of, open_))) if box[p][1] - box[p][0] > 1]
        if along:
            p = max(along, key=lambda p: box[p][1] - box[p][0])
            (lo, hi), middle = box[p], sum(box[p]) // 2
            for half in ((lo, middle), (middle, hi)):
                part = (*box[:p], half, *box[p + 1 :])
                heapq.heappush(queue, (-points(part), part))


def _always_read(expr: Scalar, holds: Mapping[Scalar, bool | None]) -> frozenset[int]:
    """Return the slots that an expression reads at every point of a box, given the decided conditions.

    Plans are static, so a condition on data makes no difference: both of its branches are read.
    """
    match expr:
        case OperandRef(slot, _):
            return frozenset((slot,))
        case ScalarCall("where", (condition, yes, no), _) if condition in holds or isinstance(condition, ScalarConst):
            known = bool(condition.value) if isinstance(condition, ScalarConst) else holds[condition]
            sides = [_always_read(side, holds) for side, taken in ((yes, True), (no, False)) if known in (taken, None)]
            return frozenset.intersection(*sides)
    return frozenset[int]().union(*(_always_read(e, holds) for e in children(expr)))


def _accessed(e: Einsum, slot: int, box: Box, keyed: frozenset[int]) -> tuple[Box | None, int]:
    """Return the box of an operand that a box of labels reads (None if it is no box), and its count.

    An index with a ``keyed`` label is one unknown element. Axes that share a label are correlated, so only the axis
    with the most values of such a group counts.
    """
    access = e.accesses[slot]
    shape = e.operand_shape(slot)
    axes = [_axis(p, box, shape[axis], keyed) for axis, p in enumerate(access)]
    groups: list[tuple[set[int], int]] = []
    for labels, _, count in axes:
        group, largest = set(labels), count
        for other in [g for g in groups if g[0] & group]:
            groups.remove(other)
            group |= other[0]
            largest = max(largest, other[1])
        groups.append((group, largest))
    total = math.prod(largest for _, largest in groups)
    intervals = [found for _, found, _ in axes]
    box_read = tuple(found for found in intervals if found is not None)
    return (box_read if len(groups) == len(axes) == len(box_read) else None), total


def _axis(
    p: int | Index, box: Box, size: int, keyed: frozenset[int]
) -> tuple[tuple[int, ...], tuple[int, int] | None, int]:
    """Return an axis's labels, its values if they are an interval, and its minimum of distinct values."""
    labels = (p,) if isinstance(p, int) else tuple(q for q, _ in p.terms)
    if not keyed.isdisjoint(labels):
        return labels, None, 1
    if isinstance(p, int):
        return labels, box[p], box[p][1] - box[p][0]
    count, dense = _sums(p, box)
    if p.modulus:
        lo, hi = Index(p.terms, p.offset, p.divisor).interval(box, size)
        dense = dense and lo // p.modulus == (hi - 1) // p.modulus
        count = min(count if p.divisor == 1 else -(-count // p.divisor), hi - lo)
        count = min(count, p.modulus) if hi - lo <= p.modulus or dense else 1
    elif p.divisor > 1:
        count = -(-count // p.divisor)
    ends = p.interval(box, size) if dense else None
    if p.clamped and ends is None:
        count = 1
    return labels, ends, count if ends is None else ends[1] - ends[0]


def _sums(p: Index, box: Box) -> tuple[int, bool]:
    """Return the minimum number of values of ``sum of coefficient * label``.

    And whether they have no gaps once divided. |A + B| >= |A| + |B| - 1 for finite sets of integers.
    """
    count, reach, step, even = 1, 0, 1, True
    for coefficient, n in sorted((abs(c), box[q][1] - box[q][0]) for q, c in p.terms):
        if n > 1:
            # Multiples of ``step`` from 0 to ``reach``; the next term continues them if it begins before they end.
            if reach == 0:
                count, reach, step = n, coefficient * (n - 1), coefficient
            elif even and coefficient % step == 0 and coefficient <= reach + step:
                reach += coefficient * (n - 1)
                count = reach // step + 1
            else:
                even = False
                count = count * n if coefficient > reach else count + n - 1
                reach += coefficient * (n - 1)
    return count, reach == 0 or (even and step <= p.divisor)
