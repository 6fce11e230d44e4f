"""Entry of the elaboration: resolves names and labels of a program, and assigns dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from einturnip.core.diagnostics import MAX_SHOWN, Diagnostic, Span
from einturnip.core.errors import InternalError, SourceError
from einturnip.core.process_resources import gc_paused
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.declarations import check_dims, declare_dim, declare_input, declare_output
from einturnip.lang.elaborate.draft import ProgramDraft
from einturnip.lang.elaborate.imports import Imports
from einturnip.lang.elaborate.loops import loop
from einturnip.lang.elaborate.parameters import declare_function
from einturnip.lang.elaborate.scope import NameScope
from einturnip.lang.elaborate.states import after_the_step
from einturnip.lang.elaborate.syntax_analysis import count_import, count_statement
from einturnip.lang.elaborate.targets import define
from einturnip.lang.program import TypedProgram


def resolve(tree: s.SyntaxTree) -> TypedProgram:
    """Elaborate a syntax tree to a program.

    Raises:
        SourceError: with every problem found.
    """
    with gc_paused():
        return _resolve(tree)


def _resolve(tree: s.SyntaxTree) -> TypedProgram:
    draft = ProgramDraft({tree.file: tree.source})
    scope = NameScope(draft, dict(_definitions(tree.declarations)), _block)
    imports = Imports(draft, open=[tree.file])
    for declaration in tree.declarations:
        draft.place = declaration.span
        if not count_statement(scope, declaration) or len(draft.problems) > MAX_SHOWN:
            break
        _guarded(scope, imports, declaration, tree.file)
    else:
        check_dims(scope)
    if draft.problems:
        raise SourceError(_ordered(draft))
    program = TypedProgram(
        tuple(after_the_step(scope) if draft.updates else draft.statements), tree.file, tree.source, files=draft.files
    )
    if not draft.outputs and not draft.updates:
        _warn_without_output(scope, tree)
    warnings = tuple(dict.fromkeys(program.located(warning) for warning in draft.warnings))
    return TypedProgram(program.statements, tree.file, tree.source, draft.files, warnings)


def _ordered(draft: ProgramDraft) -> list[Diagnostic]:
    """The problems in source order without duplicates from repeated calls."""
    main = next(iter(draft.files))
    first: dict[tuple[str, str, Span], Diagnostic] = {}
    for problem in draft.problems:
        first.setdefault((problem.code, problem.message, problem.span), problem)
    located = TypedProgram((), files=draft.files).located
    return [located(p) for p in sorted(first.values(), key=lambda p: (p.span.file != main, p.span))]


def _definitions(declarations: tuple[s.Declaration, ...]) -> Iterator[tuple[str, Span]]:
    """Yield the first definition of each name, to distinguish early uses from unknown names."""
    for declaration in reversed(declarations):
        match declaration:
            case s.DimDeclaration(name=name, name_span=span) | s.InputDeclaration(name=name, name_span=span):
                yield name, span
            case s.FunctionNode(name=name, name_span=span):
                yield name, span
            case s.Definition(targets=targets):
                yield from ((target.name, target.name_span) for target in reversed(targets))
            case _:
                pass


def _guarded(scope: NameScope, imports: Imports, declaration: s.Declaration, file: str) -> None:
    """Elaborate one statement; reports deep calls of deep expressions that exceed the recursion limit."""
    draft = scope.draft
    problems, depth = len(draft.problems), draft.depth
    try:
        _statement(scope, imports, declaration, file)
    except RecursionError:
        draft.depth, draft.loop = depth, None
        del draft.problems[problems:]
        message = "the calls and expressions in this nest too deep"
        scope.error("E008", message, declaration.span, "name a part of it first")


def _statement(scope: NameScope, imports: Imports, declaration: s.Declaration, file: str) -> None:
    match declaration:
        case s.DimDeclaration():
            declare_dim(scope, declaration)
        case s.InputDeclaration():
            declare_input(scope, declaration)
        case s.OutputDeclaration():
            declare_output(scope, declaration)
        case s.FunctionNode():
            declare_function(scope, declaration, file)
        case s.Import():
            _import(scope, imports, declaration, file)
        case s.Definition():
            define(scope, declaration)
        case s.LoopNode() | s.WhileNode():
            loop(scope, declaration)
        case _:
            assert_never(declaration)


def _block(scope: NameScope, body: tuple[s.Declaration, ...]) -> None:
    """Elaborate the statements of a loop's or function's body."""
    outer = scope.draft.place
    for declaration in body:
        if not scope.function:
            scope.draft.place = declaration.span
        match declaration:
            case s.Definition(update=True, targets=targets, span=span):
                message = f"'{targets[0].name}' <- cannot be used in a {'function' if scope.function else 'loop'}"
                help_text = "a state changes once a step: compute its new value here, and change it after the block"
                scope.error("E011", message, span, help_text)
            case s.Definition():
                define(scope, declaration)
            case s.LoopNode() | s.WhileNode():
                loop(scope, declaration)
            case _:
                raise InternalError(f"a {type(declaration).__name__} is in a block")
    scope.draft.place = outer


def _import(scope: NameScope, imports: Imports, node: s.Import, importer: str) -> None:
    """Declare the functions of an imported file, after those that it imports."""
    tree = imports.tree(node, importer)
    if tree is None or tree.file in imports.done or not count_import(scope, node, tree):
        return
    imports.open.append(tree.file)
    ignored: list[Span] = []
    for declaration in tree.declarations:
        match declaration:
            case s.Import():
                _import(scope, imports, declaration, tree.file)
            case s.FunctionNode():
                declare_function(scope, declaration, tree.file)
            case _:
                ignored.append(declaration.span)
    imports.open.pop()
    imports.done.add(tree.file)
    if ignored:
        message = f"an import takes functions only; the rest of '{node.path}' is left out"
        place = ((ignored[0], "this, for one"),)
        scope.warnings.append(Diagnostic("W003", message, node.span, place, severity="warning"))


def _warn_without_output(scope: NameScope, tree: s.SyntaxTree) -> None:
    last = next((d for d in reversed(tree.declarations) if isinstance(d, s.Definition)), None)
    if last is None:
        return
    name, span = last.targets[0].name, last.targets[0].name_span
    message = "there is no output, so nothing will be computed"
    scope.warnings.append(Diagnostic("W002", message, span, help=f"add: output {name}", severity="warning"))
