"""Explains characters and symbols that the language lacks, with their equivalents."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from einturnip.core.diagnostics import Diagnostic, Edit
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang.diagnose.error_context import ErrorContext, text_of
from einturnip.lang.lexer import LexToken

# fmt: off
_FOR_ASCII = {
    "**": "^", "&&": "and", "||": "or", "&": "and", "~": "not",
    "×": "*", "·": "*", "⋅": "*", "∗": "*", "∙": "*", "•": "*", "÷": "/", "∕": "/", "⁄": "/",
    "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=", "≡": "==", "←": "<-", "≔": "=",
    "¬": "not", "∧": "and", "∨": "or", "⊕": "!=", "…": "...",
}
_OTHERS = {
    "!": ("'!' is not an operator here", "write not, or != to compare"),
    "−": ("this minus sign is not the ASCII one", "write -"),
    "‐": ("this hyphen is not a minus sign", "write -"),
    "‑": ("this hyphen is not a minus sign", "write -"),
    "–": ("this dash is not a minus sign", "write -"),
    "—": ("this dash is not a minus sign", "write -"),
    "→": ("'→' is not an operator here", "write the result on the left: C[i,k] = A[i,j] * B[j,k]"),
    "∞": ("'∞' is not a number here", "write inf"),
    "∈": ("'∈' is not an operator here", "a range is written with its label: sum[i: n] or Y[i: n]"),
    "∂": ("'∂' is not an operator here", "write grad(y, x)"),
    "∇": ("'∇' is not an operator here", "write grad(y, x)"),
    "⊗": ("'⊗' is not an operator here", "write C[i,j,k,l] = A[i,j] * B[k,l]"),
    "⊙": ("'⊙' is not an operator here", "write C[i,j] = A[i,j] * B[i,j]"),
    "ᵀ": ("'ᵀ' is not an operator here", "transpose by the labels: Y[j,i] = X[i,j]"),
    "$": ("names begin without '$'", "delete $"),
}
_PREFIXES = {"√": "sqrt", "∑": "sum", "Σ": "sum", "∏": "prod", "Π": "prod", "∫": "sum"}
_LATEX = {
    "cdot": "*", "times": "*", "odot": "*", "div": "/", "frac": "a / b", "dfrac": "a / b", "sqrt": "sqrt(x)",
    "sum": "sum[i]", "prod": "prod[i]", "int": "sum[i]", "le": "<=", "leq": "<=", "ge": ">=", "geq": ">=",
    "ne": "!=", "neq": "!=", "infty": "inf", "land": "and", "lor": "or", "neg": "not", "top": "labels: Y[j,i] = X[i,j]",
    "exp": "exp(x)", "log": "log(x)", "ln": "log(x)", "left": "a bracket alone", "right": "a bracket alone",
}
_POWERS = {"²": "^2", "³": "^3", "¹": "^1", "⁴": "^4", "⁵": "^5", "⁶": "^6", "⁷": "^7", "⁸": "^8", "⁹": "^9"}
# fmt: on
_SMART_QUOTES = "“”„‟«»‘’‚‛`´"


def bad_character(tokens: Sequence[LexToken], position: int) -> Diagnostic:
    """Suggest a replacement for a token of type BAD."""
    ctx = ErrorContext(tokens, position, frozenset())
    text = ctx.token.text
    if text in _FOR_ASCII:
        wanted = _FOR_ASCII[text]
        if text == "**":
            return ctx.wrong("powers are written with '^'", "write ^ in place of **", "E004", instead="^")
        return ctx.wrong(f"'{text}' is not an operator here", f"write {wanted}", "E004", instead=wanted)
    if text in _OTHERS:
        message, help_text = _OTHERS[text]
        instead = {"write -": "-", "write inf": "inf", "delete $": ""}.get(help_text)
        return ctx.wrong(message, help_text, "E004", instead=instead)
    if text in _POWERS:
        return ctx.wrong("powers are written with '^'", f"write {_POWERS[text]}", "E004", instead=_POWERS[text])
    if text in _PREFIXES:
        return _prefix(ctx, _PREFIXES[text])
    if text == ";":
        return _semicolon(ctx)
    if text == "\\":
        return _backslash(ctx)
    if text in "\"'":
        return _open_quote(ctx)
    if text in _SMART_QUOTES:
        return ctx.wrong(f"'{text}' is not a plain quote", 'write "', "E001", edits=_quotes(tokens))
    if len(text) > 1:
        return _bad_name(ctx)
    return _unknown(ctx)


def _quotes(tokens: Sequence[LexToken]) -> tuple[Edit, ...]:
    """Replace all the quotes of a statement, since a single one would stay open."""
    return tuple(Edit(t.span, '"') for t in tokens if t.type == "BAD" and t.text in _SMART_QUOTES)


def _prefix(ctx: ErrorContext, name: str) -> Diagnostic:
    """Explain ``∑_i`` and similar prefixes."""
    text, after = ctx.token.text, ctx.at(1)
    message = f"'{text}' is not an operator here"
    if name not in AGGREGATIONS:
        return ctx.wrong(message, f"write {name}({after.text if after.type == 'NAME' else 'x'})", "E004")
    labels = "[i]"
    edits: tuple[Edit, ...] = ()
    if after.type == "_LSQB":
        end = ctx.closing(ctx.position + 1)
        labels = text_of(ctx.tokens[ctx.position + 1 : end + 1]) if end > 0 else labels
        edits = ctx.edit(ctx.position, ctx.position + 1, name)
    elif after.type == "NAME" and after.text.startswith("_") and len(after.text) > 1:
        labels = f"[{after.text[1:]}]"
        edits = ctx.edit(ctx.position, ctx.position + 2, name + labels)
    return ctx.wrong(message, f"write {name}{labels} ...", "E004", edits=edits)


def _semicolon(ctx: ErrorContext) -> Diagnostic:
    if ctx.first.type == "_FOR":
        return ctx.wrong("a loop counts over a range, without conditions", "write for i in 0 .. n { ... }", "E004")
    depth = sum(t.type in ("_LSQB", "LPAR") for t in ctx.tokens[: ctx.position])
    depth -= sum(t.type in ("RSQB", "RPAR") for t in ctx.tokens[: ctx.position])
    if depth > 0:
        return ctx.wrong("items in brackets are separated by commas", "write , in place of ;", "E004", instead=",")
    help_text = "delete ;" if ctx.at(1).type == "END" else "begin a new line in place of ;"
    instead = "" if ctx.at(1).type == "END" else "\n"
    return ctx.wrong("a statement ends with its line, not with ';'", help_text, "E004", instead=instead)


def _backslash(ctx: ErrorContext) -> Diagnostic:
    after = ctx.at(1)
    if after.type in ("END", "BAD") or after.line != ctx.token.line:
        help_text = "end the line with an operator, '=' or a comma, or use parentheses"
        return ctx.wrong("'\\' does not continue a line", help_text, "E004")
    word, _, label = after.text.partition("_")
    wanted = _LATEX.get(word, f"{word} alone").replace("[i]", f"[{label or 'i'}]")
    span = ctx.token.span.to(after.span)
    form = " " in wanted or "(" in wanted or (wanted.endswith("[i]") and not label)
    message = f"'\\{after.text}' is LaTeX, not a part of this language"
    help_text = f"{'here it is written as in' if form else 'write'} {wanted}"
    return ctx.wrong(message, help_text, "E004", span, None if form else wanted)


def _open_quote(ctx: ErrorContext) -> Diagnostic:
    text, before = ctx.token.text, ctx.before
    adjacent = before.line == ctx.token.line and before.column + len(before.text) == ctx.token.column
    if text == "'" and adjacent and before.type in ("NAME", "RSQB", "RPAR"):
        help_text = "transpose by the labels, Y[j,i] = X[i,j]; a name ends with no prime: x2 for x'"
        return ctx.wrong("a prime is no operator and no part of a name", help_text, "E005")
    whole = all(t.line == ctx.token.line for t in ctx.tokens[ctx.position :])
    edits = (Edit(ctx.end, text),) if whole else ()
    return ctx.wrong("this text has no closing quote on its line", f"add {text} at its end", "E005", edits=edits)


def _bad_name(ctx: ErrorContext) -> Diagnostic:
    text = ctx.token.text
    power = next((c for c in text if c in _POWERS), "")
    base = text.partition(power)[0] if power else ""
    if base.isidentifier():
        return ctx.wrong(
            f"'{text}' is not a name", f"write {base}{_POWERS[power]}", "E001", instead=base + _POWERS[power]
        )
    plain = unicodedata.normalize("NFKC", text)
    if plain.isidentifier():
        return ctx.wrong(f"'{text}' is not a name", f"write {plain}", "E001", instead=plain)
    return ctx.wrong(f"'{text}' is not a name", "names are made as Python's identifiers", "E001")


def _unknown(ctx: ErrorContext) -> Diagnostic:
    text = ctx.token.text
    name = unicodedata.name(text, "a control character")
    code = f"U+{ord(text):04X}"
    if unicodedata.category(text) in ("Zs", "Cf"):
        return ctx.wrong(f"an invisible character: {name} ({code})", "replace it by a space", "E001", instead=" ")
    plain = unicodedata.normalize("NFKC", text)
    help_text, instead = "", None
    if plain != text and plain.isascii() and plain.isprintable():
        help_text, instead = f"write {plain}", plain
    elif unicodedata.category(text) == "No":
        help_text = f"write {unicodedata.numeric(text)}"
    elif unicodedata.category(text) in ("Ps", "Pe"):
        help_text = "brackets are ( ) for grouping and calls, [ ] for labels, { } for blocks"
    return ctx.wrong(f"the character {text!r} ({name}, {code}) has no meaning here", help_text, "E001", instead=instead)
