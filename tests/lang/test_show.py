"""A program prints as the same program."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import InternalError, SourceError
from einturnip.lang import compile_text
from einturnip.lang.printer import show
from einturnip.lang.program import TypedProgram
from tests.drawn import examples
from tests.reference.program_check import check

PROGRAM = r"""dim n, m = 4, d = (n + m) * 2 - -m // 3 ^ 2 ^ 2
input X : f32[n, m] = "da\\ta \"x\".npy"
input W : bf16[2 * (n - 1), max(m, 3)] = "w.safetensors" :: "layer.0"
input a : c128 = 2j
input b : bool = true
input e : f64 = -inf
input k : i8[n]
c = 1e-05 + 2j - pi * -1 ^ 2
Y[i, j] = (X[i, j] + 1) * (sum[j] X[i, j] * 2) - -X[i, j] + max[j : f64] (X[i, j] - 1) ^ 2
Z[i] = logsumexp[j] where(0 <= i < n and not j == 3, X[i, j], -inf) / (mean[j] X[i, j])
T[i: n - 1] = f16(i) + min(u8(3), 200) * (2 ^ -i) ^ 0.5
U[i] = k[i] < 300 and (k[i] > 3 or k[i] + k[i] * 2 - (k[i] - 1) == 1) and b
V = sum[i: n, j: m : f64] (-1) ^ (i + j)
Y[i] = Y[i, j]
Y = sum[i] sum[j] X[i, j] * sum[j: 3] j
R[i] = 0 < sum[j] X[i, j] <= 3
output Y, Z = "z.npy", T = "t.h5" :: "t"
"""


def test_round_trip() -> None:
    program = compile_text(PROGRAM)
    check(program)
    assert show(compile_text(show(program))) == show(program)


def test_check_can_fail() -> None:
    program = compile_text("s = 1\nt = s\noutput t\n")
    with pytest.raises(InternalError):
        check(TypedProgram(program.statements[1:]))


ATOMS = st.sampled_from(["x[i]", "y[i]", "A[i,j]", "a", "n", "i", "j", "2", "0.5", "3", "pi", "k[j]", "inf"])


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "^"]), inner).map(" ".join)
    compare = st.tuples(inner, st.sampled_from(["<", "<=", "==", "!="]), inner).map(" ".join)
    where = st.tuples(compare, inner, inner).map(lambda t: f"where({', '.join(t)})")
    call = st.tuples(st.sampled_from(["exp", "abs", "f64", "floor", "relu", "-", "+"]), inner).map(
        lambda t: f"{t[0]}({t[1]})"
    )
    aggregate = st.tuples(st.sampled_from(["sum[j]", "max[j]", "mean[i,j]", "argmin[j]", "sum[j: n : f64]"]), inner)
    return st.one_of(binary, where, call, aggregate.map(" ".join), inner.map("({})".format))


@settings(max_examples=examples(150), deadline=None)
@given(st.recursive(ATOMS, combine, max_leaves=12))
def test_drawn_expressions_round_trip(text: str) -> None:
    inputs = "input A : f32[n, n]\ninput x, y\n".replace("input x, y\n", "input x : f32[n]\ninput y : i32[n]\n")
    source = f"{inputs}input k : f64[n]\ninput a : f32\nZ[i, j] = {text}\noutput Z\n"
    try:
        program = compile_text(source)
    except SourceError:
        return
    check(program)
