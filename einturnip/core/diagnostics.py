"""Diagnostics of programs: a message with source spans, expected and found values, and help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, NamedTuple
from unicodedata import combining, east_asian_width

Severity = Literal["error", "warning"]

MAX_LINE = 320
"""Characters of a source line that a diagnostic shows."""
MAX_TEXT = 2000
"""Characters of a message, or of a note below the source lines."""
MAX_COMPARED, MAX_KNOWN = 250, 2000
"""Maximum length of names that are compared for suggestions, and their maximum number."""
MAX_SHOWN = 200
"""Diagnostics of one error that are rendered."""


class Span(NamedTuple):
    """A range of a program's text. Lines and columns (in characters) count from 1; the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of ``other``."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)


class Edit(NamedTuple):
    """A replacement that fixes a program: a place in its text and the new text."""

    span: Span
    text: str


@dataclass(frozen=True)
class Diagnostic:
    """One finding about a program.

    Shapes:
        code: stable, ``E001`` ... for errors and ``W001`` ... for warnings.
        secondary: related places, each with a note.
        expected, found: empty where the message is complete without them.
        help: how to fix it; the fixed text where there is one.
        edits: the help as replacements for editors; empty where the user has to choose or fill in a part.
        source: the lines of the spans as (file, number, text), so that a diagnostic renders on its own.
    """

    code: str
    message: str
    span: Span
    secondary: tuple[tuple[Span, str], ...] = ()
    expected: str = ""
    found: str = ""
    help: str = ""
    severity: Severity = "error"
    source: tuple[tuple[str, int, str], ...] = ()
    edits: tuple[Edit, ...] = ()

    def render(self) -> str:
        """Render as text: message, place, source lines with the spans underlined, expected, found, help."""
        parts = [f"{self.severity}[{self.code}]: {shortened(self.message)}"]
        texts = {(file, number): text for file, number, text in self.source}
        spans = (self.span, *(place for place, _ in self.secondary))
        gutter = len(str(max(span.line for span in spans)))
        parts += _excerpt(self.span, texts, gutter, "-->", "^", "")
        for place, label in self.secondary:
            parts += _excerpt(place, texts, gutter, ":::", "-", label)
        notes = (("expected", self.expected), ("found", self.found), ("help", self.help))
        parts += [f"{' ' * gutter} = {word}: {shortened(text)}" for word, text in notes if text]
        return "\n".join(parts)


def with_source(diagnostic: Diagnostic, lines: Sequence[str] | Mapping[str, Sequence[str]]) -> Diagnostic:
    """Return the diagnostic with the source lines of its spans.

    Shapes:
        lines: the program's lines, or those of several files by name.
    """
    places = sorted({(s.file, s.line) for s in (diagnostic.span, *(place for place, _ in diagnostic.secondary))})
    files = lines if isinstance(lines, Mapping) else {file: lines for file, _ in places}
    found = ((f, n, files[f][n - 1]) for f, n in places if f in files and 0 < n <= len(files[f]))
    return replace(diagnostic, source=tuple(found))


def at_call_site(diagnostic: Diagnostic, call: Span) -> Diagnostic:
    """Add the place of the call to a diagnostic about code inside a called function."""
    span = diagnostic.span
    within = span.file == call.file and call[1:3] <= span[1:3] and span[3:] <= call[3:]
    if within or any(place == call for place, _ in diagnostic.secondary):
        return diagnostic
    return replace(diagnostic, secondary=(*diagnostic.secondary, (call, "called here")))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known name of which a word is probably a misspelling, or an empty string.

    At most one letter in three may be changed, added, left out or swapped with the next.
    """
    if len(word) > MAX_COMPARED:
        return ""
    names = [name for name in known if len(name) <= MAX_COMPARED][:MAX_KNOWN]
    same = [name for name in names if name.lower() == word.lower()]
    close = same or get_close_matches(word, names, n=3, cutoff=0.6)
    return next((name for name in close if _distance(word.lower(), name.lower()) <= max(1, len(word) // 3)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the nearest known name, or nothing."""
    found = nearest(word, known)
    return f"did you mean '{found}'?" if found else ""


def _distance(a: str, b: str) -> int:
    """Edit distance of two words (Damerau-Levenshtein; each pair of letters is swapped at most once)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _excerpt(
    span: Span, texts: dict[tuple[str, int], str], gutter: int, arrow: str, mark: str, label: str
) -> list[str]:
    pad = " " * gutter
    head = f"{pad}{arrow} {span.file}:{span.line}:{span.column}"
    text = texts.get((span.file, span.line))
    if text is None:
        return [f"{head} {label}".rstrip()]
    end = span.end_column if span.end_line == span.line else len(text) + 1
    start = span.column - 1
    first, last = _window(text, start)
    shown = ("..." if first else "") + text[first:last] + ("..." if last < len(text) else "")
    before = ("..." if first else "") + text[first:start]
    covered = text[start : min(max(end, span.column + 1) - 1, last)]
    indent = "".join(c if c == "\t" else " " * _width(c) for c in before)
    underline = mark * max(1, sum(map(_width, covered)))
    tail = f" {label}" if label else ""
    return [head, f"{pad} |", f"{span.line:>{gutter}} | {shown}", f"{pad} | {indent}{underline}{tail}"]


def _window(text: str, start: int) -> tuple[int, int]:
    """The part of a line to show: around the column ``start`` where the line is long."""
    if len(text) <= MAX_LINE:
        return 0, len(text)
    first = max(0, min(start - MAX_LINE // 3, len(text) - MAX_LINE))
    return first, first + MAX_LINE


def shortened(text: str) -> str:
    """Shorten a text to about MAX_TEXT characters by leaving out its middle."""
    half = MAX_TEXT // 2
    return text if len(text) <= MAX_TEXT else f"{text[:half]} ... {text[-half:]}"


def render_all(diagnostics: Sequence[Diagnostic]) -> str:
    """Render diagnostics as text; beyond a limit only the first ones, with the number of the others."""
    shown = [diagnostic.render() for diagnostic in diagnostics[:MAX_SHOWN]]
    more = len(diagnostics) - len(shown)
    return "\n\n".join([*shown, f"and {more:,} more"] if more else shown)


def _width(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
