"""The signature of a program: name, labels, shape and dtype of every tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from einturnip.lang.expressions import AccessExpr, ConvertExpr, SizeExpr, SizeLiteral
from einturnip.lang.program import (
    Carried,
    Concatenate,
    Equation,
    GradStatement,
    InputDef,
    Loop,
    Replace,
    Statement,
    Tensor,
    TypedProgram,
)
from einturnip.lang.sizes import size_text
from einturnip.report.symbolic_shapes import shapes


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """One tensor. ``axes``: its labels (of an input: the declared sizes).

    ``shape``: numbers, or text if unknown.

    ``loops`` are the variables of the enclosing loops, outermost first; ``hidden`` marks tensors that the compiler
    named: those inside a called function, and concatenated slices and axes.
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
    """A row for every definition, in order. ``sizes``: the known ones; the others stay symbols."""
    tensors, extents = program.tensors, shapes(program, sizes)
    outputs = {_last_definition(tensors, output.tensor) for output in program.outputs}
    found = []
    for tensor, loops in _defined(program.statements, ()):
        role = "output" if tensor.number in outputs else ""
        if isinstance(tensor, InputDef):
            role = "state" if tensor.state else "input"
        shape = tuple(map(_size_of, extents[tensor.number]))
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
    """Yield every definition with its enclosing loops, in source order."""
    for statement in statements:
        match statement:
            case Loop(variable=variable, body=body):
                yield from _defined(body, (*loops, variable or "iteration"))
            case InputDef() | Equation() | Replace() | Concatenate() | GradStatement():
                yield statement, loops
            case _:
                pass


def _last_definition(tensors: Sequence[Tensor], number: int) -> int:
    """The definition of a tensor: for a name that a loop rebinds, the last one in the loop."""
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
            part_axes = [_axes(tensors, tensors[part]) for part in parts]
            joined = " | ".join(dict.fromkeys(axes[axis] for axes in part_axes))
            return (*part_axes[0][:axis], joined, *part_axes[0][axis + 1 :])


def _size_of(expr: SizeExpr | None) -> int | str:
    if expr is None:
        return "?"
    return expr.value if isinstance(expr, SizeLiteral) else size_text(expr)


def table(found: Sequence[SignatureRow]) -> list[str]:
    """Format rows as aligned lines: line number, role, tensor with labels, dtype, shape, loops."""
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
    """``[a, b]``; empty for a scalar."""
    return f"[{', '.join(map(str, parts))}]" if parts else ""
