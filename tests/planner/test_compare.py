"""Candidates are compared by bounds: one that cannot win is not planned to its end, and each is placed once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.planner import compare, lower, recomputing
from einturnip.planner.budget import PlanningMemory, overhead_nbytes, size_of
from einturnip.planner.candidates import min_arena
from einturnip.planner.compare import Rival, _Comparison
from einturnip.planner.lower import PlanLowering
from einturnip.planner.predict import min_task_seconds, predicted_cost, predicted_seconds
from einturnip.planner.request import GraphRequest
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.multi_program import join
from einturnip.tiling.equivalence import equivalence_classes
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.search import Tiling, successive_tilings
from einturnip.tuning.search import CLASS_OPS, FREE_OPS, OP_SECONDS
from tests.drawn import examples

PRODUCT = "input A : f32[m,p]\ninput B : f32[p,n]\nC[i,k] = sum[j] A[i,j] * B[j,k]\noutput C\n"
MAP = "input A : f32[m,p]\ninput B : f32[p,n]\nC[i,j] = exp(A[i,j]) * B[j,i]\noutput C\n"
MIB = 1 << 20
MACHINE = Machine()


def graph_of(text: str, side: int = 2048) -> EinGraph:
    plan = et.compile(text).plan(arena=900 * MIB, dims=dict.fromkeys("mpn", side), workers=2)
    return plan._job.planned.graph


def lowering(graph: EinGraph, memory: int | None = None, arena: int | None = None) -> PlanLowering:
    request = GraphRequest(graph, PlanningMemory(memory, arena), MACHINE)
    return PlanLowering(equivalence_classes(graph, label_classes(graph)), request)


@given(st.sampled_from([PRODUCT, MAP]), st.integers(1, 6), st.floats(1.0, 8.0))
@settings(max_examples=examples(20), deadline=None)
def test_no_plan_is_faster_than_its_tasks_at_least(text: str, finer: int, more: float) -> None:
    graph = graph_of(text, 512)
    way = [
        c
        for c, _ in zip(
            successive_tilings(equivalence_classes(graph, label_classes(graph)), MACHINE, {}, 10_000),
            range(finer),
            strict=False,
        )
    ]
    made = lowering(graph, arena=int(more * min_arena(way[-1]))).lower(way[-1])
    assert made is not None
    seconds = predicted_seconds(made, MACHINE, policy("critical-path"))
    assert min_task_seconds(made.taskgraph, MACHINE) <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("text", [PRODUCT, MAP])
def test_a_plan_is_made_unless_a_rival_is_better(text: str) -> None:
    graph = graph_of(text)
    lowers = lowering(graph, arena=8 * MIB)
    cut = next(
        c
        for c in successive_tilings(equivalence_classes(graph, label_classes(graph)), MACHINE, {}, 10_000)
        if min_arena(c) <= 4 * MIB
    )
    made = lowers.lower(cut)
    assert made is not None
    seconds, cost = predicted_seconds(made, MACHINE, policy("critical-path")), predicted_cost(made, MACHINE)
    assert lowers.lower(cut, None, Rival(seconds, cost)) is not None
    least = min_task_seconds(made.taskgraph, MACHINE)
    assert lowers.lower(cut, None, Rival(least, 0.9 * (cost - seconds + least))) is None
    assert lowers.lower(cut, None, Rival(0.0, 0.0)) is None


@pytest.mark.parametrize("text", [PRODUCT, MAP])
def test_what_counting_pages_takes_is_kept_free(text: str) -> None:
    """It is known of a cut before its tasks are, and of each plan of several together."""
    graph = graph_of(text)
    lowers, seen = lowering(graph, memory=1 << 40), set[bool]()
    for cut, _ in zip(
        successive_tilings(equivalence_classes(graph, label_classes(graph)), MACHINE, {}, 10_000),
        range(12),
        strict=False,
    ):
        tasks = lowers._tasks(cut, 64 * MIB)
        plan = size_of(tasks)
        assert lowers._sizes(cut).counts == plan.counts == tasks.counts_nbytes
        assert overhead_nbytes(0, 2, plan) == overhead_nbytes(0, 2, replace(plan, counts=0)) + plan.counts
        assert join([tasks, tasks], ["p", "q"], True).counts_nbytes == size_of(tasks, tasks).counts == 2 * plan.counts
        seen.add(plan.counts > 0)
    assert seen == {False, True}


def test_a_plan_that_leaves_room_for_its_own_ops_is_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes come back, so it has more ops than tasks, and each takes some of the memory."""
    graph, placed = graph_of(PRODUCT), list[int]()
    build = lower.build_memgraph

    def counted(tasks, *rest, **more):  # type: ignore[no-untyped-def]
        made = build(tasks, *rest, **more)
        placed.append(len(made) - len(tasks))
        return made

    monkeypatch.setattr(lower, "build_memgraph", counted)
    lowers = lowering(graph, memory=lowering(graph, memory=1 << 40).resident + 28 * MIB)
    way = successive_tilings(equivalence_classes(graph, label_classes(graph)), MACHINE, {}, 10_000)
    cut = next(c for c in way if 3 * c.working_set <= lowers.available(c) and c.kernel_calls > 100)
    assert lowers.lower(cut) is not None
    assert len(placed) == 1 and placed[0] > 0


@pytest.mark.parametrize("arena", [96, 48, 24])
def test_a_product_is_searched_for_a_small_part_of_what_it_takes(arena: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in ops; plans that keep to the bytes wanted are not made anew, nor others that promise no more."""
    made, asked = list[int](), list[object]()
    build, lower_cut = lower.build_memgraph, PlanLowering.lower

    def counted(tasks, *rest, **more):  # type: ignore[no-untyped-def]
        made.append(len(tasks))
        return build(tasks, *rest, **more)

    def noted(self, cut, bound=None, rival=None):  # type: ignore[no-untyped-def]
        asked.append((cut, bound))
        return lower_cut(self, cut, bound, rival)

    monkeypatch.setattr(lower, "build_memgraph", counted)
    monkeypatch.setattr(PlanLowering, "lower", noted)
    planned = et.compile(PRODUCT).plan(arena=arena * MIB, dims=dict.fromkeys("mpn", 8192), workers=2)._job.planned
    assert len(set(asked)) == len(asked)
    assert sum(made) * OP_SECONDS <= 0.12 * planned.prediction.seconds


def test_a_product_that_fits_is_lowered_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, lower_cut = list[object](), PlanLowering.lower

    def noted(self, cut, bound=None, rival=None):  # type: ignore[no-untyped-def]
        asked.append((cut, bound))
        return lower_cut(self, cut, bound, rival)

    monkeypatch.setattr(PlanLowering, "lower", noted)
    planned = et.compile(PRODUCT).plan(arena=64 * MIB, dims=dict.fromkeys("mpn", 1024), workers=2)._job.planned
    assert len(asked) == 3
    assert sum(planned.memgraph.nbytes_by_link().values()) == 3 * 4 * 1024**2


def test_planning_a_product_builds_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times, operations and workspace come from the spec."""
    monkeypatch.setattr(ContractionKernel, "__post_init__", lambda _: pytest.fail("a kernel was built"))
    plan = et.compile(PRODUCT).plan(arena=64 * MIB, dims=dict(m=331, p=457, n=229), workers=2)
    assert plan.prediction.flops == 2 * 331 * 457 * 229


class Placed:
    """As much of a memory graph as is compared."""

    def __init__(self, seconds: float, nbytes: int) -> None:
        self.seconds, self.nbytes = seconds, nbytes

    def __len__(self) -> int:
        return 1

    def nbytes_by_link(self) -> dict[str, int]:
        return {"disk->cpu:0": self.nbytes}


@pytest.mark.parametrize("seconds", [0.1, 2.0, 20.0, 200.0])
def test_plans_are_compared_for_a_small_part_of_a_run(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(Placed):
        def __len__(self) -> int:
            return 1000

    compared = _Comparison(lambda *_: Large(seconds, 0), MACHINE, lambda _: False)  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(compare, "predicted_seconds", lambda placed, *_: placed.seconds)
    ops = 0
    while compared.affords(Tiling((), 0, 1000), 1.0):
        compared.make(Tiling((), 0, 1000))
        ops += 1000
    assert ops > 0 and ops * OP_SECONDS <= 1.7 + 0.03 * seconds


def plans_made(
    monkeypatch: pytest.MonkeyPatch,
    classes: int,
    min_cost: float,
    rival: Rival | None = None,
    saved: float = math.inf,
) -> int:
    """How many plans of ten ops, predicted at 0.1 s, are made of up to 1000."""
    monkeypatch.setattr(compare, "predicted_seconds", lambda placed, *_: placed.seconds)

    class Ten(Placed):
        def __len__(self) -> int:
            return 10

    def lower_ten(tiling: Tiling, bound: int | None, beaten: Rival | None) -> Placed | None:
        return None if beaten is not None and beaten.seconds < 0.1 else Ten(0.1, 0)

    compared = _Comparison(lower_ten, MACHINE, lambda _: False, classes, lambda _: min_cost, rival)  # type: ignore[arg-type]
    made = 0
    while made < 1000 and compared.affords(Tiling((), 0, 10), 1.0, saved):
        compared.make(Tiling((), 0, 10))
        made += 1
    return made


def test_pricing_many_kernels_counts_as_planning_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (plans_made(monkeypatch, classes, 0.0) for classes in (1, 400))
    assert many <= 1 + FREE_OPS // (CLASS_OPS * 400) < few


def test_plans_that_can_save_nothing_are_made_in_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """FREE_OPS are for errors of the formula; beyond, the time spent must be saved."""
    spare, tight = (plans_made(monkeypatch, 1, min_cost) for min_cost in (0.0, 0.1))
    each = 10 + CLASS_OPS
    assert tight == FREE_OPS // each
    assert spare == int((FREE_OPS + 0.1 / OP_SECONDS) // each)
    assert plans_made(monkeypatch, 1, 0.0, saved=0.05) == int((FREE_OPS + 0.05 / OP_SECONDS) // each)


def test_a_variant_that_loses_every_comparison_ends_in_the_time_of_one_that_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert plans_made(monkeypatch, 100, 0.0, Rival(0.05, 0.05)) <= 1 + FREE_OPS // (CLASS_OPS * 100)


def test_a_long_plan_recomputes_values_even_if_few_like_it_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spilling(Placed):
        spill_nbytes = 1

        def __len__(self) -> int:
            return 100_000

    plan, asked = Spilling(np.float64(40.0), 0), list[object]()  # type: ignore[arg-type]
    monkeypatch.setattr(recomputing, "predicted_cost", lambda *_: 20.0)
    monkeypatch.setattr(recomputing, "recompute_spilled", lambda graph, *_: asked.append(graph))
    assert recomputing.recompute_while_better(plan, MACHINE, lambda _: plan) is plan  # type: ignore[arg-type,return-value,comparison-overlap]
    assert asked == [plan]


def best_of(plans: list[tuple[float, int]]) -> tuple[int, int]:
    made = (Placed(*plan) for plan in plans)
    compared = _Comparison(lambda *_: next(made), MACHINE, lambda _: False)  # type: ignore[arg-type,return-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "predicted_seconds", lambda placed, *_: placed.seconds)
        for _ in plans:
            compared.make(Tiling((), 0, 1))
    assert compared.best is not None
    return compared.best.rank


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(0, 1 << 40)), min_size=1, max_size=8), st.integers(1, 8))
def test_of_more_plans_the_best_is_no_worse_in_whatever_order_they_come(
    plans: list[tuple[float, int]], first: int
) -> None:
    """One ordering for all memories: what is made for less memory too costs no time, nor bytes where it saves none."""
    assert best_of(plans) <= best_of(plans[:first])
    assert best_of(plans) == best_of(plans[::-1])


@given(st.floats(0.1, 1e3), st.integers(0, 1 << 40), st.integers(1, 1 << 30))
def test_of_two_plans_as_fast_the_one_that_moves_less_is_better(seconds: float, nbytes: int, more: int) -> None:
    assert best_of([(seconds, nbytes + more), (seconds, nbytes)]) == best_of([(seconds, nbytes)])


class Two:
    """Two blocked cuts with what the formula says of each."""

    blocked = True
    min_moved_nbytes = 0
    classes = 1

    def min_cost(self, _: Tiling) -> float:
        return 0.0

    def __init__(self, prices: dict[Tiling, float]) -> None:
        self.prices = prices

    def to_compare(self) -> list[Tiling]:
        return list(self.prices)

    def price(self, cut: Tiling) -> float:
        return self.prices[cut]

    def coarsest_if_best(self, _: object) -> tuple[()]:
        return ()

    def roomy_alternatives(self) -> tuple[()]:
        return ()


@pytest.mark.parametrize("cost, makes", [(1.0, 1), (1.15, 1), (1.34, 2)])
def test_after_a_plan_of_bad_luck_others_are_made(cost: float, makes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a product's plan costs far more than its formula said, what the formula puts a little behind may win."""
    first, second = Tiling((), 0, 1), Tiling((), 0, 2)
    made = list[Tiling]()

    def lower_cut(cut: Tiling, bound: int | None, rival: Rival | None) -> Placed:
        made.append(cut)
        return Placed(20.0 * (cost if cut is first else 1.1), 1)  # byte moved, and none needed

    monkeypatch.setattr(compare, "predicted_seconds", lambda placed, *_: placed.seconds)
    monkeypatch.setattr(compare, "_try_smaller_arenas", lambda *_: None)
    monkeypatch.setattr(compare, "_near_bound", lambda best, *_: best)
    monkeypatch.setattr(compare, "_is_near", lambda *_: False)
    found = compare.best_plan(Two({first: 20.0, second: 20.4}), lower_cut, MACHINE)  # type: ignore[arg-type]
    assert found is not None and found.tiling is made[-1] and len(made) == makes


def test_a_program_of_nothing_is_planned_in_little() -> None:
    """The plan costs nothing, as the formula says."""
    plan = et.compile("input A : f64[n]\nZ[i] = A[i]\noutput Z\n").plan(dims={"n": 0}, arena=2048)
    assert plan.prediction.seconds >= 0
