"""EinGraph: a program as typed, single-assignment einsums; nodes are identified by integer ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region


@dataclass(frozen=True, slots=True)
class InputNode:
    """A tensor from outside: a file or a caller's array. ``line`` is its declaration."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    line: int


@dataclass(frozen=True, slots=True)
class Hints:
    """Requests of the program for a node's plan; results do not depend on them.

    ``tiles`` are (label position, tile size). ``keep``: hold it in compute memory. ``recompute``: it may be dropped and
    computed again. ``device``: where to compute it; empty for any device.
    """

    tiles: tuple[tuple[int, int], ...] = ()
    keep: bool = False
    recompute: bool = False
    device: str = ""


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class EinsumNode:
    """One einsum over earlier nodes, or a region of several einsums that run together.

    ``name`` is the user's, or derived from it (``P.max``). ``steps`` are name and line of each step of a region.
    """

    name: str
    einsum: Einsum | Region
    operands: tuple[int, ...]
    line: int
    hints: Hints = NO_HINTS
    steps: tuple[tuple[str, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the node's tensor."""
        return self.einsum.shape

    @property
    def dtype(self) -> DType:
        """Element type of the node's tensor."""
        return self.einsum.dtype


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """A tensor's position in a larger one: its axis a is axis ``axes[a]``, from ``offsets`` on.

    Along axes that ``axes`` lacks, the piece has length 1.
    """

    operand: int
    axes: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConcatNode:
    """A concatenation: pieces next to each other or overlapping; where they overlap, the later one counts.

    Together the pieces cover the whole tensor. Nothing is computed: all pieces have its dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    pieces: tuple[TensorPiece, ...]
    line: int

    @property
    def operands(self) -> tuple[int, ...]:
        """The tensors of the pieces."""
        return tuple(piece.operand for piece in self.pieces)


Node: TypeAlias = InputNode | EinsumNode | ConcatNode


def operands_of(node: Node) -> tuple[int, ...]:
    """Return the nodes that a node reads."""
    return () if isinstance(node, InputNode) else node.operands


@dataclass(frozen=True, slots=True)
class EinGraph:
    """Nodes, operands first. ``outputs`` are (name, node id); ``source`` the program's lines.

    ``merged`` are pairs of lines: the tensor of the first is computed within the second. ``parts``, for several
    programs run together, gives the number of ``source`` lines before each program, and its name.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, int], ...]
    program: str
    source: tuple[str, ...] = ()
    merged: tuple[tuple[int, int], ...] = ()
    parts: tuple[tuple[int, str], ...] = ()

    def statement(self, line: int) -> str:
        """The source text of a line (1-based) for messages; empty where there is none."""
        return self.source[line - 1].strip() if 0 < line <= len(self.source) else ""

    def place(self, line: int) -> str:
        """A line for messages: its number and, for several programs, its program."""
        for first, program in reversed(self.parts):
            if line > first:
                return f"{program} line {line - first}"
        return f"line {line}"

    def merged_into(self, line: int) -> tuple[int, ...]:
        """The other lines that are computed together with this one, in order."""
        found, latest = {line}, {line}
        while latest := {a for a, b in self.merged if b in latest} - found:
            found |= latest
        return tuple(sorted(found - {line}))
