"""The place of a syntax error, with the queries that rules for its explanation need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.core.diagnostics import Diagnostic, Edit, Span
from einturnip.lang.lexer import LexToken


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """``tokens[position]`` is unexpected (the statement's end, if past the last).

    ``expected`` would be allowed.
    """

    tokens: Sequence[LexToken]
    position: int
    expected: frozenset[str]

    def at(self, offset: int) -> LexToken:
        """The token at an offset from the error; of type END outside of the statement."""
        place = self.position + offset
        if 0 <= place < len(self.tokens):
            return self.tokens[place]
        end = self.tokens[-1].span
        return LexToken("END", "", end.file, end.end_line, end.end_column, False)

    @property
    def token(self) -> LexToken:
        """The unexpected token."""
        return self.at(0)

    @property
    def before(self) -> LexToken:
        """The token before it."""
        return self.at(-1)

    @property
    def first(self) -> LexToken:
        """The statement's first token."""
        return self.tokens[0]

    def find(self, *kinds: str, start: int = 0) -> int:
        """The position of the first token of one of these types from ``start``, or -1."""
        return next((p for p in range(start, len(self.tokens)) if self.tokens[p].type in kinds), -1)

    def opening(self, closing: int) -> int:
        """The position of the bracket that matches the closing one, or -1."""
        depth = 0
        for position in range(closing, -1, -1):
            kind = self.tokens[position].type
            depth += (kind in ("RSQB", "RPAR")) - (kind in ("_LSQB", "LPAR"))
            if depth == 0:
                return position
        return -1

    def closing(self, opening: int) -> int:
        """The position of the bracket that matches the opening one, or -1."""
        depth = 0
        for position in range(opening, len(self.tokens)):
            kind = self.tokens[position].type
            depth += (kind in ("_LSQB", "LPAR")) - (kind in ("RSQB", "RPAR"))
            if depth == 0:
                return position
        return -1

    def split(self, start: int, stop: int, *kinds: str) -> list[str]:
        """The texts between tokens of these types outside of brackets."""
        parts, depth, begin = [], 0, start
        for position in range(start, stop):
            kind = self.tokens[position].type
            depth += (kind in ("_LSQB", "LPAR")) - (kind in ("RSQB", "RPAR"))
            if depth == 0 and kind in kinds:
                parts.append(self.text(begin, position))
                begin = position + 1
        return [*parts, self.text(begin, stop)]

    def text(self, start: int, stop: int) -> str:
        """The source between two positions, with runs of white space as one space."""
        return text_of(self.tokens[start:stop])

    def span(self, start: int, stop: int) -> Span:
        """The span from the token at ``start`` to the one before ``stop``."""
        return self.tokens[start].span.to(self.tokens[stop - 1].span)

    def wrong(
        self,
        message: str,
        help_text: str,
        code: str = "E003",
        span: Span | None = None,
        instead: str | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> Diagnostic:
        """Return a diagnostic, by default at the error. ``instead`` replaces its span."""
        place = span or self.place
        edits = edits if instead is None else (Edit(place, instead),)
        return Diagnostic(code, message, place, help=help_text, edits=edits)

    def edit(self, start: int, stop: int, text: str) -> tuple[Edit, ...]:
        """Replace tokens ``start`` to ``stop``, or insert before ``start`` if there are none."""
        if start < stop:
            return (Edit(self.span(start, stop), text),)
        if start < len(self.tokens):
            span = self.tokens[start].span
            return (Edit(Span(span.file, span.line, span.column, span.line, span.column), text),)
        return (Edit(self.end, text),)

    @property
    def end(self) -> Span:
        """The position directly after the statement."""
        span = self.tokens[-1].span
        return Span(span.file, span.end_line, span.end_column, span.end_line, span.end_column)

    @property
    def place(self) -> Span:
        """The span of the error; one character wide at the end."""
        span = self.token.span
        return span if self.token.type != "END" else Span(*span[:4], span.column + 1)


def text_of(tokens: Sequence[LexToken]) -> str:
    """The source of tokens with runs of white space as one space, shortened if long."""
    text = ""
    for position, token in enumerate(tokens):
        before = tokens[position - 1]
        adjacent = position and before.line == token.line and before.column + len(before.text) == token.column
        text += token.text if adjacent or not position else f" {token.text}"
    return text if len(text) <= 80 else "..."
