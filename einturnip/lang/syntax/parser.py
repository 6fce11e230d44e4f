"""Text to syntax tree. Recovers at the end of each statement, so that every bad statement is reported."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from einturnip.core.diagnostics import Diagnostic, with_source
from einturnip.core.errors import SourceError
from einturnip.lang.diagnose import syntax_errors
from einturnip.lang.diagnose.statement_errors import FUNCTION_WORDS
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.source_text import normalize_newlines
from einturnip.lang.syntax import tables
from einturnip.lang.syntax.chunks import OUTSIDE, BlockToken, StatementChunk, statements
from einturnip.lang.syntax.lalr import Automaton, Unexpected
from einturnip.lang.syntax.tree_builder import Return, TreeBuilder, TreeError
from einturnip.lang.syntax_tree import Declaration, SyntaxTree


def parse(text: str, file: str = "<text>") -> SyntaxTree:
    """The syntax tree of a program's text.

    Raises:
        SourceError: with one diagnostic or more for every statement that is no statement of the language.
    """
    text = normalize_newlines(text)
    reader = _Parser()
    with _without_collection():
        declarations, _ = reader.read(statements(tokenize(text, file)), None)
    lines = tuple(text.split("\n"))
    if reader.problems:
        ordered = sorted(reader.problems, key=lambda problem: problem.span[1:3])
        raise SourceError([with_source(problem, lines) for problem in ordered])
    return SyntaxTree(declarations, file, lines)


def _misplaced(
    chunks: Sequence[StatementChunk], position: int, head: LexToken | None, block: BlockToken | None
) -> Diagnostic | None:
    """What is wrong with where a statement stands: in the block that ``head`` begins, or in none."""
    first = chunks[position].tokens[0] if chunks[position].tokens else None
    if first is None:
        return None
    if first.type in OUTSIDE and head is not None:
        message = f"'{first.text}' cannot stand in a block"
        return Diagnostic("E011", message, first.span, help="move it before or after the block")
    if first.type != "_RETURN":
        return None
    if head is not None and head.type == "_FOR":
        message = "'return' cannot stand in a loop"
        return Diagnostic("E011", message, first.span, help="end the block of the function with it")
    if head is None and not _after_lost_head(chunks, position):
        message = "'return' stands in the block of a function only"
        return Diagnostic("E011", message, first.span, help="to name a result of the program, write output")
    if block is not None and block.close is not None and position + 1 < len(chunks):
        message = "'return' is not the last statement of its block"
        return Diagnostic("E011", message, first.span, help="delete what stands behind it")
    return None


def _after_lost_head(chunks: Sequence[StatementChunk], position: int) -> bool:
    """Whether a function whose block was not found begins before, so that it is enough to report that."""
    for chunk in reversed(chunks[:position]):
        if not chunk.tokens or isinstance(chunk.tokens[-1], BlockToken) or chunk.tokens[0].type == "_RETURN":
            return False
        first = chunk.tokens[0]
        if first.type == "_FN" or first.text in FUNCTION_WORDS:
            return True
    return False


@contextmanager
def _without_collection() -> Iterator[None]:
    """Tokens and trees hold no cycles: looking for some, while they grow, would take a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Parser:
    """Reads statements and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.automaton = _automaton()

    def read(
        self, chunks: Sequence[StatementChunk], head: LexToken | None, block: BlockToken | None = None
    ) -> tuple[tuple[Declaration, ...], Return | None]:
        """The statements of the block that ``head`` begins, or of the whole text, and the return that ends them."""
        declarations: list[Declaration] = []
        returned: Return | None = None
        for position, chunk in enumerate(chunks):
            if self._block(chunk):
                continue
            if problem := _misplaced(chunks, position, head, block):
                self.problems.append(problem)
                continue
            found = chunk.problems + syntax_errors.before_parsing(chunk.tokens)
            if found:
                self.problems += found
                continue
            result = self._statement(chunk.tokens)
            if isinstance(result, Return):
                returned = result
            else:
                declarations += result
        return tuple(declarations), returned

    def _block(self, chunk: StatementChunk) -> bool:
        """Read the block that ends a statement; whether what is wrong in it says enough of the statement too."""
        block = chunk.tokens[-1] if chunk.tokens else None
        if not isinstance(block, BlockToken):
            return False
        before = len(self.problems)
        block.body, returned = self.read(block.chunks, chunk.tokens[0], block)
        block.returns = returned.values if returned else None
        return len(self.problems) > before and block.returns is None and not chunk.problems

    def _statement(self, tokens: Sequence[LexToken]) -> list[Declaration] | Return:
        """One statement, or what is wrong with it."""
        try:
            result: list[Declaration] | Return = self.automaton.parse(tokens)
            return result
        except Unexpected as problem:
            self.problems.append(syntax_errors.explain(list(tokens), problem.position, problem.expected))
        except TreeError as problem:
            self.problems.append(problem.diagnostic)
        return []


@lru_cache(maxsize=1)
def _automaton() -> Automaton:
    """The parser."""
    return Automaton(tables.load(), TreeBuilder())
