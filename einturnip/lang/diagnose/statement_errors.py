"""Mistakes in statements that begin with a word: loops, functions, imports, hints, declarations."""

from __future__ import annotations

from einturnip.core.diagnostics import Diagnostic, Edit
from einturnip.ir.dtypes import DTYPES
from einturnip.lang.diagnose.error_context import ErrorContext
from einturnip.lang.lexer import OPERATORS

# Words that begin statements elsewhere, and what to do here.
FAR_WORDS = {
    "out": "write output",
    "param": "write input",
    "let": "delete let",
    "var": "delete var",
    "const": "write dim for a size, and nothing for a scalar",
    "if": "choose by where(condition, a, b)",
    "elif": "choose by where(condition, a, b)",
    "else": "choose by where(condition, a, b)",
    "while": "a loop counts: for i in 0 .. n {",
    "foreach": "write for i in 0 .. n {",
    "print": "write output NAME",
    "from": "libraries are imported as in import std.nn",
    "using": "libraries are imported as in import std.nn",
    "include": 'write import "file.ein"',
    "class": "there are tensors and functions only",
    "assert": "there are no assertions",
    "end": "a block ends with }",
    "done": "a block ends with }",
    "pass": "a block may be empty: { }",
    "function": "write fn",
    "func": "write fn",
    "def": "write fn",
}
FUNCTION_WORDS = frozenset({"def", "function", "func"})


def explain_head(spot: ErrorContext) -> Diagnostic | None:
    """What is wrong with a statement that begins with a word."""
    match spot.first.type:
        case "_FOR":
            return _loop(spot)
        case "_FN":
            return _function(spot)
        case "_IMPORT":
            return _import(spot)
        case "_DIM" | "_INPUT" | "_OUTPUT" | "_STATE":
            return _declaration(spot)
        case "AT":
            return _hint(spot)
        case "NAME" if spot.first.text in FAR_WORDS and spot.token.type not in ("_EQUAL", "_LSQB"):
            return _far_word(spot)
        case _:
            return None


def _far_word(spot: ErrorContext) -> Diagnostic | None:
    word = spot.first.text
    if spot.position > 1 and not (spot.position > 2 and word in FUNCTION_WORDS):
        return None
    help_text = FAR_WORDS[word]
    opened = spot.find("LPAR")
    closed = spot.closing(opened) if opened == 2 else -1
    if word in FUNCTION_WORDS and closed > 0:
        help_text = f"write fn {spot.text(1, closed + 1)} {{ ... return ... }}"
    edits: tuple[Edit, ...] = ()
    named = [token for token in spot.tokens[1:] if token.type != "LPAR" and token.type != "RPAR"]
    if word == "print" and len(named) == 1 and named[0].type == "NAME":
        help_text, edits = f"write output {named[0].text}", spot.edit(0, len(spot.tokens), f"output {named[0].text}")
    if word in ("let", "var"):
        edits = spot.edit(0, 1, "")
    if word == "from" and len(spot.tokens) == 4 and spot.tokens[1].text == "std":
        help_text = f"write import std.{spot.tokens[3].text}"
        edits = spot.edit(0, 4, f"import std.{spot.tokens[3].text}")
    return spot.wrong(f"no statement begins with '{word}'", help_text, span=spot.first.span, edits=edits)


# -- loops -------------------------------------------------------------------------------------------------------------


def _loop(spot: ErrorContext) -> Diagnostic:
    """Every mistake in the head of a loop is answered with the head it should be."""
    name = next((token.text for token in spot.tokens if token.type == "NAME"), "i")
    begin = spot.find("_IN", "_EQUAL") + 1
    stop = spot.find("BLOCK", start=begin)
    block = stop >= 0
    stop = len(spot.tokens) if stop < 0 else stop
    if spot.tokens[stop - 1].type == "COLON" or spot.tokens[stop - 1].text == "do":
        stop -= 1
    first, last = _range(spot, begin, stop) if begin else ("0", "n")
    head = f"for {name} in {first} .. {last} {{"
    help_text = f"write {head}" if block else f"write {head} ... }}"
    edits = spot.edit(0, stop + 1, head) if block and last != "..." else ()
    if last == "":
        help_text, edits = "a loop counts over a range: for i in 0 .. n {", ()
    token = spot.token
    if 0 < begin < stop and spot.tokens[begin].text == "range":
        return spot.wrong("a range is written FIRST .. END", help_text, span=spot.span(begin, stop), edits=edits)
    if token.type == "END" or (token.type == "COLON" and spot.at(1).type == "END"):
        return spot.wrong("the block of the loop is missing: it stands in { }", help_text, edits=edits)
    if token.type == "ELLIPSIS":
        return spot.wrong("a range has two dots; its end is not in it", help_text, edits=edits)
    if token.type == "COLON":
        return spot.wrong("a range is written with '..', not ':'", help_text, edits=edits)
    if token.type == "BLOCK":
        return spot.wrong("the loop has no range: FIRST .. END", help_text, edits=edits)
    return spot.wrong(f"unexpected '{token.text}' in the head of a loop", help_text, edits=edits)


def _range(spot: ErrorContext, begin: int, stop: int) -> tuple[str, str]:
    """The first number and the end that a range is meant to have."""
    tokens = spot.tokens
    if stop - begin > 2 and tokens[begin].type == "NAME" and tokens[begin + 1].type == "LPAR":
        end = spot.closing(begin + 1)
        parts = spot.split(begin + 2, end if end > 0 else stop, "_COMMA")
    elif begin < stop and tokens[begin].type == "_LSQB":
        texts = spot.split(begin + 1, stop - 1, "_COMMA")
        counted = texts == [str(k) for k in range(len(texts))]
        return ("0", str(len(texts))) if counted else ("0", "")
    else:
        parts = spot.split(begin, stop, "COLON", "_RANGE", "ELLIPSIS", "_COMMA")
    parts = [part for part in parts if part]
    if not parts:
        return "0", "n"
    return ("0", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(spot: ErrorContext) -> Diagnostic | None:
    token, position = spot.token, spot.position
    if position == 1:
        return (
            spot.wrong("a function needs a name", "write fn f(X[i]) = ...") if token.type in ("LPAR", "END") else None
        )
    name = spot.tokens[1].text
    if position == 2:
        return spot.wrong("the parameters of a function stand in parentheses", f"write fn {name}(X[i], a) = ...")
    opened = 2
    closed = spot.closing(opened)
    if closed < 0 or position <= closed:
        return _parameter(spot)
    head = f"fn {name}{spot.text(opened, closed + 1)}"
    if position == closed + 1:
        return _body_missing(spot, head, name)
    if spot.before.type == "_EQUAL" and token.type == "BLOCK":
        span = spot.before.span
        return spot.wrong("a block follows the parameters at once", f"delete =: {head} {{", span=span, instead="")
    if token.type == "_RETURN":
        return spot.wrong("after '=' stands the value itself", f"write {head} = ...", instead="")
    if spot.before.type == "_EQUAL" and token.text == ">":
        span = spot.before.span.to(token.span)
        return spot.wrong("a function is written with '='", f"write {head} = ...", span=span, instead="=")
    return None


def _body_missing(spot: ErrorContext, head: str, name: str) -> Diagnostic:
    token = spot.token
    if token.type == "END" or (token.type == "COLON" and spot.at(1).type == "END"):
        help_text = f"write {head} {{ ... return ... }} or {head} = ..."
        return spot.wrong(f"the body of '{name}' is missing", help_text)
    skip = 2 if token.text == "-" and spot.at(1).text == ">" else 1 if token.type == "COLON" else 0
    body = spot.text(spot.position + skip, len(spot.tokens))
    span = token.span.to(spot.at(1).span) if skip == 2 else None
    edits = spot.edit(spot.position, spot.position + skip, " = " if skip == 1 else "= ")
    message = "'=' or a block is expected after the parameters"
    return spot.wrong(message, f"write {head} = {body}", span=span, edits=edits)


def _parameter(spot: ErrorContext) -> Diagnostic | None:
    token, before = spot.token, spot.before
    if token.type == "COLON" and before.type in ("NAME", "RSQB"):
        words = [t.text for t in spot.tokens[spot.position + 1 : spot.position + 2]]
        said = f": {words[0]}" if words else ":"
        edits = spot.edit(spot.position, min(spot.position + 2, len(spot.tokens)), "")
        return spot.wrong("parameters have no dtype: a function takes any", f"delete '{said}'", edits=edits)
    if spot.expected >= {"RSQB", "_COMMA"} and "NAME" not in spot.expected:
        return spot.wrong("the labels of a parameter are bare names", f"write {before.text} alone, or another name")
    if before.text in DTYPES and token.type == "NAME":
        help_text = f"delete '{before.text}'"
        message = "parameters have no dtype: a function takes any"
        return spot.wrong(message, help_text, span=before.span, instead="")
    return None


# -- imports, hints and declarations -----------------------------------------------------------------------------------


def _import(spot: ErrorContext) -> Diagnostic | None:
    words = [token.text for token in spot.tokens[1:] if token.type == "NAME"]
    rest = spot.tokens[1:]
    if not rest:
        return spot.wrong("'import' names a library or a file", 'write import std.nn or import "file.ein"')
    if rest[0].type == "STRING":
        if spot.token.text == "as":
            edits = spot.edit(spot.position, len(spot.tokens), "")
            return spot.wrong("what is imported keeps its names", "delete what stands behind the file", edits=edits)
        return None
    if rest[0].type != "NAME":
        return None
    if rest[0].text == "std":
        if len(words) < 2:
            return spot.wrong("a library's name is written with a dot", "name the library, as in import std.nn")
        name = words[1]
        edits = spot.edit(0, len(spot.tokens), f"import std.{name}") if len(words) == 2 else ()
        return spot.wrong("a library's name is written with a dot", f"write import std.{name}", edits=edits)
    if "as" in words:
        message = "libraries of Python cannot be imported; the functions of the language need none"
        edits = spot.edit(0, len(spot.tokens), "")
        return spot.wrong(message, "delete this line", span=spot.span(1, len(spot.tokens)), edits=edits)
    message = f"'{rest[0].text}' is neither a library, std.NAME, nor a file in quotes"
    return spot.wrong(message, f'write import std.{words[0]} or import "{words[0]}.ein"', span=rest[0].span)


def _hint(spot: ErrorContext) -> Diagnostic:
    """A mistake in a hint, or right behind it."""
    if spot.position == 1 or spot.tokens[1].first:
        return spot.wrong(
            "'@' begins a hint: @tile, @place, @keep or @recompute", "write @keep", "E012", spot.first.span
        )
    kind = spot.tokens[1].text
    opened = spot.find("LPAR")
    closed = spot.closing(opened) if opened == 2 else 1
    if 0 <= closed < spot.position:
        edits = spot.edit(0, closed + 1, "")
        return spot.wrong("a hint stands before an equation, and nothing else", f"delete @{kind}", "E012", edits=edits)
    forms = {"tile": "@tile(i = 256, j = 4 parts)", "place": "@place(cuda:0)"}
    return spot.wrong(
        f"unexpected '{spot.token.text}' in a hint", f"hints are written as in {forms.get(kind, '@keep')}", "E012"
    )


def _declaration(spot: ErrorContext) -> Diagnostic | None:
    token, before = spot.token, spot.before
    match spot.first.type:
        case "_DIM" if before.type == "NAME" and token.type in ("COLON", "NUMBER"):
            value = spot.at(1).text if token.type == "COLON" else token.text
            edits = spot.edit(
                spot.position, spot.position + (token.type == "COLON"), " =" if token.type == "COLON" else "= "
            )
            return spot.wrong("a size is given its value by '='", f"write {before.text} = {value}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and token.type == "COLON":
            edits = spot.edit(spot.position, spot.position + 2, "") if spot.at(1).type == "NAME" else ()
            message = "an output has the dtype of its equation"
            return spot.wrong(message, f"delete ': {spot.at(1).text}'", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and (token.type == "STRING" or token.text in ("as", "to")):
            file = next((t.text for t in spot.tokens[spot.position :] if t.type == "STRING"), '"file.npy"')
            named = any(t.type == "STRING" for t in spot.tokens[spot.position :])
            written = f"output {before.text} = {file}"
            edits = spot.edit(0, len(spot.tokens), written) if named else ()
            return spot.wrong("an output's file follows '='", f"write {written}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and token.type == "_LSQB":
            closed = spot.closing(spot.position)
            edits = spot.edit(spot.position, closed + 1, "") if closed > 0 else ()
            return spot.wrong("an output is written without its labels", f"write output {before.text}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and (token.type in OPERATORS or token.type == "LPAR"):
            return spot.wrong("an output is a name", "define what is wanted by an equation, and name it here")
        case "_INPUT" | "_STATE":
            return _input(spot)
        case _:
            return None


def _input(spot: ErrorContext) -> Diagnostic | None:
    token, before = spot.token, spot.before
    what = "state" if spot.first.type == "_STATE" else "input"
    if token.type == "_ARROW":
        return spot.wrong(f"what {_a(what)} begins as follows '='", "write = in the place of <-", instead="=")
    if before.text in DTYPES and token.type == "NAME" and spot.position > 1:
        written, end = _in_order(spot)
        message = f"the dtype follows the name: {token.text} : {before.text}[...]"
        edits = spot.edit(spot.position - 1, end, written)
        return spot.wrong(message, f"write {written}", edits=edits)
    if token.text in DTYPES and before.type == "NAME":
        edits = spot.edit(spot.position, spot.position, ": ")
        return spot.wrong("a ':' stands between name and dtype", f"write {before.text} : {token.text}", edits=edits)
    if before.text in DTYPES and token.type == "LPAR":
        end = spot.closing(spot.position)
        sizes = spot.text(spot.position + 1, end) if end > 0 else "n"
        edits = spot.edit(spot.position, end + 1, f"[{sizes}]") if end > 0 else ()
        message = f"the sizes of {_a(what)} stand in brackets"
        return spot.wrong(message, f"write {before.text}[{sizes}]", edits=edits)
    if before.type == "NAME" and "COLON" in spot.expected:
        return spot.wrong(f"{_a(what)} has a dtype", f"write its dtype and sizes, as in {what} {before.text} : f32[n]")
    return None


def _a(what: str) -> str:
    return f"{'an' if what == 'input' else 'a'} {what}"


def _in_order(spot: ErrorContext) -> tuple[str, int]:
    """What ``f32 X[n]`` should be, and the token behind it."""
    end = spot.closing(spot.position + 1) if spot.at(1).type == "_LSQB" else -1
    shape = spot.text(spot.position + 1, end + 1) if end > 0 else ""
    return f"{spot.token.text} : {spot.before.text}{shape}", (end if end > 0 else spot.position) + 1
