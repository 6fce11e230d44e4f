"""EinGraph: a program as typed, single-assignment einsums over nodes known by integer ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region


@dataclass(frozen=True, slots=True)
class InputNode:
    """A tensor that comes from outside: a file or a caller's array. ``line`` is where it is declared."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    line: int


@dataclass(frozen=True, slots=True)
class Hints:
    """What the program asks of a node's plan; results do not hang on it.

    ``tiles`` are (label position, extent of a tile). ``keep``: hold it in compute memory. ``recompute``: it may be
    dropped and made again. ``device``: where it is to be made; empty for anywhere.
    """

    tiles: tuple[tuple[int, int], ...] = ()
    keep: bool = False
    recompute: bool = False
    device: str = ""


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class EinsumNode:
    """One einsum over earlier nodes. ``name`` is the user's where he gave one, else derived from it (``P.max``).

    Or a region of several that run together; ``steps`` are then the name and line of each.
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
    """A tensor and its place in another: ``axes[a]`` is the axis there of its axis a, ``offsets`` its first element.

    Along an axis that ``axes`` lacks it is 1 long.
    """

    operand: int
    axes: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConcatNode:
    """A tensor put together from others: pieces side by side, or over each other, where the later one counts.

    Together the pieces cover the whole tensor. Nothing is computed: all have its dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    pieces: tuple[TensorPiece, ...]
    line: int

    @property
    def operands(self) -> tuple[int, ...]:
        """The pieces' tensors."""
        return tuple(piece.operand for piece in self.pieces)


Node: TypeAlias = InputNode | EinsumNode | ConcatNode


@dataclass(frozen=True, slots=True)
class EinGraph:
    """Nodes in an order where operands come first. ``outputs`` are (name, node id); ``source`` the program's lines.

    ``merged`` are (line, line): what the first line defines is computed where the second uses it. ``parts``, of several
    programs run together: after how many lines of ``source`` each begins, and its name.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, int], ...]
    program: str
    source: tuple[str, ...] = ()
    merged: tuple[tuple[int, int], ...] = ()
    parts: tuple[tuple[int, str], ...] = ()

    def statement(self, line: int) -> str:
        """The source text of a line (1-based), for messages; empty where there is none."""
        return self.source[line - 1].strip() if 0 < line <= len(self.source) else ""

    def place(self, line: int) -> str:
        """A line for messages: its number and, where there are several, its program."""
        for first, program in reversed(self.parts):
            if line > first:
                return f"{program} line {line - first}"
        return f"line {line}"

    def merged_into(self, line: int) -> tuple[int, ...]:
        """The other lines that are computed with this one, in order."""
        found, latest = {line}, {line}
        while latest := {a for a, b in self.merged if b in latest} - found:
            found |= latest
        return tuple(sorted(found - {line}))
