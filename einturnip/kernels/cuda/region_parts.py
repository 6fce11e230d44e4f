"""The roles of a region's labels in its kernel, and the sizes of the parts that it processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from einturnip.ir.dtypes import DType
from einturnip.ir.region import Region
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.region_products import RegionProduct, region_products
from einturnip.kernels.cuda.scalars import ctype
from einturnip.kernels.protocol import Mode

THREADS = 256
SHARED_NBYTES = 48 << 10
"""Shared memory of a block, static and dynamic, at most: what a kernel gets without asking for more."""
TILE_ROWS, TILE_ACROSS, DEPTH = 32, 64, 16
"""Points of a product that the threads compute together, and folded points of its panels."""
THREAD_ROWS, THREAD_ACROSS = 4, 2
"""Points of a product that one thread computes."""
PITCHES = TILE_ROWS + 4, TILE_ACROSS + 4
"""Elements between two folded points of a left and of a right panel."""
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

    ``columns`` are the streamed labels that are divided; the kernel takes others at full extent. The rows of a block
    have the same index along the labels of ``batch``.
    """

    region: Region
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    products: tuple[RegionProduct, ...]

    def other(self, labels: Sequence[int]) -> list[int]:
        """Return the labels that are neither rows nor columns."""
        return [p for p in labels if p not in self.rows and p not in self.batch and p not in self.columns]

    def has_columns(self, labels: Sequence[int]) -> bool:
        """Return whether a value varies along the columns."""
        return any(p in self.columns for p in labels)

    def index(self, labels: Sequence[int]) -> str:
        """Return C++ for the position of a value's element in its buffer.

        It uses the row r, the column c, and the indices of other labels.
        """
        text = "r"
        for p in self.other(labels):
            text = f"({text} * (ind)g.extent[{p}] + l{p})"
        return f"{text} * pitch + c" if self.has_columns(labels) else text

    def product(self, k: int) -> RegionProduct | None:
        """Return the product that a step is, if it is one."""
        return next((p for p in self.products if p.step == k), None)


def parts_of(region: Region, mode: Mode) -> RegionLabels:
    """Return the roles of a region's labels."""
    steps = [region.steps[k] for k in (*region.tiled, *region.carried)]
    rows = tuple(p for p in range(region.n_out) if all(p in s.labels[: s.einsum.n_out] for s in steps))
    columns = tuple(p for p in region.aggregated if p not in region.whole)
    found, batch = region_products(region, rows, columns) if mode in ("full", "accumulate") else ((), frozenset())
    return RegionLabels(
        region, tuple(p for p in rows if p in batch), tuple(p for p in rows if p not in batch), columns, found
    )


@dataclass(frozen=True)
class RegionBuffer:
    """Values of one kind that a block of threads keeps.

    ``labels``: of rows, columns and others. ``of``: an earlier buffer of the same size whose memory it uses.
    """

    name: str
    kind: str
    itemsize: int
    labels: tuple[int, ...]
    of: str = ""


def buffers_of(parts: RegionLabels, mode: Mode) -> list[RegionBuffer]:
    """Return the buffers of a block, in their order in memory."""
    region, found = parts.region, list[RegionBuffer]()
    for k, step in enumerate(region.steps):
        labels, aggregation = step.labels[: step.einsum.n_out], step.einsum.aggregation
        if k in region.carried:
            assert aggregation is not None
            kind, nbytes = states.state_type(aggregation), states.state_nbytes(aggregation)
            found.append(RegionBuffer(f"s{k}", kind, nbytes, labels))
            if k in rescaling_steps(region):
                found.append(RegionBuffer(f"old{k}", kind, nbytes, labels))
            if mode == "combine":
                found.append(RegionBuffer(f"t{k}", kind, nbytes, labels))
            elif is_compensated(region, k):
                value = states.value_type(aggregation)
                found.append(RegionBuffer(f"e{k}", ctype(value), value.itemsize, labels))
        elif mode != "combine" and k != len(region.steps) - 1:
            dtype = step.einsum.dtype
            found.append(RegionBuffer(f"x{k}", ctype(dtype), dtype.itemsize, labels, _overwritten(region, k)))
    return found


def _overwritten(region: Region, k: int) -> str:
    """Return the name of a value that step k can overwrite, because no later step reads it."""
    step = region.steps[k]
    labels = step.labels[: step.einsum.n_out]
    if k not in region.tiled or step.einsum.aggregation is not None:
        return ""
    for j in (~o for o in step.operands if o < 0 and ~o in region.tiled):
        other = region.steps[j]
        alike = other.labels[: other.einsum.n_out] == labels and other.einsum.dtype == step.einsum.dtype
        if alike and not any(~j in later.operands for later in region.steps[k + 1 :]):
            return f"x{j}"
    return ""


def is_compensated(region: Region, k: int) -> bool:
    """Return whether a step is a sum whose rounding errors are added up separately."""
    aggregation = region.steps[k].einsum.aggregation
    return aggregation is not None and aggregation.combine == "add" and aggregation.rounds


def panels_nbytes(parts: RegionLabels) -> int:
    """Return the bytes of the largest panels of a product, with the tables of their offsets."""
    largest = 0
    for p in parts.products:
        step = parts.region.steps[p.step]
        nbytes = 0
        for slots, pitch, side in ((p.left, PITCHES[0], TILE_ROWS), (p.right, PITCHES[1], TILE_ACROSS)):
            for slot in slots:
                nbytes += DEPTH * pitch * panel_type(p, parts.region, slot).itemsize
                nbytes += 8 * (side + DEPTH) if step.operands[slot] >= 0 else 0
        largest = max(largest, nbytes)
    return largest


def panel_type(product: RegionProduct, region: Region, slot: int) -> DType:
    """Return the dtype of an operand in its panel."""
    e = region.steps[product.step].einsum
    assert e.aggregation is not None
    return states.value_type(e.aggregation) if product.is_contraction else e.dtypes[slot]


def static_nbytes(parts: RegionLabels) -> int:
    """Return the bytes of static shared memory: floating-point flags, conditions of a mask, and panels."""
    return LINE + _rounded(panels_nbytes(parts))


@dataclass(frozen=True)
class RegionShape:
    """Rows and columns at a time, the bytes of their buffers, and whether these are in shared memory."""

    rows: int
    columns: int
    nbytes: int
    shared: bool

    @property
    def pitch(self) -> int:
        """Elements between two rows of a value with columns: an odd multiple of 4, so that banks differ."""
        quads = -(-self.columns // 4)
        return self.columns if self.columns < 4 else 4 * (quads + (quads % 2 == 0))

    @property
    def column_bits(self) -> int:
        """Binary logarithm of the columns, rounded up."""
        return (self.columns - 1).bit_length()


def shape_of(parts: RegionLabels, extents: tuple[int, ...], mode: Mode) -> RegionShape:
    """Return the shape of what a block processes at a time.

    Buffers that do not fit in shared memory are in the workspace.
    """
    total = max(1, math.prod(extents[p] for p in parts.rows))
    batches = max(1, math.prod(extents[p] for p in parts.batch))
    long = max(1, math.prod(extents[p] for p in parts.columns))
    enough = TILE_ROWS if parts.products else 4
    found = None
    for rows, cols in SHAPES:
        rows, cols = min(rows, total), min(cols, long)
        busy = -(-total // rows) * batches >= _MIN_BLOCKS or total * batches < _MIN_BLOCKS
        shape = RegionShape(rows, cols, buffers_nbytes(parts, extents, RegionShape(rows, cols, 0, True), mode), True)
        if static_nbytes(parts) + shape.nbytes <= SHARED_NBYTES and (busy or rows <= enough):
            return shape
        found = found or replace(shape, shared=False)
    assert found is not None
    return found


def buffers_nbytes(parts: RegionLabels, extents: tuple[int, ...], shape: RegionShape, mode: Mode) -> int:
    """Return the bytes of one block's tables and buffers."""
    nbytes = _rounded(8 * shape.rows * len(parts.rows)) + _rounded(8 * shape.columns * len(parts.columns))
    for b in buffers_of(parts, mode):
        points = shape.rows * math.prod(extents[p] for p in parts.other(b.labels))
        points *= shape.pitch if parts.has_columns(b.labels) else 1
        nbytes += 0 if b.of else _rounded(points * b.itemsize)
    return nbytes


def buffer_lines(parts: RegionLabels, mode: Mode) -> list[str]:
    """Return declarations of pointers to the tables of labels and to all buffers, from ``base`` on."""
    lines = ["ind used = 0;"]

    def take(kind: str, name: str, count: str) -> None:
        lines.append(f"{kind}* const {name} = ({kind}*)(base + used);")
        lines.append(f"used += ({count} * (ind)sizeof({kind}) + {LINE - 1}) / {LINE} * {LINE};")

    take("i64", "row", f"rows * {len(parts.rows)}")
    take("i64", "col", f"cols * {len(parts.columns)}")
    for b in buffers_of(parts, mode):
        if b.of:
            lines.append(f"{b.kind}* const {b.name} = {b.of};")
            continue
        count = "rows" + "".join(f" * (ind)g.extent[{p}]" for p in parts.other(b.labels))
        take(b.kind, b.name, count + (" * pitch" if parts.has_columns(b.labels) else ""))
    return lines


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
    lines = [f"  for (ind n = threadIdx.x; n < {count}; n += {THREADS}) {{", f"    i64 rest = {begin} + n;"]
    for i, p in reversed(list(enumerate(labels))):
        lines.append(f"    {name}[n * {len(labels)} + {i}] = rest % g.extent[{p}]; rest /= g.extent[{p}];")
    return [*lines, "  }"] if labels else []
