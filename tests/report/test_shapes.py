"""Shapes in `check` and editors: in the names of sizes; with numbers, those of the lowering."""

import pytest

from einturnip.eingraph.build.program import build
from einturnip.lang import compile_text
from einturnip.report.signature import rows, table

INPUTS = """\
import std.nn
dim L = 3
input img : f32[n, m]
input X : f32[s, d]
input K : f32[p, r]
input ids : i64[q]
input W : f32[L, d, d]
"""
SIZES = {"s": 6, "d": 4, "q": 5, "n": 8, "m": 10, "p": 3, "r": 2}


@pytest.mark.parametrize(
    ("statements", "name", "labels", "shape"),
    [
        ("Y[i,j] = img[j,i]", "Y", "i j", "m|n"),
        ("Y[i: s-1, j] = X[i+1, j] - X[i, j]", "Y", "i j", "s - 1|d"),
        ("Y[i,j] = sum[a,b] img[i+a, j+b] * K[a,b]", "Y", "i j", "n - p + 1|m - r + 1"),
        ("Y[i,j] = sum[a] img[i + 2*a, j] * K[a, 0]", "Y", "i j", "n - 2 * p + 2|m"),
        ("Y[i,j] = img[2*i + 1, j // 2]", "Y", "i j", "(n - 2) // 2 + 1|m * 2"),
        ("Y[i,j] = img[n-1-i, j]", "Y", "i j", "n|m"),
        ("Y[i] = img[i+1, i+2]", "Y", "i", "min(n - 1, m - 2)"),
        ("Y[i: n] = sum[j] img[i-1 ? 0, j]", "Y", "i", "n"),
        ("Y[t,e] = X[ids[t] ? 0, e]", "Y", "t e", "q|d"),
        ("Y[(i j)] = img[i,j]", "Y", "(i j)", "n * m"),
        ("Y[a: 2, b, c] = img[(a b), c]", "Y", "a b c", "2|n / 2|m"),
        ("Y[i | j, c] = X[i,c] | X[j,c]", "Y", "i | j c", "2 * s|d"),
        ("Y[:, j] = img[1:4, j]", "Y", ": j", "3|m"),
        ("G[t,c] = X[ids[t],c]\nY[ids[t]: 7, c] = sum[t] G[t,c]", "Y", "ids c", "7|d"),
        ("Y[i,j] = softmax(img[i,j])", "Y", "i j", "n|m"),
        ("for l in 0 .. L {\n  T[a,b] = X[a,c] * W[l,c,b]\n  X[a,b] = T[a,b]\n}\nY[i] = sum[j] X[i,j]", "Y", "i", "s"),
        ("for l in 0 .. L {\n  T[a,b] = X[a,c] * W[l,c,b]\n  X[a,b] = T[a,b]\n}\nY[i] = X[i,0]", "T", "a b", "s|d"),
        ("H[t: 5, c: 4] = 0.0\nfor t in 0 .. 5 {\n  H[t, c] = X[t, c]\n}\nY[t] = sum[c] H[t, c]", "H", "t c", "5|4"),
    ],
)
def test_shapes_in_names_and_in_numbers(statements, name, labels, shape):
    program = compile_text(f"{INPUTS}{statements}\noutput Y\n")
    row = next(row for row in reversed(rows(program, {})) if row.name == name)
    assert " ".join(row.axes) == labels
    assert list(map(str, row.shape)) == shape.split("|")
    numbers = next(row for row in reversed(rows(program, SIZES)) if row.name == name)
    nodes = build(program, {}, SIZES).nodes
    assert numbers.shape == next(node.shape for node in reversed(nodes) if node.name == name)


def test_what_a_program_says_of_its_tensors():
    text = """\
import std.nn
input X : f32[s, d]
input W : f32[4, d, d]
fn dense(A[i, k], B[k, j]) {
  C[i, j] = sum[k] A[i, k] * B[k, j]
  return relu(C[i, j])
}
for l in 0 .. 4 {
  X[a, b] = dense(X[a, c], W[l, c, b])
}
P[i, j] = softmax(X[i, j])
output X, P
"""
    found = rows(compile_text(text), {"d": 3})
    assert table([row for row in found if not row.hidden]) == [
        "line 2   input   X[s, d]     f32[s, 3]",
        "line 3   input   W[4, d, d]  f32[4, 3, 3]",
        "line 9   output  X[a, b]     f32[s, 3]     for each l",
        "line 11  output  P[i, j]     f32[s, 3]",
    ]
    assert {"dense.C"} <= {row.name for row in found if row.hidden}
    assert all("?" not in row.shape for row in found)
