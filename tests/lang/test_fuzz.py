"""Any text gives a program or diagnostics, never anything else, and soon."""

import random
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from einturnip.core.errors import SourceError
from einturnip.lang import compile_text
from einturnip.lang.lexer import tokenize
from einturnip.lang.syntax.formatter import format_text
from tests.drawn import examples
from tests.lang.test_format import MESSY, PROGRAMS
from tests.lang.test_show import PROGRAM
from tests.reference.program_check import check

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
    "@tile(i = 4 parts)\n",
    "@",
    "fn f(X[..., j], a = 2) = ",
    "fn f(x) {\n",
    "for l in 0 .. n {\n",
    "for l in 0..3 { " * 60,
    "import std.nn\n",
    "return ",
    "}\n",
    "{" * 300,
    "[" * 300,
    "X[" * 300,
    "f(" * 300,
    "a | b",
    "[i-1 ? 0]",
    "(h e)",
    "∑",
    "if x else",
    "\\sum_",
    "range(",
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


@settings(max_examples=examples(200), deadline=None)
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


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_mutations_of_a_program(data: st.DataObject) -> None:
    text = PROGRAM
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 4)))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[stop:]
    compiles_or_says_why(text)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=60))
def test_texts(text: str) -> None:
    compiles_or_says_why(text)


# -- programs of this repository, cut and sewn together ----------------------------------------------------------------

CORPUS = [MESSY, PROGRAM, *(path.read_text(encoding="utf-8") for path in PROGRAMS)]
# Calls of functions for each character of a text, and in all, that no text may exceed.
CALLS_A_CHARACTER, CALLS = 200, 30_000


def mutated(draw: random.Random) -> str:
    """A program with some of its tokens or lines deleted, doubled, exchanged or taken from another."""
    text = draw.choice(CORPUS)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        kind = draw.randrange(7)
        other = draw.choice(CORPUS)
        start = draw.randint(0, len(text))
        if kind == 0:
            text = text[:start] + draw.choice(PIECES) + text[start + draw.randint(0, 4) :]
        elif kind == 1:
            text = text[:start] + text[start + draw.randint(1, 30) :]
        elif kind == 2:
            cut = draw.randint(0, len(other))
            text = text[:start] + other[cut : cut + draw.randint(1, 80)] + text[start:]
        elif kind == 3:
            text = text[:start] if draw.randrange(2) else text[start:]
        else:
            text = _tokens_mutated(text, other, draw)
    return text


def _tokens_mutated(text: str, other: str, draw: random.Random) -> str:
    tokens, others = tokenize(text, ""), tokenize(other, "")
    if not tokens or not others:
        return text
    lines = text.split("\n")
    token, source = draw.choice(tokens), draw.choice(draw.choice((tokens, others)))
    line = lines[token.line - 1]
    before, after = line[: token.column - 1], line[token.column - 1 + len(token.text) :]
    new = draw.choice(("", f"{token.text} {token.text}", source.text, f" {source.text} {token.text}"))
    lines[token.line - 1] = before + new + after
    return "\n".join(lines)


def calls(text: str) -> int:
    """Calls of functions that compiling a text takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        compiles_or_says_why(text)
    finally:
        sys.setprofile(before)
    return count


def sound(text: str) -> None:
    """It compiles or says why; where its grammar is right, it has a canonical form."""
    compiles_or_says_why(text)
    try:
        formatted = format_text(text)
    except SourceError:
        return
    assert format_text(formatted) == formatted


@pytest.mark.parametrize("seed", range(40))
def test_seeded_mutations(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        sound(mutated(draw))


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False))
def test_drawn_mutations(draw: random.Random) -> None:
    sound(mutated(draw))


@pytest.mark.parametrize(
    "text",
    [
        "y = " + "(" * 5000 + "1" + ")" * 5000,
        "y = " + "-" * 5000 + "1",
        "y = " + "1 + " * 5000 + "1",
        "y = " + "f(" * 3000 + "1" + ")" * 3000,
        "X" + "[X" * 3000 + "]" * 3000 + " = 1",
        "for l in 0 .. 2 {\n" * 3000 + "}\n" * 3000,
        "for l in 0 .. 2 {\n" * 3000,
        "}\n" * 5000,
        "(\n" * 5000,
        "return 1\n" * 3000,
        "fn f(x)\nreturn x\n" * 1500,
        "@keep\n" * 5000,
        "@tile(\n" * 3000,
        "y = a b\n" * 2000,
        "y = " + "a, " * 5000,
        "x" * 100_000 + " = 1",
        'y = "' + "a" * 100_000,
        "#" * 100_000,
        "y = " + "sum[i] " * 3000 + "1",
        "∑" * 5000,
        "y = 1" + "0" * 5000,
        "fn f(" + "x, " * 5000 + "x) = 1",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_long_texts_take_no_more_calls_than_they_are_long(text: str) -> None:
    sound(text)
    assert calls(text) < CALLS + CALLS_A_CHARACTER * len(text)
