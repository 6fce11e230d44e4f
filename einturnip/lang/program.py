"""Program: an ``.ein`` text, elaborated and typed, but without sizes.

What "elaborated" means here:

- A tensor is known by its *number*, the position of its definition in ``TypedProgram.tensors``; a name that is
defined again
  gives a new tensor, and every ``AccessExpr`` holds the number of the version it means.
- A label is known by its number in ``Equation.labels``: the labels on the left first, in the order of the axes, then
  those that aggregations bind, each aggregation its own (``A[i,j] / sum[j] A[i,j]`` has three labels: i, j, j).
- Every aggregation is explicit: Einstein's convention has become an ``AggregateExpr`` with ``implied=True``.
- Every expression has a dtype, and every conversion is a ``ConvertExpr``: the arguments of arithmetic, comparisons,
``min``
  and ``max`` have one dtype, ``where`` is (bool, t, t) -> t, the body of an ``AggregateExpr`` has the dtype of its
  result for the operators that keep it, else what ``ir.aggregations.aggregation(op, body.dtype, accumulator)`` takes.
- Functions are gone: a call has become the equations of the function's body (their tensors under names like
  ``softmax.X``), and the labels that the function names have become sizes of axes (``AxisSize``).
- A loop is kept as one ``ForLoop`` with its body typed once; what it rebinds is ``Carried``.
- Slices, ``...`` and merged axes on the left are gone: they have become labels, and equations of their own.
- ``name`` fields are as the user wrote them; spans are kept everywhere, and do not count in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from einturnip.core.diagnostics import Diagnostic, Span, at_call_site, with_source
from einturnip.ir.dtypes import DType
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AggregateExpr,
    ApplyExpr,
    AxisSize,
    ConvertExpr,
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
    SizeOperator,
    SplitIndex,
    Strength,
    children,
    index_expressions,
    index_labels,
    index_sizes,
    walk,
)

__all__ = [
    "AccessExpr",
    "AffineIndex",
    "AggregateExpr",
    "ApplyExpr",
    "AxisSize",
    "Carried",
    "Concatenate",
    "ConvertExpr",
    "DimDef",
    "Equation",
    "Expr",
    "FileRef",
    "ForLoop",
    "GatherIndex",
    "GradStatement",
    "GuardedAccess",
    "PlanHint",
    "Index",
    "InputDef",
    "EquationLabel",
    "LabelNumber",
    "NumberExpr",
    "Output",
    "TypedProgram",
    "Replace",
    "SizeExpr",
    "SizeLiteral",
    "SizeName",
    "SizeNumber",
    "SizeOp",
    "SizeOperator",
    "SplitIndex",
    "Statement",
    "Strength",
    "Tensor",
    "children",
    "index_expressions",
    "index_labels",
    "index_sizes",
    "walk",
]

# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file as the program names it, relative to the program; ``key`` picks an array inside a container."""

    path: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DimDef:
    """A size. Without ``definition`` it is bound by an input's shape or from outside.

    A name that first stands in an input's shape gets its ``DimDef`` just before that input, ``implied``.
    """

    name: str
    definition: SizeExpr | None
    implied: bool = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class InputDef:
    """Tensor number ``number``, from outside. ``default`` is a file, or a number for a scalar.

    A ``state`` comes from the step before; in the first one from outside, and a number stands for all its elements.
    """

    name: str
    number: int
    dtype: DType
    shape: tuple[SizeExpr, ...]
    default: FileRef | bool | int | float | complex | None
    span: Span = field(compare=False)
    state: bool = False

    strength: Strength = "strong"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class EquationLabel:
    """A label of one equation.

    ``size`` is the size written where it is bound (``[i: n]``), ``dim`` what carries its name and so fixes its size:
    the name of a ``dim``, or in a function's body the size that its parameters give that name. Both may be None (then
    an access sizes it) or set (then they must agree). An axis may be longer than ``size`` but not than ``dim``.
    """

    name: str
    size: SizeExpr | None
    dim: str | SizeExpr | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class PlanHint:
    """``@kind(...)`` before a statement. ``tiles`` are (label, size or number of parts, whether parts)."""

    kind: Literal["tile", "place", "keep", "recompute"]
    tiles: tuple[tuple[int, SizeExpr, bool], ...]
    device: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Equation:
    """``name[labels[:n_out]] = value``: tensor number ``number``. ``value.dtype`` is its dtype.

    ``keys`` are (label of the left, i64 expression): a scatter, whose value is an ``AggregateExpr`` that binds the
    labels of the keys, and counts at each point of the left only where every key equals its label. ``update``: this
    is what the state of that name will be when the step ends (``<-``); no statement but ``output`` reads it.
    """

    name: str
    number: int
    labels: tuple[EquationLabel, ...]
    n_out: int
    value: Expr
    span: Span = field(compare=False)
    keys: tuple[tuple[int, Expr], ...] = ()
    hints: tuple[PlanHint, ...] = ()
    update: bool = False

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.n_out

    @property
    def dtype(self) -> DType:
        """Element type of the tensor."""
        return self.value.dtype

    @property
    def strength(self) -> Strength:
        """How the tensor takes part in promotion where it is read."""
        return self.value.strength


@dataclass(frozen=True, slots=True)
class Replace:
    """Tensor number ``number``: ``base`` with a slice replaced by ``piece``.

    ``at`` has one entry an axis of ``base``: where the slice stands, or None where ``piece`` has that axis.
    """

    name: str
    number: int
    base: int
    piece: int
    at: tuple[SizeExpr | None, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.at)


@dataclass(frozen=True, slots=True)
class Concatenate:
    """Tensor number ``number``: ``parts``, all of one dtype, one after another along ``axis``."""

    name: str
    number: int
    axis: int
    parts: tuple[int, ...]
    rank: int
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class GradStatement:
    """Tensor number ``number``: the derivative of tensor ``loss`` by tensor ``by``, whose axes and dtype it has.

    A loss with axes, which in a function carry a caller's labels, stands for its sum.
    """

    name: str
    number: int
    loss: int
    by: int
    rank: int
    dtype: DType
    span: Span = field(compare=False)
    strength: Strength = "strong"


@dataclass(frozen=True, slots=True)
class Carried:
    """A name that a loop rebinds. Tensor ``number`` is its value where an iteration begins, and after the loop.

    ``initial`` is the tensor before the loop, ``last`` the one that an iteration leaves. They have one dtype and rank.
    """

    name: str
    number: int
    initial: int
    last: int
    rank: int
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ForLoop:
    """``for variable in start .. stop { body }``; what the body defines and ``carried`` does not name is its own."""

    variable: str
    start: SizeExpr
    stop: SizeExpr
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Output:
    """Tensor number ``tensor`` (the version of ``name`` that was the latest here) is wanted, in ``file`` if given."""

    name: str
    tensor: int
    file: FileRef | None
    span: Span = field(compare=False)


Statement: TypeAlias = DimDef | InputDef | Equation | Replace | Concatenate | GradStatement | ForLoop | Output
Tensor: TypeAlias = InputDef | Equation | Replace | Concatenate | GradStatement | Carried


@dataclass(frozen=True)
class TypedProgram:
    """The statements in the order written. ``source``: the text's lines; ``warnings``: what the compiler noticed.

    ``files`` are the lines of every file by its name, this one and those imported. The span of a statement that a call
    brought in is that of the calling statement; what it is made of has its own place, in the function.
    """

    statements: tuple[Statement, ...]
    file: str = field(compare=False, default="<text>")
    source: tuple[str, ...] = field(compare=False, default=(), repr=False)
    files: Mapping[str, tuple[str, ...]] = field(compare=False, default_factory=dict, repr=False)
    warnings: tuple[Diagnostic, ...] = field(compare=False, default=())

    def located(self, problem: Diagnostic, statement: Span | None = None) -> Diagnostic:
        """A finding with the lines that it shows; one inside a function that ``statement`` calls shows the call too."""
        return with_source(problem if statement is None else at_call_site(problem, statement), self.files)

    @cached_property
    def dims(self) -> Mapping[str, DimDef]:
        """Every size by name, with its definition where it has one, in the order of first mention."""
        found: dict[str, DimDef] = {}
        for statement in self.statements:
            if isinstance(statement, DimDef):
                found[statement.name] = statement
        return found

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every definition of a tensor, by number; those in loops as well."""
        return tuple(sorted(_tensors(self.statements), key=lambda tensor: tensor.number))

    @cached_property
    def inputs(self) -> tuple[InputDef, ...]:
        """The inputs."""
        return tuple(s for s in self.statements if isinstance(s, InputDef))

    @cached_property
    def states(self) -> tuple[InputDef, ...]:
        """The inputs that are states."""
        return tuple(tensor for tensor in self.inputs if tensor.state)

    @cached_property
    def updates(self) -> Mapping[str, Equation]:
        """What the states that change will be when the step ends, by name."""
        return {s.name: s for s in self.statements if isinstance(s, Equation) and s.update}

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs."""
        return tuple(s for s in self.statements if isinstance(s, Output))


def _tensors(statements: Iterable[Statement]) -> Iterator[Tensor]:
    for statement in statements:
        match statement:
            case DimDef() | Output():
                pass
            case ForLoop(carried=carried, body=body):
                yield from carried
                yield from _tensors(body)
            case _:
                yield statement
