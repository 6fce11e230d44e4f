"""The syntax tree of drawn programs.

It is deliberately not the compiler's: a program drawn here reaches the compiler as text only (see ``printing``), so
that an error in the compiler's syntax tree cannot affect both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# --- parts of an expression -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NumberTerm:
    """A literal: true, 3, 0.5, 2j, inf, nan. Never negative; use ``UnaryTerm``."""

    value: bool | int | float | complex


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """A dim, a loop's variable or a function's size used as a number."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """A label used as a number."""

    label: str


@dataclass(frozen=True, slots=True)
class AccessTerm:
    """A tensor with all its axes, or a scalar with none."""

    name: str
    indices: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class UnaryTerm:
    """``-x`` or ``not x``."""

    op: str
    argument: Term


@dataclass(frozen=True, slots=True)
class BinaryTerm:
    """``a op b`` with op one of ``+ - * / // % ^ and or``."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class ComparisonTerm:
    """A chain of comparisons: ``ops[i]`` is between ``arguments[i]`` and ``arguments[i + 1]``."""

    ops: tuple[str, ...]
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class FunctionTerm:
    """``where``, ``min``, ``max``, an elementwise function or a cast (its name is the dtype's)."""

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class BoundTerm:
    """A label where it is bound, with the size written there, if any."""

    label: str
    size: Term | None = None


@dataclass(frozen=True, slots=True)
class AggregateTerm:
    """``op[bounds] body``; ``dtype`` is the requested one, as in ``sum[k : f64]``."""

    op: str
    bounds: tuple[BoundTerm, ...]
    body: Term
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class ParenTerm:
    """Redundant parentheses."""

    inner: Term


@dataclass(frozen=True, slots=True)
class CallTerm:
    """A call of one of the program's functions; ``result`` selects one of several results.

    ``made`` is not written: the statement's labels for the labels that the function introduces.
    """

    function: Fn
    arguments: tuple[Term, ...]
    named: tuple[tuple[str, Term], ...] = ()
    result: int = 0
    made: tuple[str, ...] = ()


Term: TypeAlias = (
    NumberTerm
    | SizeTerm
    | IndexTerm
    | AccessTerm
    | UnaryTerm
    | BinaryTerm
    | ComparisonTerm
    | FunctionTerm
    | AggregateTerm
    | ParenTerm
    | CallTerm
)

# --- indices other than labels (str) and terms ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuardedTerm:
    """``index ? fill``."""

    index: str | Term
    fill: Term


@dataclass(frozen=True, slots=True)
class SliceTerm:
    """``start:stop``."""

    start: Term | None = None
    stop: Term | None = None


@dataclass(frozen=True, slots=True)
class GroupTerm:
    """``(h e)``: several labels as one axis, the last fastest; also on the left."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestTerm:
    """``...``: the axes of a function's argument that it does not name; also on the left."""


Position: TypeAlias = str | Term | GuardedTerm | SliceTerm | GroupTerm | RestTerm

# --- left sides other than a bound label, a group and a rest ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColonTerm:
    """``:``, which corresponds to a slice of each access."""


@dataclass(frozen=True, slots=True)
class FixedTerm:
    """The index of the slice that is replaced."""

    at: Term


@dataclass(frozen=True, slots=True)
class KeyedTerm:
    """``key: size``."""

    key: Term
    size: Term


@dataclass(frozen=True, slots=True)
class JoinedTerm:
    """``i | j: 2``: each part's own label for the axis along which parts are concatenated."""

    bounds: tuple[BoundTerm, ...]


Left: TypeAlias = BoundTerm | GroupTerm | RestTerm | ColonTerm | FixedTerm | KeyedTerm | JoinedTerm

# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrawnDim:
    """``dim name`` or ``dim name = size``."""

    name: str
    size: Term | None = None


@dataclass(frozen=True, slots=True)
class DrawnInput:
    """``input name : dtype[shape]``."""

    name: str
    dtype: str
    shape: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class DrawnStatement:
    """``name[bounds] = body``, or ``name = body`` without bounds.

    ``others`` are the further parts if one of the bounds is a ``JoinedTerm``. ``hints`` are written above it, as text.
    """

    name: str
    bounds: tuple[Left, ...]
    body: Term
    others: tuple[Term, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnSeveral:
    """``A[i, j], b[i] = call``: a name and its bounds for each tensor that the function returns."""

    targets: tuple[tuple[str, tuple[Left, ...]], ...]
    call: CallTerm


@dataclass(frozen=True, slots=True)
class DrawnLoop:
    """``for variable in start .. stop { body }``."""

    variable: str
    start: Term
    stop: Term
    body: tuple[Step, ...]


Step: TypeAlias = DrawnStatement | DrawnSeveral | DrawnLoop


@dataclass(frozen=True, slots=True)
class DrawnParameter:
    """A tensor with labels (a ``RestTerm`` first, if any), or a scalar (None)."""

    name: str
    labels: tuple[str | RestTerm, ...] | None = None
    default: Term | None = None


@dataclass(frozen=True, slots=True)
class Fn:
    """A function of the program; printed in one line if it has no steps and returns one term."""

    name: str
    parameters: tuple[DrawnParameter, ...]
    steps: tuple[Step, ...]
    returns: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class DrawnProgram:
    """A program of the language."""

    dims: tuple[DrawnDim, ...]
    inputs: tuple[DrawnInput, ...]
    statements: tuple[Step, ...]
    outputs: tuple[str, ...]
    functions: tuple[Fn, ...] = ()
