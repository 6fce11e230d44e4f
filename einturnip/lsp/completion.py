"""What may stand at a place: names in force, words of the language, functions of the standard library."""

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
from einturnip.lsp.names import Kind, in_force, labels, standard
from einturnip.lsp.reading import Reading

_DTYPE = re.compile(r"\b(?:input|state)\b[^=#]*:\s*\w*$")
_IMPORT = re.compile(r"^\s*import\s+(?:std\s*\.\s*)?\w*$")
_HINT = re.compile(r"@\s*\w*$")
_START = re.compile(r"^\s*\w*$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that may stand here. ``module`` is to be imported first."""

    name: str
    kind: Kind | Literal["keyword", "aggregation", "built-in", "constant", "dtype", "label", "module", "hint"]
    detail: str = ""
    about: str = ""
    module: str = ""


def candidates(reading: Reading, line: int, column: int) -> tuple[Candidate, ...]:
    """What may stand at a place; nothing inside comments and strings."""
    before = reading.lines[line - 1][: column - 1] if line <= len(reading.lines) else ""
    if _in_comment_or_string(before):
        return ()
    if _IMPORT.match(before):
        return tuple(Candidate(f"std.{name}", "module") for name in standard())
    if _HINT.search(before):
        return tuple(Candidate(name, "hint", about=about) for name, about in HINTS.items())
    if _DTYPE.search(before):
        return tuple(_words(DTYPES, "dtype"))
    starts = bool(_START.match(before))
    found = {c.name: c for c in _everywhere(reading, line, column, starts)}
    return tuple(found.values())


def _in_comment_or_string(before: str) -> bool:
    rest = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "", before)
    return any(mark in rest for mark in "#\"'")


def _everywhere(reading: Reading, line: int, column: int, starts: bool) -> Iterator[Candidate]:
    yield from _words(KEYWORDS if starts else KEYWORDS - set(STATEMENTS), "keyword")
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
    for name in in_force(reading.tree, line, column).values():
        yield Candidate(name.name, name.kind, name.detail, name.about)


def _words(
    names: Iterable[str], kind: Literal["keyword", "aggregation", "built-in", "constant", "dtype"]
) -> Iterator[Candidate]:
    for name in names:
        yield Candidate(name, kind, about=GLOSSARY[name])
