"""Fused row kernels: several steps over the same rows in one function, while the row is in the cache.

A region does such steps with a block between two matrix products: mask, running maximum, exp, sum, rescaling. A kernel
has *stages*, each a pass over the row that starts once the folds it reads are complete; a row stays in the first-level
cache from its first stage to its last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from einturnip.ir.dtypes import F32, F64, DType
from einturnip.ir.einsum import Access, Einsum, labels_read
from einturnip.ir.scalar import Scalar
from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.lower import lower
from einturnip.kernels.expr.window import is_affine, terms
from einturnip.kernels.llvm.block_sizes import block_sizes
from einturnip.kernels.llvm.functions import POLYNOMIALS
from einturnip.kernels.llvm.kernel_spec import STREAMED_NBYTES, without_extents
from einturnip.kernels.llvm.primitives import COMPARING, is_known

MAX_NODES = 240
_MIN_VECTOR = 8
_FOLDS = frozenset({"add", "mul", "max", "min"})


@dataclass(frozen=True, slots=True)
class RowTensor:
    """A tensor of a row kernel: its type, and its access over the labels of the space."""

    dtype: DType
    access: Access

    @property
    def labels(self) -> frozenset[int]:
        """The labels along which it extends."""
        return labels_read(self.access)


@dataclass(frozen=True, slots=True)
class RowMember:
    """One step of a row kernel.

    ``labels``: of the space, for each of its own. ``sources``: a tensor, or ``~j`` for member j's value. ``out``: the
    tensor that takes its value, -1 for none. ``state``: that of the running fold, -1 where one call folds everything.
    ``moves``: others read the running value, with 0 where it has no term yet. ``rescales``: (member or -1, tensor of a
    state, coefficient) of the sums that are then multiplied by exp(-coefficient (old - new)).
    """

    einsum: Einsum
    labels: tuple[int, ...]
    sources: tuple[int, ...]
    out: int = -1
    state: int = -1
    moves: bool = False
    rescales: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RowSpec:
    """The members in order, their tensors, and the extents of the space by which vectors are chosen.

    ``result``: the tensor that is the region's result, -1 if another action computes it.
    """

    bounds: tuple[int, ...]
    tensors: tuple[RowTensor, ...]
    members: tuple[RowMember, ...]
    result: int = -1


@dataclass(frozen=True, slots=True)
class RowStage:
    """One pass over a row along ``inner`` labels, vectors along the last: members to fold and to store.

    ``scaled``: (tensor, member, coefficient) of another action's state that is multiplied by a factor. ``unrolled``:
    vectors per iteration. ``blocks``: by inner label, the sizes of blocks of partial sums in steps.
    """

    inner: tuple[int, ...]
    vector: int
    folds: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()
    scaled: tuple[int, int, float] | None = None
    keeps: tuple[tuple[int, int], ...] = ()  # (node, tensor): computed here, read again by a later stage
    unrolled: int = 1
    blocks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class FusedRowSpec:
    """All that the code of a row kernel depends on.

    ``roots``: each member's node; ``rows``: the labels that every stage has. ``streams``: the result is so large that
    it bypasses the cache if it is stored contiguously.
    """

    spec: RowSpec
    graph: PrimitiveGraph
    roots: tuple[int, ...]
    rows: tuple[int, ...]
    vector: int  # the vector label if it is one of the rows, else -1
    width: int
    stages: tuple[RowStage, ...]
    streams: bool

    def without_extents(self) -> FusedRowSpec:
        """Return the spec without the sizes that its code does not depend on."""
        members = tuple(replace(m, einsum=without_extents(m.einsum)) for m in self.spec.members)
        return replace(self, spec=replace(self.spec, bounds=(0,) * len(self.spec.bounds), members=members))

    @property
    def reads(self) -> tuple[frozenset[int], ...]:
        """By stage, the tensors that it reads at each point."""
        return tuple(frozenset(_touched(self.spec, self.graph, self.roots, s, False)) for s in self.stages)

    @property
    def vectors(self) -> tuple[tuple[int, frozenset[int]], ...]:
        """By tensor, the labels along which it has to be contiguous."""
        found: dict[int, set[int]] = {}
        for stage in self.stages:
            for t in _touched(self.spec, self.graph, self.roots, stage):
                found.setdefault(t, set()).add(stage.vector)
        if self.vector >= 0:
            found = {t: {self.vector} for t in range(len(self.spec.tensors))}
        return tuple((t, frozenset(labels - {-1})) for t, labels in found.items())


class _MemberLeaves:
    """Leaves of a member's graph: inputs by tensor, nodes of other members, or the results of their folds."""

    def __init__(self, graph: PrimitiveGraph, spec: RowSpec, member: RowMember, roots: list[int]) -> None:
        self.graph, self.spec, self.member, self.roots = graph, spec, member, roots

    def operand(self, slot: int) -> int:
        source = self.member.sources[slot]
        if source >= 0:
            tensor = self.spec.tensors[source]
            return self.graph.input(source, tensor.dtype, tensor.labels)
        other = self.spec.members[~source]
        if other.einsum.aggregation is None:
            return self.roots[~source]
        return self.graph.input(source, other.einsum.dtype, other.labels[: other.einsum.n_out])

    def label(self, position: int) -> int:
        return self.graph.iota(self.member.labels[position])

    def guarded(self, expr: Scalar) -> int | None:
        return None


@lru_cache(maxsize=512)
def fuse_rows(spec: RowSpec) -> FusedRowSpec | None:
    """Return the fused row kernel of the members, the same object each time; None if they cannot be fused."""
    graph, roots = PrimitiveGraph(), list[int]()
    if not all(_is_possible(spec, member) for member in spec.members):
        return None
    for member in spec.members:
        root = lower(graph, member.einsum.join, _MemberLeaves(graph, spec, member, roots))
        roots.append(graph.convert(root, member.einsum.dtype))
    order = reachable_nodes(graph, roots)
    nodes = [graph[k] for k in order]
    if len(order) > MAX_NODES or not all(is_known(graph, n) for n in nodes):
        return None
    compares = any(n.op in COMPARING and any(graph[a].dtype.is_float for a in n.arguments) for n in nodes)
    if compares or any(d.kind == "c" or d.name in ("bf16", "f16") for d in (n.dtype for n in nodes)):
        return None  # a comparison of floats would raise a flag for a NaN operand
    wide = any(n.dtype == F64 for n in nodes) or any(spec.tensors[t].dtype == F64 for t in _used(spec))
    width = 8 if wide else 16
    rows = _rows(spec)
    for along in (-1, *reversed(rows)):
        stages = _stages(spec, graph, roots, rows, along) if along < 0 or spec.bounds[along] >= _MIN_VECTOR else None
        if stages is not None:
            rows = (*(p for p in rows if p != along), *((along,) if along >= 0 else ()))
            stages = tuple(_in_blocks(spec, graph, roots, stage, along, width) for stage in stages)
            return FusedRowSpec(spec, graph, tuple(roots), rows, along, width, stages, _is_large(spec))
    return None


def _is_possible(spec: RowSpec, member: RowMember) -> bool:
    e = member.einsum
    if e.keys or e.dtype not in (F32, F64) or not all(map(is_affine, e.accesses)):
        return False
    a = e.aggregation
    return a is None or (a.combine in _FOLDS and a.value == a.result == e.dtype and a.state[0] == e.dtype)


def _used(spec: RowSpec) -> Iterator[int]:
    for m in spec.members:
        yield from (s for s in m.sources if s >= 0)
        yield from (t for t in (m.out, m.state, *(r[1] for r in m.rescales)) if t >= 0)


def _own(member: RowMember) -> tuple[int, ...]:
    """Return the labels of a member's value."""
    return member.labels[: member.einsum.n_out]


def _rows(spec: RowSpec) -> tuple[int, ...]:
    """Return the labels that all folds keep and all stored values have."""
    kept = [_own(m) for m in spec.members if m.einsum.aggregation is not None or m.out >= 0]
    kept += [tuple(sorted(spec.tensors[t].labels)) for m in spec.members for _, t, _ in m.rescales]
    bound = {p for m in spec.members for p in m.labels[m.einsum.n_out :]}
    return tuple(p for p in sorted(set(kept[0])) if all(p in own for own in kept) and p not in bound)


def _stages(
    spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int], rows: tuple[int, ...], along: int
) -> tuple[RowStage, ...] | None:
    """Return the passes in order; None where some has no label for its vectors."""
    depths = _depths(spec, graph, roots)
    found: dict[tuple[int, tuple[int, ...]], tuple[list[int], list[int]]] = {}
    scaled: list[tuple[int, RowStage]] = []
    for k, m in enumerate(spec.members):
        if m.einsum.aggregation is not None:
            if set(_own(m)) != set(rows):
                return None
            inner = tuple(m.labels[m.einsum.n_out :])
            found.setdefault((depths[k], inner), ([], []))[0].append(k)
            for other, tensor, coefficient in m.rescales:
                if other < 0:
                    extra = tuple(p for p in sorted(spec.tensors[tensor].labels) if p not in rows)
                    scaled.append((depths[k] + 1, RowStage(extra, -1, scaled=(tensor, k, coefficient))))
        elif m.out >= 0:
            inner = tuple(p for p in _own(m) if p not in rows)
            found.setdefault((depths[k], inner), ([], []))[1].append(k)
    stages = [(d, RowStage(inner, -1, tuple(f), tuple(s))) for (d, inner), (f, s) in found.items()]
    stages += scaled
    result = []
    for _, stage in sorted(stages, key=lambda pair: (pair[0], pair[1].scaled is not None, not pair[1].folds)):
        placed = _placed(spec, graph, roots, rows, stage, along)
        if placed is None:
            return None
        result.append(placed)
    return _keeping(spec, graph, roots, result)


def _depths(spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int]) -> list[int]:
    """Return, by member, the length of the longest chain of folds before it."""
    of_node: dict[int, int] = {}
    found: list[int] = []
    for k, root in enumerate(roots):
        for node in reachable_nodes(graph, [root]):
            n = graph[node]
            if node not in of_node:
                fold = n.op == "input" and isinstance(n.payload, int) and n.payload < 0
                own = found[~n.payload] + 1 if fold and isinstance(n.payload, int) else 0
                of_node[node] = max([own, *(of_node[a] for a in n.arguments)])
        before = [found[j] + 1 for j in range(k) for other, _, _ in spec.members[j].rescales if other == k]
        found.append(max([of_node[root], *before]))
    return found


def _placed(
    spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int], rows: tuple[int, ...], stage: RowStage, along: int
) -> RowStage | None:
    """Return the stage with a vector label along which its tensors are contiguous or constant; else None."""
    tensors = [spec.tensors[t] for t in _touched(spec, graph, roots, stage)]
    if along >= 0:
        good = _is_smooth(tensors, along)
        return RowStage(stage.inner, along, stage.folds, stage.stores, stage.scaled) if good else None
    choices = [p for p in stage.inner if _is_smooth(tensors, p)]
    best = max(choices, key=lambda p: (spec.bounds[p] >= 64, spec.bounds[p], p), default=None)
    if best is None or (spec.bounds[best] < _MIN_VECTOR and not stage.scaled):
        return RowStage(stage.inner, -1, (), stage.stores, stage.scaled) if not stage.inner else None
    inner = (*(p for p in stage.inner if p != best), best)
    return RowStage(inner, best, stage.folds, stage.stores, stage.scaled)


def _in_blocks(
    spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int], stage: RowStage, along: int, width: int
) -> RowStage:
    """Return the stage with its unrolling, and with blocks of partial sums if a fold rounds."""
    nodes = reachable_nodes(graph, [roots[k] for k in (*stage.folds, *stage.stores)])
    unrolled = 1 if along >= 0 or not stage.inner else 2 if any(graph[k].op in POLYNOMIALS for k in nodes) else 4
    aggregations = [spec.members[k].einsum.aggregation for k in stage.folds]
    steps = {p: width * unrolled if p == stage.vector else 1 for p in stage.inner}
    sizes: list[tuple[int, ...]] = [()] * len(steps)
    if any(a is not None and a.rounds for a in aggregations):
        sizes = block_sizes([-(-spec.bounds[p] // n) for p, n in steps.items()])
    return replace(stage, unrolled=unrolled, blocks=tuple(sizes))


def _is_large(spec: RowSpec) -> bool:
    """Return whether the result is so large that the caches could not keep it."""
    tensor = spec.tensors[spec.result]
    nbytes = math.prod(spec.bounds[p] for p in tensor.labels) * tensor.dtype.itemsize
    return spec.result >= 0 and nbytes >= STREAMED_NBYTES


def _touched(
    spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int], stage: RowStage, stores: bool = True
) -> Iterator[int]:
    """Yield the tensors that a stage reads, or writes, at each point."""
    if stage.scaled is not None:
        yield stage.scaled[0]
    for node in reachable_nodes(graph, [roots[k] for k in (*stage.folds, *stage.stores)]):
        payload = graph[node].payload
        if graph[node].op == "input" and isinstance(payload, int) and payload >= 0:
            yield payload
    if stores:
        yield from (spec.members[k].out for k in stage.stores)
        yield from (t for _, t in stage.keeps)


def _is_smooth(tensors: Sequence[RowTensor], label: int) -> bool:
    for tensor in tensors:
        steps = [(axis, c) for axis, p in enumerate(tensor.access) for q, c in terms(p) if q == label]
        if steps and steps != [(len(tensor.access) - 1, 1)]:
            return False
    return True


def _keeping(
    spec: RowSpec, graph: PrimitiveGraph, roots: Sequence[int], stages: list[RowStage]
) -> tuple[RowStage, ...]:
    """Store expensive values that a later stage needs again in an output of that stage of the same type."""
    result = list(stages)
    for i, late in enumerate(stages):
        free = [spec.members[k].out for k in late.stores]
        needs = reachable_nodes(graph, [roots[k] for k in (*late.folds, *late.stores)])
        for j, early in enumerate(stages[:i]):
            if early.scaled is not None or set(early.inner) != set(late.inner) or early.vector != late.vector:
                continue
            mine = set(reachable_nodes(graph, [roots[k] for k in early.folds]))
            for node in [n for n in needs if n in mine and graph[n].op in POLYNOMIALS]:
                labels = graph[node].labels
                fit = [
                    t
                    for t in free
                    if spec.tensors[t].dtype == graph[node].dtype
                    and spec.tensors[t].labels == labels
                    and t not in _reads(graph, roots, stages)
                ]
                if fit and not any(node == n for s in result for n, _ in s.keeps):
                    free.remove(fit[0])
                    s = result[j]
                    result[j] = RowStage(s.inner, s.vector, s.folds, s.stores, s.scaled, (*s.keeps, (node, fit[0])))
            break
    return tuple(result)


def _reads(graph: PrimitiveGraph, roots: Sequence[int], stages: Sequence[RowStage]) -> set[int]:
    nodes = reachable_nodes(graph, list(roots))
    return {p for k in nodes if graph[k].op == "input" and isinstance(p := graph[k].payload, int)}
