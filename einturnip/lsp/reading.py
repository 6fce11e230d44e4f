"""Reads an editor's text: syntax tree, program, sizes, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from einturnip.api.inputs import close_all, open_input
from einturnip.api.known_sizes import known_sizes
from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.core.errors import BindError, EinturnipError, SourceError
from einturnip.lang import compile_text
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.program import TypedProgram
from einturnip.lang.syntax.parser import parse
from einturnip.lang.syntax_tree import SyntaxTree
from einturnip.report.signature import SignatureRow, rows
from einturnip.storage.types import Source


@dataclass(frozen=True)
class Reading:
    """One version of a text.

    ``tree`` contains the well-formed statements; ``program`` is None if the text has errors. ``sizes`` are the known
    dims, from the program, its default files and the editor's settings.
    """

    file: str
    text: str
    tree: SyntaxTree
    program: TypedProgram | None
    sizes: Mapping[str, int]
    findings: tuple[Diagnostic, ...]

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without line breaks."""
        return tuple(self.text.split("\n"))

    @cached_property
    def tokens(self) -> list[LexToken]:
        """The tokens of the text, without comments."""
        return tokenize(self.text, self.file)

    @cached_property
    def rows(self) -> tuple[SignatureRow, ...]:
        """The signature of every tensor, with numbers for known sizes."""
        return rows(self.program, self.sizes) if self.program else ()

    @cached_property
    def symbolic_rows(self) -> tuple[SignatureRow, ...]:
        """The signature of every tensor, with symbolic sizes."""
        return rows(self.program, {}) if self.program else ()

    def word(self, line: int, column: int) -> LexToken | None:
        """The word at or next to a position; lines and columns count from 1."""
        for token in self.tokens:
            if token.line == line and token.column <= column <= token.column + len(token.text):
                if token.text[0].isalpha() or token.text[0] == "_":
                    return token
            elif token.line > line:
                break
        return None


def read(text: str, file: str, dims: Mapping[str, int]) -> Reading:
    """Read a text. ``dims``: sizes from the editor's settings; names that the program lacks are ignored."""
    text = text.replace("\r\n", "\n")
    try:
        program = compile_text(text, file)
    except SourceError as error:
        return Reading(file, text, well_formed(text, file), None, {}, error.diagnostics)
    findings = list(program.warnings)
    given = {name: value for name, value in dims.items() if name in program.dims}
    sources = _defaults(program, Path(file).parent, findings)
    try:
        sizes = known_sizes(program, sources, given)
    except (SourceError, BindError) as error:
        sizes = given
        findings += error.diagnostics or [_at_start(str(error), file)]
    finally:
        close_all(sources.values())
    return Reading(file, text, parse(text, file), program, sizes, tuple(findings))


def well_formed(text: str, file: str) -> SyntaxTree:
    """Parse a text with its malformed lines blanked, so that the other statements keep their positions."""
    lines = text.split("\n")
    while True:
        try:
            return parse("\n".join(lines), file)
        except SourceError as error:
            broken = {n for d in error.diagnostics for n in range(d.span.line, d.span.end_line + 1)}
            numbers = {n for n in broken if n <= len(lines) and lines[n - 1].strip()}
            for number in numbers or range(1, len(lines) + 1):
                lines[number - 1] = ""


def _defaults(program: TypedProgram, folder: Path, findings: list[Diagnostic]) -> dict[str, Source]:
    """Open the default files of the inputs; a missing one is ignored, a damaged one is a diagnostic."""
    sources: dict[str, Source] = {}
    for tensor in program.inputs:
        try:
            source = open_input(tensor, tensor.default, program, folder, lenient=True)
        except EinturnipError as error:
            diagnostics = error.diagnostics if isinstance(error, BindError) else ()
            findings += diagnostics or [Diagnostic("E299", str(error), tensor.span)]
        else:
            if source is not None:
                sources[tensor.name] = source
    return sources


def _at_start(message: str, file: str) -> Diagnostic:
    return Diagnostic("E299", message, Span(file, 1, 1, 1, 2))
