"""A program under elaboration: its statements, tensor numbers, hidden names and diagnostics so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import assert_never

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.expressions import AccessExpr, AxisSize, SizeExpr, SizeName, walk
from einturnip.lang.program import (
    Carried,
    Concatenate,
    Equation,
    GradStatement,
    InputDef,
    Output,
    Replace,
    Statement,
    Tensor,
)


@dataclass(frozen=True, slots=True)
class ExpandedSize:
    """Size of syntax after expanding its calls: names, numbers and operators (``terms``), and the calls."""

    terms: int
    calls: int


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function of the program or of an imported file; it sees functions of a lower ``order``.

    ``origin``: the file that defines it. ``size``: the size of an expanded call.
    """

    syntax: s.FunctionNode
    order: int
    origin: str
    size: ExpandedSize


@dataclass
class ProgramDraft:
    """The state of one program's elaboration.

    ``statements`` is the current block, the program's or a loop's. ``place`` is the current statement of the program;
    its calls report it as their place. ``loop`` is the place of the loop whose body is elaborated. ``sizes`` caches
    sizes of axes. ``terms`` counts the terms of the program's statements with expanded calls, ``tried`` those of calls
    that were only checked.
    """

    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    functions: dict[str, list[FunctionDefinition]] = field(default_factory=dict)
    broken_functions: set[str] = field(default_factory=set)
    outputs: dict[str, Output] = field(default_factory=dict)
    updates: dict[str, Equation] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    sizes: dict[tuple[int, int], SizeExpr] = field(default_factory=dict)
    depth: int = 0
    place: Span | None = None
    loop: Span | None = None
    terms: int = 0
    tried: int = 0

    @property
    def number(self) -> int:
        """The number of the next tensor."""
        return len(self.tensors)

    def emit(self, statement: Statement) -> None:
        """Add a statement to the block."""
        self.statements.append(statement)
        if isinstance(statement, InputDef | Equation | Replace | Concatenate | GradStatement):
            self.tensors.append(statement)
        elif isinstance(statement, Output):
            self.outputs[statement.name] = statement

    @contextmanager
    def body(self) -> Iterator[list[Statement]]:
        """Open a nested block; statements emitted within go to the yielded list."""
        outer, self.statements = self.statements, []
        try:
            yield self.statements
        finally:
            self.statements = outer

    def attempt(self) -> Callable[[], None]:
        """Save the state; calling the result restores it. The caller must drop the blocks opened since."""
        tensors, problems, warnings = len(self.tensors), len(self.problems), len(self.warnings)
        calls = Counter(self.calls)

        def back() -> None:
            del self.tensors[tensors:], self.problems[problems:], self.warnings[warnings:]
            self.calls = calls.copy()
            self.sizes.clear()

        return back

    def frame(self, function: str) -> str:
        """The name of the next call of a function: ``softmax``, then ``softmax.2``."""
        self.calls[function] += 1
        count = self.calls[function]
        return function if count == 1 else f"{function}.{count}"

    def text(self, span: Span) -> str:
        """The program's text at a span; empty if that spans lines."""
        lines = self.files.get(span.file, ())
        if span.line != span.end_line or not 0 < span.line <= len(lines):
            return ""
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]

    def declare_function(self, name: str, definition: FunctionDefinition) -> None:
        """Declare a function, visible from here on."""
        self.functions.setdefault(name, []).append(definition)

    def function(self, name: str, limit: int) -> FunctionDefinition | None:
        """The latest function of that name with an order below ``limit``."""
        return next((f for f in reversed(self.functions.get(name, ())) if f.order < limit), None)

    def axis_size(self, number: int, axis: int) -> SizeExpr:
        """The expression that determines the size of a tensor's axis, traced back through the program."""
        passed = []
        found: SizeExpr = AxisSize(number, axis, "", self.tensors[number].span)
        while isinstance(found, AxisSize):
            place = (found.tensor, found.axis)
            passed.append(place)
            source = self.sizes[place] if place in self.sizes else self._source(found)
            if source is None or source == found:
                break
            found = source
        self.sizes.update(dict.fromkeys(passed, found))
        return found

    def _source(self, size: AxisSize) -> SizeExpr | None:
        """The direct source of an axis' size: another axis, or a size."""
        match self.tensors[size.tensor]:
            case InputDef(shape=shape):
                return shape[size.axis]
            case Equation() as equation:
                return _label_size(equation, size.axis)
            case Replace(base=base):
                return replace(size, tensor=base)
            case Concatenate(axis=joined, parts=parts):
                return None if size.axis == joined else replace(size, tensor=parts[0])
            case Carried(initial=initial):
                return replace(size, tensor=initial)
            case GradStatement(by=by):
                return replace(size, tensor=by)
            case other:
                assert_never(other)


def _label_size(equation: Equation, number: int) -> SizeExpr | None:
    """The size of a label: written, by its name, or from an axis that it indexes alone."""
    label = equation.labels[number]
    if label.size is not None:
        return label.size
    if label.dim is not None:
        return SizeName(label.dim, label.span) if isinstance(label.dim, str) else label.dim
    for expr in walk(equation.value):
        if isinstance(expr, AccessExpr) and number in expr.indices:
            return AxisSize(expr.tensor, expr.indices.index(number), label.name, label.span)
    return None
