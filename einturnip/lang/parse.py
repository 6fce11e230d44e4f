"""Text to syntax tree. Recovers at the end of each statement, so that every bad statement is reported."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lark import Lark
from lark.exceptions import UnexpectedToken, VisitError

from einturnip.core import resources
from einturnip.core.diagnostics import Diagnostic, with_source
from einturnip.core.errors import SourceError
from einturnip.lang import mistakes
from einturnip.lang.lex import Chunk, statements, tokenize
from einturnip.lang.syntax import Declaration, SyntaxTree
from einturnip.lang.tree import BadNumber, TreeBuilder

if TYPE_CHECKING:
    from lark.parsers.lalr_interactive_parser import InteractiveParser


def parse(text: str, file: str = "<text>") -> SyntaxTree:
    """The syntax tree of a program's text.

    Raises:
        SourceError: with one diagnostic or more for every statement that is no statement of the language.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = tuple(text.split("\n"))
    declarations: list[Declaration] = []
    problems: list[Diagnostic] = []
    for chunk in statements(tokenize(text, file)):
        found = chunk.problems + mistakes.before_parsing(chunk.tokens)
        if not found:
            found = _parse_statement(chunk, declarations)
        problems += found
    if problems:
        raise SourceError([with_source(problem, lines) for problem in problems])
    return SyntaxTree(tuple(declarations), file, lines)


def _parse_statement(chunk: Chunk, declarations: list[Declaration]) -> list[Diagnostic]:
    """Parse one statement; what is wrong with it."""
    run = _grammar().parse_interactive()
    fed = 0
    try:
        for token in chunk.tokens:
            run.feed_token(token)  # type: ignore[arg-type]  # Lark asks a token for its type only
            fed += 1
        declarations += _finish(run)
    except UnexpectedToken as problem:
        return [mistakes.explain(chunk.tokens, fed, set(problem.expected))]
    except BadNumber as problem:
        return [mistakes.bad_number(problem.token, problem.reason)]
    except VisitError as problem:
        if isinstance(problem.orig_exc, BadNumber):
            return [mistakes.bad_number(problem.orig_exc.token, problem.orig_exc.reason)]
        raise problem.orig_exc from None
    return []


def _finish(run: InteractiveParser) -> list[Any]:
    result = run.feed_eof()  # type: ignore[no-untyped-call]
    return list(result)


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    """The parser. Its tables are kept in the user's cache folder, where it can be written, under the grammar's hash."""
    return Lark(
        resources.text("grammar", "ein.lark"),
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=TreeBuilder(),
        cache=_cache_file(),
    )


def _cache_file() -> str | bool:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "einturnip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return str(folder / "ein.tables") if os.access(folder, os.W_OK) else False
