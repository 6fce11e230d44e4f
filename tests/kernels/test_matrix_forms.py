"""How contractions become matrix products: the cheapest way to merge axes is found."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels.blas import contraction_spec, matrices
from einturnip.kernels.blas.matrices import ContractionTensor, Groups

Drawn = tuple[Groups, tuple[int, ...], dict[int, int], tuple[ContractionTensor, ContractionTensor, ContractionTensor]]


@st.composite
def contractions(draw: st.DrawFn) -> Drawn:
    """Labels of rows, columns, sum and batch; three tensors that hold them in any order, with gaps or without."""
    counts = [draw(st.integers(0, 5)) for _ in range(3)] + [draw(st.integers(0, 2))]
    ends = list(itertools.accumulate(counts, initial=0))
    m, n, k, batch = (tuple(range(a, b)) for a, b in itertools.pairwise(ends))
    extents = {label: draw(st.sampled_from([2, 2, 3, 16, 100])) for label in range(ends[-1])}

    def strides(labels: tuple[int, ...]) -> dict[int, int]:
        found, step = {}, 1
        for label in draw(st.permutations(labels)):
            found[label] = step
            step *= extents[label] * draw(st.sampled_from([1, 1, 1, 2]))
        return found

    sides = ((0, 2, m + k), (2, 1, k + n), (0, 1, m + n))
    tensors = [
        ContractionTensor(rows, columns, strides(batch + held), draw(st.booleans())) for rows, columns, held in sides
    ]
    return (m, n, k), batch, extents, (tensors[0], tensors[1], tensors[2])


@given(contractions(), st.sampled_from([1 << 12, 1 << 30]))
def test_the_cheapest_way_of_all_is_taken(drawn: Drawn, limit: int) -> None:
    groups, batch, extents, tensors = drawn
    found = matrices.plan(groups, batch, extents, tensors, 4, False, limit)
    sides = [
        [matrices._side(run, group, i, extents, tensors) for run in matrices._runs(group, i, extents, tensors)]
        for i, group in enumerate(groups)
    ]
    calls = matrices._points(batch, extents)
    ways = itertools.product(*sides)
    cost, chosen = min((matrices._cost(way, calls, tensors), tuple(s.labels for s in way)) for way in ways)
    assert (found.cost_ns, found.groups) == (cost, chosen)


@given(contractions())
def test_labels_are_one_axis_where_a_tensor_has_them_behind_each_other(drawn: Drawn) -> None:
    groups, _, extents, tensors = drawn
    for i, group in enumerate(groups):
        holders = [t.strides for t in tensors if i in (t.rows, t.columns)]
        for run in matrices._runs(group, i, extents, tensors):
            merged = (all(s[a] == extents[b] * s[b] for a, b in itertools.pairwise(run)) for s in holders)
            assert set(run) == set(group) or any(merged)


@given(contractions(), st.sampled_from([1 << 14, 1 << 20]))
def test_within_the_workspace_that_a_plan_takes_the_plan_is_the_same(drawn: Drawn, limit: int) -> None:
    """A contraction's workspace is that of its plan, so contiguous tiles need no second search."""
    groups, batch, extents, tensors = drawn
    made = matrices.plan(groups, batch, extents, tensors, 4, False, limit)
    for less in {max(made.workspace_nbytes, 1), min(limit, made.workspace_nbytes + 1000)}:
        if made.workspace_nbytes <= less <= limit:
            assert matrices.plan(groups, batch, extents, tensors, 4, False, less) == made


def test_a_spec_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = list[int]()

    def noted(*arguments: Any) -> matrices.MatrixPlan:
        planned.append(1)
        return matrices.plan(*arguments)

    monkeypatch.setattr(contraction_spec, "plan", noted)
    graph = et.compile("input A : f32[n, m, k]\nC[i,l] = A[i,j,k] * A[k,j,l]\noutput C\n").plan(
        dims={"n": 9, "m": 7, "k": 9}
    )
    (einsum,) = (n.einsum for n in graph._job.planned.graph.nodes if isinstance(n, EinsumNode))
    assert isinstance(einsum, Einsum)
    planned.clear()
    spec = contraction_spec.contraction_spec(einsum, (5, 5, 3, 5), True)
    assert spec is not None and len(planned) == 1
    (strides,) = spec.plans
    assert spec.bind(strides) == spec.plan(strides, spec.workspace_nbytes)
