"""What is written elsewhere and not here, inside a statement: each rule knows one habit and what to write for it."""

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


def explain_idiom(spot: ErrorContext) -> Diagnostic | None:
    """The first rule that knows what was meant."""
    return next((found for rule in _RULES if (found := rule(spot)) is not None), None)


def _aggregation(spot: ErrorContext) -> Diagnostic | None:
    """An aggregation that names no labels: ``sum X[i, j]``, ``sum[] X[i]``, ``sum(j) X[j]``, ``sum_j X[j]``."""
    before, token = spot.before, spot.token
    empty = before.type == "_LSQB" and token.type == "RSQB"
    operator = spot.at(-2) if empty else before
    if operator.type == "AGGREGATION":
        rest = spot.tokens[spot.position + empty :]
        used, left = _index_names(spot, spot.position + empty), _index_names(spot, 0, spot.find("_EQUAL"))
        labels = [name for name in dict.fromkeys(used) if name not in left] or used[-1:]
        body = text_of(rest[:8]) if len(rest) <= 8 else "..."
        span = operator.span.to(token.span) if empty else operator.span
        shown = ", ".join(labels) or "i"
        instead = f"{operator.text}[{shown}]" if labels else None
        return _without_labels(spot, operator.text, shown, body or "...", operator.span, span, instead)
    word, _, label = before.text.partition("_")
    if before.type == "NAME" and word in AGGREGATIONS and label and token.type not in ("END", "_COMMA"):
        return _without_labels(spot, word, label, "...", before.span, before.span, f"{word}[{label}]")
    opened = spot.opening(spot.position - 1) if before.type == "RPAR" else -1
    if opened > 0 and spot.tokens[opened - 1].type == "AGGREGATION" and _begins_value(spot):
        name = spot.tokens[opened - 1]
        labels_text = spot.text(opened + 1, spot.position - 1)
        span = name.span.to(before.span)
        return _without_labels(spot, name.text, labels_text, "...", span, span, f"{name.text}[{labels_text}]")
    opened = spot.opening(spot.position - 1) if before.type == "RSQB" else -1
    if opened > 0 and _begins_value(spot):
        name = spot.tokens[opened - 1]
        meant = _AGGREGATIONS_ELSEWHERE.get(name.text, "")
        meant = meant or ("" if name.text in KNOWN_ELSEWHERE else nearest(name.text, AGGREGATIONS))
        if meant:
            help_text = f"write {meant}" if name.text in _AGGREGATIONS_ELSEWHERE else f"did you mean '{meant}'?"
            return spot.wrong(f"there is no aggregation '{name.text}'", help_text, "E021", name.span, meant)
    return None


def _without_labels(
    spot: ErrorContext, op: str, labels: str, body: str, span: Span, place: Span, instead: str | None
) -> Diagnostic:
    """``instead``: what to write at ``place``, where the labels are known."""
    message = f"'{op}' does not say which labels it runs over"
    edits = () if instead is None else (Edit(place, instead),)
    return spot.wrong(message, f"name them in brackets: {op}[{labels}] {body}", "E007", span, edits=edits)


def _index_names(spot: ErrorContext, start: int, stop: int | None = None) -> list[str]:
    """The names in the first brackets from ``start``."""
    names: list[str] = []
    depth = 0
    for token in spot.tokens[start:stop]:
        depth += (token.type == "_LSQB") - (token.type == "RSQB")
        if token.type == "NAME" and depth == 1:
            names.append(token.text)
        if token.type == "RSQB" and depth == 0:
            break
    return names


def _begins_value(spot: ErrorContext) -> bool:
    return spot.token.type in ("NAME", "NUMBER", "LPAR", "AGGREGATION")


def _range_of_label(spot: ErrorContext) -> Diagnostic | None:
    """``sum[i in 0..n]``, ``sum[i=0:n]``."""
    if spot.token.type not in ("_IN", "_EQUAL") or spot.before.type != "NAME":
        return None
    opened = spot.position - 1
    while opened > 0 and spot.tokens[opened].type not in ("_LSQB", "LPAR"):
        opened -= 1
    if opened == 0 or spot.tokens[opened].type != "_LSQB" or spot.tokens[opened - 1].type == "LPAR":
        return None
    end = spot.closing(opened)
    parts = spot.split(spot.position + 1, end if end > 0 else len(spot.tokens), "_RANGE", "COLON", "_COMMA", "ELLIPSIS")
    size = parts[1] if len(parts) > 1 else "n"
    label = spot.before.text
    first = parts[0] if len(parts) > 1 else "0"
    if first != "0":
        return spot.wrong(
            "a label's range is its size, and begins at 0", f"write {label}: n, and {label} + {first} for {label}"
        )
    known = bool(size) and len(parts) == 2 and end > 0
    edits = spot.edit(spot.position - 1, end, f"{label}: {size}") if known else ()
    return spot.wrong("a label's range is its size, and begins at 0", f"write {label}: {size or 'n'}", edits=edits)


def _indices(spot: ErrorContext) -> Diagnostic | None:
    """``X[i][j]``, ``f(x) = ...``, ``X[a:b:2]``."""
    token, before = spot.token, spot.before
    if token.type == "_LSQB" and before.type == "RSQB":
        opened, closed = spot.opening(spot.position - 1), spot.closing(spot.position)
        if opened > 0 and closed > 0:
            inner = f"{spot.text(opened + 1, spot.position - 1)},{spot.text(spot.position + 1, closed)}"
            span = spot.span(opened - 1, closed + 1)
            message = "all indices stand in one pair of brackets"
            written = f"{spot.tokens[opened - 1].text}[{inner}]"
            return spot.wrong(message, f"write {written}", span=span, instead=written)
    if token.type == "RSQB" and before.type == "_LSQB" and spot.at(-2).type == "NAME":
        span = before.span.to(token.span)
        return spot.wrong("a scalar has no brackets", f"write {spot.at(-2).text}", span=span, instead="")
    if token.type == "LPAR" and spot.position == 1 and spot.first.type == "NAME":
        closed = spot.closing(1)
        after = spot.tokens[closed + 1].type if 0 < closed < len(spot.tokens) - 1 else "END"
        if after == "_EQUAL":
            inner, name = spot.text(2, closed), spot.first.text
            help_text = f"write {name}[{inner}] = ..., or for a function: fn {name}({inner}) = ..."
            return spot.wrong("the labels of a tensor stand in brackets", help_text, span=spot.span(0, closed + 1))
        return spot.wrong("nothing is defined by a call alone", f"write y = {spot.first.text}(...)")
    sliced = token.type == "_DCOLON" and before.type in ("_LSQB", "_COMMA")
    if sliced or (token.type in ("_DCOLON", "COLON") and spot.find("_EQUAL") >= 0 and "RSQB" in spot.expected):
        return spot.wrong("slices have no step", "use an index: X[2*i] takes every second")
    return None


def _target(spot: ErrorContext) -> Diagnostic | None:
    """``(x, y) = f(z)``, ``learning-rate = 1``."""
    token, after = spot.token, spot.at(1)
    if spot.position == 0 and token.type == "LPAR":
        closed = spot.closing(0)
        if 0 < closed < len(spot.tokens) - 1 and spot.tokens[closed + 1].type == "_EQUAL":
            edits = spot.edit(0, 1, "") + spot.edit(closed, closed + 1, "")
            help_text = f"write {spot.text(1, closed)} = ..."
            return spot.wrong("the names on the left stand in no parentheses", help_text, edits=edits)
    if spot.position == 1 and token.text == "-" and after.type == "NAME" and spot.at(2).type == "_EQUAL":
        name = f"{spot.before.text}_{after.text}"
        return spot.wrong("a name contains no '-'", f"write {name}", span=spot.before.span.to(after.span), instead=name)
    return None


def _assignment(spot: ErrorContext) -> Diagnostic | None:
    """``==`` for ``=``, ``=`` for ``==``, ``+=``, ``:=``, ``=<``."""
    token, before, after = spot.token, spot.before, spot.at(1)
    if spot.first.type not in ("NAME", "_DIM", "_INPUT", "_STATE", "_OUTPUT"):
        return None
    defined = 0 <= spot.find("_EQUAL") < spot.position
    if token.text == "==" and "_EQUAL" in spot.expected and not defined:
        return spot.wrong("'==' compares; a definition has '='", "write = here", "E004", instead="=")
    if token.type in ("PLUS", "MINUS", "FACTOR", "POWER", "COLON") and after.type == "_EQUAL" and not defined:
        target = spot.text(0, spot.position)
        mended = f"{target} = ..." if token.type == "COLON" else f"{target} = {target} {token.text} ..."
        edits = spot.edit(spot.position, spot.position + 2, "=") if token.type == "COLON" else ()
        return spot.wrong(f"'{token.text}=' is not in the language", f"write {mended}", "E004", edits=edits)
    pair = before.text + token.text
    if pair in ("<>", "=<", "=>", "<=="):
        wanted = {"<>": "!=", "=<": "<=", "=>": ">=", "<==": "<="}[pair]
        span = before.span.to(token.span)
        return spot.wrong(f"'{pair}' is not an operator here", f"write {wanted}", "E004", span, wanted)
    if token.type != "_EQUAL" or not defined or spot.first.type != "NAME":
        return None
    if after.text in ("<", ">"):
        wanted, span = f"{after.text}=", token.span.to(after.span)
        return spot.wrong(f"'={after.text}' is not an operator here", f"write {wanted}", "E004", span, wanted)
    if before.type == "_EQUAL" or before.text in ("<", ">"):
        message = "two symbols that belong together are apart"
        span = before.span.to(token.span)
        return spot.wrong(message, f"write {before.text}=", "E004", span, f"{before.text}=")
    return spot.wrong("'=' defines; to compare, write '=='", "write == here", "E004", instead="==")


def _condition(spot: ErrorContext) -> Diagnostic | None:
    """``a if c else b``, ``c ? a : b``, ``x where c``."""
    token = spot.token
    begin = spot.find("_EQUAL") + 1
    if begin == 0 or spot.position <= begin:
        return None
    end = len(spot.tokens)
    otherwise = next((p for p in range(spot.position, end) if spot.tokens[p].text == "else"), -1)
    value = spot.text(begin, spot.position)
    if token.text == "if":
        stop = otherwise if otherwise > 0 else end
        other = spot.text(otherwise + 1, end) if otherwise > 0 else "0"
        return _choice(spot, begin, spot.text(spot.position + 1, stop), value, other, otherwise > 0)
    if token.type == "_QUESTION":
        colon = spot.find("COLON", start=spot.position)
        if colon < 0:
            return spot.wrong(
                "a value for what is out of bounds stands in an index", "write it there, as in X[i-1 ? 0]"
            )
        yes, no = spot.text(spot.position + 1, colon), spot.text(colon + 1, end)
        return _choice(spot, begin, value, yes, no, known=True)
    if token.text == "where":
        condition = spot.text(spot.position + 1, end)
        help_text = f"for 0 elsewhere, as in where({condition}, {value}, 0)"
        return spot.wrong("'where' is a function: where(condition, a, b)", help_text)
    return None


def _choice(spot: ErrorContext, begin: int, condition: str, yes: str, no: str, known: bool) -> Diagnostic:
    """A choice that is the whole right side, from ``begin`` on. ``known``: all of its parts are written."""
    written = f"where({condition}, {yes}, {no})"
    edits = spot.edit(begin, len(spot.tokens), written) if known and "..." not in (condition, yes, no) else ()
    return spot.wrong("a choice is written with 'where'", f"write {written}", edits=edits)


def _python(spot: ErrorContext) -> Diagnostic | None:
    """Attributes, ``@``, lambdas, lists, and operators that are words."""
    token, before, after = spot.token, spot.before, spot.at(1)
    if token.type == "_DOT" and after.type in ("NAME", "AGGREGATION"):
        return _attribute(spot)
    if token.type == "AT":
        message = "products of matrices are index equations"
        return spot.wrong(message, "name the labels, as in C[i,k] = A[i,j] * B[j,k]", "E004")
    if before.text == "lambda":
        name = spot.first.text
        return spot.wrong("functions are defined with 'fn'", f"write fn {name}({token.text}) = ...", span=before.span)
    if before.text == "-" and token.text == ">" and spot.at(-2).type in _VALUE_ENDS:
        help_text = f"write fn {spot.first.text}({spot.at(-2).text}) = ..."
        return spot.wrong("functions are defined with 'fn'", help_text, span=before.span.to(token.span))
    if token.text in _WORDS and before.type in _VALUE_ENDS:
        wanted = _WORDS[token.text]
        return spot.wrong(f"'{token.text}' is not an operator here", f"write {wanted}", "E004", instead=wanted)
    if token.type in ("_LSQB", "BLOCK", "LBRACE") and "NUMBER" in spot.expected:
        return spot.wrong("a list is no value", "write an equation over a label, or read an input from a file")
    if token.type == "_BAR" and "NUMBER" in spot.expected:
        closed = spot.find("_BAR", start=spot.position + 1)
        inner = spot.text(spot.position + 1, closed) if closed > 0 else "x"
        edits = spot.edit(spot.position, closed + 1, f"abs({inner})") if closed > 0 and inner != "..." else ()
        return spot.wrong("the absolute value is a function", f"write abs({inner})", "E004", edits=edits)
    if token.type == "STRING" and "NUMBER" in spot.expected:
        help_text = "read numbers from a file by an input"
        return spot.wrong("a text is no value: it names a file, in input, output and import", help_text)
    if token.type == "_FOR" and before.type in _VALUE_ENDS:
        message = "an equation holds for all of its labels by itself"
        return spot.wrong(message, "delete what follows; a label's range: Y[i: n] = ...")
    if token.type == "_RETURN" and after.type != "_EQUAL" and "NUMBER" in spot.expected:
        return spot.wrong("after '=' stands the value itself", "delete return", instead="")
    return None


def _attribute(spot: ErrorContext) -> Diagnostic:
    before, after = spot.before, spot.at(1)
    if spot.position == 1:
        name = spot.span(0, 3)
        written = f"{before.text}_{after.text}"
        return spot.wrong("a name contains no '.'", f"write {written}", span=name, instead=written)
    message = "'.' is not in the language: values have no attributes"
    span = before.span.to(after.span) if before.type == "NAME" else spot.token.span.to(after.span)
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
        if before.type == "NAME" and after.text not in AGGREGATIONS and spot.at(2).type == "LPAR":
            return spot.wrong(message, help_text, span=span, instead=after.text)
    else:
        help_text = "write a function: f(x)"
    return spot.wrong(message, help_text, span=span)


def _commas(spot: ErrorContext) -> Diagnostic | None:
    """``f(x,)``, ``A[i,j], B[j,k]`` as a value, ``1,000``."""
    token, before, after = spot.token, spot.before, spot.at(1)
    if before.type == "_COMMA" and token.type in ("RPAR", "RSQB", "_COMMA", "END"):
        return spot.wrong("nothing stands behind this comma", "delete ,", span=before.span, instead="")
    if token.type != "_COMMA" or before.type not in _VALUE_ENDS or spot.find("_EQUAL") < 0:
        return None
    if before.type == "NUMBER" and after.type == "NUMBER" and len(after.text) == 3:
        number = f"{before.text}_{after.text}"
        edits = spot.edit(spot.position - 1, spot.position + 2, number)
        return spot.wrong("',' does not group digits", f"write {number}", edits=edits)
    message = "an equation has one value"
    help_text = "products are written with *; several names take the results of one function call"
    if len(spot.split(0, spot.find("_EQUAL"), "_COMMA")) > 1:
        help_text = "write an equation for each name"
    return spot.wrong(message, help_text)


def _comment(spot: ErrorContext) -> Diagnostic | None:
    """Comments of other languages."""
    if spot.position == 0 and spot.token.text in ("//", "/", "-", "%"):
        text = spot.token.text + (spot.at(1).text if spot.token.text in ("/", "-") else "")
        if text in ("//", "/*", "--", "%"):
            edits = spot.edit(0, 2 if len(text) > len(spot.token.text) else 1, "#")
            return spot.wrong("a comment begins with '#'", f"write # in place of {text}", edits=edits)
    behind = spot.at(-2)
    if behind.text == "//" and spot.before.type in _VALUE_ENDS and _begins_value(spot):
        return spot.wrong("a comment begins with '#'", "write # in place of //", span=behind.span, instead="#")
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
