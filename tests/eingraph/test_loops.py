"""Loops unrolled, slices replaced, concatenations: their results, and the nodes that remain."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.core.errors import InternalError, SourceError
from einturnip.eingraph.check import check
from einturnip.eingraph.pieces import visible_pieces
from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, TensorPiece
from einturnip.ir.dtypes import F64
from einturnip.ir.einsum import Index
from einturnip.lang.expressions import AccessExpr, SizeExpr
from einturnip.lang.program import Carried, Concatenate, Equation, Loop, PlanHint, Replace, Statement, TypedProgram
from tests.eingraph.programs import (
    HERE,
    aggregate,
    at_index,
    call,
    equation,
    given,
    graph_of,
    guarded,
    integers,
    label,
    number,
    op,
    program,
    read,
    results,
    size,
    sized,
)
from tests.reference.eingraph import evaluate


def loop(variable: str, start: int | str, stop: int | str, carried: list[Carried], *body: Statement) -> Loop:
    return Loop(variable, size(start), size(stop), tuple(carried), body, HERE)


def carried(name: str, tensor: int, initial: int, last: int, rank: int) -> Carried:
    return Carried(name, tensor, initial, last, rank, F64, "strong", HERE)


def replaced(name: str, tensor: int, base: int, piece: int, *places: int | str | SizeExpr | None) -> Replace:
    sizes = tuple(None if p is None else size(p) for p in places)
    return Replace(name, tensor, base, piece, sizes, F64, "strong", HERE)


def joined(name: str, tensor: int, axis: int, rank: int, *parts: int) -> Concatenate:
    return Concatenate(name, tensor, axis, parts, rank, F64, "strong", HERE)


def layers() -> TypedProgram:
    """``for l in 0 .. L { X[s,e] = relu(sum[d] X[s,d] * W[l,d,e]) + l }``."""
    product = aggregate("sum", [2], call("mul", read(2, 0, 2), read(1, at_index(offset="l"), 2, 1)))
    step = equation("X", 3, ["s", "e", "d"], 2, call("add", call("relu", product), sized("l")))
    return program(
        given("X", 0, "s", "d"), given("W", 1, "L", "d", "d"),
        loop("l", 0, "L", [carried("X", 2, 0, 3, 2)], step), outputs={"X": 2},
    )  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 4])
def test_layers(n: int) -> None:
    x, w = integers(3, 2), integers(n, 2, 2)
    expected = x
    for layer in range(n):
        expected = np.maximum(expected @ w[layer], 0) + layer
    np.testing.assert_array_equal(results(layers(), X=x, W=w)["X"], expected)


def history(steps: str = "T") -> TypedProgram:
    """``H[t, d] = 0; h = x[0]; for t in 0 .. T { h[d] = h[d] + x[t, d]; H[t, d] = h[d] }``, H[t-1] read back."""
    zeros = equation("H", 1, [label("t", "T"), label("d", "d")], 2, number(0))
    body = equation("h", 3, ["d"], 1, call("add", read(0, at_index(offset="t"), 0), back()))
    return program(
        given("x", 0, "T", "d"), zeros,
        loop("t", 0, steps, [carried("H", 2, 1, 4, 2)], body, replaced("H", 4, 2, 3, "t", None)), outputs={"H": 2},
    )  # fmt: skip


def back() -> AccessExpr:
    """``H[t - 1 ? 1, d]``."""
    return read(2, guarded(at_index(offset=op("sub", "t", 1)), 1.0), 0)


def test_a_history_is_put_together_once_from_its_steps() -> None:
    x = integers(6, 3)
    expected, h = np.zeros((6, 3)), np.ones(3)
    for t in range(6):
        h = x[t] + h
        expected[t] = h
    made = history()
    np.testing.assert_array_equal(results(made, x=x)["H"], expected)
    graph = rewrite(graph_of(made, x=x))
    (node,) = [n for n in graph.nodes if isinstance(n, ConcatNode)]
    assert len(node.pieces) == 6 and [p.offsets for p in node.pieces] == [(t, 0) for t in range(6)]
    assert all(isinstance(graph.nodes[o], EinsumNode) for o in node.operands)
    np.testing.assert_array_equal(results(made, x=integers(1, 3))["H"], integers(1, 3) + 1)


def test_a_base_that_shows_through_stays() -> None:
    x = integers(6, 3)
    made = history("d")
    expected, h = np.zeros((6, 3)), np.ones(3)
    for t in range(3):
        h = x[t] + h
        expected[t] = h
    np.testing.assert_array_equal(results(made, x=x)["H"], expected)
    (node,) = [n for n in rewrite(graph_of(made, x=x)).nodes if isinstance(n, ConcatNode)]
    assert len(node.pieces) == 4


def test_nested_loops_and_a_swap() -> None:
    """Fibonacci twice over, by a swap: ``a, b = b, a + b`` in an inner loop of ``i`` steps."""
    swap = [
        equation("c", 6, [], 0, call("add", read(4), read(5))),
        equation("a", 7, [], 0, call("mul", read(5), sized("j"))),
        equation("b", 8, [], 0, read(6)),
    ]
    inner = loop("j", "i", 4, [carried("a", 4, 2, 7, 0), carried("b", 5, 3, 8, 0)], *swap)
    outer = loop("i", 1, 4, [carried("a", 2, 0, 4, 0), carried("b", 3, 1, 5, 0)], inner)
    found = results(program(given("a", 0), given("b", 1), outer, outputs={"a": 2, "b": 3}),
                    a=np.array(1.0), b=np.array(1.0))  # fmt: skip
    a, b = 1, 1
    for i in range(1, 4):
        for j in range(i, 4):
            a, b = b * j, a + b
    assert (found["a"], found["b"]) == (a, b)


def test_an_iteration_with_another_shape() -> None:
    """``for t in 0 .. n { P[i: t + 1] = x[i]; s = s + sum[i] P[i] }``."""
    body = [
        equation("P", 3, [label("i", op("add", "t", 1))], 1, read(0, 0)),
        equation("s", 4, ["i"], 0, call("add", read(2), aggregate("sum", [0], read(3, 0)))),
    ]
    made = program(given("x", 0, "n"), equation("s", 1, [], 0, number(0)),
                   loop("t", 0, "n", [carried("s", 2, 1, 4, 0)], *body), outputs={"s": 2})  # fmt: skip
    x = integers(5)
    assert results(made, x=x)["s"] == np.cumsum(x).sum()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            [equation("y", 2, [label("i", op("sub", 3, "t"))], 1, read(1, 0), line=4)],
            ["E212", "in the iteration t = 1"],
        ),
        ([equation("y", 2, [label("i", 3)], 1, read(1, at_index(offset="t")))], ["E209", "the iteration t = 3"]),
        ([equation("y", 2, [label("i", 3)], 1, read(0, at_index(0, offset=1)))], ["E209", "iteration t = 0"]),
        ([equation("y", 2, ["q"], 1, number(1))], ["E206", "in the iteration t = 0"]),
    ],
)
def test_what_is_wrong_in_a_loop_is_said_once_with_its_iteration(body: list[Equation], words: list[str]) -> None:
    made = program(given("x", 0, "n"), loop("t", 0, 5, [carried("y", 1, 0, 2, 1)], *body), outputs={"y": 1})
    with pytest.raises(SourceError) as caught:
        graph_of(made, x=np.ones(3))
    assert len(caught.value.diagnostics) == 1
    for word in words:
        assert word in str(caught.value)


def test_tensors_side_by_side() -> None:
    x, y, z = integers(2, 3), integers(4, 3), integers(2, 0)
    inputs = [given("X", 0, "n", "d"), given("Y", 1, "m", "d"), given("Z", 2, "n", "k")]
    rows, columns = joined("R", 3, 0, 2, 0, 1, 0), joined("C", 4, 1, 2, 0, 2, 0)
    first = equation("F", 5, ["d"], 1, read(3, at_index(offset=3), 0))
    middle = equation("M", 6, [label("i", 3), "d"], 2, read(3, at_index(0, offset=2), 1))
    across = equation("A", 7, [label("i", 3), "d"], 2, read(3, at_index(0, offset=1), 1))
    made = program(*inputs, rows, columns, first, middle, across,
                   outputs={"R": 3, "C": 4, "F": 5, "M": 6, "A": 7})  # fmt: skip
    whole = np.concatenate([x, y, x])
    found = results(made, X=x, Y=y, Z=z)
    expected = {"R": whole, "C": np.concatenate([x, z, x], 1), "F": whole[3], "M": whole[2:5], "A": whole[1:4]}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    graph = rewrite(graph_of(made, X=x, Y=y, Z=z))
    reads = {n.name: graph.nodes[n.operands[0]].name for n in graph.nodes if isinstance(n, EinsumNode)}
    assert reads == {"F": "Y", "M": "Y", "A": "R"}


def test_nothing_side_by_side_with_nothing() -> None:
    made = program(given("X", 0, "n"), joined("R", 1, 0, 1, 0, 0), outputs={"R": 1})
    assert results(made, X=np.zeros(0))["R"].shape == (0,)
    same = program(given("X", 0, "n"), joined("R", 1, 0, 1, 0), outputs={"R": 1})
    np.testing.assert_array_equal(results(same, X=np.ones(2))["R"], np.ones(2))


def test_sizes_of_pieces_that_do_not_fit_are_errors() -> None:
    x = given("X", 0, "n", "d")
    row = equation("r", 1, [label("d", op("sub", "d", 1))], 1, number(1))
    for statement, words in (
        (replaced("X", 2, 0, 1, 0, None), "the slice has 2 elements along axis 1 of X, which has 3"),
        (replaced("X", 2, 0, 1, 5, None), "index '5' leaves axis 0 of X"),
    ):
        with pytest.raises(SourceError, match=words):
            graph_of(program(x, row, statement, outputs={"X": 2}), X=np.ones((4, 3)))
    y = given("Y", 1, "m", "e")
    with pytest.raises(SourceError, match="3 and 2 elements along axis 1"):
        graph_of(program(x, y, joined("R", 2, 0, 2, 0, 1), outputs={"R": 2}), X=np.ones((4, 3)), Y=np.ones((4, 2)))


def test_one_element_replaced_and_read_back_through_many_versions() -> None:
    """``for t in 0 .. n { D[t] = D[0] + x[t] }`` after ``D[i] = x[i]``: every version's first element is x[0]'s."""
    start = equation("D", 1, ["i"], 1, call("mul", read(0, 0), number(2)))
    value = equation("D.t", 3, [], 0, call("add", read(2, at_index(offset=0)), read(0, at_index(offset="t"))))
    made = program(given("x", 0, "n"), start,
                   loop("t", 1, "n", [carried("D", 2, 1, 4, 1)], value, replaced("D", 4, 2, 3, "t")),
                   outputs={"D": 2})  # fmt: skip
    x = integers(5)
    expected = 2 * x
    for t in range(1, 5):
        expected[t] = expected[0] + x[t]
    np.testing.assert_array_equal(results(made, x=x)["D"], expected)


def test_equal_iterations_share_their_einsums() -> None:
    """A thousand steps of ``x[i] = sum[j] A[i,j] * x[j]`` are one einsum, and rewriting keeps it so."""
    step = equation("x", 3, ["i", "j"], 1, aggregate("sum", [1], call("mul", read(1, 0, 1), read(2, 1))))
    made = program(given("x", 0, "n"), given("A", 1, "n", "n"), loop("t", 0, 1000, [carried("x", 2, 0, 3, 1)], step),
                   outputs={"x": 2})  # fmt: skip
    graph = graph_of(made, x=np.ones(3), A=np.ones((3, 3)))
    for floor in (graph, rewrite(graph)):
        einsums = [n.einsum for n in floor.nodes if isinstance(n, EinsumNode)]
        assert len(einsums) == 1000 and len({id(e) for e in einsums}) == 1


def test_hints_stand_on_the_nodes_of_their_statement() -> None:
    hints = [
        PlanHint("tile", ((0, size(2), False), (2, size(2), True)), "", HERE),
        PlanHint("place", (), "cpu:0", HERE),
        PlanHint("keep", (), "", HERE),
    ]
    value = aggregate("sum", [2], call("mul", read(0, 0, 2), read(0, 2, 1)))
    made = program(given("A", 0, "n", "n"), equation("C", 1, ["i", "j", "k"], 2, value, hints=hints), outputs={"C": 1})
    for graph in (graph_of(made, A=np.ones((5, 5))), rewrite(graph_of(made, A=np.ones((5, 5))))):
        node = graph.nodes[-1]
        assert isinstance(node, EinsumNode)
        assert node.hints.tiles == ((0, 2), (2, 3)) and node.hints.device == "cpu:0" and node.hints.keep
    wrong = equation("C", 1, ["i", "j", "k"], 2, value, hints=[PlanHint("tile", ((0, size(0), False),), "", HERE)])
    with pytest.raises(SourceError, match="E213"):
        graph_of(program(given("A", 0, "n", "n"), wrong, outputs={"C": 1}), A=np.ones((5, 5)))


def test_a_hinted_tensor_is_made() -> None:
    double = equation("B", 1, ["i"], 1, call("add", read(0, 0), number(1)), hints=[PlanHint("keep", (), "", HERE)])
    made = program(given("A", 0, "n"), double, equation("C", 2, ["i"], 1, call("exp", read(1, 0))), outputs={"C": 2})
    assert [n.name for n in rewrite(graph_of(made, A=np.ones(5))).nodes] == ["A", "B", "C"]


def test_pieces_that_are_seen() -> None:
    whole, left, right, bottom = ((0, 4), (0, 4)), ((0, 4), (0, 2)), ((0, 4), (2, 4)), ((2, 4), (0, 4))
    assert visible_pieces((4, 4), [whole, left]) == ([0, 1], True)
    assert visible_pieces((4, 4), [whole, left, right]) == ([1, 2], True)
    assert visible_pieces((4, 4), [left, right, bottom, whole]) == ([3], True)
    assert visible_pieces((4, 4), [left, bottom]) == ([0, 1], False)
    assert visible_pieces((0, 4), []) == ([], True)


def test_check_finds_gaps_and_pieces_outside() -> None:
    x = InputNode("x", (2,), F64, 1)
    good = ConcatNode("z", (4,), F64, (TensorPiece(0, (0,), (0,)), TensorPiece(0, (0,), (2,))), 2)
    graph = EinGraph((x, good), (("z", 1),), "p")
    check(graph)
    assert "x at [0] | x at [2]" in show(graph)
    assert to_json(graph)[1]["inputs"] == [
        {"node": 0, "labels": ["i0"], "offsets": [0]},
        {"node": 0, "labels": ["i0"], "offsets": [2]},
    ]
    for pieces, words in (
        ((TensorPiece(0, (0,), (0,)), TensorPiece(0, (0,), (1,))), "leave a gap"),
        ((TensorPiece(0, (0,), (0,)), TensorPiece(0, (0,), (3,))), "a piece at"),
        ((TensorPiece(1, (0,), (0,)),), "not an earlier node"),
    ):
        bad = ConcatNode("z", (4,), F64, pieces, 2)
        with pytest.raises(InternalError, match=words):
            check(EinGraph((x, bad), (("z", 1),), "p"))


def test_an_index_in_text_and_json() -> None:
    made = program(
        given("X", 0, "n"), equation("Y", 1, ["i"], 1, read(0, at_index((0, -2), offset=5))), outputs={"Y": 1}
    )
    graph = graph_of(made, X=np.ones(7))
    assert "Y[i] : f64 3 = X[-2*i + 5]" in show(graph)
    assert to_json(graph)[1]["inputs"] == [{"node": 0, "labels": ["-2*i + 5"]}]
    assert evaluate(graph, {"X": np.arange(7.0)})["Y"].tolist() == [5, 3, 1]
    node = graph.nodes[1]
    assert isinstance(node, EinsumNode) and node.einsum.accesses == ((Index(((0, -2),), 5),),)
