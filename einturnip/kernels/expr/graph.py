"""A scalar expression as a graph of primitive array operations, equal subexpressions shared.

Every node knows the labels it varies over: a subexpression over few labels is computed on those alone.
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
    """An operation with a state of its own.

    Its arguments are followed by the block's first point along each label of ``starts`` and, if ``scratch`` is not
    None, by two i64 arrays over its labels.
    """

    @property
    def starts(self) -> tuple[int, ...]:
        """Labels."""

    @property
    def scratch(self) -> tuple[int, ...] | None:
        """Labels."""

    @property
    def __call__(self) -> Operation:
        """Do it."""


@dataclass(frozen=True, slots=True)
class PrimitiveNode:
    """One primitive: input, iota, number, select, check, fetch, or what ``primitives.operation`` names.

    ``payload`` is the register of an input, the label of an iota, the bytes of a number, the operation of a special.
    """

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    labels: frozenset[int]
    payload: int | bytes | StatefulOperation = 0


@dataclass(slots=True)
class PrimitiveGraph:
    """Nodes in an order where arguments come first. Building a node that is there already gives back its id."""

    nodes: list[PrimitiveNode] = field(default_factory=list)
    _ids: dict[PrimitiveNode, int] = field(default_factory=dict)

    def __getitem__(self, node: int) -> PrimitiveNode:
        return self.nodes[node]

    def _add(self, node: PrimitiveNode) -> int:
        found = self._ids.setdefault(node, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(node)
        return found

    def input(self, register: int, dtype: DType, labels: Iterable[int]) -> int:
        """What a register outside the graph holds."""
        return self._add(PrimitiveNode("input", (), dtype, frozenset(labels), register))

    def iota(self, label: int) -> int:
        """The index of a label, as i64."""
        return self._add(PrimitiveNode("iota", (), I64, frozenset((label,)), label))

    def number(self, value: complex, dtype: DType) -> int:
        """A constant, converted as ``astype`` does."""
        return self._add(PrimitiveNode("number", (), dtype, frozenset(), number(value, dtype).tobytes()))

    def value(self, node: int) -> Any:
        """The Python number that a node is, or None where it is none."""
        n = self.nodes[node]
        return np.frombuffer(n.payload, n.dtype.numpy)[0].item() if isinstance(n.payload, bytes) else None

    def apply(self, op: str, *arguments: int, dtype: DType | None = None) -> int:
        """A ufunc of arguments; its dtype is the first argument's unless stated."""
        labels = frozenset[int]().union(*(self.nodes[a].labels for a in arguments))
        return self._add(PrimitiveNode(op, arguments, dtype or self.nodes[arguments[0]].dtype, labels))

    def special(
        self, op: str, operation: StatefulOperation, *arguments: int, labels: frozenset[int] | None = None
    ) -> int:
        """``check``, which gives its argument back, or ``fetch``; over the argument's labels unless stated."""
        first = self.nodes[arguments[0]]
        return self._add(
            PrimitiveNode(op, arguments, first.dtype, first.labels if labels is None else labels, operation)
        )

    def convert(self, node: int, dtype: DType) -> int:
        """``astype``; a complex number gives its real part to a real type."""
        source = self.nodes[node].dtype
        if source == dtype:
            return node
        if source.kind == "c" and dtype.kind not in "cb":
            return self.convert(self.part("real", node), dtype)
        if dtype == BF16 and source.name in ("f32", "f64"):
            return self.apply("narrow_bf16", self.convert(node, F32), dtype=BF16)
        return self.apply("convert", node, dtype=dtype)

    def part(self, op: str, node: int) -> int:
        """The real or imaginary part of a complex node."""
        return self.apply(op, node, dtype=_REAL_PART[self.nodes[node].dtype.name])

    def select(self, condition: int, yes: int, no: int) -> int:
        """``where(condition, yes, no)``."""
        return self.apply("select", self.convert(condition, BOOL), yes, no, dtype=self.nodes[yes].dtype)

    def data_free(self, node: int) -> bool:
        """True where a node hangs on labels and numbers alone, so that equal values come in long runs."""
        n = self.nodes[node]
        return n.op != "input" and all(map(self.data_free, n.arguments))


def number(value: complex, dtype: DType) -> np.ndarray[Any, np.dtype[Any]]:
    """A Python number as a 0-d array of ``dtype``; a real type takes the real part of a complex number."""
    array = np.asarray(value)
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)
