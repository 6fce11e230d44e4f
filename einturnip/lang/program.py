"""TypedProgram: an ``.ein`` text after elaboration: resolved and typed, but without sizes.

- A tensor is identified by its *number*, the position of its definition in ``TypedProgram.tensors``. Redefining a name
  creates a new tensor, and every ``AccessExpr`` holds the number of the version that it reads.
- A label is identified by its number in ``Equation.labels``: first the labels on the left, in the order of the axes,
  then those that aggregations bind, separately for each (``A[i,j] / sum[j] A[i,j]`` has three labels: i, j, j).
- Every aggregation is explicit: Einstein's convention has become an ``AggregateExpr`` with ``implied=True``.
- Expressions are in ``lang.expressions``. Each has a dtype, and every conversion is a ``ConvertExpr``. The arguments of
  arithmetic, comparisons, ``min`` and ``max`` have one dtype; ``where`` is (bool, t, t) -> t; the body of an
  ``AggregateExpr`` has the dtype that ``ir.aggregations.aggregation(op, body.dtype, accumulator)`` requires.
- Calls of functions are expanded to the equations of the body (their tensors have names like ``softmax.X``), and the
  labels that the function names have become sizes of axes (``AxisSize``).
- A loop is one ``Loop`` whose body is typed once; the names that it rebinds are ``Carried``. The condition of a
  ``while`` is one of these: a scalar named ``CONDITION``, computed before the loop and at the end of its body.
- Slices, ``...`` and merged axes on the left have become labels and separate equations.
- ``name`` fields are as the user wrote them. Spans are kept everywhere, and are ignored in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from einturnip.core.diagnostics import Diagnostic, Span, at_call_site, with_source
from einturnip.ir.dtypes import DType
from einturnip.lang.expressions import (
    Expr,
    SizeExpr,
    Strength,
)

CONDITION = "while.condition"
"""The name of the scalar that decides whether a ``while`` goes on, after the path of a function."""


def is_condition(name: str) -> bool:
    """True if a tensor is the condition of a ``while``."""
    return name.endswith(CONDITION)


# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file as the program names it, relative to the program.

    ``key`` selects an array inside a container.
    """

    path: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DimDef:
    """A size. Without ``definition`` it is bound by an input's shape or from outside.

    A name that first appears in an input's shape gets an ``implied`` ``DimDef`` directly before that input.
    """

    name: str
    definition: SizeExpr | None
    implied: bool = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class InputDef:
    """Tensor number ``number``, an input. ``default`` is a file, or a number for a scalar.

    A ``state`` has the value of the previous step; for the first step it is an input, and a number fills all its
    elements.
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

    ``size`` is the size written where it is bound (``[i: n]``). ``dim`` determines the size by the label's name: the
    name of a ``dim``, or in a function body the size that its parameters give that name. Both may be None (then an
    access sizes it) or set (then they must agree). An axis may be longer than ``size`` but not than ``dim``.
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

    ``keys`` are (label of the left, i64 expression) and make it a scatter: its value is an ``AggregateExpr`` that binds
    the labels of the keys, and contributes at each point of the left where every key equals its label. ``update``: it
    is the value of the state of that name after the step (``<-``); only ``output`` reads it.
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

    ``at`` has one entry for each axis of ``base``: the position of the slice, or None if ``piece`` has that axis.
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
    """Tensor number ``number``: the derivative of ``loss`` by tensor ``by``, with its axes and dtype.

    A loss with axes, which in a function carry a caller's labels, denotes its sum.
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
    """A name that a loop rebinds. Tensor ``number`` is its value when an iteration starts and at the end.

    ``initial`` is the tensor before the loop, ``last`` the one at the end of an iteration. They have one dtype and
    rank.
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
class Loop:
    """``for variable in start .. stop { body }``, or ``while condition, at most stop { body }``.

    Names that the body defines are local unless in ``carried``. ``condition``: of a ``while``, the number of the
    carried scalar that must be true for an iteration to begin. Its ``variable`` is empty, which no size can name.
    """

    variable: str
    start: SizeExpr
    stop: SizeExpr
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    span: Span = field(compare=False)
    condition: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """An output, to ``file`` if given: tensor number ``tensor``, the latest version of ``name`` here."""

    name: str
    tensor: int
    file: FileRef | None
    span: Span = field(compare=False)


Statement: TypeAlias = DimDef | InputDef | Equation | Replace | Concatenate | GradStatement | Loop | Output
Tensor: TypeAlias = InputDef | Equation | Replace | Concatenate | GradStatement | Carried


@dataclass(frozen=True)
class TypedProgram:
    """The statements in source order. ``source``: the text's lines; ``warnings``: those of the compiler.

    ``files`` are the lines of every file by its name, including imported ones. A statement from an expanded call has
    the span of the calling statement; its parts have their own spans in the function.
    """

    statements: tuple[Statement, ...]
    file: str = field(compare=False, default="<text>")
    source: tuple[str, ...] = field(compare=False, default=(), repr=False)
    files: Mapping[str, tuple[str, ...]] = field(compare=False, default_factory=dict, repr=False)
    warnings: tuple[Diagnostic, ...] = field(compare=False, default=())

    def located(self, problem: Diagnostic, statement: Span | None = None) -> Diagnostic:
        """Add source lines to a diagnostic; inside a function that ``statement`` calls, add the call too."""
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
        return tuple(sorted(tensors_of(self.statements), key=lambda tensor: tensor.number))

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
        """The next values of the states that change, by name."""
        return {s.name: s for s in self.statements if isinstance(s, Equation) and s.update}

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs."""
        return tuple(s for s in self.statements if isinstance(s, Output))


def tensors_of(statements: Iterable[Statement]) -> Iterator[Tensor]:
    """Yield every definition of a tensor, those in loops as well."""
    for statement in statements:
        match statement:
            case DimDef() | Output():
                pass
            case Loop(carried=carried, body=body):
                yield from carried
                yield from tensors_of(body)
            case _:
                yield statement
