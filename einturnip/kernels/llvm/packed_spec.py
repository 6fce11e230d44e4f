"""Describes packed contractions: the join of a point, its two sides, and the shapes of tiles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from einturnip.core import process_resources
from einturnip.ir.aggregations import Aggregation, aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall
from einturnip.kernels.expr.assemble import reachable_nodes
from einturnip.kernels.expr.fold import value_type
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.lower import lower
from einturnip.kernels.llvm.ir import element

CHUNK = 256  # terms of a left panel, which stays in the first-level cache
LEFT, RIGHT = frozenset({0}), frozenset({1})


def _tile() -> tuple[int, int]:
    """Return the rows and vectors of a register tile.

    Sums take 24 of 32 registers, or 12 of 16 that are half as wide.
    """
    return (12, 2) if "avx512f" in process_resources.processor_features() else (6, 1)


@dataclass(frozen=True)
class PackedSpec:
    """All that the code of a packed contraction depends on.

    A contraction aggregates a join of operands over terms; a matrix product is the sum of products. ``join``: its
    operands are numbered, those of rows (``left`` of them) before those of columns (``right``), and are of ``dtype``,
    as the result is. ``shape``: rows and vectors of a register tile.
    """

    dtype: DType
    join: Scalar
    aggregation: Aggregation
    left: int = 1
    right: int = 1
    shape: tuple[int, int] = field(default_factory=_tile)

    @classmethod
    def product(cls, dtype: DType) -> PackedSpec:
        """Return the spec of matrix products."""
        join = ScalarCall("mul", (OperandRef(0, dtype), OperandRef(1, dtype)), dtype)
        return cls(dtype, join, aggregation("sum", dtype))

    @cached_property
    def is_product(self) -> bool:
        """Whether it is the sum of products of two operands, which has a factor."""
        return self == replace(PackedSpec.product(self.dtype), shape=self.shape)

    @cached_property
    def graph(self) -> JoinGraph:
        """The operations of a point."""
        return JoinGraph(self)

    # --- operands -----------------------------------------------------------------------------------------------------

    @property
    def sides(self) -> tuple[range, range]:
        """The operands of rows and of columns."""
        return range(self.left), range(self.left, self.left + self.right)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the operands and the result."""
        return (*map(str, range(self.left + self.right)), "out")

    @property
    def record(self) -> int:
        """Words of a label in the argument: its extent, and its strides in each tensor."""
        return 1 + len(self.tensors)

    # --- shapes -------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def kind(self) -> str:
        """LLVM type of an element."""
        return element(self.dtype)

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return 64 // self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Rows of a register tile."""
        return self.shape[0]

    @property
    def vectors(self) -> int:
        """Vectors of a row of a register tile."""
        return self.shape[1]

    @property
    def heights(self) -> dict[str, tuple[int, ...]]:
        """Rows of each kind of tile; a few last rows use a lower one.

        A strip has as many rows as the first-level cache has ways, since they may all map to the same set.
        """
        third = self.rows // 3
        if not self.is_product:  # compiled for one join, so shorter code
            return {"tile": (third, self.rows)}
        return {"tile": (third, 2 * third, self.rows), "strip": (third, 2 * third)}

    @property
    def columns(self) -> int:
        """Columns of a register tile."""
        return self.vectors * self.width

    @property
    def line_nbytes(self) -> int:
        """Bytes of a row of a left panel: an odd number of cache lines, to avoid conflict misses."""
        return CHUNK * self.size + 64

    @property
    def left_nbytes(self) -> int:
        """Bytes of a left panel."""
        return self.rows * self.line_nbytes

    @property
    def right_panels(self) -> int:
        """Right panels, of operands or of what is computed from them."""
        return max(self.right, len(self.graph.nodes[1]))

    @property
    def left_panels(self) -> int:
        """Left panels, of operands or of what is computed from them."""
        return max(self.left, len(self.graph.nodes[0]))

    @property
    def term_nbytes(self) -> int:
        """Bytes of a term of the right panels, which alternate term by term."""
        return self.right_panels * self.columns * self.size


class JoinGraph:
    """The operations of a point, and which of them depend on one side alone.

    Attributes:
        nodes: of the left and of the right: the largest parts that depend on that side alone; they are computed while
            its operands are packed.
        joined: the nodes that depend on both sides.
        inputs: the operands' nodes.
    """

    def __init__(self, spec: PackedSpec) -> None:
        self.graph = PrimitiveGraph()
        self._spec = spec
        self.inputs = [self.operand(slot) for slot in range(spec.left + spec.right)]
        root = lower(self.graph, spec.join, self)
        self.root = self.graph.convert(root, value_type(spec.aggregation))
        self.order = reachable_nodes(self.graph, [self.root])
        self.joined = [n for n in self.order if len(self.graph[n].labels) == 2]
        self.nodes = self._of(LEFT), self._of(RIGHT)

    def operand(self, slot: int) -> int:
        """See LeafNodes."""
        return self.graph.input(slot, self._spec.dtype, RIGHT if slot >= self._spec.left else LEFT)

    def label(self, position: int) -> int:
        """See LeafNodes."""
        raise NotImplementedError("an index has no side")

    def guarded(self, expr: Scalar) -> int | None:
        """See LeafNodes."""
        return None

    def _of(self, side: frozenset[int]) -> tuple[int, ...]:
        taken = {a for n in self.joined for a in self.graph[n].arguments}
        return tuple(n for n in self.order if n in taken and self.graph[n].labels == side)

    def is_packed(self, side: int) -> bool:
        """Return whether a side's operands are packed as they are."""
        return self.nodes[side] == tuple(self.inputs[slot] for slot in self._spec.sides[side])
