"""Splits tokens into statements and nested blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from einturnip.core.diagnostics import Diagnostic, Edit, Span
from einturnip.lang import syntax_tree as s
from einturnip.lang.lexer import CONTINUES, LexToken

_CLOSER = {"[": "]", "(": ")", "{": "}"}
_OPENS = frozenset({"_LSQB", "LPAR", "LBRACE"})
_CLOSES = frozenset({"RSQB", "RPAR", "RBRACE"})
_HEADS = frozenset({"_FN", "_FOR", "_WHILE"})
OUTSIDE = frozenset({"_DIM", "_INPUT", "_OUTPUT", "_IMPORT", "_FN", "_STATE"})
"""Token types that begin a statement outside of blocks."""
_STARTS = OUTSIDE | {"_FOR", "_WHILE", "_RETURN", "AT"}
MAX_BLOCK_DEPTH = 50


@dataclass
class StatementChunk:
    """The tokens of one statement, and errors in its brackets."""

    tokens: list[LexToken]
    problems: list[Diagnostic] = field(default_factory=list)


class BlockToken(LexToken):
    """A block ``{ ... }`` as one token. The parser fills in the statements of its ``chunks``."""

    __slots__ = ("chunks", "close", "body", "returns")

    def __init__(self, opened: LexToken, chunks: list[StatementChunk], close: LexToken | None) -> None:
        super().__init__("BLOCK", opened.text, opened.file, opened.line, opened.column, opened.first)
        self.chunks = chunks
        self.close = close
        self.body: tuple[s.Declaration, ...] = ()
        self.returns: tuple[s.Node, ...] | None = None

    @property
    def end(self) -> Span:
        """The span of the block's end."""
        return (self.close or self).span


def statements(tokens: list[LexToken]) -> list[StatementChunk]:
    """Split tokens into statements.

    A keyword that begins a statement splits even inside brackets, so that a missing bracket affects one statement only.
    Without such a keyword, if the text ends inside a bracket, a line that reads ``name[...] =`` splits too. An unclosed
    block ends before the next statement that is allowed only outside of blocks.
    """
    return _StatementSplitter(tokens).split(0, len(tokens), 0)


class _StatementSplitter:
    """Splits one text. ``closes`` maps each '{' to its '}'.

    ``eager`` is set after an unclosed bracket was found.
    """

    def __init__(self, tokens: list[LexToken]) -> None:
        self.tokens = tokens
        self.eager = False
        self.closes: dict[int, int] = {}
        opened: list[int] = []
        for position, token in enumerate(tokens):
            if token.type == "LBRACE":
                opened.append(position)
            elif token.type == "RBRACE" and opened:
                self.closes[opened.pop()] = position

    def split(self, start: int, limit: int, depth: int) -> list[StatementChunk]:
        """Split the statements of a block, or of the whole text."""
        found = []
        while start < limit:
            chunk, end, at_end = self._statement(start, limit, depth)
            if at_end and not self.eager and (stop := self._next_definition(start + 1, limit)):
                self.eager = True
                chunk, end, _ = self._statement(start, stop, depth)
            found.append(chunk)
            start = end
        return found

    def _statement(self, start: int, limit: int, depth: int) -> tuple[StatementChunk, int, bool]:
        """The statement from ``start``, the start of the next, and whether the limit is inside a bracket."""
        tokens = self.tokens
        chunk = StatementChunk([])
        brackets: list[LexToken] = []
        begin = self._after_hints(start, limit)
        head = begin < limit and tokens[begin].type in _HEADS
        name = begin < limit and tokens[begin].type == "NAME"
        defined = False
        position = start
        while position < limit:
            token = tokens[position]
            kind = token.type
            if token.first and position > begin and self._ends_before(position, brackets, head, defined and name):
                break
            if kind == "LBRACE" and (head or not defined and not brackets):
                position = self._block(chunk, position, limit, depth)
                break
            if kind == "_EQUAL":
                defined = True
            elif kind in _OPENS:
                brackets.append(token)
            elif kind in _CLOSES and not _close(chunk, brackets, token):
                return chunk, self._skip(chunk, position, limit, depth, head), False
            if kind == "_ARROW" and (brackets or defined):
                chunk.tokens.append(LexToken("COMPARE", "<", token.file, token.line, token.column, token.first))
                token = LexToken("MINUS", "-", token.file, token.line, token.column + 1, False)
            chunk.tokens.append(token)
            position += 1
        for bracket in brackets[-1:]:
            message = f"'{bracket.text}' is never closed"
            closer = _CLOSER[bracket.text]
            edits = (Edit(_behind(chunk.tokens[-1]), closer),) if len(brackets) == 1 else ()
            help_text = f"add the missing '{closer}'"
            chunk.problems.append(Diagnostic("E002", message, bracket.span, help=help_text, edits=edits))
        return chunk, position, bool(brackets) and position == limit

    def _after_hints(self, position: int, limit: int) -> int:
        """The start of the statement after hints, on their line or the next."""
        tokens = self.tokens
        while position + 1 < limit and tokens[position].type == "AT" and tokens[position + 1].type == "NAME":
            position += 2
            if position < limit and tokens[position].type == "LPAR" and not tokens[position].first:
                while position < limit and tokens[position].type != "RPAR" and tokens[position].type not in _STARTS:
                    position += 1
                position += position < limit and tokens[position].type == "RPAR"
        return position

    def _ends_before(self, position: int, brackets: list[LexToken], head: bool, equation: bool) -> bool:
        kind, before = self.tokens[position].type, self.tokens[position - 1].type
        if kind in _STARTS:
            return True
        if head and kind == "LBRACE":
            return False
        if brackets:
            return self.eager and self._defines(position)
        if before not in CONTINUES or (head and before == "COLON"):
            return True
        # An equation without its last value does not take the next equation as that value.
        return equation and before != "_COMMA" and self._defines(position)

    def _block(self, chunk: StatementChunk, position: int, limit: int, depth: int) -> int:
        """Add the block that begins here to a statement; returns its end."""
        opened, close = self.tokens[position], self.closes.get(position, limit)
        if close < limit:
            end, closed = close + 1, self.tokens[close]
        else:
            end = close = self._next_outside(position + 1, limit)
            closed = None
            place = () if end == limit else ((self.tokens[end].span, "this is outside of every block"),)
            message = "'{' is never closed"
            help_text, edits = self._missing_brace(chunk, position + 1, end)
            chunk.problems.append(
                Diagnostic("E002", message, opened.span, secondary=place, help=help_text, edits=edits)
            )
        if depth == MAX_BLOCK_DEPTH:
            message = f"blocks nest deeper than {MAX_BLOCK_DEPTH}"
            chunk.problems.append(Diagnostic("E008", message, opened.span))
            return end
        chunk.tokens.append(BlockToken(opened, self.split(position + 1, close, depth + 1), closed))
        return end

    def _missing_brace(self, chunk: StatementChunk, begin: int, end: int) -> tuple[str, tuple[Edit, ...]]:
        """How to close a block: of a function behind ``return``, of a loop by its indentation."""
        tokens = self.tokens
        if all(token.type != "_FN" for token in chunk.tokens):
            column = chunk.tokens[0].column if chunk.tokens else 1
            last = self._end_by_indentation(column, begin, end)
            edits = () if last is None else (Edit(_behind(tokens[last]), f"\n{' ' * (column - 1)}}}"),)
            return "close the block with '}' behind its last statement", edits
        last = next((p for p in range(begin, end) if tokens[p].type == "_RETURN"), end)
        if last < end and any(begin <= p < last < self.closes.get(p, 0) for p in range(begin, last)):
            span = tokens[last].span
            before = Span(span.file, span.line, span.column, span.line, span.column)
            edits = (Edit(before, f"}}\n{' ' * (span.column - 1)}"),) if tokens[last].first else ()
            return "close the block of the loop with '}' above 'return'", edits
        while last + 1 < end and not tokens[last + 1].first:
            last += 1
        if last == end:
            return "end the block with: return NAME[labels], and '}' on the line below", ()
        return "add '}' behind 'return', which ends the block of a function", (Edit(_behind(tokens[last]), "\n}"),)

    def _end_by_indentation(self, column: int, begin: int, end: int) -> int | None:
        """The last token of the block of a statement at ``column``, if the indentation tells."""
        tokens, line, position = self.tokens, column, begin
        while position < end and not (tokens[position].first and tokens[position].column <= column):
            line = tokens[position].column if tokens[position].first else line
            close = self.closes.get(position, position)
            if close > position and tokens[close].first and tokens[close].column != line:
                return None
            position = close + 1
        return position - 1 if position > begin else None

    def _next_outside(self, position: int, limit: int) -> int:
        while position < limit:
            token = self.tokens[position]
            if token.first and token.type in OUTSIDE:
                return position
            position = self.closes.get(position, position) + 1
        return limit

    def _skip(self, chunk: StatementChunk, position: int, limit: int, depth: int, head: bool) -> int:
        """Skip an unmatched closing bracket, to the end of its line or block."""
        position += 1
        while position < limit and not self.tokens[position].first:
            if head and self.tokens[position].type == "LBRACE":
                return self._block(chunk, position, limit, depth)
            position += 1
        return position

    def _next_definition(self, position: int, limit: int) -> int:
        return next((p for p in range(position, limit) if self.tokens[p].first and self._defines(p)), 0)

    def _defines(self, position: int) -> bool:
        """True if a statement ``name =`` or ``name[...] =`` seems to begin here."""
        tokens = self.tokens
        if tokens[position].type != "NAME":
            return False
        after = position + 1
        if after < len(tokens) and tokens[after].type == "_LSQB":
            line = tokens[position].line
            while after < len(tokens) and tokens[after].line == line and tokens[after].type != "RSQB":
                after += 1
            after += 1
        return after < len(tokens) and tokens[after].type in ("_EQUAL", "_ARROW")


def _behind(token: LexToken | BlockToken) -> Span:
    """The empty span after a token."""
    span = token.span
    return Span(span.file, span.end_line, span.end_column, span.end_line, span.end_column)


def _close(chunk: StatementChunk, brackets: list[LexToken], token: LexToken) -> bool:
    """Close the innermost bracket, or report a mismatch."""
    if not brackets:
        message = f"'{token.text}' closes a bracket that was never opened"
        chunk.problems.append(
            Diagnostic("E002", message, token.span, help=f"delete '{token.text}'", edits=(Edit(token.span, ""),))
        )
        return False
    opener = brackets[-1]
    if _CLOSER[opener.text] == token.text:
        brackets.pop()
        return True
    message = f"'{token.text}' does not close '{opener.text}'"
    place = ((opener.span, "opened here"),)
    wanted, found = f"'{_CLOSER[opener.text]}'", f"'{token.text}'"
    closer, span = _CLOSER[opener.text], token.span
    if any(_CLOSER[other.text] == token.text for other in brackets):  # it closes an outer bracket
        help_text = f"add the missing '{closer}'"
        edit = Edit(Span(span.file, span.line, span.column, span.line, span.column), closer)
    else:
        help_text, edit = f"write '{closer}' in its place", Edit(span, closer)
    chunk.problems.append(Diagnostic("E002", message, span, (*place,), wanted, found, help_text, edits=(edit,)))
    return False
