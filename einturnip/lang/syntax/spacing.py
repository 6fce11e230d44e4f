"""Spaces and line breaks of statements in the canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from einturnip.ir.dtypes import DTYPES
from einturnip.lang.lexer import OPERATORS, LexToken

_KEYWORDS = frozenset({"_DIM", "_INPUT", "_OUTPUT", "_STATE", "_IMPORT", "_FN", "_FOR", "_IN", "_WHILE", "_RETURN"})
_BEFORE_OPERAND = OPERATORS | _KEYWORDS | {"_EQUAL", "_ARROW", "_COMMA", "_QUESTION", "COLON", "_LSQB", "LPAR"}
_IN_INDEX = frozenset({"+", "-", "*"})
# Priority of breaking a line after an operator: the weakest-binding operator is broken first.
_RANKS = {"_COMMA": 0, "_BAR": 1, "OR": 2, "AND": 3, "COMPARE": 4, "PLUS": 5, "MINUS": 5, "FACTOR": 6, "POWER": 8}
_EQUAL_RANK, _OPEN_RANK, _DEPTH_RANK, _INDEX_RANK = 9, 7, 10, 40


class SpacedToken(NamedTuple):
    """A token as it is written, with a ``space`` before it; ``depth`` brackets are open after it.

    A line may be broken after it unless ``cost`` is None; the minimum cost is the best place.
    """

    text: str
    space: bool
    depth: int
    cost: int | None


def pieces(tokens: Sequence[LexToken]) -> list[SpacedToken]:
    """Compute the spacing of a statement's tokens."""
    writer = _Writer()
    return [writer.piece(tokens, position) for position in range(len(tokens))]


class _Bracket(NamedTuple):
    """An open bracket. ``names`` if it contains only names, as in ``X[i,j]``, and is not a shape.

    ``cost`` is the additional cost of a break inside it.
    """

    text: str
    aggregation: bool
    names: bool
    cost: int


class _Writer:
    """Walks a statement. ``brackets`` are the open ones."""

    def __init__(self) -> None:
        self.brackets: list[_Bracket] = []
        self.before: LexToken | None = None
        self.operand_next = True
        self.tight = True
        self.defined = False

    def piece(self, tokens: Sequence[LexToken], position: int) -> SpacedToken:
        token = tokens[position]
        after = tokens[position + 1] if position + 1 < len(tokens) else None
        kind = token.type
        if kind in ("RSQB", "RPAR"):
            closed = self.brackets.pop()
            self._advance(token, operand_next=closed.aggregation, tight=False)
            return SpacedToken(token.text, False, len(self.brackets), None)
        unary = kind in ("PLUS", "MINUS") and self.operand_next
        space = self._space(token, after)
        cost, tight = None, unary or kind in ("AT", "_DOT", "_LSQB", "LPAR")
        if kind == "_LSQB" or kind == "LPAR":
            self.brackets.append(self._bracket(tokens, position))
            cost = self._cost(_OPEN_RANK) if kind == "LPAR" else None
        elif kind in ("_EQUAL", "_ARROW") and not self.brackets:
            self.defined, cost = True, _EQUAL_RANK
        elif kind == "_RETURN":
            self.defined = True
        elif kind in _RANKS and not unary:
            cost, tight = self._cost(_RANKS[kind]), self._compact(token)
        elif kind == "COLON":
            tight = not self._colon_space_after()
        self._advance(token, kind in _BEFORE_OPERAND, tight)
        return SpacedToken(token.text, space, len(self.brackets), cost)

    def _bracket(self, tokens: Sequence[LexToken], position: int) -> _Bracket:
        before, cost = self.before, self._cost(0)
        if tokens[position].type == "LPAR" or before is None:
            return _Bracket("(", False, False, cost + _DEPTH_RANK)
        end = position + 1
        while tokens[end].type in ("NAME", "_COMMA"):
            end += 1
        names = tokens[end].type == "RSQB" and before.text not in DTYPES
        return _Bracket("[", before.type == "AGGREGATION", names, cost + _INDEX_RANK)

    def _advance(self, token: LexToken, operand_next: bool, tight: bool) -> None:
        self.before, self.operand_next, self.tight = token, operand_next, tight

    def _space(self, token: LexToken, after: LexToken | None) -> bool:
        kind, before = token.type, self.before
        if before is None or self.tight or kind in ("_COMMA", "_DOT"):
            return False
        if kind == "_LSQB" or (kind == "LPAR" and before.type in ("NAME", "AGGREGATION")):
            return False
        if kind == "COLON":
            return self._colon_space_before(after)
        return self.operand_next or not self._compact(token)

    def _compact(self, token: LexToken) -> bool:
        """True if an operator has no spaces: a power, a sum or product in an index, a comma between names."""
        inside = self.brackets[-1] if self.brackets else None
        if token.type == "POWER":
            return True
        if inside is None or inside.text == "(":
            return False
        return inside.names if token.type == "_COMMA" else token.text in _IN_INDEX

    def _colon_space_before(self, after: LexToken | None) -> bool:
        if not self.brackets or (self.before is not None and self.before.type == "_COMMA"):
            return True
        return self.brackets[-1].aggregation and after is not None and after.text in DTYPES

    def _colon_space_after(self) -> bool:
        if not self.brackets or self.brackets[-1].aggregation:
            return True
        alone = self.before is None or self.before.type in ("_LSQB", "_COMMA")
        return self.brackets[-1].text == "[" and not self.defined and not alone

    def _cost(self, rank: int) -> int:
        return rank + (self.brackets[-1].cost if self.brackets else 0)


def joined(line: Sequence[SpacedToken]) -> str:
    """Join pieces on one line."""
    return "".join(f" {piece.text}" if piece.space and position else piece.text for position, piece in enumerate(line))


def continuation(depth: int) -> int:
    """Indentation of a continuation line with ``depth`` open brackets."""
    return 4 + 2 * max(0, depth - 1)


def wrap(statement: Sequence[SpacedToken], indent: int, width: int) -> list[str]:
    """Split a statement into lines of at most ``width`` where it can be broken."""
    lines: list[str] = []
    start = 0
    while start < len(statement):
        inner = indent + continuation(statement[start - 1].depth) if start else indent
        stop = _line_end(statement, start, width - inner)
        lines.append(" " * inner + joined(statement[start:stop]))
        start = stop
    return lines


def _line_end(statement: Sequence[SpacedToken], start: int, available: int) -> int:
    """The end of the line from ``start``: the cheapest (last) break within the ``available`` width."""
    column = 0
    best: tuple[bool, int, int] | None = None
    for position in range(start, len(statement)):
        piece = statement[position]
        column += len(piece.text) + (piece.space and position > start)
        if column > available and best is not None:
            return -best[2]
        if piece.cost is not None and position + 1 < len(statement):
            candidate = (3 * column < available, piece.cost, -(position + 1))
            if best is None or candidate < best:
                best = candidate
    return len(statement) if column <= available or best is None else -best[2]
