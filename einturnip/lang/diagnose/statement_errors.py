"""Explains errors in loops, functions, imports, hints and declarations."""

from __future__ import annotations

from einturnip.core.diagnostics import Diagnostic, Edit
from einturnip.ir.dtypes import DTYPES
from einturnip.lang.diagnose.error_context import ErrorContext
from einturnip.lang.lexer import OPERATORS

# Words that begin statements in other languages, and the advice for each.
FOREIGN_KEYWORDS = {
    "out": "write output",
    "param": "write input",
    "let": "delete let",
    "var": "delete var",
    "const": "write dim for a size, and nothing for a scalar",
    "if": "choose by where(condition, a, b)",
    "elif": "choose by where(condition, a, b)",
    "else": "choose by where(condition, a, b)",
    "until": "a loop goes on while a condition holds: while not (...), at most 1000 {",
    "repeat": "write for i in 0 .. n { or while CONDITION, at most 1000 {",
    "do": "write for i in 0 .. n { or while CONDITION, at most 1000 {",
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


def explain_head(ctx: ErrorContext) -> Diagnostic | None:
    """Explain an error in a statement that begins with a keyword."""
    match ctx.first.type:
        case "_FOR":
            return _loop(ctx)
        case "_WHILE":
            return _while(ctx)
        case "_FN":
            return _function(ctx)
        case "_IMPORT":
            return _import(ctx)
        case "_DIM" | "_INPUT" | "_OUTPUT" | "_STATE":
            return _declaration(ctx)
        case "AT":
            return _hint(ctx)
        case "NAME" if ctx.first.text in FOREIGN_KEYWORDS and ctx.token.type not in ("_EQUAL", "_LSQB"):
            return _foreign_keyword(ctx)
        case _:
            return None


def _foreign_keyword(ctx: ErrorContext) -> Diagnostic | None:
    word = ctx.first.text
    if ctx.position > 1 and not (ctx.position > 2 and word in FUNCTION_WORDS):
        return None
    help_text = FOREIGN_KEYWORDS[word]
    opened = ctx.find("LPAR")
    closed = ctx.closing(opened) if opened == 2 else -1
    if word in FUNCTION_WORDS and closed > 0:
        help_text = f"write fn {ctx.text(1, closed + 1)} {{ ... return ... }}"
    edits: tuple[Edit, ...] = ()
    named = [token for token in ctx.tokens[1:] if token.type != "LPAR" and token.type != "RPAR"]
    if word == "print" and len(named) == 1 and named[0].type == "NAME":
        help_text, edits = (
            f"write output {named[0].text}",
            ctx.edit(0, len(ctx.tokens), f"output {named[0].text}"),
        )
    if word in ("let", "var"):
        edits = ctx.edit(0, 1, "")
    if word == "from" and len(ctx.tokens) == 4 and ctx.tokens[1].text == "std":
        help_text = f"write import std.{ctx.tokens[3].text}"
        edits = ctx.edit(0, 4, f"import std.{ctx.tokens[3].text}")
    return ctx.wrong(f"no statement begins with '{word}'", help_text, span=ctx.first.span, edits=edits)


# -- loops -------------------------------------------------------------------------------------------------------------


def _loop(ctx: ErrorContext) -> Diagnostic:
    """Report an error in the head of a loop, with the corrected head."""
    name = next((token.text for token in ctx.tokens if token.type == "NAME"), "i")
    begin = ctx.find("_IN", "_EQUAL") + 1
    stop = ctx.find("BLOCK", start=begin)
    block = stop >= 0
    stop = len(ctx.tokens) if stop < 0 else stop
    if ctx.tokens[stop - 1].type == "COLON" or ctx.tokens[stop - 1].text == "do":
        stop -= 1
    first, last = _range(ctx, begin, stop) if begin else ("0", "n")
    head = f"for {name} in {first} .. {last} {{"
    help_text = f"write {head}" if block else f"write {head} ... }}"
    edits = ctx.edit(0, stop + 1, head) if block and last != "..." else ()
    if last == "":
        help_text, edits = "a loop counts over a range: for i in 0 .. n {", ()
    token = ctx.token
    if 0 < begin < stop and ctx.tokens[begin].text == "range":
        return ctx.wrong("a range is written FIRST .. END", help_text, span=ctx.span(begin, stop), edits=edits)
    if token.type == "END" or (token.type == "COLON" and ctx.at(1).type == "END"):
        return ctx.wrong("the block of the loop is missing: it is written in { }", help_text, edits=edits)
    if token.type == "ELLIPSIS":
        return ctx.wrong("a range has two dots; its end is not in it", help_text, edits=edits)
    if token.type == "COLON":
        return ctx.wrong("a range is written with '..', not ':'", help_text, edits=edits)
    if token.type == "BLOCK":
        return ctx.wrong("the loop has no range: FIRST .. END", help_text, edits=edits)
    return ctx.wrong(f"unexpected '{token.text}' in the head of a loop", help_text, edits=edits)


def _range(ctx: ErrorContext, begin: int, stop: int) -> tuple[str, str]:
    """The intended start and end of a range."""
    tokens = ctx.tokens
    if stop - begin > 2 and tokens[begin].type == "NAME" and tokens[begin + 1].type == "LPAR":
        end = ctx.closing(begin + 1)
        parts = ctx.split(begin + 2, end if end > 0 else stop, "_COMMA")
    elif begin < stop and tokens[begin].type == "_LSQB":
        texts = ctx.split(begin + 1, stop - 1, "_COMMA")
        counted = texts == [str(k) for k in range(len(texts))]
        return ("0", str(len(texts))) if counted else ("0", "")
    else:
        parts = ctx.split(begin, stop, "COLON", "_RANGE", "ELLIPSIS", "_COMMA")
    parts = [part for part in parts if part]
    if not parts:
        return "0", "n"
    return ("0", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _while(ctx: ErrorContext) -> Diagnostic | None:
    """Report an error in the head of a ``while``, with the corrected head."""
    token, end = ctx.token, ctx.find("BLOCK", "COLON")
    end = len(ctx.tokens) if end < 0 else end
    if token.type == "_EQUAL":
        return ctx.wrong("'=' defines; to compare, write '=='", "write == here", "E004", instead="==")
    ends_head = token.type in ("BLOCK", "COLON", "END", "_COMMA") or token.text == "at" or ctx.before.type == "_COMMA"
    if not ends_head or ctx.before.type in OPERATORS:
        return None
    text = ctx.text(1, end)
    condition, _, bound = text.partition("at most")
    *before, last = ctx.split(1, end, "_COMMA")
    if not bound and before:
        condition, bound = ", ".join(before), last.replace("at most", "")
    condition, bound = condition.strip(", "), bound.strip(", ")
    head = f"while {condition or 'CONDITION'}, at most {bound or '1000'} {{"
    has_block = end < len(ctx.tokens) and ctx.tokens[end].type == "BLOCK"
    edits = ctx.edit(0, end + 1, head) if has_block and condition and "..." not in head else ()
    help_text = f"write {head}" if has_block else f"write {head} ... }}"
    if not condition:
        return ctx.wrong("the loop has no condition", help_text)
    if not bound:
        return ctx.wrong("the loop has no bound: at most how many iterations", help_text, edits=edits)
    if not has_block:
        return ctx.wrong("the block of the loop is missing: it is written in { }", help_text)
    return ctx.wrong("a 'while' is written: CONDITION, at most BOUND", help_text, edits=edits)


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(ctx: ErrorContext) -> Diagnostic | None:
    token, position = ctx.token, ctx.position
    if position == 1:
        return ctx.wrong("a function needs a name", "write fn f(X[i]) = ...") if token.type in ("LPAR", "END") else None
    name = ctx.tokens[1].text
    if position == 2:
        return ctx.wrong("the parameters of a function belong in parentheses", f"write fn {name}(X[i], a) = ...")
    opened = 2
    closed = ctx.closing(opened)
    if closed < 0 or position <= closed:
        return _parameter(ctx)
    head = f"fn {name}{ctx.text(opened, closed + 1)}"
    if position == closed + 1:
        return _body_missing(ctx, head, name)
    if ctx.before.type == "_EQUAL" and token.type == "BLOCK":
        span = ctx.before.span
        return ctx.wrong("a block follows the parameters at once", f"delete =: {head} {{", span=span, instead="")
    if token.type == "_RETURN":
        return ctx.wrong("after '=' stands the value itself", f"write {head} = ...", instead="")
    if ctx.before.type == "_EQUAL" and token.text == ">":
        span = ctx.before.span.to(token.span)
        return ctx.wrong("a function is written with '='", f"write {head} = ...", span=span, instead="=")
    return None


def _body_missing(ctx: ErrorContext, head: str, name: str) -> Diagnostic:
    token = ctx.token
    if token.type == "END" or (token.type == "COLON" and ctx.at(1).type == "END"):
        help_text = f"write {head} {{ ... return ... }} or {head} = ..."
        return ctx.wrong(f"the body of '{name}' is missing", help_text)
    skip = 2 if token.text == "-" and ctx.at(1).text == ">" else 1 if token.type == "COLON" else 0
    body = ctx.text(ctx.position + skip, len(ctx.tokens))
    span = token.span.to(ctx.at(1).span) if skip == 2 else None
    edits = ctx.edit(ctx.position, ctx.position + skip, " = " if skip == 1 else "= ")
    message = "'=' or a block is expected after the parameters"
    return ctx.wrong(message, f"write {head} = {body}", span=span, edits=edits)


def _parameter(ctx: ErrorContext) -> Diagnostic | None:
    token, before = ctx.token, ctx.before
    if token.type == "COLON" and before.type in ("NAME", "RSQB"):
        words = [t.text for t in ctx.tokens[ctx.position + 1 : ctx.position + 2]]
        said = f": {words[0]}" if words else ":"
        edits = ctx.edit(ctx.position, min(ctx.position + 2, len(ctx.tokens)), "")
        return ctx.wrong("parameters have no dtype: a function takes any", f"delete '{said}'", edits=edits)
    if ctx.expected >= {"RSQB", "_COMMA"} and "NAME" not in ctx.expected:
        return ctx.wrong("the labels of a parameter are bare names", f"write {before.text} alone, or another name")
    if before.text in DTYPES and token.type == "NAME":
        help_text = f"delete '{before.text}'"
        message = "parameters have no dtype: a function takes any"
        return ctx.wrong(message, help_text, span=before.span, instead="")
    return None


# -- imports, hints and declarations -----------------------------------------------------------------------------------


def _import(ctx: ErrorContext) -> Diagnostic | None:
    words = [token.text for token in ctx.tokens[1:] if token.type == "NAME"]
    rest = ctx.tokens[1:]
    if not rest:
        return ctx.wrong("'import' names a library or a file", 'write import std.nn or import "file.ein"')
    if rest[0].type == "STRING":
        if ctx.token.text == "as":
            edits = ctx.edit(ctx.position, len(ctx.tokens), "")
            return ctx.wrong("what is imported keeps its names", "delete what stands behind the file", edits=edits)
        return None
    if rest[0].type != "NAME":
        return None
    if rest[0].text == "std":
        if len(words) < 2:
            return ctx.wrong("a library's name is written with a dot", "name the library, as in import std.nn")
        name = words[1]
        edits = ctx.edit(0, len(ctx.tokens), f"import std.{name}") if len(words) == 2 else ()
        return ctx.wrong("a library's name is written with a dot", f"write import std.{name}", edits=edits)
    if "as" in words:
        message = "libraries of Python cannot be imported; the functions of the language need none"
        edits = ctx.edit(0, len(ctx.tokens), "")
        return ctx.wrong(message, "delete this line", span=ctx.span(1, len(ctx.tokens)), edits=edits)
    message = f"'{rest[0].text}' is neither a library, std.NAME, nor a file in quotes"
    return ctx.wrong(message, f'write import std.{words[0]} or import "{words[0]}.ein"', span=rest[0].span)


def _hint(ctx: ErrorContext) -> Diagnostic:
    """Report an error in a hint, or directly after it."""
    if ctx.position == 1 or ctx.tokens[1].first:
        return ctx.wrong("'@' begins a hint: @tile, @place, @keep or @recompute", "write @keep", "E012", ctx.first.span)
    kind = ctx.tokens[1].text
    opened = ctx.find("LPAR")
    closed = ctx.closing(opened) if opened == 2 else 1
    if 0 <= closed < ctx.position:
        edits = ctx.edit(0, closed + 1, "")
        return ctx.wrong("a hint precedes an equation, and nothing else", f"delete @{kind}", "E012", edits=edits)
    forms = {"tile": "@tile(i = 256, j = 4 parts)", "place": "@place(cuda:0)"}
    return ctx.wrong(
        f"unexpected '{ctx.token.text}' in a hint", f"hints are written as in {forms.get(kind, '@keep')}", "E012"
    )


def _declaration(ctx: ErrorContext) -> Diagnostic | None:
    token, before = ctx.token, ctx.before
    match ctx.first.type:
        case "_DIM" if before.type == "NAME" and token.type in ("COLON", "NUMBER"):
            value = ctx.at(1).text if token.type == "COLON" else token.text
            edits = ctx.edit(
                ctx.position, ctx.position + (token.type == "COLON"), " =" if token.type == "COLON" else "= "
            )
            return ctx.wrong("a size is given its value by '='", f"write {before.text} = {value}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and token.type == "COLON":
            edits = ctx.edit(ctx.position, ctx.position + 2, "") if ctx.at(1).type == "NAME" else ()
            message = "an output has the dtype of its equation"
            return ctx.wrong(message, f"delete ': {ctx.at(1).text}'", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and (token.type == "STRING" or token.text in ("as", "to")):
            file = next((t.text for t in ctx.tokens[ctx.position :] if t.type == "STRING"), '"file.npy"')
            named = any(t.type == "STRING" for t in ctx.tokens[ctx.position :])
            written = f"output {before.text} = {file}"
            edits = ctx.edit(0, len(ctx.tokens), written) if named else ()
            return ctx.wrong("an output's file follows '='", f"write {written}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and token.type == "_LSQB":
            closed = ctx.closing(ctx.position)
            edits = ctx.edit(ctx.position, closed + 1, "") if closed > 0 else ()
            return ctx.wrong("an output is written without its labels", f"write output {before.text}", edits=edits)
        case "_OUTPUT" if before.type == "NAME" and (token.type in OPERATORS or token.type == "LPAR"):
            return ctx.wrong("an output is a name", "define what is wanted by an equation, and name it here")
        case "_INPUT" | "_STATE":
            return _input(ctx)
        case _:
            return None


def _input(ctx: ErrorContext) -> Diagnostic | None:
    token, before = ctx.token, ctx.before
    what = "state" if ctx.first.type == "_STATE" else "input"
    if token.type == "_ARROW":
        return ctx.wrong(f"what {_a(what)} begins as follows '='", "write = in the place of <-", instead="=")
    if before.text in DTYPES and token.type == "NAME" and ctx.position > 1:
        written, end = _in_order(ctx)
        message = f"the dtype follows the name: {token.text} : {before.text}[...]"
        edits = ctx.edit(ctx.position - 1, end, written)
        return ctx.wrong(message, f"write {written}", edits=edits)
    if token.text in DTYPES and before.type == "NAME":
        edits = ctx.edit(ctx.position, ctx.position, ": ")
        return ctx.wrong("a ':' stands between name and dtype", f"write {before.text} : {token.text}", edits=edits)
    if before.text in DTYPES and token.type == "LPAR":
        end = ctx.closing(ctx.position)
        sizes = ctx.text(ctx.position + 1, end) if end > 0 else "n"
        edits = ctx.edit(ctx.position, end + 1, f"[{sizes}]") if end > 0 else ()
        message = f"the sizes of {_a(what)} belong in brackets"
        return ctx.wrong(message, f"write {before.text}[{sizes}]", edits=edits)
    if before.type == "NAME" and "COLON" in ctx.expected:
        return ctx.wrong(f"{_a(what)} has a dtype", f"write its dtype and sizes, as in {what} {before.text} : f32[n]")
    return None


def _a(what: str) -> str:
    return f"{'an' if what == 'input' else 'a'} {what}"


def _in_order(ctx: ErrorContext) -> tuple[str, int]:
    """The corrected form of ``f32 X[n]``, and the position after it."""
    end = ctx.closing(ctx.position + 1) if ctx.at(1).type == "_LSQB" else -1
    shape = ctx.text(ctx.position + 1, end + 1) if end > 0 else ""
    return f"{ctx.token.text} : {ctx.before.text}{shape}", (end if end > 0 else ctx.position) + 1
