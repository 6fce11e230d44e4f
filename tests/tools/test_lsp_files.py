"""The language server in functions, loops and the files that a program imports."""

from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp

from tests.tools.editor import at

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
