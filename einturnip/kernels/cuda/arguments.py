"""The two parameter structs of a kernel, and C++ expressions for the addresses of elements.

In the generated code, ``h`` is the struct Head (addresses and origins of a call), ``g`` is the struct Fixed (extents,
bounds, strides), ``f`` collects floating-point flags, and ``l<p>`` is the index of label ``p`` within the tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Access, Einsum, Index
from einturnip.ir.region import Region
from einturnip.kernels.cuda.scalars import ctype
from einturnip.kernels.cuda.types import CudaKernel, LaunchGrid, TileLayout
from einturnip.kernels.protocol import Mode

NAME = "KERNEL"
"""Placeholder for the kernel's name in a source; the name is a hash of that source."""
Place = Callable[[int], str]
"""Returns C++ for the index of a label."""


@dataclass(frozen=True)
class TileArgument:
    """A tile in generated code.

    ``base``: C++ for its address. ``stride``: position of its first axis in ``g.stride``. ``corners``, ``sizes``: by
    axis, the position in ``h.corner`` and in ``g.size``.
    """

    base: str
    access: Access
    dtype: DType
    stride: int
    corners: Mapping[int, int]
    sizes: Mapping[int, int]

    def offset(self, at: Place, labels: Sequence[int] | None = None) -> str:
        """Return C++ for the byte offset of the element at which label p has the index ``at(p)`` in the tile.

        ``labels``: include only the terms of these labels; ``start`` gives the term that no label varies.
        """
        terms = []
        for axis, p in enumerate(self.access):
            if isinstance(p, int):
                index = at(p) if labels is None or p in labels else ""
            elif labels is None:
                index = f"({_index(p, at, self.sizes.get(axis))} - h.corner[{self.corners[axis]}])"
            else:
                inside = [f"{c} * {at(q)}" for q, c in p.terms if q in labels]
                index = f"({' + '.join(inside)})" if inside else ""
            if index:
                terms.append(f"{index} * g.stride[{self.stride + axis}]")
        return " + ".join(terms) or "0"

    def start(self, origin: Place) -> str:
        """Return C++ for the byte offset of the element at the labels' origins.

        Partial ``offset``s leave it out.
        """
        terms = []
        for axis, p in enumerate(self.access):
            if isinstance(p, Index):
                index = " + ".join([str(p.offset), *(f"{c} * {origin(q)}" for q, c in p.terms)])
                terms.append(f"({index} - h.corner[{self.corners[axis]}]) * g.stride[{self.stride + axis}]")
        return " + ".join(terms) or "0"

    def load(self, at: Place) -> str:
        """Return C++ for the element at a point."""
        return f"load<{ctype(self.dtype)}>({self.base}, {self.offset(at)})"

    def store(self, at: Place, value: str) -> str:
        """Return a statement that writes the element at a point."""
        return f"store<{ctype(self.dtype)}>({self.base}, {self.offset(at)}, {value});"


def _index(p: Index, at: Place, size: int | None) -> str:
    """Return C++ for an index of the whole tensor that does not depend on data."""
    text = " + ".join([f"{p.offset}LL", *(f"{c} * (h.origin[{q}] + {at(q)})" for q, c in p.terms)])
    text = f"floor_div({text}, {p.divisor})" if p.divisor != 1 else f"({text})"
    text = f"floor_mod({text}, {p.modulus})" if p.modulus else text
    return f"ein::clamp({text}, g.size[{size}])" if p.clamped else text


@dataclass(frozen=True)
class KernelArguments:
    """The parameters of a kernel of an einsum or a region, in one mode.

    ``narrow``: see TileLayout.
    """

    space: Einsum | Region
    mode: Mode
    outs: tuple[TileArgument, ...]
    operands: tuple[TileArgument, ...]
    corners: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, int], ...]
    narrow: bool = False

    @property
    def index(self) -> str:
        """The C++ type of indices and of numbers of points; 32 bits if those of the layout fit."""
        return "int" if self.narrow else "i64"

    def origin(self, p: int) -> str:
        """Return C++ for the index of the tile's first point along label ``p``."""
        return f"h.origin[{p}]"

    def structs(self) -> str:
        """Return the declarations of Head and Fixed, which ``CudaKernel.head`` and ``launches`` fill."""
        labels, word = max(1, len(self.space.labels)), "Narrow" if self.narrow else "i64"
        bound = "; i64" if self.narrow else ","
        strides = sum(len(t.access) for t in (*self.outs, *self.operands))
        return f"""namespace {NAME} {{
struct Head {{
  char* out[{len(self.outs)}];
{f"  const char* in[{len(self.operands)}];" if self.operands else ""}
  char* workspace;
  u64* status;
  i64 first;
{f"  i64 origin[{labels}];" if self.space.labels else ""}
{f"  i64 corner[{len(self.corners)}];" if self.corners else ""}
}};
struct Fixed {{
{f"  {word} extent[{labels}]{bound} bound[{labels}];" if self.space.labels else ""}
{f"  {word} stride[{strides}];" if strides else ""}
{f"  i64 size[{len(self.sizes)}];" if self.sizes else ""}
  i64 param[8];
}};
}}
"""

    def entry(self, part: str, body: str, attributes: str = "__launch_bounds__(256)") -> str:
        """Return the text of one kernel function; its body can use h, g and f."""
        return f"""extern "C" __global__ void {attributes} {NAME}_{part}(const {NAME}::Head h, const {NAME}::Fixed g) {{
  Watch f = {{0}};
{body}
  report(h.status, f.seen);
}}
"""


PARAMS = 8
"""Length of ``g.param``."""


def kernel_arguments(space: Einsum | Region, mode: Mode, narrow: bool = False) -> KernelArguments:
    """Return the parameters of a kernel."""
    outs: list[tuple[Access, DType]]
    state = _components(space)
    result = [(tuple(range(space.n_out)), space.dtype)]
    outs = state if mode in ("accumulate", "combine") else list(result)
    given = state if mode in ("finalize", "combine") else list(zip(space.accesses, space.dtypes, strict=True))
    corners = [(s, a) for s, (access, _) in enumerate(given) for a, p in enumerate(access) if isinstance(p, Index)]
    sizes = [(s, a) for s, a in corners if given[s][0][a].clamped]  # type: ignore[union-attr]
    tensors, stride = [], 0
    for n, (access, dtype) in enumerate([*outs, *given]):
        slot = n - len(outs)
        base = f"h.out[{n}]" if slot < 0 else f"h.in[{slot}]"
        own = {a: i for i, (s, a) in enumerate(corners) if s == slot}
        clamped = {a: i for i, (s, a) in enumerate(sizes) if s == slot}
        tensors.append(TileArgument(base, access, dtype, stride, own, clamped))
        stride += len(access)
    k = len(outs)
    return KernelArguments(space, mode, tuple(tensors[:k]), tuple(tensors[k:]), tuple(corners), tuple(sizes), narrow)


def _components(space: Einsum | Region) -> list[tuple[Access, DType]]:
    """Return the labels and dtype of each component of the state."""
    if isinstance(space, Einsum):
        return [(tuple(range(space.n_out)), dtype) for dtype in space.state_dtypes]
    found: list[tuple[Access, DType]] = []
    for k in space.carried:
        step = space.steps[k]
        labels = step.labels[: step.einsum.n_out]
        found += [(labels, dtype) for dtype in step.einsum.state_dtypes]
    return found


def kernel(
    arguments: KernelArguments,
    layout: TileLayout,
    parts: Sequence[tuple[str, str]],
    grids: Callable[[tuple[int, ...]], tuple[LaunchGrid, ...]],
    workspace: Callable[[tuple[int, ...]], int],
    prelude: str = "",
) -> CudaKernel:
    """Assemble a kernel from its entries.

    ``parts``: (short name, text) of each entry; ``grids`` uses the short names.

    ``prelude``: further includes.
    """
    text = '#include "fold.cuh"\nusing namespace ein;\n\n' + arguments.structs() + prelude + "\n"
    text += "\n".join(body for _, body in parts)
    name = "ein_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    entries = {part: f"{name}_{part}" for part, _ in parts}

    def named(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        return tuple(
            LaunchGrid(
                entries[g.entry], g.blocks, g.threads, (*g.params, *(0,) * (PARAMS - len(g.params))), g.shared_nbytes
            )
            for g in grids(extents)
        )

    return CudaKernel(
        name,
        text.replace(NAME, name),
        tuple(entries.values()),
        arguments.space,
        arguments.mode,
        layout,
        arguments.corners,
        arguments.sizes,
        named,
        workspace,
        entries.get("explain"),
    )


def decode(number: str, labels: Sequence[int], in_range: bool = False, index: str = "i64") -> list[str]:
    """Return statements that decode a flat number into indices, the last label fastest.

    Afterwards the number is 0 if it was in range. ``in_range``: it is, so the first label needs no division.
    ``index``: the type of the indices.
    """
    lines = []
    for p in reversed(labels):
        if in_range and p == labels[0]:
            lines.append(f"const {index} l{p} = {number};")
            continue
        count = f"g.extent[{p}]"
        lines.append(f"const {index} l{p} = {number} % {count}; {number} /= {count};")
    return lines


def product(labels: Sequence[int], of: str = "extent") -> str:
    """Return C++ for the number of points of some labels.

    ``of``: ``extent`` in the tile, ``bound`` in the tensor.
    """
    return " * ".join(["(i64)1", *(f"g.{of}[{p}]" for p in labels)])


def indented(lines: Sequence[str]) -> str:
    """Join statements to indented text."""
    return "\n".join("  " + line for line in lines)
