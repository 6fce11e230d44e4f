"""Common mistakes of newcomers are answered with the correct form."""

import pytest

from einturnip.core.errors import SourceError
from einturnip.lang.syntax.parser import parse


def only(text: str) -> tuple[str, str]:
    """The text under the caret and the help of the one diagnostic."""
    with pytest.raises(SourceError) as error:
        parse(text)
    (found,) = error.value.diagnostics
    line = text.split("\n")[found.span.line - 1]
    assert found.span.end_line == found.span.line
    return line[found.span.column - 1 : found.span.end_column - 1], found.help


@pytest.mark.parametrize(
    ("text", "marked", "help_text"),
    [
        ("for i in range(n):\n  x = 1", "range(n)", "write for i in 0 .. n { ... }"),
        ("for i in range(2, f(n, 3)) {\n}", "range(2, f(n, 3))", "write for i in 2 .. f(n, 3) {"),
        ("for k in 1:n-1 {\n}", ":", "write for k in 1 .. n-1 {"),
        ("for l in 0...L {\n}", "...", "write for l in 0 .. L {"),
        ("for l in L {\n}", "{", "write for l in 0 .. L {"),
        ("for l in 0 .. L", "", "write for l in 0 .. L { ... }"),
        ("for l = 1, L do\n", "=", "write for l in 1 .. L { ... }"),
        ("def f(x, y):\n  return x", "def", "write fn f(x, y) { ... return ... }"),
        ("fn f(x): x + 1", ":", "write fn f(x) = x + 1"),
        ("fn f(X[i,j]) -> X[i,j]", "->", "write fn f(X[i,j]) = X[i,j]"),
        ("fn f(x) = {\n return x\n}", "=", "delete =: fn f(x) {"),
        ("f = lambda x: x + 1", "lambda", "write fn f(x) = ..."),
        ("f(x) = x + 1", "f(x)", "write f[x] = ..., or for a function: fn f(x) = ..."),
        ("import nn", "nn", 'write import std.nn or import "nn.ein"'),
        ("import std/nn", "/", "write import std.nn"),
        ("import layers.ein", "layers.ein", 'write import "layers.ein"'),
        ("@tile i=2\ny = 1", "@tile", "write its arguments as in @tile(i = 256, j = 4 parts)"),
        ("@keeps\ny = 1", "@keeps", "did you mean '@keep'?"),
        ("y = X[i][j]", "X[i][j]", "write X[i,j]"),
        ("C[i,k] += A[i,j]", "+", "write C[i,k] = C[i,k] + ..."),
        ("y = sum(j) X[j]", "sum(j)", "name them in brackets: sum[j] ..."),
        ("y = sum_j X[j]", "sum_j", "name them in brackets: sum[j] ..."),
        ("y = sum_{j} X[j]", "sum_{j}", "write sum[j]"),
        ("y = \\sum_j X[j]", "\\sum_j", "write sum[j]"),
        ("y = ∑_j X[j]", "∑", "write sum[j] ..."),
        ("y = Σ[j] X[j]", "Σ", "write sum"),
        ("y = sum[j in 0..n] j", "in", "write j: n"),
        ("y = sum[j=1:n] j", "=", "write j: n, and j + 1 for j"),
        ("y = x − 1", "−", "write -"),
        ("y = x·y", "·", "write *"),
        ("y = x² + 1", "x²", "write x^2"),
        ("y = x ² + 1", "²", "write ^2"),
        ("y = 3 if x > 2 else 4", "if", "write where(x > 2, 3, 4)"),
        ("y = x > 2 ? 3 : 4", "?", "write where(x > 2, 3, 4)"),
        ("Y[i] = X[i] where i < 3", "where", "for 0 elsewhere, as in where(i < 3, X[i], 0)"),
        ("Y[i,j] = X.T", "X.T", "transpose by the labels: Y[j,i] = X[i,j]"),
        ("y = np.exp(x)", "np.exp", "write exp(...)"),
        ("y = X.sum()", "X.sum", "aggregations name labels, as in sum[i] X[i]"),
        ("y = a <> b", "<>", "write !="),
        ("y = where(a =< b, 1, 2)", "=<", "write <="),
        ("y = 1,000", ",", "write 1_000"),
        ("y = f(x,)", ",", "delete ,"),
        ("input f32 X[n]", "X", "write X : f32[n]"),
        ("input X : f32(n, 2)", "(", "write f32[n, 2]"),
        ("dim n: 4", ":", "write n = 4"),
        ("let x = 2", "let", "delete let"),
        ("print(x)", "print", "write output x"),
        ("// why", "//", "write # in place of //"),
        ("y = x // a comment", "//", "write # in place of //"),
        ("Y[:] = X[0, ::2]", "::", "use an index: X[2*i] takes every second"),
        ("s[] = 1", "[]", "write s"),
        ("output y[i,j]", "[", "write output y"),
        ("output y * 2", "*", "define what is wanted by an equation, and name it here"),
        ("learning-rate = 1", "learning-rate", "write learning_rate"),
        ("(x, y) = f(z)", "(", "write x, y = ..."),
        ("y = ｘ（1", "（", "write ("),
        ("y = 1; z = 2", ";", "begin a new line in place of ;"),
        ("x = 1 y = 2", "1 y", "begin a new line before y"),
    ],
)
def test_help(text: str, marked: str, help_text: str) -> None:
    assert only(text) == (marked, help_text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = a b", "an operator"),
        ("y = (1 +", ""),
        ("y = f(* 2)", "a value or ')'"),
        ("output y z", "',', '=' or the end of the line"),
        ("y = X[i 2]", "an operator"),
        ("input X : f32[n] 2", "',', '=' or the end of the line"),
        ("y = 2 'a'", "an operator"),
    ],
)
def test_expected_is_exact(text: str, expected: str) -> None:
    with pytest.raises(SourceError) as error:
        parse(text)
    assert error.value.diagnostics[0].expected == expected


def test_every_bad_statement_of_a_body_is_reported() -> None:
    text = """fn f(X[i]) {
  y = 1 +
  z = (2
  for l in 0 .. 3 {
    u = 3 3
    v == 4
  }
  return X[i] X[i]
}
w = )
for l in 0 .. {
  x = 1
}
output w ; x
"""
    with pytest.raises(SourceError) as error:
        parse(text)
    found = [(d.code, d.span.line, d.span.column) for d in error.value.diagnostics]
    assert found == [
        ("E003", 2, 10),
        ("E002", 3, 7),
        ("E003", 5, 11),
        ("E004", 6, 7),
        ("E003", 8, 15),
        ("E002", 10, 5),
        ("E003", 11, 15),
        ("E004", 14, 10),
    ]


def test_an_unclosed_block_ends_before_what_stands_in_none() -> None:
    text = "fn f(x) {\n  return x\n\nfn g(x) {\n  return x\n}\ny = 1 +\noutput y"
    with pytest.raises(SourceError) as error:
        parse(text)
    assert [(d.code, d.span.line) for d in error.value.diagnostics] == [("E002", 1), ("E003", 7)]
