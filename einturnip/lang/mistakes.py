"""Why a statement does not parse, said in words that help."""

from __future__ import annotations

import unicodedata

from einturnip.core.diagnostics import Diagnostic, Span, did_you_mean
from einturnip.lang.lex import OPERATORS, Token
from einturnip.lang.words import RESERVED, STATEMENTS, describe

_FOREIGN = {
    "**": ("powers are written with '^'", "write ^ in place of **"),
    "&&": ("'&&' is not an operator here", "write and"),
    "||": ("'||' is not an operator here", "write or"),
    "&": ("'&' is not an operator here", "write and"),
    "~": ("'~' is not an operator here", "write not"),
    "!": ("'!' is not an operator here", "write not, or != to compare"),
    ";": ("a statement ends with its line, not with ';'", "delete ; and begin a new line"),
    "\\": ("'\\' does not continue a line", "end the line with an operator, '=' or a comma, or use parentheses"),
    "×": ("'×' is not an operator here", "write *"),
    "·": ("'·' is not an operator here", "write *"),
    "⋅": ("'⋅' is not an operator here", "write *"),
    "÷": ("'÷' is not an operator here", "write /"),
    "−": ("this minus sign is not the ASCII one", "write -"),
    "–": ("this dash is not a minus sign", "write -"),
    "—": ("this dash is not a minus sign", "write -"),
    "≤": ("'≤' is not an operator here", "write <="),
    "≥": ("'≥' is not an operator here", "write >="),
    "≠": ("'≠' is not an operator here", "write !="),
    "←": ("'←' is not an operator here", "write <-"),
    "→": ("'→' is not an operator here", "write the result on the left: C[i,k] = A[i,j] * B[j,k]"),
    "Σ": ("'Σ' is not an operator here", "write sum[i] ..."),
    "∑": ("'∑' is not an operator here", "write sum[i] ..."),
    "∏": ("'∏' is not an operator here", "write prod[i] ..."),
    "√": ("'√' is not an operator here", "write sqrt(x)"),
    "∞": ("'∞' is not a number here", "write inf"),
}
_SMART_QUOTES = "“”„‟«»‘’‚‛`´"
_FAR_WORDS = {"def": "fn", "function": "fn", "func": "fn", "out": "output", "return": "output", "param": "input"}
_ENDS = frozenset({"NAME", "NUMBER", "RSQB", "RPAR", "STRING"})
_BEGINS = frozenset({"NAME", "NUMBER", "LPAR", "AGGREGATION", "STRING"})
_VALUE = frozenset({"NAME", "NUMBER", "LPAR"})
_SHOWN = {
    "_EQUAL": "'='",
    "COLON": "':'",
    "_DCOLON": "'::'",
    "_COMMA": "','",
    "_LSQB": "'['",
    "RSQB": "']'",
    "LPAR": "'('",
    "RPAR": "')'",
    "STRING": "a file name in quotes",
    "NAME": "a name",
}


def before_parsing(tokens: list[Token]) -> list[Diagnostic]:
    """What can be said of a statement without its grammar: foreign characters, and what is not supported yet."""
    if not tokens:
        return []
    for token in tokens:
        if token.type == "BAD":
            return [_bad_character(token)]
    first = tokens[0]
    if first.type == "_STATE":
        return [not_supported("'state'", first.span)]
    for token in tokens:
        if token.type == "ARROW":
            return [not_supported("changing a state ('<-')", token.span)]
        if token.type in ("LBRACE", "RBRACE"):
            return [Diagnostic("E003", f"'{token.text}' has no place here", token.span, help="use ( ) or [ ]")]
    return []


def not_supported(what: str, span: Span) -> Diagnostic:
    """A part of the language that this version does not have."""
    return Diagnostic("E009", f"not supported yet: {what}", span)


def _bad_character(token: Token) -> Diagnostic:
    text = token.text
    if text in _FOREIGN:
        message, help_text = _FOREIGN[text]
        return Diagnostic("E004", message, token.span, help=help_text)
    if text in "\"'":
        return Diagnostic("E005", "this text has no closing quote on its line", token.span, help=f"add {text}")
    if text in _SMART_QUOTES:
        return Diagnostic("E001", f"'{text}' is not a plain quote", token.span, help='write "')
    name = unicodedata.name(text[0], "a control character")
    code = f"U+{ord(text[0]):04X}"
    if len(text) > 1:
        return Diagnostic("E001", f"'{text}' is not a name", token.span, help="names are made as Python's identifiers")
    if unicodedata.category(text) in ("Zs", "Cf"):
        return Diagnostic("E001", f"an invisible character: {name} ({code})", token.span, help="replace it by a space")
    return Diagnostic("E001", f"the character {text!r} ({name}, {code}) has no meaning here", token.span)


def explain(tokens: list[Token], position: int, expected: set[str]) -> Diagnostic:
    """What is wrong at ``tokens[position]`` (at the statement's end, if past them), where ``expected`` could stand."""
    if position >= len(tokens):
        return _too_short(tokens, expected)
    token = tokens[position]
    before = tokens[position - 1] if position else None
    found = f"'{token.text}'"
    special = _misspelt(tokens, position) or _aggregation(tokens, position) or _assignment(tokens, position, expected)
    if special:
        return special
    if token.type == "NOT" and expected >= _VALUE:
        message = "'not' binds weaker than what stands before it"
        return Diagnostic("E003", message, token.span, help="put parentheses around it: (not ...)")
    if "NAME" in expected and token.text in RESERVED:
        message = f"'{token.text}' is {describe(token.text)} and cannot be used as a name"
        return Diagnostic("E006", message, token.span, help=f"choose another name, such as {token.text}_")
    if "_EQUAL" in expected and token.type in OPERATORS and tokens[0].type == "NAME":
        return _defines_nothing(tokens)
    if before is None and (token.type in OPERATORS or token.type in ("_COMMA", "_EQUAL")):
        message = f"a statement cannot begin with {found}"
        help_text = f"put {found} at the end of the line before, or use parentheses there"
        return Diagnostic("E003", message, token.span, help=help_text)
    if before is not None and before.type in _ENDS and token.type in _BEGINS:
        return _side_by_side(before, token, expected)
    return Diagnostic("E003", f"unexpected {found}", token.span, expected=_list(expected), found=found)


def _too_short(tokens: list[Token], expected: set[str]) -> Diagnostic:
    last = tokens[-1]
    end = last.span
    after = Span(end.file, end.end_line, end.end_column, end.end_line, end.end_column + 1)
    if tokens[0].type == "NAME" and not any(token.type == "_EQUAL" for token in tokens):
        if close := did_you_mean(tokens[0].text, STATEMENTS) if len(tokens) == 1 else "":
            return Diagnostic("E003", f"'{last.text}' alone is no statement", end, help=close)
        return _defines_nothing(tokens)
    if special := _aggregation([*tokens, Token("END", "", end.file, end.line, end.end_column, False)], len(tokens)):
        return special
    if last.type in OPERATORS or last.type == "_EQUAL":
        return Diagnostic("E003", f"a value is missing after '{last.text}'", after, expected="a value", found="the end")
    return Diagnostic(
        "E003", "the statement ends too soon", after, expected=_list(expected), found="the end of the statement"
    )


def _defines_nothing(tokens: list[Token]) -> Diagnostic:
    message = "this is no statement: nothing is defined"
    return Diagnostic("E003", message, tokens[0].span.to(tokens[-1].span), help="write NAME[labels] = expression")


def _misspelt(tokens: list[Token], position: int) -> Diagnostic | None:
    first = tokens[0]
    if position != 1 or first.type != "NAME" or tokens[1].type not in ("NAME", "STRING", "AGGREGATION"):
        return None
    close = f"write {_FAR_WORDS[first.text]}" if first.text in _FAR_WORDS else did_you_mean(first.text, STATEMENTS)
    if not close:
        return None
    return Diagnostic("E003", f"no statement begins with '{first.text}'", first.span, help=close)


def _aggregation(tokens: list[Token], position: int) -> Diagnostic | None:
    """An aggregation that names no labels: ``sum X[i, j]``, ``sum[] X[i]``."""
    empty = position > 1 and tokens[position - 1].type == "_LSQB" and tokens[position].type == "RSQB"
    operator = tokens[position - (2 if empty else 1)] if position else None
    if operator is None or operator.type != "AGGREGATION":
        return None
    rest = tokens[position + 1 if empty else position :]
    labels = _index_names(rest)
    body = "".join(token.text for token in rest[:8]) if len(rest) <= 8 else "..."
    example = f"{operator.text}[{labels[-1] if labels else 'i'}] {body or '...'}"
    message = f"'{operator.text}' does not say which labels it runs over"
    return Diagnostic("E007", message, operator.span, help=f"name them in brackets: {example}")


def _index_names(tokens: list[Token]) -> list[str]:
    names: list[str] = []
    depth = 0
    for token in tokens:
        depth += (token.type == "_LSQB") - (token.type == "RSQB")
        if token.type == "NAME" and depth == 1:
            names.append(token.text)
        if token.type == "RSQB" and depth == 0:
            break
    return names


def _assignment(tokens: list[Token], position: int, expected: set[str]) -> Diagnostic | None:
    token = tokens[position]
    defined = any(t.type == "_EQUAL" for t in tokens[:position])
    if token.text == "==" and "_EQUAL" in expected and not defined:
        return Diagnostic("E004", "'==' compares; a definition has '='", token.span, help="write = here")
    if token.type == "_EQUAL" and defined and tokens[0].type == "NAME":
        before = tokens[position - 1]
        if before.type == "_EQUAL" or before.text in ("<", ">"):
            return Diagnostic("E004", "two symbols that belong together are apart", before.span.to(token.span))
        return Diagnostic("E004", "'=' defines; to compare, write '=='", token.span, help="write == here")
    follows = tokens[position + 1] if position + 1 < len(tokens) else None
    if token.type in ("PLUS", "MINUS", "FACTOR", "POWER", "COLON") and follows and follows.type == "_EQUAL":
        if defined or tokens[0].type != "NAME":
            return None
        target = "".join(t.text for t in tokens[:position])
        mended = f"{target} = ..." if token.type == "COLON" else f"{target} = {target} {token.text} ..."
        return Diagnostic("E004", f"'{token.text}=' is not in the language", token.span, help=f"write {mended}")
    return None


def _side_by_side(before: Token, token: Token, expected: set[str]) -> Diagnostic:
    message = f"'{before.text}' and '{token.text}' stand side by side"
    if before.type == "NUMBER" and token.type == "NAME":
        adjacent = before.line == token.line and before.column + len(before.text) == token.column
        help_text = f"to multiply, write {before.text} * {token.text}" if adjacent or token.type == "NAME" else ""
        return Diagnostic("E003", message, before.span.to(token.span), help=help_text)
    if expected & {"PLUS", "FACTOR", "POWER"}:
        return Diagnostic("E003", message, token.span, expected="an operator", found=f"'{token.text}'")
    return Diagnostic(
        "E003", f"unexpected '{token.text}'", token.span, expected=_list(expected), found=f"'{token.text}'"
    )


def _list(expected: set[str]) -> str:
    """The expected tokens as words, with values and operators gathered."""
    words = []
    left = set(expected)
    if left >= _VALUE:
        words.append("a value")
        left -= _VALUE | {"AGGREGATION", "PLUS", "MINUS", "NOT", "STRING"}
    if left >= {"PLUS", "FACTOR"} or "FACTOR" in left:
        words.append("an operator")
        left -= {
            "PLUS",
            "MINUS",
            "FACTOR",
            "POWER",
            "COMPARE",
            "AND",
            "OR",
            "_BAR",
            "_QUESTION",
            "COLON",
            "LPAR",
            "_LSQB",
        }
    words += [_SHOWN[kind] for kind in sorted(left) if kind in _SHOWN]
    if "$END" in left:
        words.append("the end of the line")
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)
