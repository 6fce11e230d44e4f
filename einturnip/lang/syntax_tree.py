"""The syntax tree: a program as written, before names, labels and dtypes are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from einturnip.core.diagnostics import Span

# -- expressions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A number as written."""

    value: int | float | complex
    span: Span


@dataclass(frozen=True, slots=True)
class NameNode:
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
class UnaryNode:
    """``-x``, ``+x``, ``not x``."""

    op: str
    argument: Node
    span: Span


@dataclass(frozen=True, slots=True)
class BinaryNode:
    """``left op right``; ``op`` as written. ``op_span`` is the operator's own place."""

    op: str
    left: Node
    right: Node
    op_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class ComparisonChain:
    """``a < b <= c``: all of the comparisons hold."""

    operands: tuple[Node, ...]
    ops: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CallNode:
    """``name(arguments)``: a function of the language or the program, or a cast."""

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
class BoundLabel:
    """A label that an aggregation binds.

    Its size and the accumulator's dtype follow after one or two colons.
    """

    name: str
    annotations: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class AggregationNode:
    """``op[labels] body``. ``head`` spans the operator and its labels."""

    op: str
    labels: tuple[BoundLabel, ...]
    body: Node
    head: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Concatenation:
    """``a | b``."""

    parts: tuple[Node, ...]
    span: Span


Node: TypeAlias = (
    LiteralNode
    | NameNode
    | Element
    | UnaryNode
    | BinaryNode
    | ComparisonChain
    | CallNode
    | Named
    | AggregationNode
    | Concatenation
)

# -- what an index may be besides an expression ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SliceIndex:
    """``start:stop``; on the left of an equation ``label: size``."""

    start: Node | None
    stop: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class GuardedIndex:
    """``index ? value``: ``value`` where the index is out of bounds."""

    index: Node
    value: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Merged:
    """``(h e)``: several labels merged into one axis."""

    names: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class RestAxes:
    """``...``: the axes not named."""

    span: Span


Index: TypeAlias = "Node | SliceIndex | GuardedIndex | Merged | RestAxes | KeyedAxis | Alternatives"

# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileLiteral:
    """``"path"`` or ``"path" :: "key"``."""

    path: str
    key: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class DimDeclaration:
    """``dim name = value``; ``value`` is optional."""

    name: str
    value: Node | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class InputDeclaration:
    """``input name : dtype[shape] = default``, or ``state`` instead of ``input``."""

    name: str
    dtype: str
    shape: tuple[Node, ...]
    default: FileLiteral | Node | None
    name_span: Span
    dtype_span: Span
    span: Span
    state: bool = False


@dataclass(frozen=True, slots=True)
class OutputDeclaration:
    """``output name = file``."""

    name: str
    file: FileLiteral | None
    span: Span


@dataclass(frozen=True, slots=True)
class KeyedAxis:
    """``key : size`` on the left, a scatter; the key is not a bare name, which would be a slice."""

    key: Node
    size: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class Alternatives:
    """``i | j: size`` on the left: a concatenated axis. ``sizes``: of each label, where written."""

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
    """``targets = value``; ``update``: with ``<-``. Functions with several results have several targets."""

    targets: tuple[Target, ...]
    value: Node
    span: Span
    hints: tuple[HintNode, ...] = ()
    update: bool = False


@dataclass(frozen=True, slots=True)
class HintArgument:
    """``i = 256``, ``j = 4 parts`` (``parts``), or a device, ``cuda:0`` (``name`` empty, ``value`` None)."""

    name: str
    value: Node | None
    parts: bool
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class HintNode:
    """``@kind(arguments)``."""

    kind: str
    arguments: tuple[HintArgument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ParameterNode:
    """A function's parameter. ``indices`` is None for a scalar; it may begin with one RestAxes."""

    name: str
    indices: tuple[NameNode | RestAxes, ...] | None
    default: Node | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class FunctionNode:
    """``fn name(parameters) = value`` or ``{ body; return values }``.

    In the one-line form ``body`` is empty.
    """

    name: str
    parameters: tuple[ParameterNode, ...]
    body: tuple[Declaration, ...]
    returns: tuple[Node, ...]
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class LoopNode:
    """``for variable in start .. stop { body }``."""

    variable: str
    start: Node
    stop: Node
    body: tuple[Declaration, ...]
    variable_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class WhileNode:
    """``while condition, at most bound { body }``."""

    condition: Node
    bound: Node
    body: tuple[Declaration, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """``import "file"`` or ``import std.name`` (``path`` is then "std.name" and ``standard`` holds)."""

    path: str
    standard: bool
    span: Span


Declaration: TypeAlias = (
    DimDeclaration | InputDeclaration | OutputDeclaration | Definition | FunctionNode | LoopNode | WhileNode | Import
)


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
        case UnaryNode(argument=argument):
            return (argument,)
        case BinaryNode(left=left, right=right):
            return (left, right)
        case ComparisonChain(operands=operands):
            return operands
        case CallNode(arguments=arguments):
            return arguments
        case Named(value=value):
            return (value,)
        case AggregationNode(labels=labels, body=body):
            return (*(a for label in labels for a in label.annotations), body)
        case Concatenation(parts=pieces):
            return pieces
        case Alternatives(sizes=sizes):
            return tuple(size for size in sizes if size is not None)
        case SliceIndex(start=start, stop=stop):
            return tuple(n for n in (start, stop) if n is not None)
        case KeyedAxis(key=key, size=size):
            return (key,) if size is None else (key, size)
        case GuardedIndex(index=index, value=value):
            return (index, value)
        case _:
            return ()
