"""Formats programs canonically: comments and paragraphs are kept, the rest is laid out anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from einturnip.core.errors import InternalError
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.source_text import normalize_newlines
from einturnip.lang.syntax.chunks import BlockToken, StatementChunk, statements
from einturnip.lang.syntax.parser import parse
from einturnip.lang.syntax.spacing import SpacedToken, continuation, joined, pieces, wrap

WIDTH = 120
"""Maximum line length where a line can be broken; comments after a line do not count."""
_INDENT = 2
_BLANK_LINES = 2


def format_text(text: str, file: str = "<text>") -> str:
    """Format a program canonically. The meaning is preserved, and formatting is idempotent.

    Raises:
        SourceError: the text is no program.
    """
    parse(text, file)
    text = normalize_newlines(text)
    comments: list[LexToken] = []
    tokens = tokenize(text, file, comments)
    layout = _Layout(tokens, comments)
    layout.block(statements(tokens), 0)
    layout.comments_before(None, 0)
    formatted = _aligned(layout.lines)
    if list(_outline(statements(tokens))) != list(_outline(statements(tokenize(formatted, file)))):
        raise InternalError(f"formatting {file} would have changed what it means; it was left as it was")
    return formatted


def _outline(chunks: Sequence[StatementChunk]) -> Iterator[tuple[str, str]]:
    """The meaning of a text: its tokens, statement ends and blocks."""
    for chunk in chunks:
        for token in chunk.tokens:
            yield token.type, token.text
            if isinstance(token, BlockToken):
                yield from _outline(token.chunks)
                yield "BLOCK", "}"
        yield "END", ""


@dataclass
class _Line:
    text: str
    comment: str = ""


class _Layout:
    """The lines laid out so far, and the comments still to be placed."""

    def __init__(self, tokens: Sequence[LexToken], comments: Sequence[LexToken]) -> None:
        self.lines: list[_Line] = []
        self.last = {token.line: token.column for token in tokens}
        self.comments = comments
        self.next = 0
        self.ended = 0
        """The source line where the last laid-out text ends; 0 where no blank line may follow."""

    def block(self, chunks: Sequence[StatementChunk], indent: int) -> None:
        """Lay out statements."""
        for chunk in chunks:
            tokens = chunk.tokens
            self.comments_before(tokens[0], indent)
            self._paragraph(tokens[0].line)
            block = tokens[-1]
            if isinstance(block, BlockToken) and block.close is not None:
                self._statement(tokens[:-1], indent, block)
                self.ended = 0
                self.block(block.chunks, indent + _INDENT)
                self.comments_before(block.close, indent + _INDENT)
                self.lines.append(_Line(" " * indent + "}", self._comment_behind(block.close)))
                self.ended = block.close.line
            else:
                self._statement(tokens, indent, None)
                self.ended = tokens[-1].line

    def comments_before(self, token: LexToken | None, indent: int) -> None:
        """Lay out the comments before a token, or all remaining ones, on lines of their own."""
        while (comment := self._peek()) and (token is None or comment.line < token.line):
            self._paragraph(comment.line)
            self.lines.append(_Line(" " * indent + _comment_text(comment)))
            self.ended = comment.line
            self.next += 1

    def _peek(self) -> LexToken | None:
        return self.comments[self.next] if self.next < len(self.comments) else None

    def _paragraph(self, line: int) -> None:
        """Keep the blank lines before a source line."""
        if self.ended and line > self.ended + 1:
            self.lines += [_Line("")] * min(line - self.ended - 1, _BLANK_LINES)

    def _comment_behind(self, token: LexToken) -> str:
        """The comment after a token, if the token is the last of its line."""
        comment = self._peek()
        if comment is None or comment.line != token.line or self.last[token.line] != token.column:
            return ""
        self.next += 1
        return _comment_text(comment)

    def _statement(self, tokens: Sequence[LexToken], indent: int, block: BlockToken | None) -> None:
        """Lay out a statement, or the head of a block."""
        comment = self._peek()
        written = pieces(tokens)
        starts = _starts(tokens)
        if comment is not None and comment.line < tokens[-1].line:
            self._kept(tokens, written, starts, indent)
        else:
            for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True):
                self.lines += [_Line(line) for line in wrap(written[start:stop], indent, WIDTH)]
        last = self.lines[-1]
        last.comment = last.comment or self._comment_behind(tokens[-1])
        if block is not None:
            last.text += " {"
            last.comment = last.comment or self._comment_behind(block)

    def _kept(
        self, tokens: Sequence[LexToken], written: Sequence[SpacedToken], starts: Sequence[int], indent: int
    ) -> None:
        """Lay out a statement with comments between its lines, keeping its lines."""
        position = 0
        while position < len(tokens):
            stop = position + 1
            while stop < len(tokens) and not tokens[stop].first:
                stop += 1
            depth = written[position - 1].depth if position else 0
            inner = indent if position in starts else indent + continuation(depth)
            while (comment := self._peek()) and comment.line < tokens[position].line:
                self.lines.append(_Line(" " * inner + _comment_text(comment)))
                self.next += 1
            if tokens[position].type in ("RSQB", "RPAR"):
                inner = indent + (continuation(depth - 1) if depth > 1 else 0)
            behind = self._comment_behind(tokens[stop - 1])
            self.lines.append(_Line(" " * inner + joined(written[position:stop]), behind))
            position = stop


def _starts(tokens: Sequence[LexToken]) -> list[int]:
    """The positions where a statement begins, and where it continues after hints on lines above it."""
    starts = [0]
    position = 0
    while tokens[position].type == "AT":
        position += 2
        if tokens[position].type == "LPAR":
            position = next(p for p in range(position, len(tokens)) if tokens[p].type == "RPAR") + 1
        if tokens[position].first:
            starts.append(position)
    return starts


def _comment_text(comment: LexToken) -> str:
    text = comment.text
    return f"# {text[1:]}" if text[1:2].isalnum() else text


def _aligned(lines: Sequence[_Line]) -> str:
    """Join the lines. Comments after equally indented lines of a paragraph are aligned in one column."""
    texts: list[str] = []
    for _, paragraph in groupby(lines, key=lambda line: len(line.text) - len(line.text.lstrip()) if line.text else -1):
        together = list(paragraph)
        column = max((len(line.text) for line in together if line.comment), default=0)
        for line in together:
            texts.append(f"{line.text:<{column}}  {line.comment}" if line.comment else line.text)
    return "".join(f"{text}\n" for text in texts)
