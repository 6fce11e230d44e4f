"""Program: an ``.ein`` text, elaborated and typed, but without sizes.

What "elaborated" means here:

- A tensor is known by its *number*, the position of its definition in ``Program.tensors``; a name that is defined again
  gives a new tensor, and every ``Access`` holds the number of the version it means.
- A label is known by its number in ``Equation.labels``: the labels on the left first, in the order of the axes, then
  those that aggregations bind, each aggregation its own (``A[i,j] / sum[j] A[i,j]`` has three labels: i, j, j).
- Every aggregation is explicit: Einstein's convention has become an ``Aggregate`` with ``implied=True``.
- Every expression has a dtype, and every conversion is a ``Convert``: the arguments of arithmetic, comparisons, ``min``
  and ``max`` have one dtype, ``where`` is (bool, t, t) -> t, the body of an ``Aggregate`` has the dtype of its result
  for the operators that keep it, else what ``core.algebra.aggregation(op, body.dtype, accumulator)`` takes.
- Functions are gone: a call has become the equations of the function's body (their tensors under names like
  ``softmax.X``), and the labels that the function names have become sizes of axes (``AxisSize``).
- A loop is kept as one ``For`` with its body typed once; what it rebinds is ``Carried``.
- Slices, ``...`` and merged axes on the left are gone: they have become labels, and equations of their own.
- ``name`` fields are as the user wrote them; spans are kept everywhere, and do not count in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, assert_never

from einturnip.core.diagnostics import Diagnostic, Span, called, with_source
from einturnip.core.dtypes import I64, DType

# -- sizes -------------------------------------------------------------------------------------------------------------

SizeOperator = Literal["add", "sub", "mul", "div", "floordiv", "mod", "pow", "min", "max", "neg"]


@dataclass(frozen=True, slots=True)
class SizeLiteral:
    """A size written as a number."""

    value: int
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeName:
    """A ``dim`` or a loop's variable, by name."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeOp:
    """Integer arithmetic on sizes; ``div`` must be exact. See ``lang.sizes.size_value``."""

    op: SizeOperator
    arguments: tuple[SizeExpr, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class AxisSize:
    """The size of an axis of tensor number ``tensor``: what the label ``name`` of a function's parameter stands for."""

    tensor: int
    axis: int
    name: str = field(compare=False)
    span: Span = field(compare=False)


SizeExpr: TypeAlias = SizeLiteral | SizeName | SizeOp | AxisSize

# -- scalar expressions ------------------------------------------------------------------------------------------------

Strength = Literal["strong", "weak", "number"]
"""How a value takes part in promotion. ``number``: a Python number (literals, sizes and what is computed from them
alone), which takes the other side's dtype unless its kind is higher. ``weak``: an i64, f64 or c128 (or bool) that comes
from literals, sizes and labels alone, which never widens a float. ``strong``: everything else. Back ends need not look:
conversions are explicit."""


@dataclass(frozen=True, slots=True)
class Number:
    """A literal or constant, to be taken as ``dtype``; ``value`` is a Python bool, int, float or complex."""

    value: bool | int | float | complex
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeNumber:
    """A size used as a number, to be taken as ``dtype``."""

    size: SizeExpr
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class LabelNumber:
    """Label ``label`` of the equation used as a number: its index, from 0."""

    label: int
    span: Span = field(compare=False)
    dtype: DType = I64
    strength: Strength = "weak"


@dataclass(frozen=True, slots=True)
class Affine:
    """``(offset + sum of coefficient * label) // divisor % modulus`` as an index; ``terms`` are (label, coefficient).

    No divisor and no modulus: None.
    """

    terms: tuple[tuple[int, SizeExpr], ...]
    offset: SizeExpr
    divisor: SizeExpr | None
    modulus: SizeExpr | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Split:
    """``(h e)`` as an index: the row-major index of several labels, whose sizes multiply to the axis."""

    labels: tuple[int, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Gather:
    """An integer that is data as an index; ``value`` is i64. Out of bounds is a run-time error."""

    value: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Guarded:
    """``index ? fill``: where it is out of bounds the access is ``fill``, which has the access' dtype."""

    index: int | Affine | Gather
    fill: Expr
    span: Span = field(compare=False)


Index: TypeAlias = int | Affine | Split | Gather | Guarded
"""How an access indexes an axis; an int is a label alone."""


@dataclass(frozen=True, slots=True)
class Access:
    """The element of tensor number ``tensor`` at ``indices`` (one an axis; a repeat takes a diagonal; () for a scalar).

    A label that the tensor does not carry broadcasts. ``dtype`` is the tensor's, but for a wider one where a fill asks.
    """

    tensor: int
    indices: tuple[Index, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Convert:
    """``argument`` as ``dtype``. ``explicit`` where the program says so (``f16(x)``), else promotion asked for it."""

    argument: Expr
    dtype: DType
    strength: Strength
    explicit: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function of ``core.scalar.OPS`` applied to arguments."""

    op: str
    arguments: tuple[Expr, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``op[labels : accumulator] body``, with op one of ``core.algebra.AGGREGATIONS``; ``labels`` are bound here.

    Body and result: ``dtype`` is ``core.algebra.aggregation(op, body.dtype, accumulator).result``. ``implied`` marks
    the sum of Einstein's convention, which stands nowhere in the text.
    """

    op: str
    labels: tuple[int, ...]
    body: Expr
    accumulator: DType | None
    dtype: DType
    strength: Strength
    implied: bool
    span: Span = field(compare=False)


Expr: TypeAlias = Number | SizeNumber | LabelNumber | Access | Convert | Apply | Aggregate

# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file as the program names it, relative to the program; ``key`` picks an array inside a container."""

    path: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Dim:
    """A size. Without ``definition`` it is bound by an input's shape or from outside.

    A name that first stands in an input's shape gets its ``Dim`` just before that input, ``implied``.
    """

    name: str
    definition: SizeExpr | None
    implied: bool = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Input:
    """Tensor number ``number``, from outside. ``default`` is a file, or a number for a scalar."""

    name: str
    number: int
    dtype: DType
    shape: tuple[SizeExpr, ...]
    default: FileRef | bool | int | float | complex | None
    span: Span = field(compare=False)

    strength: Strength = "strong"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Label:
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
class Hint:
    """``@kind(...)`` before a statement. ``tiles`` are (label, size or number of parts, whether parts)."""

    kind: Literal["tile", "place", "keep", "recompute"]
    tiles: tuple[tuple[int, SizeExpr, bool], ...]
    device: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Equation:
    """``name[labels[:n_out]] = value``: tensor number ``number``. ``value.dtype`` is its dtype.

    ``keys`` are (label of the left, i64 expression): a scatter, whose value is an ``Aggregate`` that binds the labels
    of the keys, and counts at each point of the left only where every key equals its label.
    """

    name: str
    number: int
    labels: tuple[Label, ...]
    n_out: int
    value: Expr
    span: Span = field(compare=False)
    keys: tuple[tuple[int, Expr], ...] = ()
    hints: tuple[Hint, ...] = ()

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
class For:
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


Statement: TypeAlias = Dim | Input | Equation | Replace | Concatenate | For | Output
Tensor: TypeAlias = Input | Equation | Replace | Concatenate | Carried


@dataclass(frozen=True)
class Program:
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
        return with_source(problem if statement is None else called(problem, statement), self.files)

    @cached_property
    def dims(self) -> Mapping[str, Dim]:
        """Every size by name, with its definition where it has one, in the order of first mention."""
        found: dict[str, Dim] = {}
        for statement in self.statements:
            if isinstance(statement, Dim):
                found[statement.name] = statement
        return found

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every definition of a tensor, by number; those in loops as well."""
        return tuple(sorted(_tensors(self.statements), key=lambda tensor: tensor.number))

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs."""
        return tuple(s for s in self.statements if isinstance(s, Input))

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs."""
        return tuple(s for s in self.statements if isinstance(s, Output))


def _tensors(statements: Iterable[Statement]) -> Iterator[Tensor]:
    for statement in statements:
        match statement:
            case Dim() | Output():
                pass
            case For(carried=carried, body=body):
                yield from carried
                yield from _tensors(body)
            case _:
                yield statement


def index_labels(index: Index) -> tuple[int, ...]:
    """The labels that an index is made of, but those inside a gather's or a fill's expression."""
    match index:
        case int():
            return (index,)
        case Affine(terms=terms):
            return tuple(label for label, _ in terms)
        case Split(labels=labels):
            return labels
        case Gather():
            return ()
        case Guarded(index=inner):
            return index_labels(inner)
        case _:
            assert_never(index)


def index_expressions(index: Index) -> tuple[Expr, ...]:
    """The expressions inside an index: what a gather reads, and fills."""
    match index:
        case Gather(value=value):
            return (value,)
        case Guarded(index=inner, fill=fill):
            return (*index_expressions(inner), fill)
        case _:
            return ()


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    match expr:
        case Number() | SizeNumber() | LabelNumber():
            return ()
        case Access(indices=indices):
            return tuple(e for index in indices if not isinstance(index, int) for e in index_expressions(index))
        case Convert(argument=argument):
            return (argument,)
        case Apply(arguments=arguments):
            return arguments
        case Aggregate(body=body):
            return (body,)
        case _:
            assert_never(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, the expression itself first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))
