"""Index arithmetic: ranges of labels, bounds, guards, splits; each against loops over plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from einturnip.core.errors import SourceError
from einturnip.eingraph.indices import affine, inside, normal
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Index, contraction
from einturnip.ir.operators import Array
from einturnip.lang.expressions import AxisSize, Expr, SplitIndex
from einturnip.lang.expressions import Index as ProgramIndex
from einturnip.lang.program import EquationLabel, InputDef, TypedProgram
from tests.eingraph.programs import (
    HERE,
    aggregate,
    at_index,
    call,
    equation,
    given,
    graph_of,
    guarded,
    index_of,
    integers,
    label,
    number,
    op,
    program,
    read,
    results,
    sized,
)

X = given("X", 0, "n")


def one(value: Expr, labels: Sequence[str | EquationLabel], n_out: int, *inputs: InputDef) -> TypedProgram:
    """A program of one equation over its inputs, ``Y``."""
    return program(*inputs, equation("Y", len(inputs), labels, n_out, value), outputs={"Y": len(inputs)})


def test_a_convolution_takes_its_window_from_the_kernel_and_stays_a_product_of_two() -> None:
    value = aggregate("sum", [2, 3], call("mul", read(0, at_index(0, 2), at_index(1, 3)), read(1, 2, 3)))
    made = one(value, ["i", "j", "p", "q"], 2, given("X", 0, "n", "m"), given("W", 1, "k", "l"))
    x, w = integers(7, 6), integers(3, 2, seed=5)
    expected = np.zeros((5, 5))
    for i in range(5):
        for j in range(5):
            expected[i, j] = (x[i : i + 3, j : j + 2] * w).sum()
    np.testing.assert_array_equal(results(made, X=x, W=w)["Y"], expected)
    (node,) = [n for n in rewrite(graph_of(made, X=x, W=w)).nodes if isinstance(n, EinsumNode)]
    assert len(node.operands) == 2 and node.einsum.bounds == (5, 5, 3, 2)
    assert node.einsum.shapes == ((7, 6), (3, 2))


@pytest.mark.parametrize(
    ("index", "bound", "expected"),
    [
        (at_index(0, offset=2), None, lambda x: x[2:]),
        (at_index((0, 2)), None, lambda x: x[::2]),
        (at_index((0, 2), offset=1), None, lambda x: x[1::2]),
        (at_index((0, -1), offset=op("sub", "n", 1)), None, lambda x: x[::-1]),
        (at_index((0, -2), offset=5), None, lambda x: x[5::-2]),
        (at_index(0, divisor=2), None, lambda x: np.repeat(x, 2)),
        (at_index(0, offset=1, divisor=3), None, lambda x: np.repeat(x, 3)[1:]),
        (at_index(0, modulus=3), 8, lambda x: np.tile(x[:3], 3)[:8]),
        (at_index((0, 3), offset=1, divisor=2, modulus=4), 9, lambda x: x[(3 * np.arange(9) + 1) // 2 % 4]),
        (0, 4, lambda x: x[:4]),
        (at_index(0), 4, lambda x: x[:4]),
        (at_index(0, 0), 3, lambda x: x[:6:2]),
        (at_index(offset=2), 3, lambda x: np.full(3, x[2])),
        (at_index((0, 0), offset=op("sub", "n", 1)), 3, lambda x: np.full(3, x[-1])),
        (at_index(offset=0), 0, lambda x: x[:0]),
    ],
)
def test_an_index_ranges_as_far_as_it_can_or_as_is_written(
    index: ProgramIndex, bound: int | None, expected: Callable[[Array], Array]
) -> None:
    for n in (7, 10):
        x = integers(n)
        found = results(one(read(0, index), [label("i", bound)], 1, X), X=x)["Y"]
        np.testing.assert_array_equal(found, expected(x))


def test_differences_and_a_window_of_two_labels_with_one_written() -> None:
    x = integers(6)
    value = call("sub", read(0, at_index(0, offset=1)), read(0, 0))
    made = one(value, [label("i", op("sub", "n", 1))], 1, X)
    np.testing.assert_array_equal(results(made, X=x)["Y"], np.diff(x))
    windows = one(read(0, at_index(0, 1)), ["i", label("p", 3)], 2, X)
    np.testing.assert_array_equal(results(windows, X=x)["Y"], np.lib.stride_tricks.sliding_window_view(x, 3))


@pytest.mark.parametrize(
    ("value", "labels", "words"),
    [
        (read(0, at_index(0, offset=1)), [label("i", "n")], ["E209", "1 .. 5", "axis 0 of X", "0 .. 4", "[i: 4]"]),
        (read(0, at_index(0, offset=-1)), ["i"], ["E209", "-1", "0 .. 4"]),
        (read(0, at_index((0, -1), offset="n")), ["i"], ["E209", "it is 5"]),
        (read(0, at_index(offset=5)), [label("i", 2)], ["E209", "it is 5", "0 .. 4"]),
        (read(0, 0), [label("i", 6)], ["E209", "index 'i'", "0 .. 5", "axis 0 of X"]),
        (call("add", read(0, 0), read(0, at_index(0, offset=1))), ["i"], ["E209", "1 .. 5"]),
        (read(0, at_index(0, 1)), ["i", "p"], ["E206", "label 'i' has no size", "label 'p' has no size", "[p: n]"]),
        (read(0, at_index(0, modulus=3)), ["i"], ["E206", "[i: n]"]),
        (read(0, at_index(0, divisor=0)), [label("i", 2)], ["E211", "// 0"]),
        (read(0, guarded(0, 0.0)), ["i"], ["E206"]),
        (call("add", index_of(0), sized("n", number(0).dtype)), [label("i", op("sub", 1, "n"))], ["E201"]),
        (read(0, SplitIndex((0, 1), HERE)), ["h", label("e", 2)], ["E210", "(h e)", "no multiple of 2"]),
        (read(0, SplitIndex((0, 1), HERE)), [label("h", 3), label("e", 2)], ["E210", "not h = 3 * e = 2"]),
        (read(0, SplitIndex((0, 1), HERE)), ["h", "e"], ["E206"]),
    ],
)
def test_what_leaves_its_axis_or_has_no_size_says_so(
    value: Expr, labels: Sequence[str | EquationLabel], words: Sequence[str]
) -> None:
    with pytest.raises(SourceError) as caught:
        results(one(value, labels, len(labels), X), X=integers(5))
    for word in words:
        assert word in str(caught.value)


def test_a_label_alone_on_two_axes_must_agree_unless_its_size_is_written() -> None:
    a, b = given("A", 0, "n"), given("B", 1, "m")
    value = call("add", read(0, 0), read(1, 0))
    with pytest.raises(SourceError, match="E207"):
        results(one(value, ["i"], 1, a, b), A=integers(5), B=integers(4))
    x, y = integers(5), integers(4, seed=3)
    np.testing.assert_array_equal(results(one(value, [label("i", 3)], 1, a, b), A=x, B=y)["Y"], x[:3] + y[:3])
    # A function's parameter's label is a dim: it may not be shorter.
    of_parameter = label("i", dim=AxisSize(1, 0, "i", HERE))
    with pytest.raises(SourceError, match="E207"):
        results(one(value, [of_parameter], 1, a, b), A=x, B=y)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_guard_fills_what_is_outside(n: int) -> None:
    x = integers(n)
    value = call("add", read(0, guarded(at_index(0, offset=-1), 9.0)), read(0, guarded(at_index(0, offset=1), -9.0)))
    found = results(one(value, [label("i", "n")], 1, X), X=x)["Y"]
    padded = np.concatenate([[9.0], x, [-9.0]])
    np.testing.assert_array_equal(found, padded[:-2] + padded[2:] if n else x)


def test_the_first_guard_outside_counts_and_a_fill_may_be_anything() -> None:
    x, f = integers(3, 4), integers(5)
    fill = read(1, 0)
    value = read(0, guarded(at_index(0, offset=-1), 100.0), guarded(at_index((1, 2), offset=-2), fill))
    made = one(value, [label("i", 5), label("j", 4)], 2, given("X", 0, "n", "m"), given("F", 1, "k"))
    expected = np.empty((5, 4))
    for i in range(5):
        for j in range(4):
            inside = 0 <= i - 1 < 3, 0 <= 2 * j - 2 < 4
            expected[i, j] = 100 if not inside[0] else f[i] if not inside[1] else x[i - 1, 2 * j - 2]
    np.testing.assert_array_equal(results(made, X=x, F=f)["Y"], expected)


def test_a_guard_of_an_empty_axis_is_its_fill() -> None:
    value = read(0, guarded(0, 1.0), guarded(at_index(1, offset=-3), 2.0))
    made = one(value, [label("i", 2), label("j", 4)], 2, given("X", 0, "n", "m"))
    np.testing.assert_array_equal(results(made, X=np.zeros((0, 3)))["Y"], np.ones((2, 4)))
    expected = [[0 if i < 1 and j == 3 else 1 if i >= 1 else 2 for j in range(4)] for i in range(2)]
    np.testing.assert_array_equal(results(made, X=np.zeros((1, 1)))["Y"], expected)


def test_a_guard_that_always_holds_asks_nothing() -> None:
    graph = graph_of(one(read(0, guarded(at_index(0, offset=1), 7.0)), [label("i", 3)], 1, X), X=integers(5))
    assert [n.name for n in graph.nodes] == ["X", "Y"]


def test_a_padded_convolution_pads_and_does_not_spread_its_operand() -> None:
    value = call("mul", read(0, 3, guarded(at_index(1, 2, offset=-1), 0.0)), read(1, 0, 3, 2))
    labels = ["o", label("i", "n"), "p", "c"]
    made = one(aggregate("sum", [2, 3], value), labels, 2, given("X", 0, "c", "n"), given("W", 1, "o", "c", "k"))
    x, w = integers(2, 6), integers(3, 2, 3, seed=2)
    padded = np.pad(x, ((0, 0), (1, 1)))
    expected = np.zeros((3, 6))
    for i in range(6):
        expected[:, i] = np.einsum("cp,ocp->o", padded[:, i : i + 3], w)
    np.testing.assert_array_equal(results(made, X=x, W=w)["Y"], expected)
    graph = rewrite(graph_of(made, X=x, W=w))
    assert [n.shape for n in graph.nodes[2:]] == [(2, 8), (3, 6)]


def test_merging_and_splitting_axes_and_both_at_once() -> None:
    x = integers(3, 4, 5)
    inputs = given("X", 0, "s", "h", "e")
    merged = equation("Z", 1, [label("u", op("mul", "h", "e")), "s"], 2,
                      read(0, 1, at_index(0, divisor="e"), at_index(0, modulus="e")))  # fmt: skip
    split = equation("Y", 2, ["a", label("b", 5), "s"], 3, read(1, SplitIndex((0, 1), HERE), 2))
    made = program(inputs, merged, split, outputs={"Z": 1, "Y": 2})
    found = results(made, X=x)
    np.testing.assert_array_equal(found["Z"], x.transpose(1, 2, 0).reshape(20, 3))
    np.testing.assert_array_equal(found["Y"], x.transpose(1, 2, 0))
    last = rewrite(graph_of(program(inputs, merged, split, outputs={"Y": 2}), X=x)).nodes[-1]
    assert isinstance(last, EinsumNode) and last.einsum.plain and last.operands == (0,)


@pytest.mark.parametrize(("h", "e"), [(0, 4), (4, 0), (0, 0), (1, 1), (3, 1)])
def test_merging_axes_of_no_elements(h: int, e: int) -> None:
    merged = equation("Z", 1, [label("u", op("mul", "h", "e"))], 1,
                      read(0, at_index(0, divisor="e"), at_index(0, modulus="e")))  # fmt: skip
    x = integers(h, e)
    found = results(program(given("X", 0, "h", "e"), merged, outputs={"Z": 1}), X=x)["Z"]
    np.testing.assert_array_equal(found, x.reshape(h * e))


@pytest.mark.parametrize(("n", "k"), [(0, 1), (2, 3), (3, 0), (0, 0)])
def test_a_window_that_does_not_fit_is_empty(n: int, k: int) -> None:
    value = aggregate("sum", [1], call("mul", read(0, at_index(0, 1)), read(1, 1)))
    found = results(one(value, ["i", "p"], 1, X, given("W", 1, "k")), X=np.ones(n), W=np.ones(k))["Y"]
    assert found.shape == (max(0, n - max(1, k) + 1),) and not found.any()


def test_an_operand_read_shifted_by_a_matrix_product_needs_no_copy() -> None:
    copy = equation("Z", 2, ["i", "j"], 2, read(0, at_index(offset=1), 0, at_index(1, offset=1)))
    product = aggregate("sum", [2], call("mul", read(2, 0, 2), read(1, 2, 1)))
    made = program(given("X", 0, "l", "n", "m"), given("B", 1, "k", "r"), copy,
                   equation("Y", 3, ["i", "r", "j"], 2, product), outputs={"Y": 3})  # fmt: skip
    x, b = integers(2, 3, 5), integers(4, 2)
    np.testing.assert_array_equal(results(made, X=x, B=b)["Y"], x[1, :, 1:] @ b)
    graph = rewrite(graph_of(made, X=x, B=b))
    assert [n.name for n in graph.nodes] == ["X", "B", "Y"]


def test_a_matrix_product_of_merged_axes_keeps_plain_operands() -> None:
    merged = equation("Z", 2, ["s", label("u", op("mul", "h", "e"))], 2,
                      read(0, 0, at_index(1, divisor="e"), at_index(1, modulus="e")))  # fmt: skip
    product = aggregate("sum", [2], call("mul", read(2, 0, 2), read(1, 2, 1)))
    made = program(given("X", 0, "s", "h", "e"), given("B", 1, "k", "r"), merged,
                   equation("Y", 3, ["s", "r", "u"], 2, product), outputs={"Y": 3})  # fmt: skip
    x, b = integers(3, 2, 4), integers(8, 5)
    np.testing.assert_array_equal(results(made, X=x, B=b)["Y"], x.reshape(3, 8) @ b)
    last = rewrite(graph_of(made, X=x, B=b)).nodes[-1]
    assert isinstance(last, EinsumNode) and last.einsum.plain and contraction(last.einsum) is not None


def test_a_function_of_a_windows_operand_is_computed_once_an_element() -> None:
    both = call("mul", call("relu", read(0, at_index(0, 2))), read(1, 2, 1))
    made = one(aggregate("sum", [2], both), ["i", "o", "p"], 2, X, given("W", 1, "k", "o"))
    x, w = integers(9), integers(3, 4)
    expected = np.array([[(np.maximum(x[i : i + 3], 0) * w[:, o]).sum() for o in range(4)] for i in range(7)])
    np.testing.assert_array_equal(results(made, X=x, W=w)["Y"], expected)
    assert [n.shape for n in rewrite(graph_of(made, X=x, W=w)).nodes[2:]] == [(9,), (7, 4)]


def test_normal_forms_and_composition_agree_with_numbers_point_by_point() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        bounds = [int(n) for n in rng.integers(1, 5, 2)]
        index = Index(
            tuple((p, int(c)) for p, c in enumerate(rng.integers(-4, 9, 2)) if c),
            int(rng.integers(-6, 7)), int(rng.integers(1, 5)), int(rng.integers(0, 5)))  # fmt: skip
        outer = (affine([(1, int(rng.integers(1, 3))), (0, 1)], int(rng.integers(-2, 3))), 0)
        found, composed = normal(index, bounds, 99), inside(index, outer)
        for i in range(bounds[0]):
            for j in range(bounds[1]):
                assert _at(found, (i, j)) == _at(index, (i, j))
                assert composed is not None
                assert _at(composed, (i, j)) == _at(index, (_at(outer[0], (i, j)), i))


def _at(index: int | Index, point: tuple[int, ...]) -> int:
    if isinstance(index, int):
        return point[index]
    value = (index.offset + sum(c * point[p] for p, c in index.terms)) // index.divisor
    return value % index.modulus if index.modulus else value
