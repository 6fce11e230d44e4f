"""The labels of a region by the part they play in its kernel, and how much of them a block of threads takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.region import Region
from einturnip.kernels.cuda import states
from einturnip.kernels.protocol import Mode

THREADS = 256
SHARED_NBYTES = 48 << 10
SLABS_NBYTES = 64 << 20
_TASKS = 264  # rows are few enough that there are so many blocks, where there is work for them
SHAPES = ((32, 64), (16, 64), (16, 32), (8, 32), (8, 16), (4, 16), (4, 8), (2, 8), (1, 8), (1, 4), (1, 2), (1, 1))
LINE = 16


@dataclass(frozen=True)
class RegionLabels:
    """The labels of a region by their part: ``rows``, ``columns`` (streamed, cut), the others are taken whole."""

    region: Region
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def other(self, labels: Sequence[int]) -> list[int]:
        """Labels that are neither."""
        return [p for p in labels if p not in self.rows and p not in self.columns]

    def has_columns(self, labels: Sequence[int]) -> bool:
        """True where a value differs between columns."""
        return any(p in self.columns for p in labels)

    def index(self, labels: Sequence[int]) -> str:
        """Where the element of a value over ``labels`` lies, at the row r, the column c and other labels in scope."""
        text = "r"
        for p in self.other(labels):
            text = f"({text} * g.extent[{p}] + l{p})"
        return f"{text} * cols + c" if self.has_columns(labels) else text

    def points(self, labels: Sequence[int], extents: Sequence[int], rows: int, cols: int) -> int:
        """Elements of such a value."""
        count = rows * math.prod(extents[p] for p in self.other(labels))
        return count * cols if self.has_columns(labels) else count


def parts_of(region: Region) -> RegionLabels:
    """The parts of a region's labels."""
    steps = [region.steps[k] for k in (*region.tiled, *region.carried)]
    rows = tuple(p for p in range(region.n_out) if all(p in s.labels[: s.einsum.n_out] for s in steps))
    return RegionLabels(region, rows, tuple(p for p in region.aggregated if p not in region.whole))


def shape_of(parts: RegionLabels, extents: tuple[int, ...], mode: Mode) -> tuple[int, int, int, bool]:
    """Rows and columns at a time, bytes that they need, and whether shared memory holds them."""
    total = max(1, math.prod(extents[p] for p in parts.rows))
    long = max(1, math.prod(extents[p] for p in parts.columns))
    found = None
    for rows, cols in SHAPES:
        rows, cols = min(rows, total), min(cols, long)
        nbytes = shared_nbytes(parts, extents, rows, cols, mode)
        if nbytes <= SHARED_NBYTES and (-(-total // rows) >= _TASKS or rows <= 4 or total < _TASKS):
            return rows, cols, nbytes, True
        found = found or (rows, cols, nbytes, False)
    assert found is not None
    return found


def shared_nbytes(parts: RegionLabels, extents: tuple[int, ...], rows: int, cols: int, mode: Mode) -> int:
    """Bytes of one block's values and states, as ``Code.buffers`` lays them out."""
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
    """The carried steps that others follow."""
    return {r.of for r in region.rescales} | {s.of for s in region.shifts}


def extent_product(labels: Sequence[int]) -> str:
    """The number of points of labels in a tile, as an expression."""
    return " * ".join(["(i64)1", *(f"g.extent[{p}]" for p in labels)])


def row_labels(parts: RegionLabels) -> list[str]:
    """The row's labels, out of their table."""
    n = len(parts.rows)
    return [f"const i64 l{p} = row[r * {n} + {i}];" for i, p in enumerate(parts.rows)]


def column_labels(parts: RegionLabels) -> list[str]:
    """The column's labels, out of their table."""
    n = len(parts.columns)
    return [f"const i64 l{p} = col[c * {n} + {i}];" for i, p in enumerate(parts.columns)]


def label_table(name: str, begin: str, count: str, labels: Sequence[int]) -> list[str]:
    """The labels of rows or columns, taken apart once."""
    lines = [f"  for (i64 n = threadIdx.x; n < {count}; n += {THREADS}) {{", f"    i64 rest = {begin} + n;"]
    for i, p in reversed(list(enumerate(labels))):
        lines.append(f"    {name}[n * {len(labels)} + {i}] = rest % g.extent[{p}]; rest /= g.extent[{p}];")
    return [*lines, "  }"] if labels else []
