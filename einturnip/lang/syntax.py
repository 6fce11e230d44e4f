"""The syntax tree: a program as written, before names, labels and dtypes are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from einturnip.core.diagnostics import Span

# -- expressions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A number as written."""

    value: int | float | complex
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    """A bare name: a label, a size, a scalar or a constant."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Element:
    """``name[indices]``."""

    name: str
    indices: tuple[Index, ...]
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x``, ``+x``, ``not x``."""

    op: str
    argument: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """``left op right``; ``op`` as written. ``op_span`` is the operator's own place."""

    op: str
    left: Node
    right: Node
    op_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Chain:
    """``a < b <= c``: all of the comparisons hold."""

    operands: tuple[Node, ...]
    ops: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """``name(arguments)``: a function, a cast, later a function of the program."""

    name: str
    arguments: tuple[Node, ...]
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Named:
    """``name = value`` as an argument."""

    name: str
    value: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Bound:
    """A label that an aggregation binds; after one colon or two stand its size and the accumulator's dtype."""

    name: str
    annotations: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``op[labels] body``. ``head`` spans the operator and its labels."""

    op: str
    labels: tuple[Bound, ...]
    body: Node
    head: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Concatenation:
    """``a | b``."""

    parts: tuple[Node, ...]
    span: Span


Node: TypeAlias = Literal | Name | Element | Unary | Binary | Chain | Call | Named | Aggregation | Concatenation

# -- what an index may be besides an expression ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slice:
    """``start:stop``; on the left of an equation ``label: size``."""

    start: Node | None
    stop: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class Guarded:
    """``index ? value``: ``value`` where the index is out of bounds."""

    index: Node
    value: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Merged:
    """``(h e)``: an axis made of several."""

    names: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Rest:
    """``...``: the axes not named."""

    span: Span


Index: TypeAlias = "Node | Slice | Guarded | Merged | Rest | Keyed | Alternatives"

# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """``"path"`` or ``"path" :: "key"``."""

    path: str
    key: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class DimDeclaration:
    """``dim name = value``; the value may be missing."""

    name: str
    value: Node | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class InputDeclaration:
    """``input name : dtype[shape] = default``, or ``state`` in the place of ``input``."""

    name: str
    dtype: str
    shape: tuple[Node, ...]
    default: File | Node | None
    name_span: Span
    dtype_span: Span
    span: Span
    state: bool = False


@dataclass(frozen=True, slots=True)
class OutputDeclaration:
    """``output name = file``."""

    name: str
    file: File | None
    span: Span


@dataclass(frozen=True, slots=True)
class Keyed:
    """``key : size`` on the left of an equation, where the key is no bare name (that is a Slice): a scatter."""

    key: Node
    size: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class Alternatives:
    """``i | j: size`` on the left of an equation: a concatenated axis. ``sizes``: of each label, where written."""

    names: tuple[str, ...]
    sizes: tuple[Node | None, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Target:
    """The left side of an equation. ``indices`` is None where it has no brackets."""

    name: str
    indices: tuple[Index, ...] | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Definition:
    """``targets = value``; several targets only where a function returns several tensors. ``update``: with ``<-``."""

    targets: tuple[Target, ...]
    value: Node
    span: Span
    hints: tuple[Hint, ...] = ()
    update: bool = False


@dataclass(frozen=True, slots=True)
class HintArgument:
    """``i = 256``, ``j = 4 parts`` (``parts``), or a device's words, ``cuda:0`` (``name`` empty, ``value`` None)."""

    name: str
    value: Node | None
    parts: bool
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Hint:
    """``@kind(arguments)``."""

    kind: str
    arguments: tuple[HintArgument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Parameter:
    """A function's parameter. ``indices`` (labels and at most one Rest, which is first) is None for a scalar."""

    name: str
    indices: tuple[Name | Rest, ...] | None
    default: Node | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """``fn name(parameters) = value`` or ``{ body; return values }``; of the one-line form ``body`` is empty."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Declaration, ...]
    returns: tuple[Node, ...]
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Loop:
    """``for variable in start .. stop { body }``."""

    variable: str
    start: Node
    stop: Node
    body: tuple[Declaration, ...]
    variable_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """``import "file"`` or ``import std.name`` (``path`` is then "std.name" and ``standard`` holds)."""

    path: str
    standard: bool
    span: Span


Declaration: TypeAlias = DimDeclaration | InputDeclaration | OutputDeclaration | Definition | Function | Loop | Import


@dataclass(frozen=True)
class SyntaxTree:
    """A program as written. ``source`` holds its lines."""

    declarations: tuple[Declaration, ...]
    file: str
    source: tuple[str, ...]


def parts(node: Node | Index) -> tuple[Node | Index, ...]:
    """The direct parts of an expression or index."""
    match node:
        case Element(indices=indices):
            return indices
        case Unary(argument=argument):
            return (argument,)
        case Binary(left=left, right=right):
            return (left, right)
        case Chain(operands=operands):
            return operands
        case Call(arguments=arguments):
            return arguments
        case Named(value=value):
            return (value,)
        case Aggregation(labels=labels, body=body):
            return (*(a for label in labels for a in label.annotations), body)
        case Concatenation(parts=pieces):
            return pieces
        case Alternatives(sizes=sizes):
            return tuple(size for size in sizes if size is not None)
        case Slice(start=start, stop=stop):
            return tuple(n for n in (start, stop) if n is not None)
        case Keyed(key=key, size=size):
            return (key,) if size is None else (key, size)
        case Guarded(index=index, value=value):
            return (index, value)
        case _:
            return ()
