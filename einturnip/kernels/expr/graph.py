"""Graphs of primitive array operations that compute scalar expressions, sharing equal subexpressions.

Every node knows the labels it varies over: a subexpression over few labels is computed over those alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from einturnip.ir.dtypes import BF16, BOOL, F16, F32, F64, I64, DType
from einturnip.kernels.expr.primitives import Operation

NARROW = (F16, BF16)
_REAL_PART = {"c64": F32, "c128": F64}


class StatefulOperation(Hashable, Protocol):
    """An operation with parameters of its own.

    Its arguments are followed by the block's first point along each label of ``starts`` and, if ``scratch`` is not
    None, by two i64 arrays over its labels.
    """

    @property
    def starts(self) -> tuple[int, ...]:
        """Labels whose first points are passed."""

    @property
    def scratch(self) -> tuple[int, ...] | None:
        """Labels of the scratch arrays."""

    @property
    def __call__(self) -> Operation:
        """Run the operation."""


@dataclass(frozen=True, slots=True)
class PrimitiveNode:
    """One primitive: input, guarded, iota, number, select, check, fetch, or a ``primitives.operation``.

    A guarded input's argument is its fill. ``payload``: the register of an input, the label of an iota, the bytes of a
    number, the operation of a check or fetch.
    """

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    labels: frozenset[int]
    payload: int | bytes | StatefulOperation = 0


@dataclass(slots=True)
class PrimitiveGraph:
    """Nodes with arguments first; adding an existing node returns its id."""

    nodes: list[PrimitiveNode] = field(default_factory=list)
    _ids: dict[PrimitiveNode, int] = field(default_factory=dict, compare=False)

    def __getitem__(self, node: int) -> PrimitiveNode:
        """Return a node by number."""
        return self.nodes[node]

    def _add(self, node: PrimitiveNode) -> int:
        found = self._ids.setdefault(node, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(node)
        return found

    def input(self, register: int, dtype: DType, labels: Iterable[int]) -> int:
        """Add the value of a register."""
        return self._add(PrimitiveNode("input", (), dtype, frozenset(labels), register))

    def guarded(self, register: int, dtype: DType, labels: Iterable[int], fill: int) -> int:
        """Add the value of a register where its index is within its axes, elsewhere a node's."""
        read = self.nodes[fill].labels | frozenset(labels)
        return self._add(PrimitiveNode("guarded", (fill,), dtype, read, register))

    def iota(self, label: int) -> int:
        """Add the index of a label, as i64."""
        return self._add(PrimitiveNode("iota", (), I64, frozenset((label,)), label))

    def number(self, value: complex, dtype: DType) -> int:
        """Add a constant, converted as ``astype`` does."""
        return self._add(PrimitiveNode("number", (), dtype, frozenset(), number(value, dtype).tobytes()))

    def value(self, node: int) -> Any:
        """Return the Python number of a constant node, else None."""
        n = self.nodes[node]
        return np.frombuffer(n.payload, n.dtype.numpy)[0].item() if isinstance(n.payload, bytes) else None

    def apply(self, op: str, *arguments: int, dtype: DType | None = None) -> int:
        """Add a ufunc of arguments; its dtype is by default the first argument's."""
        labels = frozenset[int]().union(*(self.nodes[a].labels for a in arguments))
        return self._add(PrimitiveNode(op, arguments, dtype or self.nodes[arguments[0]].dtype, labels))

    def special(
        self, op: str, operation: StatefulOperation, *arguments: int, labels: frozenset[int] | None = None
    ) -> int:
        """Add a ``check``, whose value is its argument, or a ``fetch``; by default over the argument's labels."""
        first = self.nodes[arguments[0]]
        return self._add(
            PrimitiveNode(op, arguments, first.dtype, first.labels if labels is None else labels, operation)
        )

    def convert(self, node: int, dtype: DType) -> int:
        """Add ``astype``; converting complex to a real type takes the real part."""
        source = self.nodes[node].dtype
        if source == dtype:
            return node
        if source.kind == "c" and dtype.kind not in "cb":
            return self.convert(self.part("real", node), dtype)
        if dtype == BF16 and source.name in ("f32", "f64"):
            return self.apply("narrow_bf16", self.convert(node, F32), dtype=BF16)
        return self.apply("convert", node, dtype=dtype)

    def part(self, op: str, node: int) -> int:
        """Add the real or imaginary part of a complex node."""
        return self.apply(op, node, dtype=_REAL_PART[self.nodes[node].dtype.name])

    def select(self, condition: int, yes: int, no: int) -> int:
        """Add ``where(condition, yes, no)``."""
        return self.apply("select", self.convert(condition, BOOL), yes, no, dtype=self.nodes[yes].dtype)

    def data_free(self, node: int) -> bool:
        """Return True if a node depends on labels and numbers alone, so that equal values form long runs."""
        n = self.nodes[node]
        return n.op not in ("input", "guarded") and all(map(self.data_free, n.arguments))


def number(value: complex, dtype: DType) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a Python number as a 0-d array; a real type takes the real part of a complex number."""
    array = np.asarray(value)
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)
