"""The server: answers editors' requests from readings of their texts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import PositionCodec

from einturnip import __version__
from einturnip.core import package_data
from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.core.errors import SourceError
from einturnip.lang.elaborate.imports import standard_modules
from einturnip.lang.syntax.formatter import format_text
from einturnip.lsp.completion import Candidate, candidates
from einturnip.lsp.hover import hover
from einturnip.lsp.meaning import definition, meaning
from einturnip.lsp.reading import Reading, read

# Seconds without a keystroke after which a changed text is read again.
_PAUSE = 0.1
_KINDS = {
    "dim": lsp.CompletionItemKind.Constant,
    "input": lsp.CompletionItemKind.Variable,
    "tensor": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "parameter": lsp.CompletionItemKind.Variable,
    "loop variable": lsp.CompletionItemKind.Variable,
    "keyword": lsp.CompletionItemKind.Keyword,
    "aggregation": lsp.CompletionItemKind.Operator,
    "built-in": lsp.CompletionItemKind.Function,
    "constant": lsp.CompletionItemKind.Constant,
    "dtype": lsp.CompletionItemKind.TypeParameter,
    "label": lsp.CompletionItemKind.Field,
    "module": lsp.CompletionItemKind.Module,
    "hint": lsp.CompletionItemKind.Keyword,
}


class EinServer(LanguageServer):
    """The server, with the latest reading of each text and the sizes from the editor's settings."""

    def __init__(self) -> None:
        super().__init__("einturnip", __version__)
        self.dims: dict[str, int] = {}
        self.readings: dict[str, tuple[str, Reading]] = {}

    def reading(self, uri: str) -> Reading:
        """The reading of the current text."""
        document = self.workspace.get_text_document(uri)
        text, reading = self.readings.get(uri, ("", None))
        if reading is None or text != document.source:
            reading = read(document.source, document.path or uri, self.dims)
            self.readings[uri] = document.source, reading
        return reading

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a text to the editor."""
        reading = self.reading(uri)
        places = TextPositions(reading.lines, self.workspace.position_codec)
        found = [places.diagnostic(finding, reading.file, uri) for finding in reading.findings]
        version = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))


class TextPositions:
    """Converts positions in a text between the editor's counting and ours."""

    def __init__(self, lines: tuple[str, ...], codec: PositionCodec) -> None:
        self.lines, self.codec = list(lines), codec

    def from_editor(self, position: lsp.Position) -> tuple[int, int]:
        """Line and column, counted from 1, in characters."""
        line = min(position.line, len(self.lines) - 1)
        found = self.codec.position_from_client_units(self.lines, lsp.Position(line, position.character))
        return line + 1, found.character + 1

    def to_editor(self, span: Span) -> lsp.Range:
        """A span in the editor's counting; never empty, never past a line's end."""
        start = self._position(span.line, span.column)
        end = self._position(span.end_line, span.end_column)
        return lsp.Range(start, max(end, start))

    def _position(self, line: int, column: int) -> lsp.Position:
        number = min(line, len(self.lines)) - 1
        text = self.lines[number]
        return lsp.Position(number, self.codec.client_num_units(text[: column - 1]))

    def diagnostic(self, finding: Diagnostic, file: str, uri: str) -> lsp.Diagnostic:
        """Convert a finding for the editor; one in an imported file is shown at the call."""
        spans = [(finding.span, finding.message), *finding.secondary]
        own_span = next((span for span, _ in spans if span.file == file), Span(file, 1, 1, 1, 1))
        notes = (("expected", finding.expected), ("found", finding.found), ("help", finding.help))
        message = "\n".join([finding.message, *(f"{word}: {text}" for word, text in notes if text)])
        related = [
            lsp.DiagnosticRelatedInformation(lsp.Location(_uri(span.file, file, uri), self._related(span, file)), label)
            for span, label in spans
            if span is not own_span
        ]
        severity = lsp.DiagnosticSeverity.Error if finding.severity == "error" else lsp.DiagnosticSeverity.Warning
        return lsp.Diagnostic(
            self.to_editor(own_span),
            message,
            severity,
            finding.code,
            source="einturnip",
            related_information=related or None,
        )

    def _related(self, span: Span, file: str) -> lsp.Range:
        return self.to_editor(span) if span.file == file else _plain_range(span)


def _plain_range(span: Span) -> lsp.Range:
    """A span in a file whose text is not loaded; columns are wrong after rare characters only."""
    return lsp.Range(lsp.Position(span.line - 1, span.column - 1), lsp.Position(span.end_line - 1, span.end_column - 1))


def _uri(name: str, file: str, uri: str) -> str:
    if name == file:
        return uri
    if name in standard_modules():
        return (package_data.folder("grammar") / "std" / f"{name.removeprefix('std.')}.ein").as_uri()
    return Path(name).absolute().as_uri()


def _item(candidate: Candidate, first_line: lsp.Range) -> lsp.CompletionItem:
    edits = [lsp.TextEdit(first_line, f"import {candidate.module}\n")] if candidate.module else None
    about = candidate.about + (f" ({candidate.module})" if candidate.module else "")
    return lsp.CompletionItem(
        candidate.name,
        kind=_KINDS[candidate.kind],
        detail=candidate.detail or candidate.kind,
        documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, about) if about else None,
        additional_text_edits=edits,
    )


def serve() -> None:
    """Serve one editor over standard input and output until it exits."""
    _server().start_io()


def _server() -> EinServer:
    server = EinServer()
    _register_changes(server)
    _register_lookups(server)
    _register_completion(server)
    _register_fixes(server)
    return server


def _register_changes(server: EinServer) -> None:
    """Register handlers of text changes, which publish diagnostics."""

    @server.feature(lsp.INITIALIZE)
    def _(ls: EinServer, params: lsp.InitializeParams) -> None:
        ls.dims = _dims(params.initialization_options)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def _(ls: EinServer, params: lsp.DidOpenTextDocumentParams) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def _(ls: EinServer, params: lsp.DidChangeTextDocumentParams) -> None:
        await asyncio.sleep(_PAUSE)
        uri, version = params.text_document.uri, params.text_document.version
        documents = ls.workspace.text_documents
        if uri in documents and documents[uri].version == version:
            ls.publish(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def _(ls: EinServer, params: lsp.DidSaveTextDocumentParams) -> None:
        # Other texts may import the saved file.
        ls.readings.clear()
        for uri in ls.workspace.text_documents:
            ls.publish(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def _(ls: EinServer, params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        ls.readings.pop(uri, None)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _register_lookups(server: EinServer) -> None:
    """Register hover and go-to-definition."""

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def _(ls: EinServer, params: lsp.HoverParams) -> lsp.Hover | None:
        reading = ls.reading(params.text_document.uri)
        places = TextPositions(reading.lines, ls.workspace.position_codec)
        found = meaning(reading, *places.from_editor(params.position))
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, hover(reading, found[0]))
        return lsp.Hover(content, places.to_editor(found[1].span))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def _(ls: EinServer, params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        reading = ls.reading(uri)
        places = TextPositions(reading.lines, ls.workspace.position_codec)
        found = meaning(reading, *places.from_editor(params.position))
        span = None if found is None else definition(reading, found[0])
        if span is None:
            return None
        is_own = span.file == reading.file
        return lsp.Location(
            _uri(span.file, reading.file, uri), places.to_editor(span) if is_own else _plain_range(span)
        )


def _register_fixes(server: EinServer) -> None:
    """Register quick fixes: the edits that diagnostics suggest."""

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]))
    def _(ls: EinServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        reading = ls.reading(uri)
        places = TextPositions(reading.lines, ls.workspace.position_codec)
        found = []
        for finding in reading.findings:
            is_applicable = finding.edits and all(edit.span.file == reading.file for edit in finding.edits)
            shown = places.diagnostic(finding, reading.file, uri)
            if is_applicable and _overlap(shown.range, params.range):
                edits = [lsp.TextEdit(places.to_editor(edit.span), edit.text) for edit in finding.edits]
                change = lsp.WorkspaceEdit({uri: edits})
                found.append(lsp.CodeAction(finding.help, lsp.CodeActionKind.QuickFix, [shown], edit=change))
        return found


def _overlap(a: lsp.Range, b: lsp.Range) -> bool:
    """True if two ranges overlap or touch."""
    (begin, end), (other, last) = (((r.start.line, r.start.character), (r.end.line, r.end.character)) for r in (a, b))
    return begin <= last and other <= end


def _register_completion(server: EinServer) -> None:
    """Register completion and formatting."""

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["@", ".", ":"]))
    def _(ls: EinServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        reading = ls.reading(params.text_document.uri)
        places = TextPositions(reading.lines, ls.workspace.position_codec)
        top = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        return [_item(candidate, top) for candidate in candidates(reading, *places.from_editor(params.position))]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def _(ls: EinServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        try:
            formatted = format_text(document.source, document.path or document.uri)
        except SourceError:
            return None  # The diagnostics already report the errors.
        if formatted == document.source.replace("\r\n", "\n"):
            return []
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(document.source.split("\n")), 0))
        return [lsp.TextEdit(whole, formatted)]


def _dims(options: Any) -> dict[str, int]:
    """The sizes from an editor's settings."""
    given = options.get("dims") if isinstance(options, Mapping) else getattr(options, "dims", None)
    pairs = given.items() if isinstance(given, Mapping) else vars(given).items() if given is not None else ()
    return {name: value for name, value in pairs if isinstance(value, int) and value >= 0}
