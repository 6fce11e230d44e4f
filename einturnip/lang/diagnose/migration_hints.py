"""Rules for notations of other languages: each recognizes one habit and suggests the equivalent here."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.core.diagnostics import Diagnostic, Edit, Span, nearest
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang.diagnose.error_context import ErrorContext, text_of
from einturnip.lang.diagnose.other_libraries import KNOWN_ELSEWHERE
from einturnip.lang.keywords import BUILT_IN

_VALUE_ENDS = frozenset({"NAME", "NUMBER", "RSQB", "RPAR"})
_AGGREGATIONS_ELSEWHERE = {"Σ": "sum", "Π": "prod", "product": "prod", "average": "mean"}
_WORDS = {"is": "==", "xor": "!=", "mod": "%", "div": "//", "dot": "*", "equals": "=="}


def explain_foreign_notation(ctx: ErrorContext) -> Diagnostic | None:
    """Return the diagnostic of the first rule that matches."""
    return next((found for rule in _RULES if (found := rule(ctx)) is not None), None)


def _aggregation(ctx: ErrorContext) -> Diagnostic | None:
    """An aggregation without labels: ``sum X[i, j]``, ``sum[] X[i]``, ``sum(j) X[j]``, ``sum_j X[j]``."""
    before, token = ctx.before, ctx.token
    empty = before.type == "_LSQB" and token.type == "RSQB"
    operator = ctx.at(-2) if empty else before
    if operator.type == "AGGREGATION":
        rest = ctx.tokens[ctx.position + empty :]
        used, left = _index_names(ctx, ctx.position + empty), _index_names(ctx, 0, ctx.find("_EQUAL"))
        labels = [name for name in dict.fromkeys(used) if name not in left] or used[-1:]
        body = text_of(rest[:8]) if len(rest) <= 8 else "..."
        span = operator.span.to(token.span) if empty else operator.span
        shown = ", ".join(labels) or "i"
        instead = f"{operator.text}[{shown}]" if labels else None
        return _without_labels(ctx, operator.text, shown, body or "...", operator.span, span, instead)
    word, _, label = before.text.partition("_")
    if before.type == "NAME" and word in AGGREGATIONS and label and token.type not in ("END", "_COMMA"):
        return _without_labels(ctx, word, label, "...", before.span, before.span, f"{word}[{label}]")
    opened = ctx.opening(ctx.position - 1) if before.type == "RPAR" else -1
    if opened > 0 and ctx.tokens[opened - 1].type == "AGGREGATION" and _begins_value(ctx):
        name = ctx.tokens[opened - 1]
        labels_text = ctx.text(opened + 1, ctx.position - 1)
        span = name.span.to(before.span)
        return _without_labels(ctx, name.text, labels_text, "...", span, span, f"{name.text}[{labels_text}]")
    opened = ctx.opening(ctx.position - 1) if before.type == "RSQB" else -1
    if opened > 0 and _begins_value(ctx):
        name = ctx.tokens[opened - 1]
        meant = _AGGREGATIONS_ELSEWHERE.get(name.text, "")
        meant = meant or ("" if name.text in KNOWN_ELSEWHERE else nearest(name.text, AGGREGATIONS))
        if meant:
            help_text = f"write {meant}" if name.text in _AGGREGATIONS_ELSEWHERE else f"did you mean '{meant}'?"
            return ctx.wrong(f"there is no aggregation '{name.text}'", help_text, "E021", name.span, meant)
    return None


def _without_labels(
    ctx: ErrorContext, op: str, labels: str, body: str, span: Span, place: Span, instead: str | None
) -> Diagnostic:
    """Report missing labels; ``instead`` replaces the text at ``place`` where the labels are known."""
    message = f"'{op}' does not say which labels it runs over"
    edits = () if instead is None else (Edit(place, instead),)
    return ctx.wrong(message, f"name them in brackets: {op}[{labels}] {body}", "E007", span, edits=edits)


def _index_names(ctx: ErrorContext, start: int, stop: int | None = None) -> list[str]:
    """The names in the first brackets from ``start``."""
    names: list[str] = []
    depth = 0
    for token in ctx.tokens[start:stop]:
        depth += (token.type == "_LSQB") - (token.type == "RSQB")
        if token.type == "NAME" and depth == 1:
            names.append(token.text)
        if token.type == "RSQB" and depth == 0:
            break
    return names


def _begins_value(ctx: ErrorContext) -> bool:
    return ctx.token.type in ("NAME", "NUMBER", "LPAR", "AGGREGATION")


def _range_of_label(ctx: ErrorContext) -> Diagnostic | None:
    """``sum[i in 0..n]``, ``sum[i=0:n]``."""
    if ctx.token.type not in ("_IN", "_EQUAL") or ctx.before.type != "NAME":
        return None
    opened = ctx.position - 1
    while opened > 0 and ctx.tokens[opened].type not in ("_LSQB", "LPAR"):
        opened -= 1
    if opened == 0 or ctx.tokens[opened].type != "_LSQB" or ctx.tokens[opened - 1].type == "LPAR":
        return None
    end = ctx.closing(opened)
    parts = ctx.split(ctx.position + 1, end if end > 0 else len(ctx.tokens), "_RANGE", "COLON", "_COMMA", "ELLIPSIS")
    size = parts[1] if len(parts) > 1 else "n"
    label = ctx.before.text
    first = parts[0] if len(parts) > 1 else "0"
    if first != "0":
        return ctx.wrong(
            "a label's range is its size, and begins at 0", f"write {label}: n, and {label} + {first} for {label}"
        )
    known = bool(size) and len(parts) == 2 and end > 0
    edits = ctx.edit(ctx.position - 1, end, f"{label}: {size}") if known else ()
    return ctx.wrong("a label's range is its size, and begins at 0", f"write {label}: {size or 'n'}", edits=edits)


def _indices(ctx: ErrorContext) -> Diagnostic | None:
    """``X[i][j]``, ``f(x) = ...``, ``X[a:b:2]``."""
    token, before = ctx.token, ctx.before
    if token.type == "_LSQB" and before.type == "RSQB":
        opened, closed = ctx.opening(ctx.position - 1), ctx.closing(ctx.position)
        if opened > 0 and closed > 0:
            inner = f"{ctx.text(opened + 1, ctx.position - 1)},{ctx.text(ctx.position + 1, closed)}"
            span = ctx.span(opened - 1, closed + 1)
            message = "all indices belong in one pair of brackets"
            written = f"{ctx.tokens[opened - 1].text}[{inner}]"
            return ctx.wrong(message, f"write {written}", span=span, instead=written)
    if token.type == "RSQB" and before.type == "_LSQB" and ctx.at(-2).type == "NAME":
        span = before.span.to(token.span)
        return ctx.wrong("a scalar has no brackets", f"write {ctx.at(-2).text}", span=span, instead="")
    if token.type == "LPAR" and ctx.position == 1 and ctx.first.type == "NAME":
        closed = ctx.closing(1)
        after = ctx.tokens[closed + 1].type if 0 < closed < len(ctx.tokens) - 1 else "END"
        if after == "_EQUAL":
            inner, name = ctx.text(2, closed), ctx.first.text
            help_text = f"write {name}[{inner}] = ..., or for a function: fn {name}({inner}) = ..."
            return ctx.wrong("the labels of a tensor belong in brackets", help_text, span=ctx.span(0, closed + 1))
        return ctx.wrong("nothing is defined by a call alone", f"write y = {ctx.first.text}(...)")
    sliced = token.type == "_DCOLON" and before.type in ("_LSQB", "_COMMA")
    if sliced or (token.type in ("_DCOLON", "COLON") and ctx.find("_EQUAL") >= 0 and "RSQB" in ctx.expected):
        return ctx.wrong("slices have no step", "use an index: X[2*i] takes every second")
    return None


def _target(ctx: ErrorContext) -> Diagnostic | None:
    """``(x, y) = f(z)``, ``learning-rate = 1``."""
    token, after = ctx.token, ctx.at(1)
    if ctx.position == 0 and token.type == "LPAR":
        closed = ctx.closing(0)
        if 0 < closed < len(ctx.tokens) - 1 and ctx.tokens[closed + 1].type == "_EQUAL":
            edits = ctx.edit(0, 1, "") + ctx.edit(closed, closed + 1, "")
            help_text = f"write {ctx.text(1, closed)} = ..."
            return ctx.wrong("the names on the left have no parentheses", help_text, edits=edits)
    if ctx.position == 1 and token.text == "-" and after.type == "NAME" and ctx.at(2).type == "_EQUAL":
        name = f"{ctx.before.text}_{after.text}"
        return ctx.wrong("a name contains no '-'", f"write {name}", span=ctx.before.span.to(after.span), instead=name)
    return None


def _assignment(ctx: ErrorContext) -> Diagnostic | None:
    """``==`` for ``=``, ``=`` for ``==``, ``+=``, ``:=``, ``=<``."""
    token, before, after = ctx.token, ctx.before, ctx.at(1)
    if ctx.first.type not in ("NAME", "_DIM", "_INPUT", "_STATE", "_OUTPUT"):
        return None
    defined = 0 <= ctx.find("_EQUAL") < ctx.position
    if token.text == "==" and "_EQUAL" in ctx.expected and not defined:
        return ctx.wrong("'==' compares; a definition has '='", "write = here", "E004", instead="=")
    if token.type in ("PLUS", "MINUS", "FACTOR", "POWER", "COLON") and after.type == "_EQUAL" and not defined:
        target = ctx.text(0, ctx.position)
        mended = f"{target} = ..." if token.type == "COLON" else f"{target} = {target} {token.text} ..."
        edits = ctx.edit(ctx.position, ctx.position + 2, "=") if token.type == "COLON" else ()
        return ctx.wrong(f"'{token.text}=' is not in the language", f"write {mended}", "E004", edits=edits)
    pair = before.text + token.text
    if pair in ("<>", "=<", "=>", "<=="):
        wanted = {"<>": "!=", "=<": "<=", "=>": ">=", "<==": "<="}[pair]
        span = before.span.to(token.span)
        return ctx.wrong(f"'{pair}' is not an operator here", f"write {wanted}", "E004", span, wanted)
    if token.type != "_EQUAL" or not defined or ctx.first.type != "NAME":
        return None
    if after.text in ("<", ">"):
        wanted, span = f"{after.text}=", token.span.to(after.span)
        return ctx.wrong(f"'={after.text}' is not an operator here", f"write {wanted}", "E004", span, wanted)
    if before.type == "_EQUAL" or before.text in ("<", ">"):
        message = "two symbols that belong together are apart"
        span = before.span.to(token.span)
        return ctx.wrong(message, f"write {before.text}=", "E004", span, f"{before.text}=")
    return ctx.wrong("'=' defines; to compare, write '=='", "write == here", "E004", instead="==")


def _condition(ctx: ErrorContext) -> Diagnostic | None:
    """``a if c else b``, ``c ? a : b``, ``x where c``."""
    token = ctx.token
    begin = ctx.find("_EQUAL") + 1
    if begin == 0 or ctx.position <= begin:
        return None
    end = len(ctx.tokens)
    otherwise = next((p for p in range(ctx.position, end) if ctx.tokens[p].text == "else"), -1)
    value = ctx.text(begin, ctx.position)
    if token.text == "if":
        stop = otherwise if otherwise > 0 else end
        other = ctx.text(otherwise + 1, end) if otherwise > 0 else "0"
        return _choice(ctx, begin, ctx.text(ctx.position + 1, stop), value, other, otherwise > 0)
    if token.type == "_QUESTION":
        colon = ctx.find("COLON", start=ctx.position)
        if colon < 0:
            return ctx.wrong("a value for out of bounds belongs in an index", "write it there, as in X[i-1 ? 0]")
        yes, no = ctx.text(ctx.position + 1, colon), ctx.text(colon + 1, end)
        return _choice(ctx, begin, value, yes, no, known=True)
    if token.text == "where":
        condition = ctx.text(ctx.position + 1, end)
        help_text = f"for 0 elsewhere, as in where({condition}, {value}, 0)"
        return ctx.wrong("'where' is a function: where(condition, a, b)", help_text)
    return None


def _choice(ctx: ErrorContext, begin: int, condition: str, yes: str, no: str, known: bool) -> Diagnostic:
    """A choice that is the whole right side, from ``begin`` on. ``known``: all of its parts are present."""
    written = f"where({condition}, {yes}, {no})"
    edits = ctx.edit(begin, len(ctx.tokens), written) if known and "..." not in (condition, yes, no) else ()
    return ctx.wrong("a choice is written with 'where'", f"write {written}", edits=edits)


def _python(ctx: ErrorContext) -> Diagnostic | None:
    """Attributes, ``@``, lambdas, lists, and operators that are words."""
    token, before, after = ctx.token, ctx.before, ctx.at(1)
    if token.type == "_DOT" and after.type in ("NAME", "AGGREGATION"):
        return _attribute(ctx)
    if token.type == "AT":
        message = "products of matrices are index equations"
        return ctx.wrong(message, "name the labels, as in C[i,k] = A[i,j] * B[j,k]", "E004")
    if before.text == "lambda":
        name = ctx.first.text
        return ctx.wrong("functions are defined with 'fn'", f"write fn {name}({token.text}) = ...", span=before.span)
    if before.text == "-" and token.text == ">" and ctx.at(-2).type in _VALUE_ENDS:
        help_text = f"write fn {ctx.first.text}({ctx.at(-2).text}) = ..."
        return ctx.wrong("functions are defined with 'fn'", help_text, span=before.span.to(token.span))
    if token.text in _WORDS and before.type in _VALUE_ENDS:
        wanted = _WORDS[token.text]
        return ctx.wrong(f"'{token.text}' is not an operator here", f"write {wanted}", "E004", instead=wanted)
    if token.type in ("_LSQB", "BLOCK", "LBRACE") and "NUMBER" in ctx.expected:
        return ctx.wrong("a list is no value", "write an equation over a label, or read an input from a file")
    if token.type == "_BAR" and "NUMBER" in ctx.expected:
        closed = ctx.find("_BAR", start=ctx.position + 1)
        inner = ctx.text(ctx.position + 1, closed) if closed > 0 else "x"
        edits = ctx.edit(ctx.position, closed + 1, f"abs({inner})") if closed > 0 and inner != "..." else ()
        return ctx.wrong("the absolute value is a function", f"write abs({inner})", "E004", edits=edits)
    if token.type == "STRING" and "NUMBER" in ctx.expected:
        help_text = "read numbers from a file by an input"
        return ctx.wrong("a text is no value: it names a file, in input, output and import", help_text)
    if token.type == "_FOR" and before.type in _VALUE_ENDS:
        message = "an equation holds for all of its labels by itself"
        return ctx.wrong(message, "delete what follows; a label's range: Y[i: n] = ...")
    if token.type == "_RETURN" and after.type != "_EQUAL" and "NUMBER" in ctx.expected:
        return ctx.wrong("after '=' stands the value itself", "delete return", instead="")
    return None


def _attribute(ctx: ErrorContext) -> Diagnostic:
    before, after = ctx.before, ctx.at(1)
    if ctx.position == 1:
        name = ctx.span(0, 3)
        written = f"{before.text}_{after.text}"
        return ctx.wrong("a name contains no '.'", f"write {written}", span=name, instead=written)
    message = "'.' is not in the language: values have no attributes"
    span = before.span.to(after.span) if before.type == "NAME" else ctx.token.span.to(after.span)
    if after.text in ("T", "transpose"):
        help_text = "transpose by the labels: Y[j,i] = X[i,j]"
    elif after.text in ("shape", "size", "ndim"):
        help_text = "sizes have names: dim n, input X : f32[n]"
    elif after.text in AGGREGATIONS and not (before.type == "NAME" and before.text in ("np", "numpy", "torch", "jnp")):
        help_text = (
            f"aggregations name labels, as in {after.text}[i] {before.text if before.type == 'NAME' else 'X'}[i]"
        )
    elif after.text in BUILT_IN:
        help_text = f"write {after.text}{'[i] ...' if after.text in AGGREGATIONS else '(...)'}"
        if before.type == "NAME" and after.text not in AGGREGATIONS and ctx.at(2).type == "LPAR":
            return ctx.wrong(message, help_text, span=span, instead=after.text)
    else:
        help_text = "write a function: f(x)"
    return ctx.wrong(message, help_text, span=span)


def _commas(ctx: ErrorContext) -> Diagnostic | None:
    """``f(x,)``, ``A[i,j], B[j,k]`` as a value, ``1,000``."""
    token, before, after = ctx.token, ctx.before, ctx.at(1)
    if before.type == "_COMMA" and token.type in ("RPAR", "RSQB", "_COMMA", "END"):
        return ctx.wrong("nothing follows this comma", "delete ,", span=before.span, instead="")
    if token.type != "_COMMA" or before.type not in _VALUE_ENDS or ctx.find("_EQUAL") < 0:
        return None
    if before.type == "NUMBER" and after.type == "NUMBER" and len(after.text) == 3:
        number = f"{before.text}_{after.text}"
        edits = ctx.edit(ctx.position - 1, ctx.position + 2, number)
        return ctx.wrong("',' does not group digits", f"write {number}", edits=edits)
    message = "an equation has one value"
    help_text = "products are written with *; several names take the results of one function call"
    if len(ctx.split(0, ctx.find("_EQUAL"), "_COMMA")) > 1:
        help_text = "write an equation for each name"
    return ctx.wrong(message, help_text)


def _comment(ctx: ErrorContext) -> Diagnostic | None:
    """Comments of other languages."""
    if ctx.position == 0 and ctx.token.text in ("//", "/", "-", "%"):
        text = ctx.token.text + (ctx.at(1).text if ctx.token.text in ("/", "-") else "")
        if text in ("//", "/*", "--", "%"):
            edits = ctx.edit(0, 2 if len(text) > len(ctx.token.text) else 1, "#")
            return ctx.wrong("a comment begins with '#'", f"write # in place of {text}", edits=edits)
    behind = ctx.at(-2)
    if behind.text == "//" and ctx.before.type in _VALUE_ENDS and _begins_value(ctx):
        return ctx.wrong("a comment begins with '#'", "write # in place of //", span=behind.span, instead="#")
    return None


_RULES: tuple[Callable[[ErrorContext], Diagnostic | None], ...] = (
    _comment,
    _range_of_label,
    _aggregation,
    _target,
    _assignment,
    _condition,
    _indices,
    _python,
    _commas,
)
