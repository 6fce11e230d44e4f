"""Elementwise kernels with operands of unlike order: those are read through a tile in shared memory.

Adjacent threads write adjacent elements of the result. An operand that is contiguous along another label would be read
with a stride: a sector of 32 bytes for each element. So a block of threads computes SIDE x SIDE points of these two
labels. It first reads the operand's tile along the operand's own rows, and then takes the elements from shared memory.
A row of the tile has one element more than needed, so that a column's elements are in different memory banks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from einturnip.ir.einsum import Access, Einsum
from einturnip.kernels.cuda.arguments import KernelArguments, TileArgument, decode, indented, kernel, kernel_arguments
from einturnip.kernels.cuda.elementwise import joined, local
from einturnip.kernels.cuda.scalars import ctype
from einturnip.kernels.cuda.types import CudaKernel, DeviceTile, LaunchGrid, TileLayout
from einturnip.kernels.protocol import Mode

SIDE = 32
THREADS = 128
_ROWS = THREADS // SIDE  # rows of the tile that the block's threads read at once
_MIN_SIDE = 16  # extents below which most threads of a block would be idle
_SHARED_NBYTES = 40 << 10  # of shared memory, at most


def transposed_operands(
    einsum: Einsum, extents: Sequence[int], operands: Sequence[DeviceTile], out: DeviceTile
) -> tuple[int, frozenset[int]]:
    """Return the label along which operands of unlike order are contiguous, and these operands.

    Of several such labels, it is the one with the most bytes of a point.
    """
    last = einsum.n_out - 1
    if out.strides[last] != einsum.dtype.itemsize or extents[last] < _MIN_SIDE:
        return -1, frozenset()
    found: dict[int, list[int]] = {}
    for slot, (access, tile) in enumerate(zip(einsum.accesses, operands, strict=True)):
        strides, itemsize = _label_strides(access, tile.strides), einsum.dtypes[slot].itemsize
        if strides.get(last, 0) in (0, itemsize):
            continue
        for p, stride in strides.items():
            if p < last and stride == itemsize and extents[p] >= _MIN_SIDE:
                found.setdefault(p, []).append(slot)
    if not found:
        return -1, frozenset()

    def nbytes(slots: Sequence[int]) -> int:
        return sum(einsum.dtypes[slot].itemsize for slot in slots)

    across = max(sorted(found), key=lambda p: nbytes(found[p]))
    slots = found[across]
    while nbytes(slots) * SIDE * (SIDE + 1) > _SHARED_NBYTES:
        slots = slots[:-1]
    return across, frozenset(slots)


def _label_strides(access: Access, strides: Sequence[int]) -> Mapping[int, int]:
    """Return the distance of neighbours along each label, in bytes; of linear indices only."""
    found: dict[int, int] = {}
    for p, stride in zip(access, strides, strict=True):
        if isinstance(p, int):
            found[p] = found.get(p, 0) + stride
        elif not p.affine:
            return {}
        else:
            for q, c in p.terms:
                found[q] = found.get(q, 0) + c * stride
    return found


def transposing(einsum: Einsum, mode: Mode, layout: TileLayout) -> CudaKernel:
    """Return a kernel that computes an einsum without aggregation from operands of unlike order."""
    made = kernel_arguments(einsum, mode, layout.narrow)
    pair = layout.across, einsum.n_out - 1

    def grids(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        counts = [-(-n // SIDE) if p in pair else n for p, n in enumerate(extents[: einsum.n_out])]
        blocks = math.prod(counts)
        return (LaunchGrid("map", (blocks, 1, 1), (THREADS, 1, 1)),) if blocks else ()

    text = indented([*_labels(made, einsum, pair), *_tiles(made, layout, pair), *_points(made, einsum, layout, pair)])
    return kernel(made, layout, [("map", made.entry("map", text))], grids, lambda e: 0)


def _labels(made: KernelArguments, einsum: Einsum, pair: tuple[int, int]) -> list[str]:
    """Return statements that decode the block's labels, and the first indices of its tile."""
    lines = ["const int lane = threadIdx.x % 32, row = threadIdx.x / 32;", f"{made.index} rest = blockIdx.x;"]
    for p in reversed(pair):
        lines.append(f"const {made.index} tiles{p} = (g.extent[{p}] + {SIDE - 1}) >> {SIDE.bit_length() - 1};")
        lines.append(f"const {made.index} corner{p} = rest % tiles{p} * {SIDE}; rest /= tiles{p};")
    others = [p for p in range(einsum.n_out) if p not in pair]
    return [*lines, *decode("rest", others, in_range=True, index=made.index)]


def _tiles(made: KernelArguments, layout: TileLayout, pair: tuple[int, int]) -> list[str]:
    """Return statements that read the operands' tiles into shared memory.

    A thread's loads all precede its stores.
    """
    across, last = pair
    kinds = {slot: ctype(made.operands[slot].dtype) for slot in sorted(layout.transposed)}
    lines = [f"__shared__ {kind} tile{slot}[{SIDE}][{SIDE + 1}];" for slot, kind in kinds.items()]
    full = " && ".join(f"corner{p} + {SIDE} <= g.extent[{p}]" for p in pair)
    lines += [f"const bool full = {full};", "{"]
    lines += [f"  const {made.index} l{across} = corner{across} + lane, l{last} = corner{last} + row;"]
    for slot, kind in kinds.items():
        lines += ["  " + x for x in _walk(made, made.operands[slot], f"source{slot}", last)]
        lines.append(f"  {kind} read{slot}[{SIDE // _ROWS}];")
    loads = [f"read{s}[k] = load<{kind}>(source{s}, k * by_source{s});" for s, kind in kinds.items()]
    stores = [f"tile{slot}[row + k * {_ROWS}][lane] = read{slot}[k];" for slot in kinds]
    inside = f"l{across} < g.extent[{across}] && l{last} + k * {_ROWS} < g.extent[{last}]"
    lines += _in_tile([*_rows(loads), *_rows(stores)], [*_rows(loads, inside), *_rows(stores, inside)])
    return [*lines, "}", "__syncthreads();"]


def _points(made: KernelArguments, einsum: Einsum, layout: TileLayout, pair: tuple[int, int]) -> list[str]:
    """Return statements that compute a thread's points.

    They are a column of the tile, so that the block writes rows of the result.
    """
    across, last = pair
    lines, value = joined(made, einsum, {s: f"tile{s}[lane][row + k * {_ROWS}]" for s in layout.transposed})
    out = made.outs[0]
    point = [f"const {made.index} l{across} = at + k * {_ROWS};", *lines]
    point.append(f"store<{ctype(out.dtype)}>(target, k * by_target, {value});")
    begin = [f"const {made.index} l{last} = corner{last} + lane, at = corner{across} + row;", "{"]
    begin += [f"  const {made.index} l{across} = at;", *("  " + x for x in _walk(made, out, "target", across))]
    inside = f"l{last} < g.extent[{last}] && at + k * {_ROWS} < g.extent[{across}]"
    return [*begin, *_in_tile(_rows(point), _rows(point, inside)), "}"]


def _walk(made: KernelArguments, tensor: TileArgument, name: str, label: int) -> list[str]:
    """Return declarations of the address of a thread's first element, and of the next ones' distance.

    They are _ROWS apart along ``label``.
    """
    next_row = tensor.offset(lambda p: f"(l{p} + {_ROWS})" if p == label else local(p))
    lines = [f"const {made.index} offset_{name} = {tensor.offset(local)};"]
    lines.append(f"auto* const {name} = {tensor.base} + offset_{name};")
    return [*lines, f"const i64 by_{name} = {next_row} - offset_{name};"]


def _in_tile(full: list[str], edge: list[str]) -> list[str]:
    """Return the choice between statements for whole tiles and for tiles at the edge of the result.

    A whole tile needs no comparison for an element.
    """
    return ["  if (full) {", *("  " + x for x in full), "  } else {", *("  " + x for x in edge), "  }"]


def _rows(body: Sequence[str], condition: str = "") -> list[str]:
    """Return a loop over a thread's elements of the tile.

    ``condition``: C++ for whether the tile has the element.
    """
    inner = [f"if ({condition}) {{", *("  " + line for line in body), "}"] if condition else list(body)
    loop = f"  for (int k = 0; k < {SIDE // _ROWS}; k++) {{"
    return ["  #pragma unroll", loop, *("    " + line for line in inner), "  }"]
