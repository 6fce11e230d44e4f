"""Parses text to a syntax tree. Recovers after each statement, so that all bad ones are reported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from einturnip.core.diagnostics import Diagnostic, with_source
from einturnip.core.errors import SourceError
from einturnip.core.process_resources import gc_paused
from einturnip.core.program_limits import checkpoint
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.source_text import normalize_newlines
from einturnip.lang.syntax.chunks import OUTSIDE, BlockToken, StatementChunk, statements
from einturnip.lang.syntax.lalr import Automaton, Unexpected, load_tables
from einturnip.lang.syntax.tree_builder import Return, TreeBuilder, TreeError
from einturnip.lang.syntax_tree import Declaration, SyntaxTree


def parse(text: str, file: str = "<text>") -> SyntaxTree:
    """Parse a program's text.

    Raises:
        SourceError: with at least one diagnostic for every statement with a syntax error.
    """
    text = normalize_newlines(text)
    reader = _Parser()
    with gc_paused():
        declarations, _ = reader.read(statements(tokenize(text, file)), None)
    lines = tuple(text.split("\n"))
    if reader.problems:
        ordered = sorted(reader.problems, key=lambda problem: problem.span[1:3])
        raise SourceError([with_source(problem, lines) for problem in ordered])
    return SyntaxTree(declarations, file, lines)


def _misplaced(
    chunks: Sequence[StatementChunk], position: int, head: LexToken | None, block: BlockToken | None
) -> Diagnostic | None:
    """Report a statement that is not allowed in the block that ``head`` begins, or outside of blocks."""
    first = chunks[position].tokens[0] if chunks[position].tokens else None
    if first is None:
        return None
    if first.type in OUTSIDE and head is not None:
        message = f"'{first.text}' is not allowed in a block"
        return Diagnostic("E011", message, first.span, help="move it before or after the block")
    if first.type != "_RETURN":
        return None
    if head is not None and head.type in ("_FOR", "_WHILE"):
        message = "'return' is not allowed in a loop"
        return Diagnostic("E011", message, first.span, help="end the block of the function with it")
    if head is None and not _after_lost_head(chunks, position):
        message = "'return' is allowed only in the block of a function"
        return Diagnostic("E011", message, first.span, help="to name a result of the program, write output")
    if block is not None and block.close is not None and position + 1 < len(chunks):
        message = "'return' is not the last statement of its block"
        return Diagnostic("E011", message, first.span, help="delete what stands behind it")
    return None


def _after_lost_head(chunks: Sequence[StatementChunk], position: int) -> bool:
    """True if a function without a recognized block begins before; reporting that is enough."""
    from einturnip.lang.diagnose.statement_errors import FUNCTION_WORDS

    for chunk in reversed(chunks[:position]):
        if not chunk.tokens or isinstance(chunk.tokens[-1], BlockToken) or chunk.tokens[0].type == "_RETURN":
            return False
        first = chunk.tokens[0]
        if first.type == "_FN" or first.text in FUNCTION_WORDS:
            return True
    return False


class _Parser:
    """Reads statements and collects their errors."""

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.automaton = _automaton()

    def read(
        self, chunks: Sequence[StatementChunk], head: LexToken | None, block: BlockToken | None = None
    ) -> tuple[tuple[Declaration, ...], Return | None]:
        """Read the statements of the block that ``head`` begins, or of the whole text, and its return."""
        declarations: list[Declaration] = []
        returned: Return | None = None
        for position, chunk in enumerate(chunks):
            checkpoint()
            if self._block(chunk):
                continue
            if problem := _misplaced(chunks, position, head, block):
                self.problems.append(problem)
                continue
            if chunk.problems:
                self.problems += chunk.problems + _needing_no_grammar(chunk.tokens)
                continue
            result = self._statement(chunk.tokens)
            if isinstance(result, Return):
                returned = result
            else:
                declarations += result
        return tuple(declarations), returned

    def _block(self, chunk: StatementChunk) -> bool:
        """Read the block at the end of a statement; returns whether its errors suffice for the statement too."""
        block = chunk.tokens[-1] if chunk.tokens else None
        if not isinstance(block, BlockToken):
            return False
        before = len(self.problems)
        block.body, returned = self.read(block.chunks, chunk.tokens[0], block)
        block.returns = returned.values if returned else None
        return len(self.problems) > before and block.returns is None and not chunk.problems

    def _statement(self, tokens: Sequence[LexToken]) -> list[Declaration] | Return:
        """Parse one statement, or report its error."""
        try:
            result: list[Declaration] | Return = self.automaton.parse(tokens)
            return result
        except (Unexpected, TreeError) as problem:
            self.problems += _needing_no_grammar(tokens) or [_explained(tokens, problem)]
        return []


def _needing_no_grammar(tokens: Sequence[LexToken]) -> list[Diagnostic]:
    """Report foreign characters and notations, which no statement has."""
    from einturnip.lang.diagnose.syntax_errors import before_parsing  # programs without errors do not load it

    return before_parsing(tokens)


def _explained(tokens: Sequence[LexToken], problem: Unexpected | TreeError) -> Diagnostic:
    if isinstance(problem, TreeError):
        return problem.diagnostic
    from einturnip.lang.diagnose.syntax_errors import explain

    return explain(list(tokens), problem.position, problem.expected)


@lru_cache(maxsize=1)
def _automaton() -> Automaton:
    """The parser."""
    return Automaton(load_tables(), TreeBuilder())
