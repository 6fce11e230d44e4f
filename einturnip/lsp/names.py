"""The names visible at a position, from the syntax tree alone, so that incomplete programs work too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from einturnip.core import package_data
from einturnip.core.diagnostics import Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.source_text import read_text
from einturnip.lsp.reading import well_formed

Kind = Literal["dim", "input", "tensor", "function", "parameter", "loop variable"]


@dataclass(frozen=True, slots=True)
class VisibleName:
    """A name with its kind, its span, its definition's text (``detail``) and the comment above it."""

    name: str
    kind: Kind
    span: Span
    detail: str
    about: str = ""


def visible_names(tree: s.SyntaxTree, line: int, column: int) -> dict[str, VisibleName]:
    """The names that a statement at a position can use; of several versions the latest one before it."""
    found: dict[str, VisibleName] = {}
    _collect(tree.declarations, tree, (line, column), found)
    return found


def _collect(
    declarations: Sequence[s.Declaration], tree: s.SyntaxTree, place: tuple[int, int], found: dict[str, VisibleName]
) -> None:
    for declaration in declarations:
        if _start(declaration) > place:
            return
        inside = place <= declaration.span[3:]
        match declaration:
            case s.Import():
                found.update({f.name: f for f in imported(declaration, tree)})
            case s.FunctionNode():
                if inside:
                    outer = {name: f for name, f in found.items() if f.kind == "function"}
                    found.clear()
                    found.update(outer)
                    found.update({p.name: _parameter(p, tree) for p in declaration.parameters})
                    _collect(declaration.body, tree, place, found)
                    return
                found[declaration.name] = function(declaration, tree)
            case s.LoopNode() | s.WhileNode():
                if inside:
                    if isinstance(declaration, s.LoopNode):
                        variable, span = declaration.variable, declaration.variable_span
                        head = f"for {variable} in {_text(tree, declaration.start.span.to(declaration.stop.span))}"
                        found[variable] = VisibleName(variable, "loop variable", span, head)
                    _collect(declaration.body, tree, place, found)
                    return
                in_loop: dict[str, VisibleName] = {}
                _collect(declaration.body, tree, place, in_loop)
                found.update({name: f for name, f in in_loop.items() if name in found})
            case s.Definition() if inside:
                pass
            case _:
                found.update({f.name: f for f in _declared(declaration, tree)})


def _start(declaration: s.Declaration) -> tuple[int, int]:
    return declaration.span[1:3]


def _declared(declaration: s.Declaration, tree: s.SyntaxTree) -> Iterator[VisibleName]:
    about = comment_above(tree.source, declaration.span.line)
    match declaration:
        case s.DimDeclaration(name=name, name_span=span):
            yield VisibleName(name, "dim", span, f"dim {_text(tree, declaration.span)}", about)
        case s.InputDeclaration(name=name, name_span=span, shape=shape):
            yield VisibleName(name, "input", span, f"input {_text(tree, declaration.span)}", about)
            for axis in shape:
                yield from (VisibleName(n.name, "dim", n.span, f"dim {n.name}") for n in _bare_names(axis))
        case s.Definition(targets=targets):
            for target in targets:
                yield VisibleName(target.name, "tensor", target.name_span, _text(tree, target.span), about)
        case _:
            pass


def _bare_names(node: s.Node | s.Index) -> Iterator[s.NameNode]:
    if isinstance(node, s.NameNode):
        yield node
    for part in s.parts(node):
        yield from _bare_names(part)


def _parameter(parameter: s.ParameterNode, tree: s.SyntaxTree) -> VisibleName:
    return VisibleName(parameter.name, "parameter", parameter.name_span, _text(tree, parameter.span))


def function(declaration: s.FunctionNode, tree: s.SyntaxTree) -> VisibleName:
    """The name of a function, with its signature."""
    parameters = ", ".join(_text(tree, p.span) for p in declaration.parameters)
    about = comment_above(tree.source, declaration.span.line)
    return VisibleName(declaration.name, "function", declaration.name_span, f"{declaration.name}({parameters})", about)


def labels(tree: s.SyntaxTree, line: int, column: int) -> tuple[str, ...]:
    """The labels of the statement at a position, if it is well formed."""
    statement = statement_at(tree.declarations, (line, column))
    if not isinstance(statement, s.Definition):
        return ()
    found: dict[str, None] = {}
    stack: list[s.Node | s.Index] = [statement.value, *(i for t in statement.targets for i in t.indices or ())]
    while stack:
        node = stack.pop()
        match node:
            case s.Element(indices=indices):
                found.update({i.name: None for i in indices if isinstance(i, s.NameNode)})
            case s.AggregationNode(labels=bound):
                found.update({b.name: None for b in bound})
            case _:
                pass
        stack += s.parts(node)
    found.update({i.name: None for t in statement.targets for i in t.indices or () if isinstance(i, s.NameNode)})
    return tuple(sorted(found))


def statement_at(declarations: Sequence[s.Declaration], place: tuple[int, int]) -> s.Declaration | None:
    """The innermost statement at a position."""
    for declaration in declarations:
        if _start(declaration) <= place <= declaration.span[3:]:
            if isinstance(declaration, s.FunctionNode | s.LoopNode | s.WhileNode):
                return statement_at(declaration.body, place) or declaration
            return declaration
    return None


def comment_above(source: Sequence[str], line: int) -> str:
    """The comment on the lines directly above a line."""
    found: list[str] = []
    number = line - 2
    while number >= 0 and source[number].lstrip().startswith("#"):
        found.append(source[number].strip().lstrip("#").strip())
        number -= 1
    return " ".join(reversed(found))


def _text(tree: s.SyntaxTree, span: Span) -> str:
    if span.line != span.end_line:
        first, *middle, last = tree.source[span.line - 1 : span.end_line]
        pieces = [first[span.column - 1 :], *middle, last[: span.end_column - 1]]
        return " ".join(piece.strip() for piece in pieces)
    return tree.source[span.line - 1][span.column - 1 : span.end_column - 1]


# -- imported names ---------------------------------------------------------------------------------------------


def imported(declaration: s.Import, tree: s.SyntaxTree) -> tuple[VisibleName, ...]:
    """The functions that an import makes visible; none if there is no such file."""
    if declaration.standard:
        return standard().get(declaration.path.removeprefix("std."), ())
    return _functions(Path(tree.file).parent / declaration.path)


def _functions(path: Path) -> tuple[VisibleName, ...]:
    try:
        stamp = os.stat(path).st_mtime_ns
        return _functions_of(str(path), stamp)
    except (OSError, UnicodeDecodeError):
        return ()


@cache
def _functions_of(path: str, stamp: int) -> tuple[VisibleName, ...]:
    tree = well_formed(read_text(path), path)
    return tuple(function(d, tree) for d in tree.declarations if isinstance(d, s.FunctionNode))


@cache
def standard() -> dict[str, tuple[VisibleName, ...]]:
    """The functions of the standard library, by the name of the module after ``std.``."""
    folder = package_data.folder("grammar") / "std"
    return {path.stem: _functions(path) for path in sorted(folder.glob("*.ein"))}
