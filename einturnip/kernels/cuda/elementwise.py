"""Elementwise kernels: each thread computes one point, or several adjacent points of a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from einturnip.ir.einsum import Einsum
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, TileArgument, indented, kernel, kernel_arguments
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype
from einturnip.kernels.cuda.types import CudaKernel, LaunchGrid, TileLayout
from einturnip.kernels.protocol import Mode

THREADS = 256


def local(p: int) -> str:
    """Return C++ for a label's index in the tile."""
    return f"l{p}"


def element_labels(einsum: Einsum, vector: int, index: str) -> list[str]:
    """Return statements that decode the labels of a thread's outputs.

    ``first`` is the index of the first of ``vector`` outputs along the last label. ``index``: their C++ type.
    """
    lines = [f"{index} rest = blockIdx.x * ({index})blockDim.x + threadIdx.x;"]
    for p in reversed(range(einsum.n_out)):
        count, name, step = f"g.extent[{p}]", local(p), ""
        if p == einsum.n_out - 1 and vector > 1:
            lines.append(f"const {index} across = ({count} + {vector - 1}) / {vector};")
            count, name, step = "across", "first", f" * {vector}"
        if p:
            lines.append(f"const {index} {name} = rest % {count}{step}; rest /= {count};")
        else:
            lines += [f"if (rest >= {count}) return;", f"const {index} {name} = rest{step};"]
    return lines if einsum.n_out else [*lines, "if (rest) return;"]


def element_grid(entry: str, einsum: Einsum, vector: int, extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
    """Return the launch with a thread for each ``vector`` outputs."""
    shape = list(extents[: einsum.n_out])
    if vector > 1:
        shape[-1] = -(-shape[-1] // vector)
    blocks = -(-math.prod(shape) // THREADS)
    return (LaunchGrid(entry, (blocks, 1, 1), (THREADS, 1, 1)),) if blocks else ()


def elementwise(einsum: Einsum, mode: Mode, layout: TileLayout) -> CudaKernel:
    """Return a kernel that computes an einsum without aggregation, or finalizes or combines states."""
    made = kernel_arguments(einsum, mode, layout.narrow)
    lines = element_labels(einsum, layout.vector, made.index)

    def point(packs: dict[int, str] | None) -> list[str]:
        return _point(made, einsum, packs)

    lines += pack_lines(made, einsum.n_out - 1, layout, point) if layout.vector > 1 else point(None)
    entries = [("map", made.entry("map", indented(lines)))]
    return kernel(made, layout, entries, lambda e: element_grid("map", einsum, layout.vector, e), lambda e: 0)


def pack_lines(
    made: KernelArguments,
    last: int,
    layout: TileLayout,
    point: Callable[[dict[int, str] | None], list[str]],
    condition: str = "",
) -> list[str]:
    """Return statements for several points along the label ``last``, with vector loads and stores.

    At the end of a row, points are computed one by one.

    ``point``: returns the statements for one point, from the names of vectors by operand, or without vectors.
    ``condition``: C++ for whether operands are read.
    """
    vector, out = layout.vector, made.outs[0]
    names = {slot: f"p{slot}" for slot in sorted(layout.packed)}

    def first(p: int) -> str:
        return "first" if p == last else local(p)

    lines = [
        f"if (first + {vector} > g.extent[{last}]) {{",
        f"  for ({made.index} l{last} = first; l{last} < g.extent[{last}]; l{last}++) {{",
    ]
    lines += ["    " + line for line in point(None)]
    lines += ["  }", "} else {"]
    for slot, name in names.items():
        t = made.operands[slot]
        lines.append("  " + load_pack(t, vector, last, name, condition))
    lines += [f"  {_pack(out, vector)} packed;", "  #pragma unroll", f"  for (int u = 0; u < {vector}; u++) {{"]
    lines.append(f"    const {made.index} l{last} = first + u;")
    lines += ["    " + line for line in point(names)]
    lines += ["  }", f"  store<{_pack(out, vector)}>({out.base}, {out.offset(first)}, packed);", "}"]
    return lines


def load_pack(tensor: TileArgument, vector: int, last: int, name: str, condition: str = "") -> str:
    """Return statements that load a vector along the label ``last``, from ``first`` on.

    ``condition``: C++; if it does not hold, the vector is zero.
    """
    kind = _pack(tensor, vector)
    offset = tensor.offset(lambda p: "first" if p == last else local(p))
    load = f"load<{kind}>({tensor.base}, {offset})"
    return f"{kind} {name} = {{}}; if ({condition}) {name} = {load};" if condition else f"const {kind} {name} = {load};"


def element(made: KernelArguments, packs: Mapping[int, str], slot: int) -> str:
    """Return C++ for the element u of an operand's vector."""
    return f"{packs[slot]}.at[u]" + (" != 0" if made.operands[slot].dtype.kind == "b" else "")


def joined(made: KernelArguments, einsum: Einsum, read: Mapping[int, str]) -> tuple[list[str], str]:
    """Return the statements that compute the join at one point, and C++ for its value.

    ``read``: C++ for the elements of operands that were read already, by operand.
    """
    writer = ScalarWriter(
        lambda slot: read.get(slot) or made.operands[slot].load(local), lambda p: f"h.origin[{p}] + l{p}"
    )
    value = writer.value(einsum.join, einsum.dtype)
    return writer.lines, value


def _pack(tensor: TileArgument, vector: int) -> str:
    return f"Pack<{_stored(tensor)}, {vector}>"


def _stored(tensor: TileArgument) -> str:
    return "unsigned char" if tensor.dtype.kind == "b" else ctype(tensor.dtype)


def _point(made: KernelArguments, einsum: Einsum, packs: dict[int, str] | None) -> list[str]:
    """Return statements that compute one point and store it, or put it into the vector to store."""
    if made.mode == "combine":
        assert einsum.aggregation is not None
        lower = states.load_state(einsum.aggregation, "s", made.operands, local)
        return [*lower, *states.accumulate_state(einsum.aggregation, "s", made.outs, local)]
    if made.mode == "finalize" and einsum.aggregation is not None:
        lines = states.load_state(einsum.aggregation, "s", made.operands, local)
        value = states.finalized(einsum.aggregation, "s", einsum.aggregated, einsum.dtype)
    else:
        lines, value = joined(made, einsum, {slot: element(made, packs, slot) for slot in packs} if packs else {})
    return [*lines, f"packed.at[u] = {value};" if packs is not None else made.outs[0].store(local, value)]
