"""Any text gives a program or diagnostics, never anything else."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from einturnip.core.errors import SourceError
from einturnip.lang import compile_text
from einturnip.lang.check import check
from tests.lang.test_show import PROGRAM

PIECES = [
    *"()[]{}=,:|?@<>+-*/%^.#\"'\\;&!~\n\t ",
    "é",
    "²",
    "“",
    "\u00a0",
    "\x00",
    "**",
    "..",
    "...",
    "::",
    "<-",
    "==",
    "dim ",
    "input ",
    "output ",
    "fn ",
    "for ",
    "in ",
    "state ",
    "sum",
    "max[",
    "min(",
    "where(",
    "not ",
    "and ",
    "f32",
    "X",
    "Y[i]",
    "n",
    "1",
    "0.5",
    "1e999",
    "9" * 30,
    "9" * 5000,
    "2j",
    "i: n",
    "-1",
    "(" * 300,
    "-" * 300,
    "1+" * 300,
    "sum[i]" * 250,
    "0<" * 300,
]


def compiles_or_says_why(text: str) -> None:
    try:
        program = compile_text(text)
    except SourceError as error:
        assert error.diagnostics
        for diagnostic in error.diagnostics:
            assert diagnostic.render().startswith(f"error[{diagnostic.code}]")
            assert diagnostic.span.line >= 1 and diagnostic.span.column >= 1
        return
    check(program)
    for warning in program.warnings:
        assert warning.render().startswith("warning")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("x = " + "0<" * 300 + "1")
@example("x = max(" + "1," * 300 + "1)")
@example("dim n = " + "-" * 400 + "1")
@example("input x : f64 = " + "-" * 900 + "1")
@example("x = " + "9" * 5000)
@example("dim n = 2 ^ 2 ^ 2 ^ 2 ^ 2 ^ 2")
@example("x[i: 2 ^ 100] = 1\ny[i: 3 / 2] = 1\nz = sum[i: -1] i")
@example("output")
@example("x = 1e999j")
@example("x = 3\n" * 3 + "x = (\n" * 40)
def test_pieces(text: str) -> None:
    compiles_or_says_why(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutations_of_a_program(data: st.DataObject) -> None:
    text = PROGRAM
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 4)))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[stop:]
    compiles_or_says_why(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_texts(text: str) -> None:
    compiles_or_says_why(text)
