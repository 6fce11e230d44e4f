"""Elementwise kernels: each thread computes one point, or several adjacent points of a row."""

from __future__ import annotations

import math

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


def elementwise(einsum: Einsum, mode: Mode, layout: TileLayout) -> CudaKernel:
    """Return a kernel that computes an einsum without aggregation, or finalizes or combines states."""
    made = kernel_arguments(einsum, mode)
    labels, vector = range(einsum.n_out), layout.vector
    lines = ["i64 rest = blockIdx.x * (i64)blockDim.x + threadIdx.x;"]
    for p in reversed(labels):
        count = f"g.extent[{p}]"
        if p == einsum.n_out - 1 and vector > 1:
            lines.append(f"const i64 across = ({count} + {vector - 1}) / {vector};")
            lines.append(f"const i64 first = rest % across * {vector}; rest /= across;")
        else:
            lines.append(f"const i64 l{p} = rest % {count}; rest /= {count};")
    lines.append("if (rest) return;")
    lines += _packs(made, einsum, layout) if vector > 1 else _point(made, einsum, None)

    def grids(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        shape = list(extents[: einsum.n_out])
        if vector > 1:
            shape[-1] = -(-shape[-1] // vector)
        blocks = -(-math.prod(shape) // THREADS)
        return (LaunchGrid("map", (blocks, 1, 1), (THREADS, 1, 1)),) if blocks else ()

    return kernel(made, layout, [("map", made.entry("map", indented(lines)))], grids, lambda extents: 0)


def _packs(made: KernelArguments, einsum: Einsum, layout: TileLayout) -> list[str]:
    """Return statements for several points, with vector loads and stores.

    At the end of a row, points are computed one by one.
    """
    last, vector = einsum.n_out - 1, layout.vector
    names = {slot: f"p{slot}" for slot in sorted(layout.packed)}
    out = made.outs[0]

    def first(p: int) -> str:
        return "first" if p == last else local(p)

    lines = [
        f"if (first + {vector} > g.extent[{last}]) {{",
        f"  for (i64 l{last} = first; l{last} < g.extent[{last}]; l{last}++) {{",
    ]
    lines += ["    " + line for line in _point(made, einsum, None)]
    lines += ["  }", "} else {"]
    for slot, name in names.items():
        t = made.operands[slot]
        lines.append(f"  const {_pack(t, vector)} {name} = load<{_pack(t, vector)}>({t.base}, {t.offset(first)});")
    lines += [f"  {_pack(out, vector)} packed;", "  #pragma unroll", f"  for (int u = 0; u < {vector}; u++) {{"]
    lines.append(f"    const i64 l{last} = first + u;")
    lines += ["    " + line for line in _point(made, einsum, names)]
    lines += ["  }", f"  store<{_pack(out, vector)}>({out.base}, {out.offset(first)}, packed);", "}"]
    return lines


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

        def operand(slot: int) -> str:
            t = made.operands[slot]
            if packs is None or slot not in packs:
                return t.load(local)
            return f"{packs[slot]}.at[u] != 0" if t.dtype.kind == "b" else f"{packs[slot]}.at[u]"

        writer = ScalarWriter(operand, lambda p: f"h.origin[{p}] + l{p}")
        value = writer.value(einsum.join, einsum.dtype)
        lines = writer.lines
    return [*lines, f"packed.at[u] = {value};" if packs is not None else made.outs[0].store(local, value)]
