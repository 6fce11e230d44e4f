"""The oracle on indices, keys, pieces, functions and loops, against NumPy written by hand; and how they print."""

from typing import Any

import numpy as np
import pytest

from einturnip.testing import assert_agrees, evaluate
from einturnip.testing.printing import program_text
from einturnip.testing.terms import (
    Access,
    Aggregate,
    Binary,
    Bound,
    Call,
    Chain,
    Colon,
    Dim,
    Fixed,
    Fn,
    Function,
    Group,
    Guarded,
    Index,
    Input,
    Joined,
    Keyed,
    Left,
    Loop,
    Number,
    Parameter,
    Position,
    Program,
    Rest,
    Several,
    Size,
    Slice,
    Statement,
    Step,
    Term,
    Unary,
)

X = np.arange(12.0).reshape(3, 4)
V = np.array([3.0, 1, -2, 5])
IDS = np.array([2, 0, 0], np.int32)
AT_I, AT_J = Index("i"), Index("j")


def one(n: int) -> Number:
    return Number(n)


def plus(a: Term, b: Term) -> Binary:
    return Binary("+", a, b)


def times(a: Term, b: Term) -> Binary:
    return Binary("*", a, b)


def x(*indices: Position) -> Access:
    return Access("X", indices)


def v(*indices: Position) -> Access:
    return Access("V", indices)


def total(labels: str, body: Term, op: str = "sum") -> Aggregate:
    return Aggregate(op, tuple(map(Bound, labels)), body)


def program(*steps: Step, functions: tuple[Fn, ...] = (), outputs: tuple[str, ...] = ("Z",)) -> Program:
    inputs = (
        Input("X", "f64", (one(3), one(4))),
        Input("V", "f64", (one(4),)),
        Input("ids", "i32", (one(3),)),
    )
    return Program((Dim("n", one(2)),), inputs, steps, outputs, functions)


def run(*steps: Step, functions: tuple[Fn, ...] = (), **inputs: Any) -> np.ndarray:
    given = {"X": X, "V": V, "ids": IDS} | inputs
    return evaluate(program(*steps, functions=functions), given)["Z"].values


def z(labels: str | tuple[Left, ...], body: Term, *others: Term) -> Statement:
    bounds = tuple(Bound(label) for label in labels) if isinstance(labels, str) else labels
    return Statement("Z", bounds, body, others)


def last_line(step: Step, functions: tuple[Fn, ...] = ()) -> str:
    return program_text(program(step, functions=functions)).splitlines()[-2]


IDS_OF_S = Access("ids", ("s",))

EQUATIONS = [
    ("Z[i] = V[i + 1]", z("i", v(plus(AT_I, one(1)))), V[1:]),
    ("Z[i] = V[2 * i]", z("i", v(times(one(2), AT_I))), V[::2]),
    ("Z[i] = V[3 - i]", z("i", v(Binary("-", one(3), AT_I))), V[::-1]),
    ("Z[j] = X[0, j]", z("j", x(one(0), "j")), X[0]),
    ("Z[i: n] = V[i]", z((Bound("i", Size("n")),), v("i")), V[:2]),
    ("Z[i: 8] = V[i // 2]", z((Bound("i", one(8)),), v(Binary("//", AT_I, one(2)))), V.repeat(2)),
    ("Z[i: 5] = V[i % 2]", z((Bound("i", one(5)),), v(Binary("%", AT_I, one(2)))), V[[0, 1, 0, 1, 0]]),
    (
        "Z[i: 4] = V[i - 1 ? 0]",
        z((Bound("i", one(4)),), v(Guarded(Binary("-", AT_I, one(1)), one(0)))),
        np.array([0, 3, 1, -2.0]),
    ),
    (
        "Z[j] = sum[p] V[j + p] * X[p, 0]",
        z("j", total("p", times(v(plus(AT_J, Index("p"))), x("p", one(0))))),
        np.array([V[j : j + 3] @ X[:, 0] for j in range(2)]),
    ),
    ("Z[s, d] = X[ids[s], d]", z("sd", x(IDS_OF_S, "d")), X[IDS]),
    ("Z[s] = V[ids[s] + 1]", z("s", v(plus(IDS_OF_S, one(1)))), V[IDS + 1]),
    (
        "Z[ids[s]: 4, d] = sum[s] X[s, d]",
        z((Keyed(IDS_OF_S, one(4)), Bound("d")), total("s", x("s", "d"))),
        np.stack([X[1] + X[2], 0 * X[0], X[0], 0 * X[0]]),
    ),
    (
        "Z[ids[s]: 4] = sum[s] 1",
        z((Keyed(IDS_OF_S, one(4)),), total("s", one(1))),
        np.array([2, 0, 1, 0]),
    ),
    (
        "Z[ids[s]: 4, d] = argmax[s] X[s, d]",
        z((Keyed(IDS_OF_S, one(4)), Bound("d")), total("s", x("s", "d"), "argmax")),
        np.array([[2] * 4, [-1] * 4, [0] * 4, [-1] * 4]),
    ),
    (
        "Z[s, i // 2: 2] = mean[i] X[s, i]",
        z((Bound("s"), Keyed(Binary("//", AT_I, one(2)), one(2))), total("i", x("s", "i"), "mean")),
        X.reshape(3, 2, 2).mean(2),
    ),
    ("Z[:, j] = X[1:3, j]", z((Colon(), Bound("j")), x(Slice(one(1), one(3)), "j")), X[1:3]),
    (
        "Z[i | j] = V[i] | X[0, j]",
        z((Joined((Bound("i"), Bound("j"))),), v("i"), x(one(0), "j")),
        np.concatenate([V, X[0]]),
    ),
    (
        "Z[i | j: 2] = V[i] | 0",
        z((Joined((Bound("i"), Bound("j", one(2)))),), v("i"), one(0)),
        np.concatenate([V, [0, 0]]),
    ),
    ("Z[(s d)] = X[s, d]", z((Group(("s", "d")),), x("s", "d")), X.ravel()),
    ("Z[a: 2, b] = V[(a b)]", z((Bound("a", one(2)), Bound("b")), v(Group(("a", "b")))), V.reshape(2, 2)),
]


@pytest.mark.parametrize("text, step, expected", EQUATIONS, ids=[e[0] for e in EQUATIONS])
def test_equations(text: str, step: Statement, expected: np.ndarray) -> None:
    assert last_line(step) == text
    assert_agrees(run(step), expected)


def test_each_slice_goes_with_its_colon() -> None:
    step = z((Colon(), Bound("j"), Colon()), times(x(Slice(None, one(2)), Slice(one(1))), v("j")))
    assert last_line(step) == "Z[:, j, :] = X[:2, 1:] * V[j]"
    assert_agrees(run(step), np.einsum("ac,j->ajc", X[:2, 1:], V))


def test_a_number_on_the_left_replaces_a_slice() -> None:
    copy, change = z("ij", x("i", "j")), z((Fixed(one(1)), Bound("j")), v("j"))
    assert last_line(change) == "Z[1, j] = V[j]"
    assert_agrees(run(copy, change), np.stack([X[0], V, X[2]]))


def test_indices_and_keys_out_of_range() -> None:
    with pytest.raises(IndexError, match="3"):
        run(z("sd", x(IDS_OF_S, "d")), ids=np.array([0, 3, 1], np.int32))
    with pytest.raises(IndexError, match="-1"):
        run(z((Keyed(IDS_OF_S, one(4)),), total("s", one(1))), ids=np.array([0, -1, 1], np.int32))
    with pytest.raises(IndexError):
        run(z((Bound("i", one(4)),), v(plus(AT_I, one(1)))))


def test_a_loop_rebinds_replaces_and_uses_its_number() -> None:
    body = (
        Statement("h", (Bound("j"),), plus(times(Access("h", ("j",)), Size("t")), x(Size("t"), "j"))),
        z((Fixed(Size("t")), Bound("j")), Access("h", ("j",))),
    )
    loop = Loop("t", one(1), one(3), body)
    assert program_text(program(loop)).splitlines()[4:8] == [
        "for t in 1 .. 3 {",
        "  h[j] = h[j] * t + X[t, j]",
        "  Z[t, j] = h[j]",
        "}",
    ]
    h, expected = V, X.copy()
    for t in range(1, 3):
        h = h * t + X[t]
        expected[t] = h
    start = Statement("h", (Bound("j"),), v("j"))
    assert_agrees(run(start, z("ij", x("i", "j")), loop), expected)


def test_a_dtype_from_literals_gives_way_in_a_loop() -> None:
    loop = Loop("t", one(0), one(0), (z("", plus(Access("Z"), total("i", x(Size("t"), "i")))),))
    assert_agrees(run(z("", one(0)), loop), np.float64(0))
    strong = Loop("t", one(0), one(1), (z("s", times(Access("Z", ("s",)), Number(0.5))),))
    with pytest.raises(TypeError, match="loop"):
        run(z("s", IDS_OF_S), strong)


SOFTMAX = Fn(
    "softmax",
    (Parameter("X", (Rest(), "j")),),
    (Statement("E", (Rest(), Bound("j")), Function("exp", (x(Rest(), "j"),))),),
    (Binary("/", Access("E", (Rest(), "j")), total("j", Access("E", (Rest(), "j")))),),
)


def test_a_function_over_the_last_axis() -> None:
    assert program_text(program(functions=(SOFTMAX,))).splitlines()[4:8] == [
        "fn softmax(X[..., j]) {",
        "  E[..., j] = exp(X[..., j])",
        "  return E[..., j] / sum[j] E[..., j]",
        "}",
    ]
    e = np.exp(X - 8)
    steps = z("ij", Binary("-", x("i", "j"), one(8))), z("ji", Call(SOFTMAX, (Access("Z", ("i", "j")),)))
    assert last_line(steps[1], (SOFTMAX,)) == "Z[j, i] = softmax(Z[i, j])"
    assert_agrees(run(*steps, functions=(SOFTMAX,)), (e / e.sum(1, keepdims=True)).T, exact=False)
    causal = Function("where", (Chain(("<=",), (AT_J, AT_I)), x("i", "j"), Unary("-", Number(np.inf))))
    masked = np.exp(np.where(np.arange(4) <= np.arange(3)[:, None], X, -np.inf))
    found = run(z("ij", Call(SOFTMAX, (causal,))), functions=(SOFTMAX,))
    assert_agrees(found, masked / masked.sum(1, keepdims=True), exact=False)


def test_arguments_whose_labels_repeat_take_no_diagonal() -> None:
    scores = Fn(
        "scores",
        (Parameter("Q", ("s", "d")), Parameter("K", ("t", "d"))),
        (
            Statement(
                "S", (Bound("s"), Bound("t")), total("d", times(Access("Q", ("s", "d")), Access("K", ("t", "d"))))
            ),
        ),
        (Binary("/", total("t", Access("S", ("s", "t"))), Size("d")),),
    )
    assert_agrees(run(z("i", Call(scores, (x("i", "j"), x("i", "j")))), functions=(scores,)), (X @ X.T).sum(1) / 4)


def test_labels_that_a_function_makes_take_the_next_on_the_left() -> None:
    cov = Fn("cov", (Parameter("X", ("n", "d")),), (), (total("n", times(x("n", "d"), x("n", "e"))),))
    assert last_line(z("de", Call(cov, (x("m", "d"),))), (cov,)) == "Z[d, e] = cov(X[m, d])"
    assert_agrees(run(z("ba", Call(cov, (x("m", "a"),))), functions=(cov,)), X.T @ X)


def test_scalars_sizes_and_defaults() -> None:
    eps = Parameter("eps", None, Number(0.5))
    swish = Fn("swish", (Parameter("x"), eps), (), (times(Access("x"), plus(Access("x"), Access("eps"))),))
    called = Call(swish, (v("i"),), (("eps", one(2)),))
    assert last_line(z("i", called), (swish,)) == "Z[i] = swish(V[i], eps = 2)"
    assert_agrees(run(z("i", called), functions=(swish,)), V * (V + 2))
    assert_agrees(run(z("i", Call(swish, (v("i"),))), functions=(swish,)), V * (V + 0.5))
    head = Fn(
        "head", (Parameter("A", ("i",)), Parameter("k")), (), (total("i", times(Access("A", ("i",)), Size("k"))),)
    )
    first = Fn(
        "first",
        (Parameter("A", ("i",)), Parameter("k")),
        (Statement("B", (Bound("j", Size("k")),), Access("A", ("j",))),),
        (Call(head, (Access("B", ("j",)), Size("i"))),),
    )
    assert_agrees(run(z("", Call(first, (v("i"), Size("n")))), functions=(head, first)), np.float64(4 * V[:2].sum()))


def test_several_results() -> None:
    f = Fn("f", (Parameter("A", ("i", "j")),), (), (total("i", Access("A", ("i", "j"))), Access("A", ("i", "j"))))
    step = Several((("V", (Bound("b"),)), ("X", (Bound("b"), Bound("a")))), Call(f, (x("a", "b"),)))
    assert last_line(step, (f,)) == "V[b], X[b, a] = f(X[a, b])"
    assert_agrees(run(step, z("ij", times(x("i", "j"), v("i"))), functions=(f,)), X.T * X.sum(0)[:, None])


def test_a_function_within_the_sum_of_its_own_argument() -> None:
    rows = Fn("rows", (Parameter("A", ("i", "j")),), (), (total("j", Access("A", ("i", "j"))),))
    step = z("ij", Binary("/", x("i", "j"), plus(one(1), Call(rows, (x("i", "j"),)))))
    assert_agrees(run(step, functions=(rows,)), X / (1 + X.sum(1, keepdims=True)), exact=False)
