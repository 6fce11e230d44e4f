"""Why a statement does not parse, said in words that help."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.core.diagnostics import Diagnostic, Edit, did_you_mean, nearest
from einturnip.lang.diagnose.error_context import ErrorContext, text_of
from einturnip.lang.diagnose.migration_hints import explain_idiom
from einturnip.lang.diagnose.statement_errors import FAR_WORDS, explain_head
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
    """What can be said of a statement without its grammar: foreign characters, and what is not supported yet."""
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
    return Diagnostic("E003", "indices stand in brackets", span, help=f"write {written}", edits=edits)


def explain(tokens: Sequence[LexToken], position: int, expected: set[str]) -> Diagnostic:
    """What is wrong at ``tokens[position]`` (at the statement's end, if past them), where ``expected`` could stand."""
    spot = _without_hints(ErrorContext(tokens, position, frozenset(expected)))
    return explain_head(spot) or explain_idiom(spot) or (_too_short if spot.token.type == "END" else _general)(spot)


def _without_hints(spot: ErrorContext) -> ErrorContext:
    """The spot in the equation behind the hints, if it stands in it."""
    while spot.first.type == "AT":
        opened = len(spot.tokens) > 2 and spot.tokens[2].type == "LPAR"
        closed = spot.closing(2) if opened else 1
        if not 0 <= closed < spot.position - 1:
            break
        spot = ErrorContext(spot.tokens[closed + 1 :], spot.position - closed - 1, spot.expected)
    return spot


def _general(spot: ErrorContext) -> Diagnostic:
    token, before = spot.token, spot.before
    found = f"'{token.text}'"
    second = spot.position == 1 and spot.first.type == "NAME" and token.type in ("NAME", "STRING", "AGGREGATION")
    if second and (meant := nearest(spot.first.text, STATEMENTS)):
        message = f"no statement begins with '{spot.first.text}'"
        return spot.wrong(message, f"did you mean '{meant}'?", span=spot.first.span, instead=meant)
    if token.type == "NOT" and spot.expected >= _VALUE:
        return spot.wrong("'not' binds weaker than what stands before it", "put parentheses around it: (not ...)")
    if "NAME" in spot.expected and token.text in RESERVED:
        message = f"'{token.text}' is {describe(token.text)} and cannot be used as a name"
        return spot.wrong(message, f"choose another name, such as {token.text}_", "E006")
    if token.type == "_ARROW":
        return spot.wrong("'<-' changes a state, whose name and labels stand before it", "write NAME[labels] <- ...")
    if "_EQUAL" in spot.expected and token.type in OPERATORS and spot.first.type == "NAME":
        return _defines_nothing(spot)
    if spot.position == 0 and (token.type in OPERATORS or token.type in ("_COMMA", "_EQUAL")):
        help_text = f"put {found} at the end of the line before, or use parentheses there"
        return spot.wrong(f"a statement cannot begin with {found}", help_text)
    if before.type in _ENDS and token.type in _BEGINS:
        return _side_by_side(spot)
    return Diagnostic("E003", f"unexpected {found}", token.span, expected=_list(spot.expected), found=found)


def _too_short(spot: ErrorContext) -> Diagnostic:
    tokens, last = spot.tokens, spot.before
    if spot.first.type == "NAME" and spot.find("_EQUAL", "_ARROW") < 0:
        if len(tokens) == 1:
            close = FAR_WORDS.get(last.text) or did_you_mean(last.text, STATEMENTS)
            if close:
                return spot.wrong(f"'{last.text}' alone is no statement", close, span=last.span)
        return _defines_nothing(spot)
    if last.type in OPERATORS or last.type in ("_EQUAL", "_ARROW"):
        message = f"a value is missing after '{last.text}'"
        return Diagnostic("E003", message, spot.place, expected="a value", found="the end")
    found = "the end of the statement"
    return Diagnostic("E003", "the statement ends too soon", spot.place, expected=_list(spot.expected), found=found)


def _defines_nothing(spot: ErrorContext) -> Diagnostic:
    message = "this is no statement: nothing is defined"
    return spot.wrong(message, "write NAME[labels] = expression", span=spot.span(0, len(spot.tokens)))


def _side_by_side(spot: ErrorContext) -> Diagnostic:
    before, token = spot.before, spot.token
    message = f"'{before.text}' and '{token.text}' stand side by side"
    adjacent = before.line == token.line and before.column + len(before.text) == token.column
    if before.type == "NUMBER" and token.type == "NAME":
        span = before.span.to(token.span)
        if adjacent and token.text.lower() == "e":
            return spot.wrong(
                "the exponent of this number has no digits",
                f"an exponent has digits, as in {before.text}e3",
                "E010",
                span,
            )
        if adjacent and before.text == "0" and token.text[0] in "xXbBoO":
            try:
                number = str(int(before.text + token.text, 0))
            except ValueError:
                return spot.wrong("numbers are decimal", "use decimal digits", "E010", span)
            return spot.wrong("numbers are decimal", f"write {number}", "E010", span, number)
        line = spot.edit(spot.position, spot.position, "\n")
        if spot.at(1).type == "_EQUAL":
            return spot.wrong(message, f"begin a new line before {token.text}", span=span, edits=line)
        product = f"{before.text} * {token.text}"
        return spot.wrong(message, f"to multiply, write {product}", span=span, instead=product)
    if spot.at(1).type == "_EQUAL" or before.type == "BLOCK":
        line = spot.edit(spot.position, spot.position, "\n")
        return spot.wrong(message, f"begin a new line before {token.text}", edits=line)
    if spot.expected & {"PLUS", "FACTOR", "POWER"}:
        return Diagnostic("E003", message, token.span, expected="an operator", found=f"'{token.text}'")
    found = f"'{token.text}'"
    return Diagnostic("E003", f"unexpected {found}", token.span, expected=_list(spot.expected), found=found)


def _list(expected: frozenset[str]) -> str:
    """The expected tokens as words, with values and operators gathered."""
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
