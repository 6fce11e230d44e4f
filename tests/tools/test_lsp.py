"""The language server as an editor meets it: a real process, spoken to over its standard input and output."""

import numpy as np
import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp

from tests.tools.editor import Editor, at, edit

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


def test_help_that_shows_code_is_a_quick_fix(editor):
    text = "input A : f32[n, m]\ny[i] = A[i, -1]\nz[i] = A[i, k] + 1\noutput y, z\n"
    uri, found = editor.open(text)
    (last,) = [d for d in found if d.code == "E036"]
    ((title, (change,)),) = editor.fixes(uri, last).items()
    assert title == "count from the size of the axis: m - 1" and change.new_text == "m - 1"
    assert change.range == lsp.Range(lsp.Position(1, 12), lsp.Position(1, 14)) == last.range
    (choice,) = [d for d in found if d.code == "E031"]
    assert editor.fixes(uri, choice) == {}  # it could be a slip as well as a missing aggregation


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


def test_hover_in_the_condition_of_a_loop(editor):
    text = "input x : f32[n]\ns = max[i] x[i]\nwhile s > 1, at most n {\n  s = s / 2\n}\noutput s\n"
    uri, diagnostics = editor.open(text)
    assert not diagnostics
    assert "s : f32" in editor.hover(uri, *at(text, "s > 1"))
    assert "tested before each iteration" in editor.hover(uri, *at(text, "while"))
    assert "dim n" in editor.hover(uri, *at(text, "n {"))
    assert editor.definition(uri, *at(text, "s > 1")) is not None
    assert "s" in editor.complete(uri, *at(text, "s / 2"))


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
    assert "Only tensors that outputs need" in editor.hover(uri, *at(PROGRAM, "output"))
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


# -- the glossary ------------------------------------------------------------------------------------------------------


def test_every_reserved_word_has_its_line():
    from einturnip.lang.keywords import RESERVED
    from einturnip.lsp.glossary import GLOSSARY

    assert set(GLOSSARY) == RESERVED
    assert all("\n" not in line and line.endswith((".", "...")) for line in GLOSSARY.values())
