"""What a program declares and defines: every tensor's name, labels, shape and dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from einturnip.lang.program import (
    AccessExpr,
    Carried,
    Concatenate,
    ConvertExpr,
    Equation,
    ForLoop,
    GradStatement,
    InputDef,
    Replace,
    SizeExpr,
    SizeLiteral,
    Statement,
    Tensor,
    TypedProgram,
)
from einturnip.lang.sizes import size_text
from einturnip.report.symbolic_shapes import shapes


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """One tensor. ``axes``: its labels (an input: the sizes declared); ``shape``: numbers, or text where unknown.

    ``loops`` are the variables of the loops that it is defined in, outermost first; ``hidden`` holds for what the
    compiler named: the tensors inside a function that is called, and slices and axes put together.
    """

    number: int
    line: int
    role: str
    name: str
    axes: tuple[str, ...]
    shape: tuple[int | str, ...]
    dtype: str
    loops: tuple[str, ...] = ()
    hidden: bool = False


def rows(program: TypedProgram, sizes: Mapping[str, int]) -> tuple[SignatureRow, ...]:
    """A row for every definition, in order. ``sizes``: those that are known; the others stay symbols."""
    tensors, extents = program.tensors, shapes(program, sizes)
    wanted = {_left_by(tensors, output.tensor) for output in program.outputs}
    found = []
    for tensor, loops in _defined(program.statements, ()):
        role = "output" if tensor.number in wanted else "input" if isinstance(tensor, InputDef) else ""
        shape = tuple(map(_shown, extents[tensor.number]))
        axes = _axes(tensors, tensor)
        hidden = "." in tensor.name
        found.append(
            SignatureRow(
                tensor.number, tensor.span.line, role, tensor.name, axes, shape, str(tensor.dtype), loops, hidden
            )
        )
    return tuple(found)


def _defined(
    statements: Sequence[Statement], loops: tuple[str, ...]
) -> Iterator[tuple[InputDef | Equation | Replace | Concatenate | GradStatement, tuple[str, ...]]]:
    """Every definition with the loops around it, in the order of the text."""
    for statement in statements:
        match statement:
            case ForLoop(variable=variable, body=body):
                yield from _defined(body, (*loops, variable))
            case InputDef() | Equation() | Replace() | Concatenate() | GradStatement():
                yield statement, loops
            case _:
                pass


def _left_by(tensors: Sequence[Tensor], number: int) -> int:
    """The definition that a tensor is: of a name that a loop rebinds, the last in the loop."""
    tensor = tensors[number]
    while isinstance(tensor, Carried):
        tensor = tensors[tensor.last]
    return tensor.number


def _axes(tensors: Sequence[Tensor], tensor: Tensor) -> tuple[str, ...]:
    """The labels of a tensor's axes."""
    match tensor:
        case InputDef(shape=shape):
            return tuple(map(size_text, shape))
        case Equation(name=name, value=ConvertExpr(argument=AccessExpr(tensor=source))) if "." in name:
            return _axes(tensors, tensors[source])
        case Equation(labels=labels, n_out=n_out):
            return tuple(":" if label.name.startswith(":") else label.name for label in labels[:n_out])
        case Replace(base=base) | GradStatement(by=base):
            return _axes(tensors, tensors[base])
        case Carried(initial=initial):
            return _axes(tensors, tensors[initial])
        case Concatenate(axis=axis, parts=parts):
            each = [_axes(tensors, tensors[part]) for part in parts]
            joined = " | ".join(dict.fromkeys(axes[axis] for axes in each))
            return (*each[0][:axis], joined, *each[0][axis + 1 :])


def _shown(expr: SizeExpr | None) -> int | str:
    if expr is None:
        return "?"
    return expr.value if isinstance(expr, SizeLiteral) else size_text(expr)


def table(found: Sequence[SignatureRow]) -> list[str]:
    """The rows as aligned lines: line number, role, tensor with labels, dtype and shape, the loops around it."""
    cells = [
        (
            f"line {row.line}",
            row.role,
            row.name + bracketed(row.axes),
            row.dtype + bracketed(row.shape),
            f"for each {', '.join(row.loops)}" if row.loops else "",
        )
        for row in found
    ]
    widths = [max((len(cell[i]) for cell in cells), default=0) for i in range(4)]
    return [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:<{widths[3]}}  {e}".rstrip()
        for a, b, c, d, e in cells
    ]


def bracketed(parts: Sequence[int | str]) -> str:
    """``[a, b]``, or nothing for a scalar."""
    return f"[{', '.join(map(str, parts))}]" if parts else ""
