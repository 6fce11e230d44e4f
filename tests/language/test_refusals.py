"""Errors of the language page are reported at their line, with helpful messages."""

import re

import pytest

import einturnip as et
from tests.language import refusals
from tests.language.harness import run_program
from tests.language.refusals import IDS, Refusal

PROGRAMS = [
    *refusals.NAMES,
    *refusals.SIZES,
    *refusals.INDICES,
    *refusals.FUNCTIONS,
    *refusals.LOOPS,
    *refusals.DTYPES,
]


@pytest.mark.parametrize("refusal", PROGRAMS, ids=str)
def test_a_wrong_program_computes_nothing(refusal: Refusal) -> None:
    with pytest.raises((et.SourceError, et.BindError)) as caught:
        run_program(refusal.text, refusal.inputs, refusal.dims)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert all(word in message for word in refusal.words), message
    assert re.search(rf"^\s*--> [^\n]*:{refusal.line}:\d+$", message, re.MULTILINE), message


@pytest.mark.parametrize("refusal", refusals.AT_RUN_TIME, ids=str)
def test_an_index_or_key_out_of_range_stops_the_run(refusal: Refusal) -> None:
    with pytest.raises(et.RunError) as caught:
        run_program(refusal.text, {**refusal.inputs, "K": IDS}, refusal.dims)
    message = str(caught.value)
    assert caught.value.exit_code == 1
    assert all(word in message for word in refusal.words), message
    assert refusal.text.splitlines()[refusal.line - 1] in message


def test_all_errors_of_a_stage_are_reported() -> None:
    with pytest.raises(et.SourceError) as caught:
        run_program("a = b\nc = d\noutput a, c\n")
    assert len(caught.value.diagnostics) == 2


def test_a_diagnostic_shows_the_line_and_underlines_the_span() -> None:
    with pytest.raises(et.SourceError) as caught:
        run_program("width = 1\na = 2 * widht\noutput a\n")
    lines = str(caught.value).splitlines()
    shown = next(k for k, line in enumerate(lines) if "a = 2 * widht" in line)
    assert lines[shown + 1].count("^") == len("widht")
    assert lines[shown].index("widht") == lines[shown + 1].index("^")
    assert any("help:" in line and "width" in line for line in lines)


def test_a_hidden_size_warns() -> None:
    program = et.compile("dim d = 4\ninput X : f64[s, d]\nZ[s] = sum[d] X[s,d] / sqrt(d + 1)\noutput Z\n")
    (warning,) = program.warnings
    assert "W001" in warning and "sum[d]" in warning
