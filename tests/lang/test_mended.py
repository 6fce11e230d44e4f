"""Help that shows code: applied to the program, it compiles and means what the message says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einturnip.core.diagnostics import Diagnostic, Edit, Span, did_you_mean
from einturnip.core.errors import BindError, SourceError
from einturnip.eingraph.build.program import build
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.lang import compile_text
from einturnip.lang.diagnose.other_libraries import KNOWN_ELSEWHERE, REWRITES
from einturnip.lang.keywords import FUNCTIONS
from tests.lang.test_bad import header
from tests.reference.program import evaluate

FOLDER = Path(__file__).parent.parent / "bad"
PROGRAMS = sorted(FOLDER.glob("*.ein"))
# Each round may bring to light what stood behind the first mistake of a statement.
MOST_ROUNDS = 8


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply non-overlapping replacements to a program's text."""
    lines = text.split("\n")
    begins = list(accumulate((len(line) + 1 for line in lines), initial=0))
    found, end = [], 0
    places = {
        (begins[e.span.line - 1] + e.span.column - 1, begins[e.span.end_line - 1] + e.span.end_column - 1, e.text)
        for e in edits
    }
    for start, stop, new in sorted(places):
        if start >= end:
            found += [text[end:start], new]
            end = max(stop, end)
    return "".join(found) + text[end:]


def problems(text: str, name: str) -> tuple[Diagnostic, ...]:
    """The errors of a program, also those of the sizes that its head states."""
    stated = {word: dict(item.split("=") for item in header(text, word).split()) for word in ("shapes", "dims")}
    shapes = {name: tuple(map(int, shape.split("x"))) for name, shape in stated["shapes"].items()}
    try:
        program = compile_text(text, name)
        if any(stated.values()):
            build(program, shapes, {name: int(size) for name, size in stated["dims"].items()})
    except (SourceError, BindError) as error:
        return tuple(d for d in error.diagnostics if d.severity == "error")
    return ()


UNKNOWN = re.compile(r"unknown (?:tensor|name|function|size|output) '(\w+)'")


def declared(text: str, found: tuple[Diagnostic, ...]) -> str:
    """The program with declarations of the names that it never declared: many files are one wrong line."""
    lines = []
    for name in dict.fromkeys(m[1] for d in found if (m := UNKNOWN.match(d.message))):
        access, call = re.search(rf"\b{name}\[([^\]]*)\]", text), re.search(rf"\b{name}\(", text)
        if access:
            sizes = ", ".join(f"size_{name}_{axis}" for axis in range(access[1].count(",") + 1))
            lines.append(f"input {name} : f32[{sizes}]")
        elif call:
            lines.append(f"fn {name}(x) = x" if f", y = {name}" not in text else f"fn {name}(x) {{\n  return x, x\n}}")
        else:
            lines.append(f"dim {name}" if re.search(rf"[:.] *{name}\b", text) else f"input {name} : f32")
    return "\n".join([*lines, text])


def mend(text: str, name: str) -> tuple[str, tuple[Diagnostic, ...]]:
    """The program after all edits of its diagnostics, round after round, and what is left of them."""
    found = problems(text, name)
    for _ in range(MOST_ROUNDS):
        edits = [edit for diagnostic in found for edit in diagnostic.edits]
        after = apply_edits(text, edits) if edits else declared(text, found)
        if after == text:
            break
        text, found = after, problems(after, name)
    return text, found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_applied_help_mends_what_it_is_about(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for diagnostic in problems(text, path.name):
        if diagnostic.edits:
            after = apply_edits(text, diagnostic.edits)
            left = [(d.message, d.span[:3]) for d in problems(after, path.name)]
            assert (diagnostic.message, diagnostic.span[:3]) not in left, after


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_whose_help_is_all_applied_compiles(path: Path, tmp_path: Path) -> None:
    text, name = path.read_text(encoding="utf-8"), str(tmp_path / path.name)
    (tmp_path / "layers.ein").write_text("fn twice(x) = 2 * x\n")
    found = problems(text, name)
    if not found or not all(diagnostic.edits for diagnostic in found):
        return
    after, left = mend(text, name)
    assert not left, f"{after}\n{[(d.render(), d.edits) for d in left]}"


# Help without a replacement gives a form to fill in, or a choice.
FORM = re.compile(
    r"\.\.\.|NAME|, or | or |as in|; or another|there$|its value|for each|not, |where\(condition| x\)|missing '}'"
    r"|its arguments"
)
APPLIED = re.compile(r"^(write|delete|did you mean|to multiply, write|replace it by|add|count from .*:|convert it:) ")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_help_that_shows_code_can_be_applied(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for diagnostic in problems(text, path.name):
        if APPLIED.match(diagnostic.help) and not FORM.search(diagnostic.help):
            assert diagnostic.edits, diagnostic.render()


A = np.arange(1.0, 7).reshape(2, 3)
X = np.array([1.0, 4, 2])
GIVEN = "input A : f64[n, m]\ninput x : f64[m]\n"
MEANINGS: list[tuple[str, Any]] = [
    ("y = x[-1]", X[-1]),
    ("y[i] = A[i, -1]", A[:, -1]),
    ("y[j] = A[-2, j]", A[-2]),
    ("y[:] = x[-2:]", X[-2:]),
    ("B[i, j] = 2 * A[i, j]\ny[i] = B[i, -1]", 2 * A[:, -1]),
    ("y = sum A[i, j]", A.sum()),
    ("y[i] = sum A[i, j]", A.sum(1)),
    ("y[j] = sum A[i, j]", A.sum(0)),
    ("y[i] = sum[j] A[i, k]", A.sum(1)),
    ("y = ∑_j x[j]", X.sum()),
    ("y[j] = x[j]**2", X**2),
    ("y[j] = x[j]²", X**2),
    ("y[j] = 3 if x[j] > 1 else 4", np.where(X > 1, 3, 4)),
    ("y[j] = x[j] > 1 ? 3 : 4", np.where(X > 1, 3, 4)),
    ("y[j] = |x[j]|", abs(X)),
    ("y[j] = np.exp(x[j])", np.exp(X)),
    ("y[i, j] = A[i][j]", A),
    ("y[j] = x[j] <> 1", X != 1),
    ("y[j] == x[j]", X),
    ("y = 1,000", 1000),
    ("y = 0x10", 16),
    ("y[j] = expp(x[j])", np.exp(X)),
    ("for t in [0, 1] { x[j] = 2 * x[j] }\ny[j] = x[j]", 4 * X),
    ("for t in range(2) { x[j] = 2 * x[j] }\ny[j] = x[j]", 4 * X),
    ("for t in 0 .. 2 {\n  x[j] = 2 * x[j]\ny[j] = x[j] + 1", 4 * X + 1),
    ("for s in 0 .. 2 {\n  for t in 0 .. 2 {\n    x[j] = 2 * x[j]\n  }\n  x[j] = x[j] + 1\ny[j] = x[j]", 16 * X + 5),
    ("y[j] = log10(x[j])", np.log10(X)),
    ("y[j] = 2 * log2(x[j] + 1)", 2 * np.log2(X + 1)),
    ("y[j] = trunc(x[j] - 2.5)", np.trunc(X - 2.5)),
    ("y[j] = pow(x[j] + 1, 2)", (X + 1) ** 2),
    ("y[j] = square(x[j] - 3)", (X - 3) ** 2),
    ("y[j] = maximum(x[j], 2)", np.maximum(X, 2)),
    ("y[j] = clip(x[j], 1.5, 3)", np.clip(X, 1.5, 3)),
    ("y[j] = 1 / arcsinh(x[j])", 1 / np.arcsinh(X)),
    ("y[j] = hypot(x[j], x[j] - 1)", np.hypot(X, X - 1)),
    ("y[j] = deg2rad(x[j])", np.deg2rad(X)),
    ("y[j] = cbrt(x[j] - 3)", np.cbrt(X - 3)),
    ("dim h = 7\ndim q = 2 * (h / 2)\ny[i: q] = 1", np.ones(6)),
    ("dim h = 7\ndim q = h / 2 + 1\ny[i: q] = 1", np.ones(4)),
    ("y = sum[j] x[j)", X.sum()),
    ("y[j] = 2 * (x[j] + 1]", 2 * (X + 1)),
    ("y[j: 2*(4-1] = 3", np.full(6, 3)),
    ("fn twice(a) {\n  return 2 * a\ny[j] = twice(x[j])", 2 * X),
]


@pytest.mark.parametrize(("wrong", "meant"), MEANINGS, ids=[wrong for wrong, _ in MEANINGS])
def test_applied_help_means_what_was_meant(wrong: str, meant: Any) -> None:
    text = f"{GIVEN}{wrong}\noutput y\n"
    assert problems(text, "wrong.ein")
    after, left = mend(text, "wrong.ein")
    assert not left, f"{after}\n{left}"
    np.testing.assert_allclose(evaluate(compile_text(after), {"A": A, "x": X})["y"], meant, rtol=1e-12, err_msg=after)


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ("y[k[i]: 5] = sum[j] x[j]", "write j in its place; or bind it as well: sum[j, i] ..."),
        ("y[k[j], i] = sum[j] A[i, j]", "to aggregate by a key write how many groups there are: [k[j]: ...]"),
        ("y[2, j] = x[j]", "define all of 'y' before, with its sizes: y[i: ..., j: ...] = 0"),
        ("for t in 0 .. 3 { y[t] = x[t] }", "define all of 'y' before, with its sizes: y[i: ...] = 0"),
        ("for t in 0 .. 3 { y = x[t] }\nz = t", ""),
        ("for t in 0 .. 3 {\ny = x[t]", "close the block with '}' behind its last statement"),
        ("fn f(a) {\n b = a", "end the block with: return NAME[labels], and '}' on the line below"),
        ("y[j] = later(x[j])\nfn later(a) = a", "move the definition up"),
        ("state y : f32 = 0\nstate y : f32 = 0", "give the state another name"),
        ("x[j] <- x[j]", "declare it by 'state' instead of 'input'"),
    ],
)
def test_help_that_leaves_a_choice(wrong: str, shown: str) -> None:
    found = problems(f"{GIVEN}input k : i32[m]\n{wrong}\noutput y\n", "choice.ein")
    assert found[0].help == shown and not found[0].edits


def test_an_unknown_function_is_answered_by_those_that_there_are() -> None:
    (found,) = problems(f"fn own(a) = a\n{GIVEN}y[j] = undefined(x[j])\noutput y\n", "unknown.ein")
    assert found.help.startswith(f"the functions are own, {', '.join(sorted(FUNCTIONS))}") and not found.edits


def test_a_label_that_is_bound_nowhere_may_be_a_slip() -> None:
    (found,) = problems(GIVEN + "y[i] = sum[j] A[i, j] * A[k, j]\noutput y\n", "slip.ein")
    shown = "say how to aggregate it: sum[k] sum[j] A[i, j] * A[k, j]; or write another label in its place: i, j"
    assert found.help == shown and not found.edits


def test_no_function_of_the_language_is_listed_among_those_of_others() -> None:
    listed, table = (KNOWN_ELSEWHERE - set(AGGREGATIONS)) & FUNCTIONS, "einturnip/lang/diagnose/other_libraries.py"
    assert not listed, f"delete {listed} from {table}, and their examples from MEANINGS in this file"


@pytest.mark.parametrize("name", sorted(KNOWN_ELSEWHERE - FUNCTIONS))
def test_no_other_function_is_proposed_for_one_that_is_known_elsewhere(name: str) -> None:
    found = problems(f"{GIVEN}y[j] = {name}(x[j])\noutput y\n", "known.ein")
    assert found or name in ("logsumexp", "mean", "std", "var")
    assert not any("did you mean" in d.help for d in found)
    if name in REWRITES and found:
        assert found[0].help.startswith("write ")
    if name in ("rand", "sort"):
        assert found[0].help.startswith(f"the functions are {', '.join(sorted(FUNCTIONS))}")


@pytest.mark.parametrize(
    ("word", "meant"), [("relue", "relu"), ("exq", "exp"), ("sqr", "sqrt"), ("Sigmoid", "sigmoid")]
)
def test_a_misspelt_function_is_recognised(word: str, meant: str) -> None:
    (found,) = problems(f"{GIVEN}y[j] = {word}(x[j])\noutput y\n", "misspelt.ein")
    assert found.help == f"did you mean '{meant}'?" and [edit.text for edit in found.edits] == [meant]


def test_a_word_far_from_all_names_is_none_of_them() -> None:
    assert did_you_mean("scale", ["false", "pi"]) == ""
    assert did_you_mean("reslut", ["result"]) == "did you mean 'result'?"


def test_edits_that_overlap_are_made_once() -> None:
    def edit(begin: int, end: int, text: str) -> Edit:
        return Edit(Span("f", 1, begin, 1, end), text)

    assert apply_edits("abcdef", [edit(2, 4, "X"), edit(3, 5, "Y"), edit(6, 6, "+"), edit(2, 4, "X")]) == "aXde+f"
