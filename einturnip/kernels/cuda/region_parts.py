"""The roles of a region's labels in its kernel, and the sizes of the parts that it processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.region import Region
from einturnip.kernels.cuda import states
from einturnip.kernels.protocol import Mode

THREADS = 256
STATIC_SHARED_NBYTES = 16
"""Static shared memory of a region's kernel: its floating-point flags, aligned."""
SHARED_NBYTES = (48 << 10) - STATIC_SHARED_NBYTES
"""Dynamic shared memory of a block, at most. With the static part it is what a kernel gets without asking for more."""
SLABS_NBYTES = 64 << 20
"""Workspace of all blocks, if shared memory is too small, at most."""
_MIN_BLOCKS = 264  # blocks that keep a GPU busy; rows per block are limited so that there are as many
SHAPES = ((32, 64), (16, 64), (16, 32), (8, 32), (8, 16), (4, 16), (4, 8), (2, 8), (1, 8), (1, 4), (1, 2), (1, 1))
"""Candidates for rows and columns at a time, best first."""
LINE = 16
"""Alignment of buffers, in bytes."""


@dataclass(frozen=True)
class RegionLabels:
    """The roles of a region's labels.

    ``columns`` are the streamed labels that are divided; the kernel takes others at full extent.
    """

    region: Region
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def other(self, labels: Sequence[int]) -> list[int]:
        """Return the labels that are neither rows nor columns."""
        return [p for p in labels if p not in self.rows and p not in self.columns]

    def has_columns(self, labels: Sequence[int]) -> bool:
        """Return whether a value varies along the columns."""
        return any(p in self.columns for p in labels)

    def index(self, labels: Sequence[int]) -> str:
        """Return C++ for the position of a value's element in its buffer.

        It uses the row r, the column c, and the indices of other labels.
        """
        text = "r"
        for p in self.other(labels):
            text = f"({text} * g.extent[{p}] + l{p})"
        return f"{text} * cols + c" if self.has_columns(labels) else text

    def points(self, labels: Sequence[int], extents: Sequence[int], rows: int, cols: int) -> int:
        """Return the number of elements of a value's buffer."""
        count = rows * math.prod(extents[p] for p in self.other(labels))
        return count * cols if self.has_columns(labels) else count


def parts_of(region: Region) -> RegionLabels:
    """Return the roles of a region's labels."""
    steps = [region.steps[k] for k in (*region.tiled, *region.carried)]
    rows = tuple(p for p in range(region.n_out) if all(p in s.labels[: s.einsum.n_out] for s in steps))
    return RegionLabels(region, rows, tuple(p for p in region.aggregated if p not in region.whole))


def shape_of(parts: RegionLabels, extents: tuple[int, ...], mode: Mode) -> tuple[int, int, int, bool]:
    """Return rows and columns at a time, the bytes of their buffers, and whether these are shared.

    Buffers that do not fit in shared memory are in the workspace.
    """
    total = max(1, math.prod(extents[p] for p in parts.rows))
    long = max(1, math.prod(extents[p] for p in parts.columns))
    found = None
    for rows, cols in SHAPES:
        rows, cols = min(rows, total), min(cols, long)
        nbytes = shared_nbytes(parts, extents, rows, cols, mode)
        if nbytes <= SHARED_NBYTES and (-(-total // rows) >= _MIN_BLOCKS or rows <= 4 or total < _MIN_BLOCKS):
            return rows, cols, nbytes, True
        found = found or (rows, cols, nbytes, False)
    assert found is not None
    return found


def shared_nbytes(parts: RegionLabels, extents: tuple[int, ...], rows: int, cols: int, mode: Mode) -> int:
    """Return the bytes of one block's values and states, with the layout of ``RegionCode``."""
    region = parts.region
    nbytes = _rounded(8 * rows * max(1, len(parts.rows))) + _rounded(8 * cols * max(1, len(parts.columns)))
    for k, step in enumerate(region.steps):
        labels = step.labels[: step.einsum.n_out]
        points = parts.points(labels, extents, rows, cols)
        if k in region.carried:
            assert step.einsum.aggregation is not None
            copies = 1 + (k in rescaling_steps(region)) + (mode == "combine")
            nbytes += _rounded(points * states.value_type(step.einsum.aggregation).itemsize)  # of rounding errors
            nbytes += copies * _rounded(points * states.state_nbytes(step.einsum.aggregation))
        elif mode != "combine":
            nbytes += _rounded(points * step.einsum.dtype.itemsize)
    return nbytes + 256


def _rounded(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def rescaling_steps(region: Region) -> set[int]:
    """Return the carried steps whose changes rescale or shift the states of other steps."""
    return {r.of for r in region.rescales} | {s.of for s in region.shifts}


def extent_product(labels: Sequence[int]) -> str:
    """Return C++ for the number of points of labels in a tile."""
    return " * ".join(["(i64)1", *(f"g.extent[{p}]" for p in labels)])


def row_labels(parts: RegionLabels) -> list[str]:
    """Return declarations of the row labels' indices, read from their table."""
    n = len(parts.rows)
    return [f"const i64 l{p} = row[r * {n} + {i}];" for i, p in enumerate(parts.rows)]


def column_labels(parts: RegionLabels) -> list[str]:
    """Return declarations of the column labels' indices, read from their table."""
    n = len(parts.columns)
    return [f"const i64 l{p} = col[c * {n} + {i}];" for i, p in enumerate(parts.columns)]


def label_table(name: str, begin: str, count: str, labels: Sequence[int]) -> list[str]:
    """Return a loop that decodes rows or columns into label indices once, into a table."""
    lines = [f"  for (i64 n = threadIdx.x; n < {count}; n += {THREADS}) {{", f"    i64 rest = {begin} + n;"]
    for i, p in reversed(list(enumerate(labels))):
        lines.append(f"    {name}[n * {len(labels)} + {i}] = rest % g.extent[{p}]; rest /= g.extent[{p}];")
    return [*lines, "  }"] if labels else []
