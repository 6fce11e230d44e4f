"""How a diagnostic reads."""

import re
from pathlib import Path

import pytest

from einturnip.core.diagnostics import Diagnostic, Span, did_you_mean, with_source
from einturnip.core.errors import SourceError
from einturnip.lang import compile_text


def test_a_whole_diagnostic() -> None:
    with pytest.raises(SourceError) as error:
        compile_text("input W : f32[d, e]\n\ny[e] = W[e] * 2\noutput y\n", "net.ein")
    assert str(error.value) == (
        "error[E030]: 'W' has 2 axes, but 1 is written\n"
        " --> net.ein:3:8\n"
        "  |\n"
        "3 | y[e] = W[e] * 2\n"
        "  |        ^^^^\n"
        " ::: net.ein:1:7\n"
        "  |\n"
        "1 | input W : f32[d, e]\n"
        "  |       ------------- defined here\n"
        "  = expected: 2 labels\n"
        "  = found: 1\n"
        "  = help: its axes are d, e"
    )


def test_all_errors_of_a_stage_are_told() -> None:
    text = "input x : f23[n]\ny[i] = z[i]\nw[i] = y[i] + exq(x[i])\noutput v\n"
    with pytest.raises(SourceError) as error:
        compile_text(text)
    assert [d.code for d in error.value.diagnostics] == ["E022", "E020", "E021", "E024"]


def test_one_error_does_not_cause_others() -> None:
    text = "input x : f32[n]\ny[i] = z[i]\nw[i] = y[i] * 2\nv = sum[i] w[i]\noutput v, y\n"
    with pytest.raises(SourceError) as error:
        compile_text(text)
    assert [d.code for d in error.value.diagnostics] == ["E020"]


def test_the_caret_stands_under_wide_characters_and_tabs() -> None:
    diagnostic = Diagnostic("E001", "here", Span("f", 1, 5, 1, 6), source=(("f", 1, "\t名e\u0301x"),))
    assert diagnostic.render().splitlines()[-1] == "  | \t   ^"


def test_a_span_over_lines_is_underlined_to_the_end_of_its_first() -> None:
    diagnostic = with_source(Diagnostic("E001", "here", Span("f", 1, 3, 2, 2)), ["abcdef", "x"])
    assert diagnostic.render().splitlines()[-1] == "  |   ^^^^"


def test_did_you_mean() -> None:
    assert did_you_mean("Qeury", ["Query", "Key"]) == "did you mean 'Query'?"
    assert did_you_mean("x", ["X", "Y"]) == "did you mean 'X'?"
    assert did_you_mean("zzz", ["Query"]) == ""


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("input A : f32[n, m]\ny[i] = A[i,j] ^ 2 + 1\n", "sum[j] A[i,j] ^ 2"),
        ("input x : f32[n]\ny = sum x[i]\n", "sum[i] x[i]"),
        ("input x : f32[n]\ny = sum(x[i])\n", "sum[i]"),
        ("input x : f32[n]\nx[i] += 1\n", "x[i] = x[i] + ..."),
        ("y = 2n\n", "2 * n"),
        ("input x : float64[n]\n", "f64"),
        ("y = ln(2)\n", "log(2)"),
        ("input x : f32[n]\ny = x\n", "its axes are n"),
        ("output x\n", ""),
    ],
)
def test_help_shows_the_mended_text(text: str, mended: str) -> None:
    with pytest.raises(SourceError) as error:
        compile_text(text)
    assert mended in error.value.diagnostics[0].help


def test_every_code_is_on_the_page() -> None:
    root = Path(__file__).parents[2]
    sources = "".join(path.read_text("utf-8") for path in (root / "einturnip/lang").glob("*.py"))
    page = (root / "docs/language.md").read_text("utf-8")
    assert set(re.findall(r'"([EW]\d{3})"', sources)) <= set(re.findall(r"[EW]\d{3}", page))
