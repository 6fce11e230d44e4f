"""Program to EinGraph: sizes bound, each statement split at its aggregations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import numpy as np

from einturnip.core.algebra import aggregation
from einturnip.core.errors import SourceError
from einturnip.core.scalar import Call, Cast, Const, Scalar
from einturnip.core.scalar import Label as LabelIndex
from einturnip.eingraph.assembly import Assembly, Space, copy_input
from einturnip.eingraph.check import check
from einturnip.eingraph.products import python_number, widen
from einturnip.eingraph.sizes import Sizes, bind_sizes, label_sizes
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang.sizes import size_text
from einturnip.lang.types import (
    Access,
    Aggregate,
    Apply,
    Convert,
    Equation,
    Expr,
    Input,
    LabelNumber,
    Number,
    Program,
    SizeNumber,
)


def build(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, int] | None = None,
    origins: Mapping[str, str] | None = None,
) -> EinGraph:
    """The program with its sizes, as one einsum an aggregation and one for what is left of a statement around them.

    Shapes:
        shapes: of inputs, from files and arrays; an input without one takes its shape from the dims.
        dims: sizes given by hand. origins: how to name in messages where an input's shape (or a dim) came from.

    Raises:
        BindError: sizes from outside disagree with the program or each other, or are missing.
        SourceError: a statement's labels have two sizes, or none.
    """
    sizes = bind_sizes(program, shapes, dims or {}, origins or {})
    assembly = Assembly()
    nodes: list[int] = []
    for tensor in program.tensors:
        match tensor:
            case Input():
                shape = tuple(size.value for size in sizes.axes[tensor.number])
                nodes.append(assembly.add(InputNode(tensor.name, shape, tensor.dtype, tensor.span.line)))
            case Equation():
                nodes.append(_Statement(assembly, sizes, nodes, tensor).emit())
            case _:
                assert_never(tensor)
    if sizes.problems:
        raise SourceError(sizes.rendered())
    outputs = []
    for output in program.outputs:
        node = nodes[output.tensor]
        if isinstance(assembly.nodes[node], InputNode):
            node = copy_input(assembly, node, output.name, output.span.line)
        outputs.append((output.name, node))
    graph = EinGraph(tuple(assembly.nodes), tuple(outputs), program.file, program.source)
    check(graph)
    return graph


class _Statement:
    """One equation on its way to nodes."""

    def __init__(self, assembly: Assembly, sizes: Sizes, nodes: list[int], equation: Equation) -> None:
        self.sizes, self.nodes, self.equation = sizes, nodes, equation
        bounds = label_sizes(sizes, equation)
        names = tuple(label.name for label in equation.labels)
        self.space = Space(assembly, names, bounds, equation.name, equation.span.line)

    def emit(self) -> int:
        """The statement's nodes; the id of the last, which is its tensor."""
        value, name, out = self.equation.value, self.equation.name, tuple(range(self.equation.n_out))
        if not isinstance(value, Aggregate):
            return self.space.emit(out, (), self._scalar(value), None, name)
        node, free = self._aggregate(value, out)
        return node if free == out else self.space.emit(out, (), self.space.operand(node, free), None, name)

    def _aggregate(self, expr: Aggregate, out: tuple[int, ...] | None = None) -> tuple[int, tuple[int, ...]]:
        """The node of an aggregation and the labels free in it; it is the statement's own where these are ``out``."""
        join = self._scalar(expr.body)
        free = tuple(sorted(self.space.labels_in(join) - set(expr.labels)))
        join, operator = widen(join, aggregation(expr.op, join.dtype, expr.accumulator))
        return self.space.emit(free, expr.labels, join, operator, self.equation.name if free == out else None), free

    def _scalar(self, expr: Expr) -> Scalar:
        match expr:
            case Number(value=value, dtype=dtype):
                return Const(python_number(value, dtype), dtype)
            case SizeNumber():
                return self._size(expr)
            case LabelNumber(label=label, dtype=dtype):
                return LabelIndex(label, dtype)
            case Access(tensor=tensor, indices=labels):
                return self.space.operand(self.nodes[tensor], labels)
            case Convert(argument=argument, dtype=dtype):
                inner = self._scalar(argument)
                return inner if inner.dtype == dtype else Cast(inner, dtype)
            case Apply(op=op, arguments=arguments, dtype=dtype):
                return Call(op, tuple(self._scalar(a) for a in arguments), dtype)
            case Aggregate():
                return self.space.operand(*self._aggregate(expr))
            case _:
                assert_never(expr)

    def _size(self, expr: SizeNumber) -> Const:
        """A dim as a number; an integer type that cannot hold it is an error, as it is for a Python number in NumPy."""
        value, text = self.sizes.evaluate(expr.size) or 0, size_text(expr.size)
        if expr.dtype.is_integer and value > np.iinfo(expr.dtype.numpy).max:
            message = f"size {text} = {value} does not fit in {expr.dtype}"
            self.sizes.report("E208", message, expr.span, help=f"convert first: i64(...) * {text}")
        return Const(python_number(value, expr.dtype), expr.dtype)
