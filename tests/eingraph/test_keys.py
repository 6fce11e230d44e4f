"""Gather and scatter: indices that are data, each against loops over plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.core.errors import OutOfRange
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.dtypes import BOOL, I32
from einturnip.ir.operators import Array
from einturnip.lang.expressions import ConvertExpr, Expr
from tests.eingraph.programs import (
    HERE,
    LONG,
    aggregate,
    at_index,
    call,
    data,
    equation,
    given,
    graph_of,
    guarded,
    index_of,
    integers,
    label,
    number,
    program,
    read,
    results,
)
from tests.reference.eingraph import evaluate

E, IDS = given("E", 0, "v", "d"), given("ids", 1, "s", dtype=I32)


def long(expr: Expr) -> ConvertExpr:
    """An index as i64."""
    return ConvertExpr(expr, LONG, "strong", False, HERE)


def ids(label: int) -> Expr:
    """``ids[label]`` as an index."""
    return long(read(1, label, dtype=I32))


def test_a_gather_is_a_node_that_picks() -> None:
    made = program(E, IDS, equation("H", 2, ["s", "d"], 2, read(0, data(ids(0)), 1)), outputs={"H": 2})
    e, i = integers(6, 4), np.array([5, 0, 0, 3, 5], np.int32)
    np.testing.assert_array_equal(results(made, E=e, ids=i)["H"], e[i])
    graph = rewrite(graph_of(made, E=e, ids=i))
    node = graph.nodes[-1]
    assert isinstance(node, EinsumNode) and node.einsum.labels[:2] == ("s", "d") and node.einsum.bounds == (5, 4, 6)
    assert node.einsum.aggregation is not None and node.einsum.aggregation.op == "pick"
    assert [key.label for key in node.einsum.keys] == [2]
    for wrong in (-1, 6):
        with pytest.raises(OutOfRange, match=f"index {wrong} at s = 1"):
            evaluate(graph, {"E": e, "ids": np.array([5, wrong, 0, 3, 5], np.int32)})


def test_several_gathers_in_one_access_and_arithmetic_around_them() -> None:
    twice = call("mod", call("mul", ids(0), number(2, LONG)), number(4, LONG))
    value = call("mul", read(0, data(ids(0)), data(twice)), number(3))
    both = equation("H", 2, ["s"], 1, value)
    pair = equation("G", 3, ["s", "t"], 2, read(0, data(ids(0)), data(call("mod", ids(1), number(3, LONG)))))
    e, i = integers(6, 4), np.array([5, 0, 3], np.int32)
    found = results(program(E, IDS, both, pair, outputs={"H": 2, "G": 3}), E=e, ids=i)
    np.testing.assert_array_equal(found["H"], 3 * e[i, 2 * i % 4])
    np.testing.assert_array_equal(found["G"], e[i[:, None], i[None, :] % 3])


def test_gathers_beside_other_indices() -> None:
    e, i = integers(6, 9), np.array([5, 0, 3], np.int32)
    value = aggregate("sum", [2], read(0, data(ids(0)), at_index(1, 2)))
    made = program(E, IDS, equation("H", 2, ["s", "j", label("p", 3)], 2, value), outputs={"H": 2})
    windows = np.lib.stride_tricks.sliding_window_view(e, 3, axis=1).sum(-1)
    np.testing.assert_array_equal(results(made, E=e, ids=i)["H"], windows[i])
    diagonal = equation("H", 2, ["s"], 1, read(0, data(ids(0)), at_index((0, 2), offset=1)))
    found = results(program(E, IDS, diagonal, outputs={"H": 2}), E=e, ids=i)["H"]
    np.testing.assert_array_equal(found, e[i, 2 * np.arange(3) + 1])


def test_a_guarded_gather_fills_and_never_stops() -> None:
    e, i = integers(6, 4), np.array([5, -1, 6, 3, 1000], np.int32)
    fill = call("add", ConvertExpr(index_of(1), number(0).dtype, "weak", False, HERE), number(10))
    value = read(0, guarded(data(ids(0)), fill), guarded(at_index(1, offset=-1), -5.0))
    made = program(E, IDS, equation("H", 2, ["s", label("d", 5)], 2, value), outputs={"H": 2})
    expected = np.empty((5, 5))
    for s in range(5):
        for d in range(5):
            expected[s, d] = d + 10 if not 0 <= i[s] < 6 else -5 if d < 1 else e[i[s], d - 1]
    np.testing.assert_array_equal(results(made, E=e, ids=i)["H"], expected)
    empty = results(made, E=np.zeros((0, 4)), ids=i)["H"]
    np.testing.assert_array_equal(empty, np.tile(np.arange(5.0) + 10, (5, 1)))


def test_a_gather_from_a_gather_and_from_a_computed_table() -> None:
    e, i = integers(6, 4), np.array([5, 0, 3, 1, 2, 4], np.int32)
    table = equation("T", 2, ["a", "b"], 2, call("mul", read(0, 0, 1), number(2)))
    inner = long(read(1, data(ids(0)), dtype=I32))
    made = program(E, IDS, table, equation("H", 3, ["s", "d"], 2, read(2, data(inner), 1)), outputs={"H": 3})
    np.testing.assert_array_equal(results(made, E=e, ids=i)["H"], 2 * e[i[i]])
    last = rewrite(graph_of(made, E=e, ids=i)).nodes[-1]
    assert isinstance(last, EinsumNode) and len(last.operands) == 2


KEYS, X = given("k", 0, "n", dtype=I32), given("X", 1, "n", "d")


def groups(op: str, x: Array, k: Array, g: int) -> Array:
    """Rows grouped by key, by loops."""
    start = {"sum": 0.0, "max": -np.inf, "prod": 1.0, "mean": np.nan}[op]
    out = np.full((g, x.shape[1]), start)
    for group in range(g):
        for d in range(x.shape[1]):
            values = [x[i, d] for i in range(len(k)) if k[i] == group]
            if values:
                out[group, d] = {"sum": sum, "max": max, "prod": np.prod, "mean": np.mean}[op](values)
    return out


@pytest.mark.parametrize("op", ["sum", "max", "prod", "mean"])
def test_a_scatter_groups_and_empty_groups_hold_the_identity(op: str) -> None:
    x, k = integers(7, 3), np.array([0, 3, 3, 0, 4, 3, 0], np.int32)
    value = aggregate(op, [2], call("mul", read(1, 2, 1), number(2)))
    made = program(
        KEYS, X, equation("Y", 2, [label("u", 6), "d", "i"], 2, value, [(0, long(read(0, 2, dtype=I32)))]),
        outputs={"Y": 2},
    )  # fmt: skip
    np.testing.assert_array_equal(results(made, k=k, X=x)["Y"], groups(op, 2 * x, k, 6))
    with pytest.raises(OutOfRange):
        evaluate(graph_of(made, k=k, X=x), {"k": k + 3, "X": x})


def test_counting_by_two_keys_and_the_first_of_a_group() -> None:
    k = np.array([0, 3, 3, 0, 2, 3, 0], np.int32)
    key, parity = long(read(0, 2, dtype=I32)), call("mod", index_of(2), number(2, LONG))
    count = aggregate("sum", [2], number(1, LONG))
    both = equation("C", 1, [label("u", 4), label("v", 2), "i"], 2, count, [(0, key), (1, parity)])
    first = aggregate("argmax", [1], call("eq", read(0, 1, dtype=I32), read(0, 1, dtype=I32), dtype=BOOL))
    heads = equation("F", 2, [label("u", 4), "i"], 1, first, [(0, long(read(0, 1, dtype=I32)))])
    found = results(program(KEYS, both, heads, outputs={"C": 1, "F": 2}), k=k)
    expected = np.zeros((4, 2), np.int64)
    for i, g in enumerate(k):
        expected[g, i % 2] += 1
    np.testing.assert_array_equal(found["C"], expected)
    np.testing.assert_array_equal(found["F"], [0, -1, 4, 1])


def test_a_scatter_of_labels_of_the_left_and_of_products() -> None:
    """``Y[d, k[i]: g] = sum[i] w[i] * X[i, d]``: factors stay inside a sum by key."""
    x, k, w = integers(7, 3), np.array([0, 3, 3, 0, 4, 3, 0], np.int32), integers(7, seed=4)
    value = aggregate("sum", [2], call("mul", read(2, 2), read(1, 2, 0)))
    made = program(
        KEYS, X, given("w", 2, "n"),
        equation("Y", 3, ["d", label("u", 5), "i"], 2, value, [(1, long(read(0, 2, dtype=I32)))]), outputs={"Y": 3},
    )  # fmt: skip
    np.testing.assert_array_equal(results(made, k=k, X=x, w=w)["Y"], groups("sum", w[:, None] * x, k, 5).T)
