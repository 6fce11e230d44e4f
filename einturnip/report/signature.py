"""What a program declares and defines: every tensor's name, labels, shape and dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.errors import SourceError
from einturnip.lang.sizes import size_text, size_value
from einturnip.lang.types import Access, Equation, Input, Program, SizeExpr, SizeName, walk


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor. ``axes``: its labels (an input: the sizes declared); ``shape``: numbers, or text where unknown."""

    line: int
    role: str
    name: str
    axes: tuple[str, ...]
    shape: tuple[int | str, ...]
    dtype: str


def rows(program: Program, sizes: Mapping[str, int]) -> tuple[Row, ...]:
    """A row for every definition, in order. ``sizes``: those that are known; the others stay symbols."""
    wanted = {output.tensor for output in program.outputs}
    known = dict(sizes)
    for name, dim in program.dims.items():
        value = _value(dim.definition, known) if dim.definition is not None else None
        if value is not None:
            known.setdefault(name, value)
    shapes: list[tuple[SizeExpr | None, ...]] = []
    found = []
    for tensor in program.tensors:
        if isinstance(tensor, Input):
            shape: tuple[SizeExpr | None, ...] = tensor.shape
            axes, role = tuple(map(size_text, tensor.shape)), "input"
        else:
            shape = tuple(_size(tensor, number, shapes) for number in range(tensor.n_out))
            axes, role = tuple(label.name for label in tensor.labels[: tensor.n_out]), ""
        shapes.append(shape)
        role = "output" if tensor.number in wanted else role
        extents = tuple(_shown(expr, known) for expr in shape)
        found.append(Row(tensor.span.line, role, tensor.name, axes, extents, str(tensor.dtype)))
    return tuple(found)


def _size(equation: Equation, number: int, shapes: Sequence[tuple[SizeExpr | None, ...]]) -> SizeExpr | None:
    """What sizes a label: what is written with it, the dim of its name, else the first axis that it stands on."""
    label = equation.labels[number]
    if label.size is not None:
        return label.size
    if label.dim is not None:
        return SizeName(label.dim, label.span)
    for expr in walk(equation.value):
        if isinstance(expr, Access) and number in expr.labels:
            return shapes[expr.tensor][expr.labels.index(number)]
    return None


def _value(expr: SizeExpr, sizes: Mapping[str, int]) -> int | None:
    try:
        return size_value(expr, sizes)
    except (KeyError, SourceError):
        return None


def _shown(expr: SizeExpr | None, sizes: Mapping[str, int]) -> int | str:
    if expr is None:
        return "?"
    value = _value(expr, sizes)
    return size_text(expr) if value is None else value


def table(found: Sequence[Row]) -> list[str]:
    """The rows as aligned lines: line number, role, tensor with labels, dtype and shape."""
    cells = [
        (f"line {row.line}", row.role, row.name + _bracketed(row.axes), row.dtype + _bracketed(row.shape))
        for row in found
    ]
    widths = [max((len(cell[i]) for cell in cells), default=0) for i in range(3)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in cells]


def _bracketed(parts: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, parts))}]" if parts else ""
