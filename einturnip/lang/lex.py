"""Text to statements: tokens, and where each statement ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from einturnip.core.algebra import AGGREGATIONS
from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.lang.words import KEYWORDS, STATEMENTS

_TOKEN = re.compile(
    r"""(?P<SPACE>[ \t\r\f]+|\#[^\n]*)
      | (?P<NAME>[^\W\d]\w*)
      | (?P<NUMBER>(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?j?)
      | (?P<LINE>\n)
      | (?P<SYMBOL>//|<=|>=|==|!=|<-|::|\.\.\.|\.\.|(?<!\*)\*(?!\*)|(?<!\|)\|(?!\|)|[-+/%^<>=,:\[\](){}?@])
      | (?P<STRING>"(?:[^"\\\n]|\\.)*"|'[^'\n]*')
      | (?P<BAD>\*\*|&&|\|\||.)""",
    re.VERBOSE,
)

# fmt: off
_SYMBOLS = {
    "+": "PLUS", "-": "MINUS", "*": "FACTOR", "/": "FACTOR", "//": "FACTOR", "%": "FACTOR", "^": "POWER",
    "<": "COMPARE", "<=": "COMPARE", ">": "COMPARE", ">=": "COMPARE", "==": "COMPARE", "!=": "COMPARE",
    "=": "_EQUAL", ",": "_COMMA", ":": "COLON", "::": "_DCOLON", "[": "_LSQB", "]": "RSQB", "(": "LPAR", ")": "RPAR",
    "{": "LBRACE", "}": "RBRACE", "?": "_QUESTION", "|": "_BAR", "...": "ELLIPSIS", "..": "RANGE", "@": "AT",
    "<-": "ARROW",
}
_WORDS = {
    **{word: "AGGREGATION" for word in AGGREGATIONS}, **{word: f"_{word.upper()}" for word in KEYWORDS},
    "and": "AND", "or": "OR", "not": "NOT",
}
_CONTINUES = frozenset({
    "PLUS", "MINUS", "FACTOR", "POWER", "COMPARE", "_EQUAL", "_COMMA", "COLON", "_DCOLON", "_QUESTION", "_BAR",
    "RANGE", "AND", "OR", "NOT", "ARROW",
})
# fmt: on
_OPENS = {"_LSQB": "RSQB", "LPAR": "RPAR", "LBRACE": "RBRACE"}
_CLOSES = frozenset(_OPENS.values())
_STARTS = frozenset(_WORDS[word] for word in STATEMENTS) | {"AT"}
_BLOCKS = frozenset({"_FN", "_FOR"})
OPERATORS = _CONTINUES - {"_EQUAL", "_COMMA", "COLON", "_DCOLON", "_QUESTION"}


class Token:
    """A word of the text. ``first`` where it is the first of its line. Never spans lines."""

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
        """Where the token stands."""
        return Span(self.file, self.line, self.column, self.line, self.column + len(self.text))


@dataclass
class Chunk:
    """The tokens of one statement, and what is wrong with its brackets."""

    tokens: list[Token]
    problems: list[Diagnostic] = field(default_factory=list)


def tokenize(text: str, file: str) -> list[Token]:
    """All tokens of a text. A character that belongs to none gives a token of type BAD."""
    tokens: list[Token] = []
    line, start, first = 1, 0, True
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "SPACE":
            continue
        if kind == "LINE":
            line, start, first = line + 1, match.end(), True
            continue
        word = match.group()
        if kind == "NAME":
            kind = _WORDS.get(word) or ("NAME" if word.isascii() or word.isidentifier() else "BAD")
        elif kind == "SYMBOL":
            kind = _SYMBOLS[word]
        tokens.append(Token(kind or "BAD", word, file, line, match.start() - start + 1, first))
        first = False
    return tokens


def statements(tokens: list[Token]) -> Iterator[Chunk]:
    """The tokens cut into statements.

    A keyword that begins a statement cuts even inside brackets, so that a forgotten bracket spoils one statement only;
    with no such keyword, once the end of the text is met inside a bracket, so does a line that reads ``name[...] =``.
    """
    start, eager = 0, False
    while start < len(tokens):
        chunk, end, at_end = _statement(tokens, start, eager)
        if at_end and not eager and (cut := _next_definition(tokens, start + 1)):
            eager = True
            chunk, end, _ = _statement(tokens, start, eager, cut)
        yield chunk
        start = end


def _statement(tokens: list[Token], start: int, eager: bool, stop: int = 0) -> tuple[Chunk, int, bool]:
    """The statement from ``start``, where the next begins, and whether the text ended inside a bracket."""
    chunk = Chunk([])
    open_brackets: list[Token] = []
    block = tokens[start].type in _BLOCKS
    defined = False
    position = start
    while position < (stop or len(tokens)):
        token = tokens[position]
        if token.first and position > start and _ends_before(tokens, position, open_brackets, block, eager):
            break
        if token.type == "_EQUAL":
            defined = True
        elif token.type in _OPENS:
            open_brackets.append(token)
        elif token.type in _CLOSES and not _close(chunk, open_brackets, token):
            return chunk, _end_of_line(tokens, position), False
        if token.type == "ARROW" and (open_brackets or defined):
            chunk.tokens.append(Token("COMPARE", "<", token.file, token.line, token.column, token.first))
            token = Token("MINUS", "-", token.file, token.line, token.column + 1, False)
        chunk.tokens.append(token)
        position += 1
        if block and token.type == "RBRACE" and not open_brackets:
            break
    for bracket in open_brackets[-1:]:
        close = {"[": "]", "(": ")", "{": "}"}[bracket.text]
        message = f"'{bracket.text}' is never closed"
        chunk.problems.append(Diagnostic("E002", message, bracket.span, help=f"add the missing '{close}'"))
    return chunk, position, bool(open_brackets) and position == len(tokens)


def _ends_before(tokens: list[Token], position: int, brackets: list[Token], block: bool, eager: bool) -> bool:
    if block and any(bracket.type == "LBRACE" for bracket in brackets):
        return False
    if tokens[position].type in _STARTS:
        return True
    if brackets:
        return eager and _defines(tokens, position)
    return tokens[position - 1].type not in _CONTINUES


def _close(chunk: Chunk, brackets: list[Token], token: Token) -> bool:
    if brackets and _OPENS[brackets[-1].type] == token.type:
        brackets.pop()
        return True
    if brackets:
        opener = brackets[-1]
        chunk.problems.append(
            Diagnostic(
                "E002",
                f"'{token.text}' does not close '{opener.text}'",
                token.span,
                secondary=((opener.span, "opened here"),),
                expected="'" + {"[": "]", "(": ")", "{": "}"}[opener.text] + "'",
                found=f"'{token.text}'",
            )
        )
    else:
        message = f"'{token.text}' closes a bracket that was never opened"
        chunk.problems.append(Diagnostic("E002", message, token.span, help=f"delete '{token.text}'"))
    return False


def _end_of_line(tokens: list[Token], position: int) -> int:
    position += 1
    while position < len(tokens) and not tokens[position].first:
        position += 1
    return position


def _next_definition(tokens: list[Token], position: int) -> int:
    return next((p for p in range(position, len(tokens)) if tokens[p].first and _defines(tokens, p)), 0)


def _defines(tokens: list[Token], position: int) -> bool:
    """Whether a statement ``name =`` or ``name[...] =`` seems to begin here."""
    if tokens[position].type != "NAME":
        return False
    after = position + 1
    if after < len(tokens) and tokens[after].type == "_LSQB":
        line = tokens[position].line
        while after < len(tokens) and tokens[after].line == line and tokens[after].type != "RSQB":
            after += 1
        after += 1
    return after < len(tokens) and tokens[after].type == "_EQUAL"
