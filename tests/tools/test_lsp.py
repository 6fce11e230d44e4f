"""The language server as an editor meets it: a real process, spoken to over its standard input and output."""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

PROGRAM = """\
dim h = 4
# Samples by rows.
input X : f32[n, d]
input w : f64[d]

fn centre(A[i, j]) = A[i, j] - mean[j] A[i, j]   # rows without their mean

Y[i,j] = (X[i,j] - mean[j] X[i,j]) * w[j]
S[i] = sum[j] Y[i,j]
Y[i,j] = Y[i,j] / sum[j] Y[i,j]
output Y, S
"""


class Editor:
    """One editor with a server of its own."""

    def __init__(self, folder, options=None, encodings=None):
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.published = {}
        self.versions = {}

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _(params):
            self.published[params.uri, params.version] = params.diagnostics

        general = lsp.GeneralClientCapabilities(position_encodings=encodings) if encodings else None
        self.wait(self.client.start_io(sys.executable, "-m", "einturnip", "lsp"))
        self.answer = self.wait(
            self.client.initialize_async(
                lsp.InitializeParams(lsp.ClientCapabilities(general=general), initialization_options=options)
            )
        )
        self.client.initialized(lsp.InitializedParams())

    def wait(self, something):
        return self.loop.run_until_complete(asyncio.wait_for(something, 30))

    def close(self):
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.close()

    async def _until(self, key):
        while key not in self.published:
            await asyncio.sleep(0.01)
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

    def format(self, uri):
        options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
        params = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(uri), options)
        return self.wait(self.client.text_document_formatting_async(params))


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    editor = Editor(tmp_path_factory.mktemp("editor"), {"dims": {"n": 1000, "other": 3}})
    yield editor
    editor.close()


def at(text, piece, number=0, offset=0):
    """Line and character of a piece of the text, counted from 0."""
    position = -1
    for _ in range(number + 1):
        position = text.index(piece, position + 1)
    before = text[: position + offset]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def edit(text):
    return lsp.TextDocumentContentChangeWholeDocument(text)


# -- diagnostics -------------------------------------------------------------------------------------------------------


def test_a_program_without_faults_has_no_diagnostics(editor):
    assert editor.open(PROGRAM)[1] == []


def test_every_finding_is_told_with_its_place_code_and_help(editor):
    text = "input X : f32[n, d]\nY[i] = Xx[i, c]\nZ[i] = X[i] +\noutput W\n"
    _, found = editor.open("input X : f32[n, d]\nY[i] = sum[c] Xx[i, c]\nZ[i] = X[i]\noutput W\n")
    assert {(d.range.start.line, d.severity, d.source) for d in found} == {
        (line, lsp.DiagnosticSeverity.Error, "einturnip") for line in (1, 2, 3)
    }
    (unknown,) = [d for d in found if d.range.start.line == 1]
    assert "unknown" in unknown.message and "help: did you mean 'X'?" in unknown.message
    assert unknown.code.startswith("E0")
    assert (unknown.range.start.character, unknown.range.end.character) == (14, 16)
    assert any(d.range.start.line == 3 or "never" in d.message or d for d in editor.open(text)[1])


def test_diagnostics_follow_changes(editor):
    uri, found = editor.open("input X : f32[n]\ny = sum[i] X[i]\noutput y\n")
    assert found == []
    line, character = 1, len("y = sum[i] X")
    piece = lsp.Range(lsp.Position(line, character - 1), lsp.Position(line, character))
    (found,) = editor.change(uri, lsp.TextDocumentContentChangePartial(piece, "Q"))
    assert found.range.start == lsp.Position(1, 11) and "'Q'" in found.message
    assert editor.change(uri, edit("input Q : f32[n]\ny = sum[i] Q[i]\noutput y\n")) == []


def test_warnings_are_warnings(editor):
    _, found = editor.open("dim d = 4\ninput X : f32[n, d]\nY[i] = sum[d] X[i, d] / sqrt(d)\noutput Y\n")
    (warning,) = found
    assert warning.severity == lsp.DiagnosticSeverity.Warning and warning.code == "W001"
    assert warning.related_information[0].location.range.start == lsp.Position(0, 4)


def test_sizes_that_disagree_are_told_once_files_and_settings_give_them(editor):
    np.save(editor.folder / "x.npy", np.zeros((5, 3), np.float32))
    np.save(editor.folder / "y.npy", np.zeros(4, np.float32))
    text = 'input X : f32[m, 3] = "x.npy"\ninput y : f32[m] = "y.npy"\ns = sum[i] y[i]\noutput s\n'
    _, (found,) = editor.open(text)
    assert found.code == "E203" and "size 'm' is 5" in found.message and "y.npy" in found.message
    _, (found,) = editor.open('input X : f64[m, 3] = "x.npy"\ns = sum[i,j] X[i,j]\noutput s\n')
    assert found.code == "E208" and "expected: f64" in found.message
    (editor.folder / "x.npy").write_bytes(b"")
    _, (found,) = editor.open('input X : f64[m, 3] = "x.npy"\ns = sum[i,j] X[i,j]\noutput s\n')
    assert "is empty" in found.message and found.range.start == lsp.Position(0, 6)
    _, found = editor.open('input X : f64[m, 3] = "absent.npy"\ns = sum[i,j] X[i,j]\noutput s\n')
    assert found == []


def test_columns_are_counted_as_the_editor_counts(editor, tmp_path):
    text = 'input 𝒳 : f32[n] = "𝒳.npy"; '.replace("; ", "\n") + "y = sum[i] 𝒳[i] * Q[i]\noutput y\n"
    _, (found,) = editor.open(text)
    assert found.range.start == lsp.Position(1, len("y = sum[i] 𝒳[i] * ") + 1)
    other = Editor(tmp_path, encodings=[lsp.PositionEncodingKind.Utf8])
    try:
        assert other.answer.capabilities.position_encoding == lsp.PositionEncodingKind.Utf8
        uri, (found,) = other.open(text)
        assert found.range.start == lsp.Position(1, len("y = sum[i] 𝒳[i] * ".encode()))
        assert "𝒳" in other.hover(uri, 1, len(b"y = sum[i] "))
    finally:
        other.close()


# -- hover -------------------------------------------------------------------------------------------------------------


def test_hover_over_a_tensor_shows_shape_dtype_and_bytes(editor):
    uri, _ = editor.open(PROGRAM)
    told = editor.hover(uri, *at(PROGRAM, "X[i,j]"))
    assert "X[n, d] : f32" in told and "input in line 3" in told
    told = editor.hover(uri, *at(PROGRAM, "S["))
    assert "S[i] : f64" in told and "f64[n], f64[1000], 7.81 KiB" in told and "output in line 9" in told


def test_hover_in_a_gradient_means_the_tensors_that_it_names(editor):
    text = "input W : f32[n, d]\nloss = sum[i,j] W[i,j]^2\ng[n,d] = grad(loss, W[n,d])\noutput g\n"
    uri, diagnostics = editor.open(text)
    assert not diagnostics
    assert "W[n, d] : f32" in editor.hover(uri, *at(text, "W[n,d]"))
    assert "loss : f32" in editor.hover(uri, *at(text, "loss, W"))
    assert "derivative of a real scalar" in editor.hover(uri, *at(text, "grad("))
    assert "g[n, d] : f32" in editor.hover(uri, *at(text, "g[n,d]"))


def test_hover_over_a_name_means_the_version_that_stands_there(editor):
    uri, _ = editor.open(PROGRAM)
    assert "line 8" in editor.hover(uri, *at(PROGRAM, "Y[i,j]"))
    assert "line 8" in editor.hover(uri, *at(PROGRAM, "Y[i,j]", 1))
    assert "output in line 10" in editor.hover(uri, *at(PROGRAM, "Y[i,j]", 2))
    assert "line 8" in editor.hover(uri, *at(PROGRAM, "Y[i,j]", 3))


def test_hover_over_a_label_shows_its_size_and_where_that_comes_from(editor):
    uri, _ = editor.open(PROGRAM)
    assert "label **i** of S: size n = 1,000, by axis 0 of Y" in editor.hover(uri, *at(PROGRAM, "S[i]", 0, 2))
    assert "label **j** of S: size d, by axis 1 of Y" in editor.hover(uri, *at(PROGRAM, "Y[i,j]", 1, 4))
    text = "input X : f32[n]\nD[i: n-1] = X[i+1] - X[i]\nE[i] = D[2*i]\noutput D, E\n"
    uri, _ = editor.open(text)
    assert "size n - 1 = 999, by the size written with it" in editor.hover(uri, *at(text, "i: n"))


def test_hover_over_sizes_functions_and_words(editor):
    uri, _ = editor.open(PROGRAM)
    assert editor.hover(uri, *at(PROGRAM, "h = 4")) == "```ein\ndim h = 4\n```\n"
    assert editor.hover(uri, *at(PROGRAM, "n, d")) == "```ein\ndim n\n```\n1,000"
    assert "fn centre(A[i, j])" in editor.hover(uri, *at(PROGRAM, "centre"))
    assert "the mean over i" in editor.hover(uri, *at(PROGRAM, "mean"))
    assert "floating point, 32 bits" in editor.hover(uri, *at(PROGRAM, "f32"))
    assert "Only what outputs need" in editor.hover(uri, *at(PROGRAM, "output"))
    assert editor.hover(uri, *at(PROGRAM, "rows without")) is None
    assert editor.hover(uri, *at(PROGRAM, "= (X")) is None


def test_hover_works_in_what_is_well_formed_of_a_broken_program(editor):
    text = "# Samples by rows.\ninput X : f32[n, d]\nY[i] = X[i, \nZ[i] = sum[c] X[i, c]\n"
    uri, found = editor.open(text)
    assert found
    told = editor.hover(uri, *at(text, "X[i, c]"))
    assert "input X : f32[n, d]" in told and "Samples by rows." in told


# -- definitions -------------------------------------------------------------------------------------------------------


def test_definitions_of_tensors_labels_sizes_and_functions(editor):
    uri, _ = editor.open(PROGRAM)
    assert editor.definition(uri, *at(PROGRAM, "X[i,j]")) == (uri, *at(PROGRAM, "X :"))
    assert editor.definition(uri, *at(PROGRAM, "Y[i,j]", 1)) == (uri, *at(PROGRAM, "Y[i,j]"))
    assert editor.definition(uri, *at(PROGRAM, "Y[i,j]", 3)) == (uri, *at(PROGRAM, "Y[i,j]"))
    assert editor.definition(uri, *at(PROGRAM, "w[j]", 0, 2)) == (uri, *at(PROGRAM, "Y[i,j]", 0, 4))
    assert editor.definition(uri, *at(PROGRAM, "mean[j] X", 0, 8)) == (uri, *at(PROGRAM, "X :"))
    assert editor.definition(uri, *at(PROGRAM, "A[i, j] -")) == (uri, *at(PROGRAM, "A[i, j])"))
    assert editor.definition(uri, *at(PROGRAM, "sum")) is None


def test_a_bound_label_is_its_own(editor):
    text = "input A : f32[n, d]\nB[i,j] = A[i,j] / sum[j] A[i,j]\noutput B\n"
    uri, _ = editor.open(text)
    assert editor.definition(uri, *at(text, "A[i,j] /", 0, 4)) == (uri, *at(text, "j] ="))
    assert editor.definition(uri, *at(text, "] A[i,j]", 0, 6)) == (uri, *at(text, "j] A"))


# -- completion --------------------------------------------------------------------------------------------------------


def test_completion_offers_what_is_in_force(editor):
    text = PROGRAM + "\n"
    uri, _ = editor.open(text)
    found = editor.complete(uri, *at(text, "S[i] ="))
    assert {"X", "w", "Y", "centre", "h", "n", "d", "sum", "exp", "pi", "f32", "input", "fn"} <= set(found)
    assert "S" not in found
    assert found["X"].detail == "input X : f32[n, d]" and "Samples by rows." in found["X"].documentation.value
    assert found["centre"].detail == "centre(A[i, j])"
    found = editor.complete(uri, *at(text, "= A[i, j]", 0, 2))
    assert "A" in found and "X" not in found and "input" not in found


def test_completion_offers_labels_of_the_statement(editor):
    uri, _ = editor.open(PROGRAM)
    found = editor.complete(uri, *at(PROGRAM, "Y[i,j]", 1, 2))
    assert found["j"].detail == "label"


def test_completion_knows_where_it_stands(editor):
    text = "input X : \nimport st\n@t\n# su\ny = 1\n"
    uri, _ = editor.open(text)
    assert "bf16" in (found := editor.complete(uri, 0, 10)) and "sum" not in found
    assert "std.nn" in editor.complete(uri, 1, 9)
    assert set(editor.complete(uri, 2, 2)) == {"tile", "place", "keep", "recompute"}
    assert editor.complete(uri, 3, 4) == {}


def test_the_standard_library_is_offered_with_its_import(editor):
    text = "input X : f32[n, d]\nY[i,j] = \n"
    uri, _ = editor.open(text)
    softmax = editor.complete(uri, 1, 9)["softmax"]
    assert softmax.detail == "softmax(X[..., j])" and "sum to 1" in softmax.documentation.value
    (insertion,) = softmax.additional_text_edits
    assert insertion.new_text == "import std.nn\n" and insertion.range.start == lsp.Position(0, 0)
    uri, _ = editor.open("import std.nn\n" + text)
    softmax = editor.complete(uri, 2, 9)["softmax"]
    assert softmax.additional_text_edits is None and softmax.detail == "softmax(X[..., j])"


# -- formatting --------------------------------------------------------------------------------------------------------


def test_formatting(editor):
    text = "input   X:f32[n,d]\nY[i]=sum[c]X[i,c]\noutput Y\n"
    uri, _ = editor.open(text)
    (change,) = editor.format(uri)
    assert "input X : f32[n, d]" in change.new_text
    assert change.range.start == lsp.Position(0, 0) and change.range.end.line >= 3
    editor.change(uri, edit(change.new_text))
    assert not editor.format(uri)
    editor.change(uri, edit("Y[i] = ("))
    assert editor.format(uri) is None


# -- functions, loops, files -------------------------------------------------------------------------------------------

WHOLE = """\
import std.nn
import "layers.ein"
dim L = 3
input X : f32[s, d]
input W : f32[L, d, d]
for l in 0 .. L {
  T[a, b] = dense(X[a, c], W[l, c, b])
  X[a, b] = softmax(T[a, b]) * l
}
D[i: s-1, j] = X[i+1, j] - X[i, j]
output D
"""
LAYERS = """\
# A layer without bias.
fn dense(A[i, k], B[k, j]) {
  C[i, j] = sum[k] A[i, k] * B[k, j]
  return relu(C[i, j])
}
"""


@pytest.fixture
def whole(editor):
    (editor.folder / "layers.ein").write_text(LAYERS)
    uri, found = editor.open(WHOLE, "whole.ein")
    assert found == []
    return uri


def test_hover_in_loops_and_calls(editor, whole):
    assert "T[a, b] : f32" in (told := editor.hover(whole, *at(WHOLE, "T[a, b] ="))) and "f32[s, d]" in told
    assert "X[s, d] : f32" in editor.hover(whole, *at(WHOLE, "X[a, c]"))
    assert (
        "W[L, d, d] : f32" in (told := editor.hover(whole, *at(WHOLE, "W[l")))
        and "input in line 5, f32[3, d, d]" in told
    )
    assert editor.hover(whole, *at(WHOLE, "l in")) == "```ein\nfor l in 0 .. L\n```\n"
    assert "for l in 0 .. L" in editor.hover(whole, *at(WHOLE, "* l", 0, 2))
    assert "fn dense(A[i, k], B[k, j])\n```\nA layer without bias." in editor.hover(whole, *at(WHOLE, "dense"))
    assert "fn softmax(X[..., j])" in editor.hover(whole, *at(WHOLE, "softmax"))
    assert "size s - 1, by the size written with it" in editor.hover(whole, *at(WHOLE, "i: s"))


def test_definitions_lead_into_other_files(editor, whole):
    layers = (editor.folder / "layers.ein").as_uri()
    assert editor.definition(whole, *at(WHOLE, "dense")) == (layers, *at(LAYERS, "dense"))
    uri, line, character = editor.definition(whole, *at(WHOLE, "softmax"))
    text = Path(url2pathname(urlparse(uri).path)).read_text().split("\n")
    assert uri.endswith("/std/nn.ein") and text[line][character:].startswith("softmax(")
    assert editor.definition(whole, *at(WHOLE, "X[a, b]")) == (whole, *at(WHOLE, "X[a, b]"))
    assert editor.definition(whole, *at(WHOLE, "X[i, j]")) == (whole, *at(WHOLE, "X :"))


def test_completion_in_a_loop_knows_its_names(editor, whole):
    found = editor.complete(whole, *at(WHOLE, "softmax(T"))
    assert {"X", "W", "T", "l", "L", "dense", "softmax"} <= set(found) and "D" not in found
    assert found["softmax"].additional_text_edits is None
    assert found["dense"].documentation.value == "A layer without bias."
    outside = editor.complete(whole, *at(WHOLE, "X[i+1"))
    assert "T" not in outside and "l" not in outside


def test_a_finding_in_an_imported_file_stands_where_it_is_brought_in(editor):
    (editor.folder / "broken.ein").write_text("fn f(A[i]) = A[i] + B[i]\n")
    _, found = editor.open('input X : f32[n]\nimport "broken.ein"\nY[i] = f(X[i])\noutput Y\n')
    assert found and all(d.range.start.line in (0, 1, 2) for d in found)
    places = [r.location for d in found for r in d.related_information or []]
    assert any(place.uri.endswith("/broken.ein") and place.range.start == lsp.Position(0, 20) for place in places)
    _, (found,) = editor.open('import "absent.ein"\ninput x : f32\noutput x\n')
    assert found.code == "E070" and found.range.start.line == 0


def test_a_text_that_was_never_saved_imports_from_its_folder(editor, whole):
    (editor.folder / "whole.ein").unlink()
    piece = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    assert editor.change(whole, lsp.TextDocumentContentChangePartial(piece, "# new\n")) == []


def test_saving_a_file_reads_those_that_import_it_anew(editor):
    (editor.folder / "part.ein").write_text("fn f(x) = x\n")
    uri, found = editor.open('import "part.ein"\ninput x : f32\ny = g(x)\noutput y\n')
    assert found
    (editor.folder / "part.ein").write_text("fn g(x) = x\n")
    assert editor.save(uri) == []


# -- the glossary ------------------------------------------------------------------------------------------------------


def test_every_reserved_word_has_its_line():
    from einturnip.lang.words import RESERVED
    from einturnip.lsp.glossary import GLOSSARY

    assert set(GLOSSARY) == RESERVED
    assert all("\n" not in line and line.endswith((".", "...")) for line in GLOSSARY.values())
