"""Splits text into tokens."""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import normalize

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.core.errors import SourceError
from einturnip.core.program_limits import MAX_TOKENS, checkpoint
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang.keywords import KEYWORDS

_TOKEN = r"""
        (?P<SPACE>[ \t\r\f]+|\#[^\n]*)
      | (?P<NAME>[^\W\d][\wMARKS]*)
      | (?P<NUMBER>(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?j?)
      | (?P<LINE>\n)
      | (?P<SYMBOL>//|<=|>=|==|!=|<-|::|\.\.\.|\.\.|(?<!\*)\*(?!\*)|(?<!\|)\|(?!\|)|[-+/%^<>=,:\[\](){}?@.])
      | (?P<STRING>"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*"|'[^'\n\0]*')
      | (?P<BAD>\*\*|&&|\|\||.)"""

# fmt: off
_SYMBOLS = {
    "+": "PLUS", "-": "MINUS", "*": "FACTOR", "/": "FACTOR", "//": "FACTOR", "%": "FACTOR", "^": "POWER",
    "<": "COMPARE", "<=": "COMPARE", ">": "COMPARE", ">=": "COMPARE", "==": "COMPARE", "!=": "COMPARE",
    "=": "_EQUAL", ",": "_COMMA", ":": "COLON", "::": "_DCOLON", "[": "_LSQB", "]": "RSQB", "(": "LPAR", ")": "RPAR",
    "{": "LBRACE", "}": "RBRACE", "?": "_QUESTION", "|": "_BAR", "...": "ELLIPSIS", "..": "_RANGE", "@": "AT",
    "<-": "_ARROW", ".": "_DOT",
}
_WORDS = {
    **{word: "AGGREGATION" for word in AGGREGATIONS}, **{word: f"_{word.upper()}" for word in KEYWORDS},
    "and": "AND", "or": "OR", "not": "NOT",
}
CONTINUES = frozenset({
    "PLUS", "MINUS", "FACTOR", "POWER", "COMPARE", "_EQUAL", "_COMMA", "COLON", "_DCOLON", "_QUESTION", "_BAR",
    "_RANGE", "AND", "OR", "NOT", "_ARROW",
})
# fmt: on
OPERATORS = CONTINUES - {"_EQUAL", "_ARROW", "_COMMA", "COLON", "_DCOLON", "_QUESTION"}


class LexToken:
    """A word of the text. ``first`` if it is the first of its line. Never spans lines."""

    __slots__ = ("type", "text", "file", "line", "column", "first")

    def __init__(self, kind: str, text: str, file: str, line: int, column: int, first: bool) -> None:
        self.type = kind
        self.text = text
        self.file = file
        self.line = line
        self.column = column
        self.first = first

    @property
    def span(self) -> Span:
        """The token's span."""
        return Span(self.file, self.line, self.column, self.line, self.column + len(self.text))


def tokenize(text: str, file: str, comments: list[LexToken] | None = None) -> list[LexToken]:
    """Return all tokens of a text.

    An invalid character becomes a token of type BAD. Comments go to ``comments``.

    Raises:
        SourceError: there are too many.
    """
    tokens: list[LexToken] = []
    line, start, first = 1, 0, True
    for match in _scanner(_marks(text)).finditer(text):
        kind = match.lastgroup
        if kind == "SPACE":
            if comments is not None and text[match.start()] == "#":
                column = match.start() - start + 1
                comments.append(LexToken("COMMENT", match.group().rstrip(), file, line, column, first))
            continue
        if kind == "LINE":
            checkpoint()
            line, start, first = line + 1, match.end(), True
            continue
        word = match.group()
        if kind == "NAME":
            if not word.isascii():
                # As in Python: characters that only look different, such as the two mu, are equal.
                plain = normalize("NFKC", word)
                kind, word = ("NAME", plain) if word.isidentifier() else ("BAD", word)
            kind = _WORDS.get(word, kind)
        elif kind == "SYMBOL":
            kind = _SYMBOLS[word]
        if len(tokens) == MAX_TOKENS:
            raise SourceError([_too_many(text, Span(file, line, match.start() - start + 1, line, 1), match.start())])
        tokens.append(LexToken(kind or "BAD", word, file, line, match.start() - start + 1, first))
        first = False
    return tokens


def _too_many(text: str, place: Span, offset: int) -> Diagnostic:
    message = f"a file has at most {MAX_TOKENS:,} names, numbers and symbols"
    ends = text.rfind("\n", 0, offset) + 1, text.find("\n", offset)
    line = text[ends[0] : ends[1] if ends[1] >= 0 else len(text)]
    rest = place._replace(end_line=text.count("\n") + 1, end_column=len(text) - text.rfind("\n"))
    source = ((place.file, place.line, line),)
    return Diagnostic("E013", message, rest, help="split it into several", source=source)


def _marks(text: str) -> str:
    """The non-letter characters in a text that may continue a Python identifier, such as accents.

    The middle dot, which Python accepts too, is excluded: in a formula it multiplies.
    """
    if text.isascii():
        return ""
    return "".join(
        sorted(c for c in set(text) - {"\u00b7", "\u0387"} if not (c.isalnum() or c == "_") and f"a{c}".isidentifier())
    )


@lru_cache(maxsize=8)
def _scanner(marks: str) -> re.Pattern[str]:
    return re.compile(_TOKEN.replace("MARKS", marks), re.VERBOSE)
