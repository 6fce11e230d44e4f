"""The oracle on indices, keys, pieces, functions and loops, against NumPy written by hand; and how they print."""

from typing import Any

import numpy as np
import pytest

from einturnip.testing import assert_agrees, evaluate
from einturnip.testing.printing import program_text
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    ColonTerm,
    ComparisonTerm,
    DrawnDim,
    DrawnInput,
    DrawnLoop,
    DrawnParameter,
    DrawnProgram,
    DrawnSeveral,
    DrawnStatement,
    FixedTerm,
    Fn,
    FunctionTerm,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    JoinedTerm,
    KeyedTerm,
    Left,
    NumberTerm,
    Position,
    RestTerm,
    SizeTerm,
    SliceTerm,
    Step,
    Term,
    UnaryTerm,
)

X = np.arange(12.0).reshape(3, 4)
V = np.array([3.0, 1, -2, 5])
IDS = np.array([2, 0, 0], np.int32)
AT_I, AT_J = IndexTerm("i"), IndexTerm("j")


def one(n: int) -> NumberTerm:
    return NumberTerm(n)


def plus(a: Term, b: Term) -> BinaryTerm:
    return BinaryTerm("+", a, b)


def times(a: Term, b: Term) -> BinaryTerm:
    return BinaryTerm("*", a, b)


def x(*indices: Position) -> AccessTerm:
    return AccessTerm("X", indices)


def v(*indices: Position) -> AccessTerm:
    return AccessTerm("V", indices)


def total(labels: str, body: Term, op: str = "sum") -> AggregateTerm:
    return AggregateTerm(op, tuple(map(BoundTerm, labels)), body)


def program(*steps: Step, functions: tuple[Fn, ...] = (), outputs: tuple[str, ...] = ("Z",)) -> DrawnProgram:
    inputs = (
        DrawnInput("X", "f64", (one(3), one(4))),
        DrawnInput("V", "f64", (one(4),)),
        DrawnInput("ids", "i32", (one(3),)),
    )
    return DrawnProgram((DrawnDim("n", one(2)),), inputs, steps, outputs, functions)


def run(*steps: Step, functions: tuple[Fn, ...] = (), **inputs: Any) -> np.ndarray:
    given = {"X": X, "V": V, "ids": IDS} | inputs
    return evaluate(program(*steps, functions=functions), given)["Z"].values


def z(labels: str | tuple[Left, ...], body: Term, *others: Term) -> DrawnStatement:
    bounds = tuple(BoundTerm(label) for label in labels) if isinstance(labels, str) else labels
    return DrawnStatement("Z", bounds, body, others)


def last_line(step: Step, functions: tuple[Fn, ...] = ()) -> str:
    return program_text(program(step, functions=functions)).splitlines()[-2]


IDS_OF_S = AccessTerm("ids", ("s",))

EQUATIONS = [
    ("Z[i] = V[i + 1]", z("i", v(plus(AT_I, one(1)))), V[1:]),
    ("Z[i] = V[2 * i]", z("i", v(times(one(2), AT_I))), V[::2]),
    ("Z[i] = V[3 - i]", z("i", v(BinaryTerm("-", one(3), AT_I))), V[::-1]),
    ("Z[j] = X[0, j]", z("j", x(one(0), "j")), X[0]),
    ("Z[i: n] = V[i]", z((BoundTerm("i", SizeTerm("n")),), v("i")), V[:2]),
    ("Z[i: 8] = V[i // 2]", z((BoundTerm("i", one(8)),), v(BinaryTerm("//", AT_I, one(2)))), V.repeat(2)),
    ("Z[i: 5] = V[i % 2]", z((BoundTerm("i", one(5)),), v(BinaryTerm("%", AT_I, one(2)))), V[[0, 1, 0, 1, 0]]),
    (
        "Z[i: 4] = V[i - 1 ? 0]",
        z((BoundTerm("i", one(4)),), v(GuardedTerm(BinaryTerm("-", AT_I, one(1)), one(0)))),
        np.array([0, 3, 1, -2.0]),
    ),
    (
        "Z[j] = sum[p] V[j + p] * X[p, 0]",
        z("j", total("p", times(v(plus(AT_J, IndexTerm("p"))), x("p", one(0))))),
        np.array([V[j : j + 3] @ X[:, 0] for j in range(2)]),
    ),
    ("Z[s, d] = X[ids[s], d]", z("sd", x(IDS_OF_S, "d")), X[IDS]),
    ("Z[s] = V[ids[s] + 1]", z("s", v(plus(IDS_OF_S, one(1)))), V[IDS + 1]),
    (
        "Z[ids[s]: 4, d] = sum[s] X[s, d]",
        z((KeyedTerm(IDS_OF_S, one(4)), BoundTerm("d")), total("s", x("s", "d"))),
        np.stack([X[1] + X[2], 0 * X[0], X[0], 0 * X[0]]),
    ),
    (
        "Z[ids[s]: 4] = sum[s] 1",
        z((KeyedTerm(IDS_OF_S, one(4)),), total("s", one(1))),
        np.array([2, 0, 1, 0]),
    ),
    (
        "Z[ids[s]: 4, d] = argmax[s] X[s, d]",
        z((KeyedTerm(IDS_OF_S, one(4)), BoundTerm("d")), total("s", x("s", "d"), "argmax")),
        np.array([[2] * 4, [-1] * 4, [0] * 4, [-1] * 4]),
    ),
    (
        "Z[s, i // 2: 2] = mean[i] X[s, i]",
        z((BoundTerm("s"), KeyedTerm(BinaryTerm("//", AT_I, one(2)), one(2))), total("i", x("s", "i"), "mean")),
        X.reshape(3, 2, 2).mean(2),
    ),
    ("Z[:, j] = X[1:3, j]", z((ColonTerm(), BoundTerm("j")), x(SliceTerm(one(1), one(3)), "j")), X[1:3]),
    (
        "Z[i | j] = V[i] | X[0, j]",
        z((JoinedTerm((BoundTerm("i"), BoundTerm("j"))),), v("i"), x(one(0), "j")),
        np.concatenate([V, X[0]]),
    ),
    (
        "Z[i | j: 2] = V[i] | 0",
        z((JoinedTerm((BoundTerm("i"), BoundTerm("j", one(2)))),), v("i"), one(0)),
        np.concatenate([V, [0, 0]]),
    ),
    ("Z[(s d)] = X[s, d]", z((GroupTerm(("s", "d")),), x("s", "d")), X.ravel()),
    ("Z[a: 2, b] = V[(a b)]", z((BoundTerm("a", one(2)), BoundTerm("b")), v(GroupTerm(("a", "b")))), V.reshape(2, 2)),
]


@pytest.mark.parametrize("text, step, expected", EQUATIONS, ids=[e[0] for e in EQUATIONS])
def test_equations(text: str, step: DrawnStatement, expected: np.ndarray) -> None:
    assert last_line(step) == text
    assert_agrees(run(step), expected)


def test_each_slice_goes_with_its_colon() -> None:
    step = z((ColonTerm(), BoundTerm("j"), ColonTerm()), times(x(SliceTerm(None, one(2)), SliceTerm(one(1))), v("j")))
    assert last_line(step) == "Z[:, j, :] = X[:2, 1:] * V[j]"
    assert_agrees(run(step), np.einsum("ac,j->ajc", X[:2, 1:], V))


def test_a_number_on_the_left_replaces_a_slice() -> None:
    copy, change = z("ij", x("i", "j")), z((FixedTerm(one(1)), BoundTerm("j")), v("j"))
    assert last_line(change) == "Z[1, j] = V[j]"
    assert_agrees(run(copy, change), np.stack([X[0], V, X[2]]))


def test_indices_and_keys_out_of_range() -> None:
    with pytest.raises(IndexError, match="3"):
        run(z("sd", x(IDS_OF_S, "d")), ids=np.array([0, 3, 1], np.int32))
    with pytest.raises(IndexError, match="-1"):
        run(z((KeyedTerm(IDS_OF_S, one(4)),), total("s", one(1))), ids=np.array([0, -1, 1], np.int32))
    with pytest.raises(IndexError):
        run(z((BoundTerm("i", one(4)),), v(plus(AT_I, one(1)))))


def test_a_loop_rebinds_replaces_and_uses_its_number() -> None:
    body = (
        DrawnStatement(
            "h", (BoundTerm("j"),), plus(times(AccessTerm("h", ("j",)), SizeTerm("t")), x(SizeTerm("t"), "j"))
        ),
        z((FixedTerm(SizeTerm("t")), BoundTerm("j")), AccessTerm("h", ("j",))),
    )
    loop = DrawnLoop("t", one(1), one(3), body)
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
    start = DrawnStatement("h", (BoundTerm("j"),), v("j"))
    assert_agrees(run(start, z("ij", x("i", "j")), loop), expected)


def test_a_dtype_from_literals_gives_way_in_a_loop() -> None:
    loop = DrawnLoop("t", one(0), one(0), (z("", plus(AccessTerm("Z"), total("i", x(SizeTerm("t"), "i")))),))
    assert_agrees(run(z("", one(0)), loop), np.float64(0))
    strong = DrawnLoop("t", one(0), one(1), (z("s", times(AccessTerm("Z", ("s",)), NumberTerm(0.5))),))
    with pytest.raises(TypeError, match="loop"):
        run(z("s", IDS_OF_S), strong)


SOFTMAX = Fn(
    "softmax",
    (DrawnParameter("X", (RestTerm(), "j")),),
    (DrawnStatement("E", (RestTerm(), BoundTerm("j")), FunctionTerm("exp", (x(RestTerm(), "j"),))),),
    (BinaryTerm("/", AccessTerm("E", (RestTerm(), "j")), total("j", AccessTerm("E", (RestTerm(), "j")))),),
)


def test_a_function_over_the_last_axis() -> None:
    assert program_text(program(functions=(SOFTMAX,))).splitlines()[4:8] == [
        "fn softmax(X[..., j]) {",
        "  E[..., j] = exp(X[..., j])",
        "  return E[..., j] / sum[j] E[..., j]",
        "}",
    ]
    e = np.exp(X - 8)
    steps = z("ij", BinaryTerm("-", x("i", "j"), one(8))), z("ji", CallTerm(SOFTMAX, (AccessTerm("Z", ("i", "j")),)))
    assert last_line(steps[1], (SOFTMAX,)) == "Z[j, i] = softmax(Z[i, j])"
    assert_agrees(run(*steps, functions=(SOFTMAX,)), (e / e.sum(1, keepdims=True)).T, exact=False)
    causal = FunctionTerm(
        "where", (ComparisonTerm(("<=",), (AT_J, AT_I)), x("i", "j"), UnaryTerm("-", NumberTerm(np.inf)))
    )
    masked = np.exp(np.where(np.arange(4) <= np.arange(3)[:, None], X, -np.inf))
    found = run(z("ij", CallTerm(SOFTMAX, (causal,))), functions=(SOFTMAX,))
    assert_agrees(found, masked / masked.sum(1, keepdims=True), exact=False)


def test_arguments_whose_labels_repeat_take_no_diagonal() -> None:
    scores = Fn(
        "scores",
        (DrawnParameter("Q", ("s", "d")), DrawnParameter("K", ("t", "d"))),
        (
            DrawnStatement(
                "S",
                (BoundTerm("s"), BoundTerm("t")),
                total("d", times(AccessTerm("Q", ("s", "d")), AccessTerm("K", ("t", "d")))),
            ),
        ),
        (BinaryTerm("/", total("t", AccessTerm("S", ("s", "t"))), SizeTerm("d")),),
    )
    assert_agrees(run(z("i", CallTerm(scores, (x("i", "j"), x("i", "j")))), functions=(scores,)), (X @ X.T).sum(1) / 4)


def test_labels_that_a_function_makes_take_the_next_on_the_left() -> None:
    cov = Fn("cov", (DrawnParameter("X", ("n", "d")),), (), (total("n", times(x("n", "d"), x("n", "e"))),))
    assert last_line(z("de", CallTerm(cov, (x("m", "d"),))), (cov,)) == "Z[d, e] = cov(X[m, d])"
    assert_agrees(run(z("ba", CallTerm(cov, (x("m", "a"),))), functions=(cov,)), X.T @ X)


def test_scalars_sizes_and_defaults() -> None:
    eps = DrawnParameter("eps", None, NumberTerm(0.5))
    swish = Fn(
        "swish", (DrawnParameter("x"), eps), (), (times(AccessTerm("x"), plus(AccessTerm("x"), AccessTerm("eps"))),)
    )
    called = CallTerm(swish, (v("i"),), (("eps", one(2)),))
    assert last_line(z("i", called), (swish,)) == "Z[i] = swish(V[i], eps = 2)"
    assert_agrees(run(z("i", called), functions=(swish,)), V * (V + 2))
    assert_agrees(run(z("i", CallTerm(swish, (v("i"),))), functions=(swish,)), V * (V + 0.5))
    head = Fn(
        "head",
        (DrawnParameter("A", ("i",)), DrawnParameter("k")),
        (),
        (total("i", times(AccessTerm("A", ("i",)), SizeTerm("k"))),),
    )
    first = Fn(
        "first",
        (DrawnParameter("A", ("i",)), DrawnParameter("k")),
        (DrawnStatement("B", (BoundTerm("j", SizeTerm("k")),), AccessTerm("A", ("j",))),),
        (CallTerm(head, (AccessTerm("B", ("j",)), SizeTerm("i"))),),
    )
    assert_agrees(
        run(z("", CallTerm(first, (v("i"), SizeTerm("n")))), functions=(head, first)), np.float64(4 * V[:2].sum())
    )


def test_several_results() -> None:
    f = Fn(
        "f",
        (DrawnParameter("A", ("i", "j")),),
        (),
        (total("i", AccessTerm("A", ("i", "j"))), AccessTerm("A", ("i", "j"))),
    )
    step = DrawnSeveral(
        (("V", (BoundTerm("b"),)), ("X", (BoundTerm("b"), BoundTerm("a")))), CallTerm(f, (x("a", "b"),))
    )
    assert last_line(step, (f,)) == "V[b], X[b, a] = f(X[a, b])"
    assert_agrees(run(step, z("ij", times(x("i", "j"), v("i"))), functions=(f,)), X.T * X.sum(0)[:, None])


def test_a_function_within_the_sum_of_its_own_argument() -> None:
    rows = Fn("rows", (DrawnParameter("A", ("i", "j")),), (), (total("j", AccessTerm("A", ("i", "j"))),))
    step = z("ij", BinaryTerm("/", x("i", "j"), plus(one(1), CallTerm(rows, (x("i", "j"),)))))
    assert_agrees(run(step, functions=(rows,)), X / (1 + X.sum(1, keepdims=True)), exact=False)
