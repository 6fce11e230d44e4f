"""Completion: visible names, words of the language and functions of the standard library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.dtypes import DTYPES
from einturnip.lang import syntax_tree as s
from einturnip.lang.keywords import CONSTANTS, FUNCTIONS, KEYWORDS, STATEMENTS
from einturnip.lsp.glossary import GLOSSARY, HINTS
from einturnip.lsp.names import Kind, labels, standard, visible_names
from einturnip.lsp.reading import Reading

_DTYPE = re.compile(r"\b(?:input|state)\b[^=#]*:\s*\w*$")
_IMPORT = re.compile(r"^\s*import\s+(?:std\s*\.\s*)?\w*$")
_HINT = re.compile(r"@\s*\w*$")
_START = re.compile(r"^\s*\w*$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible completion. ``module`` must be imported first, if there is one."""

    name: str
    kind: Kind | Literal["keyword", "aggregation", "built-in", "constant", "dtype", "label", "module", "hint"]
    detail: str = ""
    about: str = ""
    module: str = ""


def candidates(reading: Reading, line: int, column: int) -> tuple[Candidate, ...]:
    """The possible completions at a position; none inside comments and strings."""
    before = reading.lines[line - 1][: column - 1] if line <= len(reading.lines) else ""
    if _in_comment_or_string(before):
        return ()
    if _IMPORT.match(before):
        return tuple(Candidate(f"std.{name}", "module") for name in standard())
    if _HINT.search(before):
        return tuple(Candidate(name, "hint", about=about) for name, about in HINTS.items())
    if _DTYPE.search(before):
        return tuple(_words(DTYPES, "dtype"))
    at_statement_start = bool(_START.match(before))
    found = {c.name: c for c in _everywhere(reading, line, column, at_statement_start)}
    return tuple(found.values())


def _in_comment_or_string(before: str) -> bool:
    rest = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "", before)
    return any(mark in rest for mark in "#\"'")


def _everywhere(reading: Reading, line: int, column: int, at_statement_start: bool) -> Iterator[Candidate]:
    yield from _words(KEYWORDS if at_statement_start else KEYWORDS - set(STATEMENTS), "keyword")
    yield from _words(AGGREGATIONS, "aggregation")
    yield from _words(sorted(FUNCTIONS - set(AGGREGATIONS)), "built-in")
    yield from _words(CONSTANTS, "constant")
    yield from _words(DTYPES, "dtype")
    imported = {d.path for d in reading.tree.declarations if isinstance(d, s.Import)}
    for module, functions in standard().items():
        if f"std.{module}" not in imported:
            for f in functions:
                yield Candidate(f.name, "function", f.detail, f.about, f"std.{module}")
    for label in labels(reading.tree, line, column):
        yield Candidate(label, "label")
    for name in visible_names(reading.tree, line, column).values():
        yield Candidate(name.name, name.kind, name.detail, name.about)


def _words(
    names: Iterable[str], kind: Literal["keyword", "aggregation", "built-in", "constant", "dtype"]
) -> Iterator[Candidate]:
    for name in names:
        yield Candidate(name, kind, about=GLOSSARY[name])
