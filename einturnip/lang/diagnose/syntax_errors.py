"""Explains why a statement does not parse."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.core.diagnostics import Diagnostic, Edit, did_you_mean, nearest
from einturnip.lang.diagnose.error_context import ErrorContext, text_of
from einturnip.lang.diagnose.migration_hints import explain_foreign_notation
from einturnip.lang.diagnose.statement_errors import FOREIGN_KEYWORDS, explain_head
from einturnip.lang.diagnose.unicode_hints import bad_character
from einturnip.lang.keywords import RESERVED, STATEMENTS, describe
from einturnip.lang.lexer import OPERATORS, LexToken

_ENDS = frozenset({"NAME", "NUMBER", "RSQB", "RPAR", "STRING"})
_BEGINS = frozenset({"NAME", "NUMBER", "LPAR", "AGGREGATION", "STRING"})
_VALUE = frozenset({"NAME", "NUMBER", "LPAR"})
_OPERATOR = frozenset(
    {"PLUS", "MINUS", "FACTOR", "POWER", "COMPARE", "AND", "OR", "_BAR", "_QUESTION", "COLON", "LPAR", "_LSQB"}
)
_SHOWN = {
    "_EQUAL": "'='",
    "_ARROW": "'<-'",
    "COLON": "':'",
    "_DCOLON": "'::'",
    "_COMMA": "','",
    "_LSQB": "'['",
    "RSQB": "']'",
    "LPAR": "'('",
    "RPAR": "')'",
    "STRING": "a file name in quotes",
    "NAME": "a name",
    "BLOCK": "'{'",
    "_RANGE": "'..'",
    "_IN": "'in'",
}


def before_parsing(tokens: Sequence[LexToken]) -> list[Diagnostic]:
    """Report errors that need no grammar: foreign characters, and unsupported notations."""
    if not tokens:
        return []
    for position, token in enumerate(tokens):
        if token.type == "BAD":
            return [bad_character(tokens, position)]
        if token.type == "LBRACE" and tokens[position - 1].text.endswith("_") and position:
            return [_subscript(tokens, position)]
    for token in tokens:
        if token.type in ("LBRACE", "RBRACE"):
            return [Diagnostic("E003", f"'{token.text}' has no place here", token.span, help="use ( ) or [ ]")]
    return []


def _subscript(tokens: Sequence[LexToken], position: int) -> Diagnostic:
    """LaTeX's ``X_{i,j}``."""
    name = tokens[position - 1]
    end = next((p for p in range(position, len(tokens)) if tokens[p].type == "RBRACE"), len(tokens) - 1)
    written = f"{name.text[:-1]}[{text_of(tokens[position + 1 : end])}]"
    span = name.span.to(tokens[end].span)
    edits = (Edit(span, written),)
    return Diagnostic("E003", "indices are written in brackets", span, help=f"write {written}", edits=edits)


def explain(tokens: Sequence[LexToken], position: int, expected: set[str]) -> Diagnostic:
    """Explain the error at ``tokens[position]`` (or the statement's end); ``expected`` is allowed there."""
    ctx = _without_hints(ErrorContext(tokens, position, frozenset(expected)))
    return (
        explain_head(ctx) or explain_foreign_notation(ctx) or (_too_short if ctx.token.type == "END" else _general)(ctx)
    )


def _without_hints(ctx: ErrorContext) -> ErrorContext:
    """The error relative to the equation after the hints, if it is there."""
    while ctx.first.type == "AT":
        opened = len(ctx.tokens) > 2 and ctx.tokens[2].type == "LPAR"
        closed = ctx.closing(2) if opened else 1
        if not 0 <= closed < ctx.position - 1:
            break
        ctx = ErrorContext(ctx.tokens[closed + 1 :], ctx.position - closed - 1, ctx.expected)
    return ctx


def _general(ctx: ErrorContext) -> Diagnostic:
    token, before = ctx.token, ctx.before
    found = f"'{token.text}'"
    second = ctx.position == 1 and ctx.first.type == "NAME" and token.type in ("NAME", "STRING", "AGGREGATION")
    if second and (meant := nearest(ctx.first.text, STATEMENTS)):
        message = f"no statement begins with '{ctx.first.text}'"
        return ctx.wrong(message, f"did you mean '{meant}'?", span=ctx.first.span, instead=meant)
    if token.type == "NOT" and ctx.expected >= _VALUE:
        return ctx.wrong("'not' binds weaker than what stands before it", "put parentheses around it: (not ...)")
    if "NAME" in ctx.expected and token.text in RESERVED:
        message = f"'{token.text}' is {describe(token.text)} and cannot be used as a name"
        return ctx.wrong(message, f"choose another name, such as {token.text}_", "E006")
    if token.type == "_ARROW":
        return ctx.wrong("'<-' changes a state, whose name and labels stand before it", "write NAME[labels] <- ...")
    if "_EQUAL" in ctx.expected and token.type in OPERATORS and ctx.first.type == "NAME":
        return _defines_nothing(ctx)
    if ctx.position == 0 and (token.type in OPERATORS or token.type in ("_COMMA", "_EQUAL")):
        help_text = f"put {found} at the end of the line before, or use parentheses there"
        return ctx.wrong(f"a statement cannot begin with {found}", help_text)
    if before.type in _ENDS and token.type in _BEGINS:
        return _side_by_side(ctx)
    return Diagnostic("E003", f"unexpected {found}", token.span, expected=_list(ctx.expected), found=found)


def _too_short(ctx: ErrorContext) -> Diagnostic:
    tokens, last = ctx.tokens, ctx.before
    if ctx.first.type == "NAME" and ctx.find("_EQUAL", "_ARROW") < 0:
        if len(tokens) == 1:
            close = FOREIGN_KEYWORDS.get(last.text) or did_you_mean(last.text, STATEMENTS)
            if close:
                return ctx.wrong(f"'{last.text}' alone is no statement", close, span=last.span)
        return _defines_nothing(ctx)
    if last.type in OPERATORS or last.type in ("_EQUAL", "_ARROW"):
        message = f"a value is missing after '{last.text}'"
        return Diagnostic("E003", message, ctx.place, expected="a value", found="the end")
    found = "the end of the statement"
    return Diagnostic("E003", "the statement ends too soon", ctx.place, expected=_list(ctx.expected), found=found)


def _defines_nothing(ctx: ErrorContext) -> Diagnostic:
    message = "this is no statement: nothing is defined"
    return ctx.wrong(message, "write NAME[labels] = expression", span=ctx.span(0, len(ctx.tokens)))


def _side_by_side(ctx: ErrorContext) -> Diagnostic:
    before, token = ctx.before, ctx.token
    message = f"'{before.text}' and '{token.text}' have no operator between them"
    adjacent = before.line == token.line and before.column + len(before.text) == token.column
    if before.type == "NUMBER" and token.type == "NAME":
        span = before.span.to(token.span)
        if adjacent and token.text.lower() == "e":
            return ctx.wrong(
                "the exponent of this number has no digits",
                f"an exponent has digits, as in {before.text}e3",
                "E010",
                span,
            )
        if adjacent and before.text == "0" and token.text[0] in "xXbBoO":
            try:
                number = str(int(before.text + token.text, 0))
            except ValueError:
                return ctx.wrong("numbers are decimal", "use decimal digits", "E010", span)
            return ctx.wrong("numbers are decimal", f"write {number}", "E010", span, number)
        line = ctx.edit(ctx.position, ctx.position, "\n")
        if ctx.at(1).type == "_EQUAL":
            return ctx.wrong(message, f"begin a new line before {token.text}", span=span, edits=line)
        product = f"{before.text} * {token.text}"
        return ctx.wrong(message, f"to multiply, write {product}", span=span, instead=product)
    if ctx.at(1).type == "_EQUAL" or before.type == "BLOCK":
        line = ctx.edit(ctx.position, ctx.position, "\n")
        return ctx.wrong(message, f"begin a new line before {token.text}", edits=line)
    if ctx.expected & {"PLUS", "FACTOR", "POWER"}:
        return Diagnostic("E003", message, token.span, expected="an operator", found=f"'{token.text}'")
    found = f"'{token.text}'"
    return Diagnostic("E003", f"unexpected {found}", token.span, expected=_list(ctx.expected), found=found)


def _list(expected: frozenset[str]) -> str:
    """The expected tokens in words, with values and operators grouped."""
    words = []
    left = set(expected)
    if left >= _VALUE:
        words.append("a value")
        left -= _VALUE | {"AGGREGATION", "PLUS", "MINUS", "NOT", "STRING"}
    if "FACTOR" in left:
        words.append("an operator")
        left -= _OPERATOR
    words += [_SHOWN[kind] for kind in sorted(left) if kind in _SHOWN]
    if "$END" in left:
        words.append("the end of the line")
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)
