"""Lines, precedence, and how an aggregation binds."""

import pytest

from einturnip.core.errors import SourceError
from einturnip.lang import compile_text
from einturnip.lang.expressions import AggregateExpr, ApplyExpr
from einturnip.lang.printer import show
from einturnip.lang.program import Equation, TypedProgram
from einturnip.lang.syntax.parser import parse
from tests.reference.program_check import check

INPUTS = """dim n
input A : f32[n, n]
input x : f32[n]
input y : f32[n]
input m : bool[n]
input a : f32
input b : f32
input c : f32
"""


def value(program: TypedProgram) -> object:
    equation = program.tensors[-1]
    assert isinstance(equation, Equation)
    return equation.value


def same(one: str, other: str, left: str = "z") -> None:
    first, second = (compile_text(f"{INPUTS}{left} = {text}\n") for text in (one, other))
    check(first)
    assert value(first) == value(second)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a / b * c", "(a / b) * c"),
        ("a ^ b ^ c", "a ^ (b ^ c)"),
        ("-a ^ b", "-(a ^ b)"),
        ("a ^ -b", "a ^ (-b)"),
        ("-a * b", "(-a) * b"),
        ("a // b % c", "(a // b) % c"),
        ("a < b + c", "a < (b + c)"),
        ("not a < b", "not (a < b)"),
        ("a < b and b < c or c < a", "(a < b and b < c) or c < a"),
        ("a < b < c", "a < b and b < c"),
        ("a < b == c < b", "a < b and b == c and c < b"),
        ("sum[i] x[i] * a + b", "(sum[i] (x[i] * a)) + b"),
        ("a * sum[i] x[i] * b", "a * (sum[i] (x[i] * b))"),
        ("sum[i] -x[i] * a", "sum[i] ((-x[i]) * a)"),
        ("-sum[i] x[i] * a", "-(sum[i] (x[i] * a))"),
        ("a ^ sum[i] x[i] * b", "a ^ (sum[i] (x[i] * b))"),
        ("sum[i] x[i] ^ 2 / a // b % c", "sum[i] ((((x[i] ^ 2) / a) // b) % c)"),
        ("sum[i] x[i] - sum[i] y[i]", "(sum[i] x[i]) - (sum[i] y[i])"),
        ("sum[i] x[i] > a", "(sum[i] x[i]) > a"),
        ("sum[i] sum[j] A[i,j] * x[j]", "sum[i] (sum[j] (A[i,j] * x[j]))"),
        ("any[i] m[i] and a < b", "(any[i] m[i]) and (a < b)"),
        ("max(sum[i] x[i], a)", "max((sum[i] x[i]), a)"),
    ],
)
def test_precedence(short: str, full: str) -> None:
    same(short, full)


def test_power_of_literals_is_right_associative() -> None:
    same("2 ^ 3 ^ 2", "2 ^ (3 ^ 2)")


@pytest.mark.parametrize(
    "text",
    [
        "z = a +\n  b",
        "z =\n  a + b",
        "z = (a\n  + b)",
        "z = max(a,\n  b)",
        "z = a + # first\n\n  # between\n  b",
        "z = not\n a < b",
        "z[i:\n n] = x[\n i]",
        "z = a <\n b",
    ],
)
def test_statements_go_on(text: str) -> None:
    assert len(parse(INPUTS + text).declarations) == 9


def test_line_ends_and_spaces() -> None:
    program = compile_text("\ufeffdim n = 3\r\n\tz = n\t# tab\r\n\r\noutput z")
    assert show(program) == "dim n = 3\nz = n\noutput z\n"


def test_an_arrow_is_two_operators_inside_an_expression() -> None:
    same("where(a <-b, a, b)", "where(a < -b, a, b)")
    same("a <-b", "a < (-b)")


def test_einstein_is_made_explicit() -> None:
    program = compile_text(INPUTS + "z[i,k] = A[i,j] * A[j,k] / 2\n")
    aggregate = value(program)
    assert isinstance(aggregate, AggregateExpr) and aggregate.implied and aggregate.labels == (2,)


@pytest.mark.parametrize(
    "right",
    ["A[i,j] * x[j]", "-A[i,j] * x[j]", "2 * A[i,j] * (x[j] / a)", "A[i,j] / sum[k] x[k]", "A[i,j] * x[j] / sqrt(n)"],
)
def test_einstein_holds_for_a_product(right: str) -> None:
    program = compile_text(f"{INPUTS}z[i] = {right}\n")
    check(program)
    aggregate = value(program)
    assert isinstance(aggregate, AggregateExpr) and aggregate.implied


@pytest.mark.parametrize(
    "right", ["A[i,j] + x[i]", "exp(A[i,j])", "A[i,j] ^ 2", "x[i] / x[j]", "A[i,j] * j", "A[i,j] * i"]
)
def test_einstein_does_not_hold_elsewhere(right: str) -> None:
    with pytest.raises(SourceError) as error:
        compile_text(f"{INPUTS}z[i] = {right}\n")
    assert {d.code for d in error.value.diagnostics} == {"E031"}
    assert all("sum[j]" in d.help for d in error.value.diagnostics)


def test_an_aggregation_owns_its_labels() -> None:
    program = compile_text(INPUTS + "z[i,j] = A[i,j] / sum[j] A[i,j]\n")
    equation = program.tensors[-1]
    assert isinstance(equation, Equation) and [label.name for label in equation.labels] == ["i", "j", "j"]
    quotient = equation.value
    assert isinstance(quotient, ApplyExpr) and isinstance(quotient.arguments[1], AggregateExpr)
    assert quotient.arguments[1].labels == (2,)


def test_versions() -> None:
    program = compile_text("s = 1\ns = s + 1\nt = s\noutput s\ns = 5\noutput t\n")
    check(program)
    assert [output.tensor for output in program.outputs] == [1, 2]


def test_a_hidden_size_warns() -> None:
    text = "dim d\ninput X : f32[s, d]\nY[s] = sum[d] X[s,d] / sqrt(d)\noutput Y\n"
    (warning,) = compile_text(text).warnings
    assert (warning.code, warning.severity, warning.span.line, warning.span.column) == ("W001", "warning", 3, 29)
    assert warning.secondary[0][0].line == 1


def test_comparing_labels_does_not_warn() -> None:
    text = "input S : f32[s, t]\nA[s,t] = where(t <= s, S[s,t], -inf)\noutput A\n"
    assert compile_text(text).warnings == ()


def test_nothing_to_do_warns() -> None:
    assert [warning.code for warning in compile_text("x = 1\n").warnings] == ["W002"]
    assert compile_text("").warnings == ()


def test_a_tensor_may_be_named_like_a_size() -> None:
    program = compile_text("input X : f32[b, e]\ninput b : f32[e]\nY[b,e] = X[b,e] + b[e]\noutput Y\n")
    check(program)


def test_a_size_may_get_its_value_after_it_was_met() -> None:
    program = compile_text("input X : f32[n]\ndim n = 4\nY[n] = X[n]\noutput Y\n")
    check(program)
    assert program.dims["n"].definition is not None


def test_names_are_pythons() -> None:
    program = compile_text("\u00b5_\u00e9 = 1\n\u03bc_e\u0301 = \u03bc_\u00e9 + 1\noutput \u00b5_\u00e9\n")
    assert [tensor.name for tensor in program.tensors] == ["\u03bc_\u00e9", "\u03bc_\u00e9"]


@pytest.mark.parametrize("text", ['import "a\0b.ein"\n', 'input x : f32[n] = "a\0b.npy"\noutput x\n'])
def test_no_path_holds_a_nul(text: str) -> None:
    with pytest.raises(SourceError):
        compile_text(text)
