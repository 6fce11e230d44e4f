"""Programs made by hand, and what they compute, before and after rewriting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from einturnip.core.diagnostics import Span
from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, F64, I64, DType
from einturnip.ir.operators import Array
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AggregateExpr,
    ApplyExpr,
    Expr,
    GatherIndex,
    GuardedAccess,
    Index,
    LabelNumber,
    NumberExpr,
    SizeExpr,
    SizeLiteral,
    SizeName,
    SizeNumber,
    SizeOp,
)
from einturnip.lang.program import DimDef, Equation, EquationLabel, InputDef, Output, PlanHint, Statement, TypedProgram
from tests.reference.eingraph import evaluate

HERE = Span("p.ein", 1, 1, 1, 2)


def at(line: int) -> Span:
    """A place on a line."""
    return Span("p.ein", line, 1, line, 2)


def size(value: int | str | SizeExpr) -> SizeExpr:
    """A size: a number, a name, or what is one already."""
    match value:
        case int():
            return SizeLiteral(value, HERE)
        case str():
            return SizeName(value, HERE)
    return value


def op(name: str, *arguments: int | str | SizeExpr) -> SizeOp:
    """Arithmetic on sizes."""
    return SizeOp(name, tuple(map(size, arguments)), HERE)  # type: ignore[arg-type]


def at_index(
    *terms: tuple[int, int | str] | int,
    offset: int | str | SizeExpr = 0,
    divisor: int | str | None = None,
    modulus: int | str | None = None,
    line: int = 1,
) -> AffineIndex:
    """An affine index of labels by number, each with its coefficient."""
    pairs = [(t, 1) if isinstance(t, int) else t for t in terms]
    return AffineIndex(
        tuple((p, size(c)) for p, c in pairs),
        size(offset),
        None if divisor is None else size(divisor),
        None if modulus is None else size(modulus),
        at(line),
    )


def read(tensor: int, *indices: Index, dtype: DType = F64) -> AccessExpr:
    """An access."""
    return AccessExpr(tensor, indices, dtype, "strong", HERE)


def data(value: Expr) -> GatherIndex:
    """An index that is data."""
    return GatherIndex(value, HERE)


def guarded(index: int | AffineIndex | GatherIndex, fill: float | Expr) -> GuardedAccess:
    """``index ? fill``."""
    return GuardedAccess(index, number(fill) if isinstance(fill, int | float) else fill, HERE)


def number(value: float, dtype: DType = F64) -> NumberExpr:
    """A literal."""
    return NumberExpr(value, dtype, "number", HERE)


def sized(name: str | SizeExpr, dtype: DType = F64) -> SizeNumber:
    """A size as a number."""
    return SizeNumber(size(name), dtype, "number", HERE)


def index_of(label: int) -> LabelNumber:
    """A label as a number."""
    return LabelNumber(label, HERE)


def call(name: str, *arguments: Expr, dtype: DType | None = None) -> ApplyExpr:
    """An operator."""
    found = BOOL if name in ("lt", "le", "eq") else arguments[-1].dtype
    return ApplyExpr(name, arguments, dtype or found, "strong", HERE)


def aggregate(name: str, labels: Sequence[int], body: Expr) -> AggregateExpr:
    """An aggregation."""
    result = aggregation(name, body.dtype).result
    return AggregateExpr(name, tuple(labels), body, None, result, "strong", False, HERE)


def label(name: str, written: int | str | SizeExpr | None = None, dim: str | SizeExpr | None = None) -> EquationLabel:
    """A label of an equation."""
    return EquationLabel(name, None if written is None else size(written), dim, HERE)


def equation(
    name: str,
    tensor: int,
    labels: Sequence[str | EquationLabel],
    n_out: int,
    value: Expr,
    keys: Sequence[tuple[int, Expr]] = (),
    hints: Sequence[PlanHint] = (),
    line: int = 1,
) -> Equation:
    """``name[labels[:n_out]] = value``."""
    made = tuple(label(one) if isinstance(one, str) else one for one in labels)
    return Equation(name, tensor, made, n_out, value, at(line), tuple(keys), tuple(hints))


def given(name: str, tensor: int, *shape: int | str | SizeExpr, dtype: DType = F64) -> InputDef:
    """An input."""
    return InputDef(name, tensor, dtype, tuple(map(size, shape)), None, HERE)


def dim(name: str, value: int | SizeExpr | None = None) -> DimDef:
    """A size by name."""
    return DimDef(name, None if value is None else size(value), False, HERE)


def program(*statements: Statement, outputs: Mapping[str, int]) -> TypedProgram:
    """A program whose sizes without a statement are implied."""
    known = {s.name for s in statements if isinstance(s, DimDef)}
    names = [e.name for s in statements if isinstance(s, InputDef) for e in s.shape if isinstance(e, SizeName)]
    implied = [DimDef(n, None, True, HERE) for n in dict.fromkeys(names) if n not in known]
    wanted = [Output(name, tensor, None, HERE) for name, tensor in outputs.items()]
    return TypedProgram((*implied, *statements, *wanted), "p.ein")


def graph_of(made: TypedProgram, **arrays: Array) -> EinGraph:
    """The program with sizes."""
    return build(made, {name: array.shape for name, array in arrays.items()})


def results(made: TypedProgram, **arrays: Array) -> dict[str, Array]:
    """The outputs, which rewriting leaves as they are."""
    graph = graph_of(made, **arrays)
    found = evaluate(graph, arrays)
    after = evaluate(rewrite(graph), arrays)
    for name, value in found.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
        assert after[name].dtype == value.dtype and after[name].shape == value.shape
    return found


def integers(*shape: int, dtype: str = "float64", seed: int = 0) -> Array:
    """Small integers, so that every sum is exact."""
    return np.random.default_rng(seed + len(shape)).integers(-3, 4, shape).astype(dtype)


LONG = I64
