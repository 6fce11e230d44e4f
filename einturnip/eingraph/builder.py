"""Builders of an EinGraph: nodes in order, interned einsums, and the label space of one statement."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from einturnip.core.program_limits import checkpoint
from einturnip.eingraph.indices import normal, number
from einturnip.eingraph.types import NO_HINTS, EinsumNode, Hints, Node
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import I64, DType
from einturnip.ir.einsum import Access, Einsum, Key, labels_read, relabelled
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCast, ScalarConst, rewrite, walk

Tensor = tuple[DType, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node to be added: ``operands`` are numbers of outside tensors, or ~position of an earlier draft.

    ``name`` is the suffix of its name (``max``); empty for the node that carries the statement's own name.
    """

    einsum: Einsum
    operands: tuple[int, ...]
    name: str = ""
    hints: Hints = NO_HINTS


class StatementDrafts:
    """Collects the drafts of one statement; as a frozen tuple they can be placed any number of times."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self.tensors = list(tensors)
        self.nodes: list[NodeDraft] = []

    def tensor(self, number: int) -> Tensor:
        """Element type and shape of an outside tensor or a draft."""
        if number >= 0:
            return self.tensors[number]
        einsum = self.nodes[~number].einsum
        return einsum.dtype, einsum.shape

    def add(self, draft: NodeDraft) -> int:
        """Append a draft and return the number by which other drafts read it."""
        self.nodes.append(draft)
        return ~(len(self.nodes) - 1)


class GraphBuilder:
    """The nodes of a graph under construction; the finished graph is a frozen EinGraph."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.nodes: list[Node] = []
        self._names = set(names)
        self._counts: dict[str, int] = {}

    def add(self, node: Node) -> int:
        """Append a node and return its id."""
        checkpoint()
        self.nodes.append(node)
        self._names.add(node.name)
        return len(self.nodes) - 1

    def fresh(self, name: str) -> str:
        """Reserve and return an unused name: ``name``, ``name2``, ``name3``..."""
        candidate, n = name, self._counts.get(name, 1)
        if n > 1:
            candidate = f"{name}{n}"
        while candidate in self._names:
            n += 1
            candidate = f"{name}{n}"
        self._counts[name] = n
        self._names.add(candidate)
        return candidate

    def place(self, drafts: Sequence[NodeDraft], outside: Sequence[int], name: str, line: int) -> int:
        """Add drafts that read the nodes ``outside``; return the id of the last."""
        first = len(self.nodes)
        for draft in drafts:
            operands = tuple(outside[n] if n >= 0 else first + ~n for n in draft.operands)
            full = self.fresh(f"{name}.{draft.name}") if draft.name else name
            self.add(EinsumNode(full, draft.einsum, operands, line, draft.hints))
        return len(self.nodes) - 1


class LabelSpace:
    """Labels with bounds, and scalar expressions over them that read tensors.

    An ``OperandRef`` of the space denotes one (tensor, access); equal pairs share a slot. ``emit`` makes a draft of an
    expression, with only the labels and slots that it needs. ``tiles`` are tile sizes of labels, from hints.
    """

    def __init__(
        self,
        drafts: StatementDrafts,
        labels: Sequence[str],
        bounds: Sequence[int],
        tiles: Mapping[int, int] | None = None,
    ) -> None:
        self.drafts = drafts
        self.labels, self.bounds = list(labels), list(bounds)
        self.tiles, self.device = dict(tiles or {}), ""
        self.slots: list[tuple[int, Access]] = []
        self._slot_of: dict[tuple[int, Access], int] = {}

    def add_label(self, name: str, bound: int) -> int:
        """Add a label and return its position."""
        self.labels.append(name)
        self.bounds.append(bound)
        return len(self.labels) - 1

    def operand(self, tensor: int, access: Access) -> OperandRef:
        """The element of ``tensor`` at the indices of ``access``, each in its simplest form."""
        dtype, shape = self.drafts.tensor(tensor)
        key = tensor, tuple(normal(index, self.bounds, size) for index, size in zip(access, shape, strict=True))
        if key not in self._slot_of:
            self._slot_of[key] = len(self.slots)
            self.slots.append(key)
        return OperandRef(self._slot_of[key], dtype)

    @classmethod
    def over(cls, einsum: Einsum, operands: Sequence[int] | None = None) -> LabelSpace:
        """A label space of an einsum without slots; ``operands`` number the tensors, default one a slot."""
        known: dict[int, Tensor] = {}
        for slot, tensor in enumerate(range(len(einsum.accesses)) if operands is None else operands):
            known[tensor] = einsum.dtypes[slot], einsum.operand_shape(slot)
        return cls(StatementDrafts(known[tensor] for tensor in range(len(known))), einsum.labels, einsum.bounds)

    def substitute(
        self, join: Scalar, accesses: Sequence[Access], operands: Sequence[int], labels: Access | None = None
    ) -> Scalar:
        """Rewrite a join, whose slots ``accesses`` and ``operands`` describe, into this space's slots.

        ``labels`` are this space's indices for the join's own labels, if they differ.
        """

        def leaf(expr: Scalar) -> Scalar:
            match expr:
                case OperandRef(slot, _):
                    return self.operand(operands[slot], accesses[slot])
                case LabelValue(position, dtype) if labels is not None:
                    if isinstance(at := labels[position], int):
                        return LabelValue(at, dtype)
                    value = number(at)
                    return value if dtype == I64 else ScalarCast(value, dtype)
            return expr

        return rewrite(join, leaf)

    def labels_in(self, expr: Scalar) -> frozenset[int]:
        """The labels that an expression depends on, through accesses or as numbers."""
        found: set[int] = set()

        def leaf(e: Scalar) -> Scalar:
            match e:
                case OperandRef(slot, _):
                    found.update(labels_read(self.slots[slot][1]))
                case LabelValue(position, _):
                    found.add(position)
            return e

        rewrite(expr, leaf)
        return frozenset(found)

    def emit(
        self,
        out: Sequence[int],
        bound: Sequence[int],
        join: Scalar,
        aggregation: Aggregation | None,
        name: str | None = None,
        keys: Sequence[tuple[int, Scalar]] = (),
    ) -> int:
        """Add the draft ``[out] = aggregation[bound] join``, by default named after its operator."""
        if name is None:
            name = aggregation.op if aggregation else "map"
        einsum, operands = self.einsum(out, bound, join, aggregation, keys)
        order = (*out, *bound)
        tiles = tuple((i, self.tiles[p]) for i, p in enumerate(order) if p in self.tiles) if self.tiles else ()
        hints = Hints(tiles=tiles, device=self.device) if tiles or self.device else NO_HINTS
        return self.drafts.add(NodeDraft(einsum, operands, name, hints))

    def einsum(
        self,
        out: Sequence[int],
        bound: Sequence[int],
        join: Scalar,
        aggregation: Aggregation | None,
        keys: Sequence[tuple[int, Scalar]] = (),
    ) -> tuple[Einsum, tuple[int, ...]]:
        """Return the einsum ``[out] = aggregation[bound] join`` and the tensors in its slots."""
        order = (*out, *bound)
        position = {p: i for i, p in enumerate(order)}
        slots: dict[int, int] = {}

        def leaf(expr: Scalar) -> Scalar:
            match expr:
                case OperandRef(slot, dtype):
                    return OperandRef(slots.setdefault(slot, len(slots)), dtype)
                case LabelValue(p, dtype):
                    return LabelValue(position[p], dtype)
            return expr

        renumbered = rewrite(join, leaf)
        renumbered_keys = tuple(Key(position[p], rewrite(value, leaf)) for p, value in keys)
        sources = [self.slots[s] for s in slots]
        tensors = [self.drafts.tensor(tensor) for tensor, _ in sources]
        accesses = tuple(tuple(relabelled(index, position) for index in access) for _, access in sources)
        alone = all(isinstance(index, int) for access in accesses for index in access)
        einsum = Einsum(
            labels=tuple(self.labels[p] for p in order),
            bounds=tuple(self.bounds[p] for p in order),
            n_out=len(out),
            accesses=accesses,
            dtypes=tuple(dtype for dtype, _ in tensors),
            join=renumbered,
            aggregation=aggregation,
            shapes=() if alone else tuple(shape for _, shape in tensors),
            keys=renumbered_keys,
        )
        return einsum, tuple(tensor for tensor, _ in sources)


def copy_of(dtype: DType, shape: tuple[int, ...]) -> NodeDraft:
    """A draft that copies tensor 0, for an output that is an input."""
    space = LabelSpace(StatementDrafts([(dtype, shape)]), [f"i{axis}" for axis in range(len(shape))], shape)
    axes = tuple(range(len(shape)))
    space.emit(axes, (), space.operand(0, axes), None, "")
    return space.drafts.nodes[0]


T = TypeVar("T")


class EinsumInterner:
    """Canonical einsums, and results cached by identity, for one graph's construction or rewriting."""

    def __init__(self) -> None:
        self._one: dict[Hashable, Einsum] = {}
        self._by_id: dict[int, tuple[Einsum, Einsum]] = {}
        self._found: dict[Hashable, object] = {}
        self._numbers: dict[Hashable, int] = {}

    def one(self, einsum: Einsum) -> Einsum:
        """Return the canonical object for equal einsums."""
        found = self._by_id.get(id(einsum))
        if found is None:
            checkpoint()
            # 0.0 equals -0.0 but is different. The einsum itself is kept alive too, so that its id is not reused.
            constants = tuple(repr(e.value) for e in walk(einsum.join) if isinstance(e, ScalarConst))
            found = self._by_id[id(einsum)] = einsum, self._one.setdefault((einsum, constants), einsum)
        return found[1]

    def draft(self, draft: NodeDraft) -> NodeDraft:
        """Return a draft with a canonical einsum."""
        einsum = self.one(draft.einsum)
        return draft if einsum is draft.einsum else replace(draft, einsum=einsum)

    def once(self, find: Callable[..., T], key: Hashable, *arguments: object) -> T:
        """Return the cached result of ``find``; ``key`` refers to canonical einsums by id."""
        key = find, key
        if key not in self._found:
            self._found[key] = find(*arguments)
        return self._found[key]  # type: ignore[return-value]

    def number(self, value: Hashable) -> int:
        """Return a number that identifies a value."""
        return self._numbers.setdefault(value, len(self._numbers))


def pattern(operands: Sequence[int]) -> tuple[int, ...]:
    """Number operands by first occurrence, which shows the equal ones."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(operand, len(seen)) for operand in operands)


def distinct(operands: Sequence[int]) -> tuple[int, ...]:
    """The operands that the numbers of ``pattern`` denote."""
    return tuple(dict.fromkeys(operands))
