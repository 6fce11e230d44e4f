"""Contraction paths that a caller gives are those that run."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest

import einturnip as et
from einturnip.api.contraction_path import chosen_path
from einturnip.api.subscripts import bind, parse, program_text
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.dtypes import F64

CHAIN = "ab,bc,cd,de->ae"
SHAPES = [(2, 30), (30, 4), (4, 50), (50, 3)]
ARRAYS = [np.random.default_rng(k).integers(-3, 4, shape).astype(float) for k, shape in enumerate(SHAPES)]
EXPECTED = np.einsum(CHAIN, *ARRAYS)


def intermediates(optimize: Any, text: str = CHAIN, arrays: Any = ARRAYS) -> list[tuple[int, ...]]:
    """The shapes of what the rewritten graph computes before the result."""
    contraction = bind(parse((text, *arrays))[0], [a.shape for a in arrays])
    source = program_text(contraction, [F64] * len(arrays), F64, chosen_path(optimize, contraction))
    inputs = {f"operand{k}": a for k, a in enumerate(arrays)}
    graph = rewrite(et.compile(source).plan(**inputs)._job.bound)
    return [tuple(sorted(node.shape)) for node in graph.nodes if isinstance(node, EinsumNode)][:-1]


@pytest.mark.parametrize(
    "path", [[(0, 1), (0, 2), (0, 1)], [(2, 3), (1, 2), (0, 1)], [(1, 2), (0, 2), (0, 1)], [(0, 1), (0, 1), (0, 1)]]
)
def test_the_steps_of_a_path_are_those_that_run(path: Any) -> None:
    made, terms, sizes = [], [set(t) for t in CHAIN.split("->")[0].split(",")], dict(a=2, b=30, c=4, d=50, e=3)
    for step in path[:-1]:
        taken = [terms.pop(k) for k in sorted(step, reverse=True)]
        kept = set().union(*taken) & set("ae").union(*terms)
        terms.append(kept)
        made.append(tuple(sorted(sizes[label] for label in kept)))
    assert sorted(intermediates(path)) == sorted(made)
    for optimize in (path, ["einsum_path", *path], tuple(path)):
        np.testing.assert_array_equal(et.einsum(CHAIN, *ARRAYS, optimize=optimize), EXPECTED)


def test_named_optimizers_paths_and_path_infos_of_opt_einsum() -> None:
    path, info = opt_einsum.contract_path(CHAIN, *ARRAYS, optimize="optimal")
    for optimize in ("optimal", "greedy", "dp", "branch-2", ("optimal", 1000), path, info, opt_einsum.paths.greedy):
        np.testing.assert_array_equal(et.contract(CHAIN, *ARRAYS, optimize=optimize), EXPECTED)
    assert sorted(intermediates("optimal")) == sorted(intermediates(path)) == sorted(intermediates(info))
    random = opt_einsum.RandomGreedy(max_repeats=4, parallel=False)
    np.testing.assert_array_equal(et.einsum(CHAIN, *ARRAYS, optimize=random), EXPECTED)


def test_optimizers_and_trees_of_cotengra() -> None:
    ctg = pytest.importorskip("cotengra")
    inputs, output, sizes = [*["ab", "bc", "cd", "de"]], "ae", dict(a=2, b=30, c=4, d=50, e=3)
    tree = ctg.array_contract_tree([tuple(i) for i in inputs], tuple(output), sizes, optimize="greedy")
    np.testing.assert_array_equal(et.einsum(CHAIN, *ARRAYS, optimize=tree), EXPECTED)
    assert sorted(intermediates(tree)) == sorted(intermediates(tree.get_path()))
    for optimizer in (ctg.GreedyOptimizer(), ctg.RandomGreedyOptimizer(max_repeats=2)):
        np.testing.assert_array_equal(et.einsum(CHAIN, *ARRAYS, optimize=optimizer), EXPECTED)


@pytest.mark.parametrize("dtype", [bool, np.float16, np.complex64, np.int8])
@pytest.mark.parametrize("path", [[(0, 1, 2), (0, 1)], [(0,), (0, 1), (0, 1), (0, 1)], [(0, 3), (0, 1, 2)]], ids=str)
def test_steps_of_any_number_of_operands_and_types(path: Any, dtype: Any) -> None:
    text, arrays = "aab,bc,...c,dd->...da", [np.ones((2, 2, 3)), np.ones((3, 4)), np.ones((5, 1, 4)), np.eye(3)]
    arrays = [a.astype(dtype) for a in arrays]
    found = et.einsum(text, *arrays, optimize=path)
    expected = np.einsum(text, *arrays)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_optimizers_that_fail_or_return_nonsense() -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no path")

    with pytest.raises(et.BindError, match="optimize: the function given finds no path: RuntimeError: no path"):
        et.einsum(CHAIN, *ARRAYS, optimize=fails)
    for nonsense in ([(0, 1)], [(0, 9)], 3, [("a", 1)], None):
        with pytest.raises(et.BindError, match="optimize"):
            et.einsum(CHAIN, *ARRAYS, optimize=lambda *_, path=nonsense: path)
    tree = type("Tree", (), {"get_path": lambda self: [(0, 1)]})()
    with pytest.raises(et.BindError, match="optimize: after the path 3 of 4 operands are left"):
        et.einsum(CHAIN, *ARRAYS, optimize=tree)


def test_einsum_path() -> None:
    path, text = et.einsum_path(CHAIN, *ARRAYS)
    assert path[0] == "einsum_path" and "4 operands" in text and len(text.splitlines()) == len(path)
    np.testing.assert_array_equal(np.einsum(CHAIN, *ARRAYS, optimize=path), EXPECTED)
    np.testing.assert_array_equal(et.einsum(CHAIN, *ARRAYS, optimize=path), EXPECTED)
    assert sorted(intermediates(path)) == sorted(intermediates(True))
    assert et.einsum_path(CHAIN, *ARRAYS, optimize=[(2, 3), (1, 2), (0, 1)])[0] == [
        *("einsum_path", (2, 3), (1, 2), (0, 1))
    ]
    assert et.einsum_path("ij->j", ARRAYS[0])[0] == ["einsum_path", (0,)]
    assert et.einsum_path(ARRAYS[0], [0, 1], ARRAYS[1], [1, 2])[0] == ["einsum_path", (0, 1)]


def test_contract_expression() -> None:
    expression = et.contract_expression(CHAIN, *SHAPES, optimize="greedy", memory="100MiB")
    np.testing.assert_array_equal(expression(*ARRAYS), EXPECTED)
    out = np.zeros((2, 3))
    assert expression(*ARRAYS, out=out) is out
    np.testing.assert_array_equal(out, EXPECTED)
    fixed = et.contract_expression(CHAIN, SHAPES[0], ARRAYS[1], *SHAPES[2:], constants=[1])
    np.testing.assert_array_equal(fixed(ARRAYS[0], *ARRAYS[2:]), EXPECTED)
    with pytest.raises(et.BindError, match="takes 3 arrays, but 4 were given"):
        fixed(*ARRAYS)
    with pytest.raises(et.BindError, match=r"operand 0 .* has shape \[2, 30\], but the array given for it \[30, 4\]"):
        expression(ARRAYS[1], *ARRAYS[1:])
    with pytest.raises(et.BindError, match="label 'b'"):
        et.contract_expression("ab,bc->ac", (2, 3), (4, 5))
    with pytest.raises(et.BindError, match="optimize"):
        et.contract_expression(CHAIN, *SHAPES, optimize=[(0, 1)])


def test_tensordot() -> None:
    x, y = np.arange(24.0).reshape(2, 3, 4), np.arange(24.0).reshape(4, 3, 2)
    for axes in (0, ([2, 1], [0, 1]), (-1, 0), ([0, 2], [2, 0])):
        np.testing.assert_array_equal(et.tensordot(x, y, axes), np.tensordot(x, y, axes))
    np.testing.assert_array_equal(et.tensordot(x, y, 1), np.tensordot(x, y, 1))
    for axes in (([0], [1, 2]), (3, 0), 4):
        with pytest.raises(et.BindError, match="tensordot|label"):
            et.tensordot(x, y, axes)


def test_opt_einsum_with_this_backend() -> None:
    np.testing.assert_array_equal(opt_einsum.contract(CHAIN, *ARRAYS, backend="einturnip"), EXPECTED)
    expression = opt_einsum.contract_expression("aab,bc,cd->da", (2, 2, 3), (3, 4), (4, 5))
    arrays = [np.ones((2, 2, 3)), np.ones((3, 4)), np.ones((4, 5))]
    np.testing.assert_array_equal(expression(*arrays, backend="einturnip"), expression(*arrays))
