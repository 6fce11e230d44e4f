"""Hand-written tilings to compare EinDecomp with: data, sequence and tensor parallelism.

Each is derived from the graph, not from names. A *product* is an einsum of several operands that sums over a label.

- Data parallelism tiles the samples: the label of more than half of the work that no product sums over.
- Sequence parallelism tiles positions: a label that occurs with the samples in some input, has more than half of the
  work and is not summed over in a product with stored numbers; attention may sum over it.
- Tensor parallelism tiles every product along a label of the weights, the inputs without samples and positions.

Every node is tiled along one label, into P. Nodes without such a label, and for tensor parallelism all that are not
products, are tiled along the label that moves the fewest bytes. So EinDecomp could choose each of these tilings.

Sources: data parallelism as in Krizhevsky, One weird trick (arXiv 1404.5997); tensor parallelism with other tilings of
norms as in Shoeybi et al., Megatron-LM (arXiv 1909.08053) and Korthikanti et al. (arXiv 2205.05198); sequence
parallelism as in Li et al. (arXiv 2105.13120).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.region import Region
from einturnip.tiling.eindecomp import cheapest
from einturnip.tiling.label_classes import label_bounds, label_classes
from einturnip.tiling.partitionings import one_at_a_time
from einturnip.tiling.types import Decomposition


@dataclass(frozen=True, slots=True)
class HandTiling:
    """A hand-written tiling: the names of the labels that it tiles."""

    name: str
    labels: tuple[str, ...]
    decomposition: Decomposition


@dataclass(frozen=True)
class _Roles:
    """Classes of labels: of the samples, of the positions in a sample, of the weights."""

    of: Sequence[tuple[int, ...]]
    samples: int | None
    positions: int | None
    weights: frozenset[int]
    names: dict[int, str]


def baselines(graph: EinGraph, parts: int) -> tuple[HandTiling, ...]:
    """Return the tilings among the three for which the graph has labels."""
    roles = _roles(graph)
    found = [
        (name, frozenset({label}), False)
        for name, label in (("data parallel", roles.samples), ("sequence parallel", roles.positions))
        if label is not None
    ]
    if roles.weights:
        found.append(("tensor parallel", roles.weights, True))
    return tuple(
        HandTiling(name, _named(roles, classes), _along(graph, roles.of, classes, parts, products))
        for name, classes, products in found
    )


def along_axes(graph: EinGraph, axes: Sequence[tuple[str, int]], parts: int, products: bool) -> Decomposition:
    """Tile every node (``products``: every product) along axes of inputs.

    Used where the roles of labels cannot be derived: in training, products also sum over the samples.

    ``axes``: pairs of an input's name and the number of an axis.
    """
    of = _united(graph)
    inputs = {node.name: of[i] for i, node in enumerate(graph.nodes) if isinstance(node, InputNode)}
    return _along(graph, of, frozenset(inputs[name][axis] for name, axis in axes), parts, products)


def _named(roles: _Roles, classes: frozenset[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(roles.names[c] for c in sorted(classes) if c in roles.names))


def _along(
    graph: EinGraph, of: Sequence[tuple[int, ...]], classes: frozenset[int], parts: int, products: bool
) -> Decomposition:
    """Tile every node (``products``: every product) along one of these classes, if it has one."""
    labels: list[tuple[int, ...]] = []
    for i, node in enumerate(graph.nodes):
        whole = node.einsum.whole if isinstance(node, EinsumNode) and isinstance(node.einsum, Region) else ()
        free = [p for p in range(len(label_bounds(node))) if p not in whole]
        mine = [p for p in free if of[i][p] in classes] if not products or _is_product(graph, i) else []
        labels.append(tuple(mine or free))
    return cheapest(graph, lambda i: one_at_a_time(label_bounds(graph.nodes[i]), parts, labels[i]), labels)


def _is_product(graph: EinGraph, i: int) -> bool:
    node = graph.nodes[i]
    return isinstance(node, EinsumNode) and len(node.operands) > 1 and bool(node.einsum.aggregated)


def _roles(graph: EinGraph) -> _Roles:
    """Return the role of each class of labels."""
    of = _united(graph)
    work: Counter[int] = Counter()
    summed: set[int] = set()
    summed_with_stored: set[int] = set()
    names: dict[int, str] = {}
    stored = _stored(graph)
    total = 0
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, EinsumNode):
            continue
        for label, c in zip(node.einsum.labels, of[i], strict=True):
            if label.isidentifier() or c not in names:
                names[c] = names[c] if names.get(c, "").isidentifier() else label
        if _is_product(graph, i):
            total += node.einsum.points
            work.update(dict.fromkeys(of[i], node.einsum.points))
            over = {of[i][p] for p in node.einsum.aggregated}
            summed |= over
            if any(stored[o] for o in node.operands):
                summed_with_stored |= over
    inputs = [of[i] for i, n in enumerate(graph.nodes) if isinstance(n, InputNode)]
    divisible = {c for i, n in enumerate(graph.nodes) for c, b in zip(of[i], label_bounds(n), strict=True) if b > 1}
    axes = list(dict.fromkeys(c for row in inputs for c in row))
    wide = [c for c in axes if 2 * work[c] > total and c in divisible]
    samples = max((c for c in wide if c not in summed), key=work.__getitem__, default=None)
    with_samples = {c for row in inputs if samples is None or samples in row for c in row}
    others = [c for c in wide if c in with_samples and c not in summed_with_stored and c != samples]
    positions = max(others, key=lambda c: (c in summed, work[c], axes.index(c)), default=None)
    weight_inputs = [row for row in inputs if samples not in row and positions not in row]
    some = samples is not None or positions is not None
    weights = frozenset(c for row in weight_inputs for c in row if work[c]) if some else frozenset()
    return _Roles(of, samples, positions, weights, names)


def _united(graph: EinGraph) -> list[tuple[int, ...]]:
    """Return classes of labels in which all uses of one input axis are one class: queries and keys."""
    of = label_classes(graph).of
    root: dict[int, int] = {}

    def find(c: int) -> int:
        while c in root:
            c = root[c]
        return c

    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
                for axis, p in enumerate(access):
                    if isinstance(p, int) and isinstance(graph.nodes[operand], InputNode):
                        a, b = find(of[i][p]), find(of[operand][axis])
                        if a != b:
                            root[max(a, b)] = min(a, b)
    return [tuple(find(c) for c in row) for row in of]


def _stored(graph: EinGraph) -> list[bool]:
    """Return the nodes that are inputs or made of inputs without a product."""
    found: list[bool] = []
    for i, node in enumerate(graph.nodes):
        made = () if isinstance(node, InputNode) else node.operands
        found.append(not _is_product(graph, i) and all(found[o] for o in made))
    return found
