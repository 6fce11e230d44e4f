"""An editor: a client of the language server, which runs as a process of its own."""

import asyncio
import sys

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient


class Editor:
    """One editor with a server of its own."""

    def __init__(self, folder, options=None, encodings=None):
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.published = {}
        self.arrived = asyncio.Event()
        self.versions = {}

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _(params):
            self.published[params.uri, params.version] = params.diagnostics
            self.arrived.set()

        general = lsp.GeneralClientCapabilities(position_encodings=encodings) if encodings else None
        self.wait(self.client.start_io(sys.executable, "-m", "einturnip", "lsp"))
        self.answer = self.wait(
            self.client.initialize_async(
                lsp.InitializeParams(lsp.ClientCapabilities(general=general), initialization_options=options)
            )
        )
        self.client.initialized(lsp.InitializedParams())

    def wait(self, something):
        return self.loop.run_until_complete(something)

    def close(self):
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.close()

    async def _until(self, key):
        while key not in self.published:
            self.arrived.clear()
            await self.arrived.wait()
        return list(self.published[key])

    def open(self, text, name="p.ein"):
        """Open a text that is on disk too; its uri and the diagnostics."""
        (self.folder / name).write_text(text)
        uri = (self.folder / name).as_uri()
        if uri in self.versions:
            self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
        self.versions[uri] = 1
        self.published = {k: v for k, v in self.published.items() if k[0] != uri}
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "ein", 1, text)))
        return uri, self.wait(self._until((uri, 1)))

    def change(self, uri, change):
        """Change a text; the diagnostics that follow."""
        self.versions[uri] += 1
        identifier = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, [change]))
        return self.wait(self._until((uri, self.versions[uri])))

    def save(self, uri):
        """Say that a file was saved; the diagnostics that follow."""
        del self.published[uri, self.versions[uri]]
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
        return self.wait(self._until((uri, self.versions[uri])))

    def hover(self, uri, line, character):
        place = lsp.HoverParams(lsp.TextDocumentIdentifier(uri), lsp.Position(line, character))
        found = self.wait(self.client.text_document_hover_async(place))
        return found and found.contents.value

    def definition(self, uri, line, character):
        place = lsp.DefinitionParams(lsp.TextDocumentIdentifier(uri), lsp.Position(line, character))
        found = self.wait(self.client.text_document_definition_async(place))
        return found and (found.uri, found.range.start.line, found.range.start.character)

    def complete(self, uri, line, character):
        place = lsp.CompletionParams(lsp.TextDocumentIdentifier(uri), lsp.Position(line, character))
        found = self.wait(self.client.text_document_completion_async(place))
        return {item.label: item for item in found or []}

    def fixes(self, uri, diagnostic):
        """The titles of the quick fixes for a diagnostic, each with its edits."""
        context = lsp.CodeActionContext([diagnostic])
        params = lsp.CodeActionParams(lsp.TextDocumentIdentifier(uri), diagnostic.range, context)
        found = self.wait(self.client.text_document_code_action_async(params)) or []
        return {action.title: action.edit.changes[uri] for action in found}

    def format(self, uri):
        options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
        params = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(uri), options)
        return self.wait(self.client.text_document_formatting_async(params))


def at(text, piece, number=0, offset=0):
    """Line and character of a piece of the text, counted from 0."""
    position = -1
    for _ in range(number + 1):
        position = text.index(piece, position + 1)
    before = text[: position + offset]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def edit(text):
    return lsp.TextDocumentContentChangeWholeDocument(text)
