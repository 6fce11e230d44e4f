"""The minimum of a sum of terms of few variables, by eliminating one variable after another."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.tiling.elimination import CostFactor, MinSumProblem, minimise


@given(rng=st.integers(0, 2**32 - 1).map(np.random.default_rng), at_once=st.sampled_from([1, 5, 1 << 16]))
def test_the_least_of_all_sums_is_found_however_much_is_worked_on_at_once(rng: Any, at_once: int) -> None:
    sizes = [int(n) for n in rng.integers(1, 5, 5)]
    problem = MinSumProblem()
    for n in sizes:
        problem.variable(rng.integers(0, 20, n).astype(float))
    every = [scope for k in (1, 2, 3) for scope in combinations(range(5), k)]
    for i in rng.choice(len(every), 6, replace=False):
        views = tuple(problem.view(v, rng.integers(0, 3, sizes[v])) for v in every[i])
        shape = [problem.rows[view.number] for view in views]
        problem.factors.append(CostFactor(views, rng.integers(0, 20, shape).astype(float)))

    def cost(values: tuple[int, ...]) -> float:
        at = [tuple(problem.views[w.number][values[w.variable]] for w in f.scope) for f in problem.factors]
        terms = [f.table[place] for f, place in zip(problem.factors, at, strict=True)]
        return float(sum(unary[x] for unary, x in zip(problem.unary, values, strict=True)) + sum(terms))

    least = min(map(cost, product(*map(range, sizes))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einturnip.tiling.elimination.MINIMISED_AT_ONCE", at_once)
        assert cost(tuple(minimise(problem))) == least
