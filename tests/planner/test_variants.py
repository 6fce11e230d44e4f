"""The choice among variants of a program: orders of products against the memory."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import CapacityError
from einturnip.cost.machine import Machine
from einturnip.devices.kind import ON_CPU, choose, of_sites
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import F64
from einturnip.planner import variants
from einturnip.planner.budget import Budget
from einturnip.planner.compare import Rival
from einturnip.planner.request import GraphRequest, Options, PlanRequest
from einturnip.planner.variants import LoweredPlan, PlannedVariant, TooExpensive, Variants, _fused_or_not, plan_variant
from einturnip.runtime.scheduler.report import Prediction

CHAIN = "input A : f32[m,k]\ninput B : f32[k,n]\ninput C : f32[n,p]\nD[i,l] = A[i,j] * B[j,o] * C[o,l]\noutput D\n"


def request_of(graph: EinGraph) -> PlanRequest:
    return PlanRequest(graph, {}, {}, Options(arena=1 << 20), ON_CPU, Machine(), None, {})


def test_an_order_whose_product_is_spilled_is_taken_where_it_is_faster() -> None:
    """A (B C) keeps within 16 MiB and takes five times the operations of (A B) C, whose 40 MB go to the disk."""
    dims = {"m": 100, "k": 1000, "n": 100_000, "p": 1000}
    planned = et.compile(CHAIN).plan(arena="16MiB", dims=dims, workers=2)._job.planned
    assert planned.prediction.flops < 5e10
    assert planned.limit is None


def test_of_two_orders_the_faster_plan_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """(A B) C takes fewer operations; its product is 300 times as large as B C and need not stand whole."""
    seen = []

    def noted(one: PlannedVariant, other: PlannedVariant, refused: object) -> PlannedVariant:
        seen.append((one.prediction.seconds, other.prediction.seconds))
        return one if len(seen) % 2 else other

    monkeypatch.setattr("einturnip.planner.variants._faster_of", noted)
    monkeypatch.setattr("einturnip.planner.variants._rival", lambda *_: None)  # so that both plans are made
    dims = {"m": 100, "k": 250, "n": 300_000, "p": 250}
    within, free = (
        et.compile(f"{CHAIN}# {n}\n").plan(arena="8MiB", dims=dims, workers=2)._job.planned for n in range(2)
    )
    monkeypatch.undo()
    taken = et.compile(CHAIN).plan(arena="8MiB", dims=dims, workers=2)._job.planned
    assert within.limit == 8 << 20 and free.limit is None and within.prediction.flops > free.prediction.flops
    assert taken.prediction.flops == (within if seen[0][0] <= seen[0][1] else free).prediction.flops


@pytest.mark.parametrize("arena", ["8MiB", "300KiB"])
def test_the_answer_does_not_hang_on_the_order(arena: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-3, 4, shape).astype(np.float32) for shape in [(20, 200), (200, 4000), (4000, 200)])
    found = et.compile(CHAIN)(A=a, B=b, C=c, arena=arena)
    np.testing.assert_array_equal(found["D"], a.astype(np.float64) @ b.astype(np.float64) @ c.astype(np.float64))


@pytest.mark.parametrize("arena", ["64MiB", "300KiB"])
def test_a_recorded_order_is_taken_again(tmp_path: Path, arena: str) -> None:
    rng = np.random.default_rng(1)
    for name, shape in {"A": (20, 200), "B": (200, 4000), "C": (4000, 200)}.items():
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype(np.float32))
    (tmp_path / "chain.ein").write_text(CHAIN)
    files = [x for name in "ABC" for x in ("-i", f"{name}={tmp_path / name}.npy")]
    chain = ["run", str(tmp_path / "chain.ein"), *files, "-q"]
    recording = tmp_path / "recording.json"
    assert run([*chain, "--arena", arena, "-o", f"D={tmp_path / 'first.npy'}", "--record", str(recording)]) == 0
    assert run([*chain, "-o", f"D={tmp_path / 'again.npy'}", "--replay", str(recording)]) == 0
    first, again = (np.load(tmp_path / f"{name}.npy") for name in ("first", "again"))
    assert first.tobytes() == again.tobytes()


def test_what_a_refused_form_was_planned_with_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's frames would keep it alive while the next form is planned."""

    class Plan:
        pass

    made = []

    def planned(graph: GraphRequest) -> LoweredPlan:
        plan = Plan()
        made.append(weakref.ref(plan))
        try:
            raise CapacityError("an inner one", 1)
        except CapacityError:
            raise CapacityError("it does not fit", 7) from None

    monkeypatch.setattr(variants, "plan", planned)
    request = request_of(EinGraph((), (), "p.ein"))
    with pytest.raises(CapacityError, match="it does not fit") as refused:
        plan_variant(request, request.of_graph(request.graph), 5)
    assert refused.value.needed == 7 and made[0]() is None


@pytest.mark.parametrize(
    "fused_kernels, unfused_plan, fused_plan, made, taken",
    [
        (3.0, 2.5, 3.1, ["unfused"], "unfused"),  # the fused kernels alone take longer than the unfused plan
        (3.0, 4.0, 3.5, ["unfused", "fused"], "fused"),
        (3.0, None, 3.5, ["unfused", "fused"], "fused"),  # the unfused plan does not fit
        (1.5, 2.5, 0.9, ["fused"], "fused"),
        (1.5, 1.8, 3.0, ["fused", "unfused"], "unfused"),
        (1.5, 2.99, 3.0, ["fused", "unfused"], "fused"),  # predictions are not that exact
    ],
)
def test_slow_fused_kernels_are_planned_only_after_unfused_ones(
    fused_kernels: float,
    unfused_plan: float | None,
    fused_plan: float,
    made: list[str],
    taken: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused, unfused = EinGraph((), (), "fused"), EinGraph((), (), "unfused")
    seen = list[str]()

    def planned(request: PlanRequest, graph: GraphRequest, limit: int | None) -> PlannedVariant:
        seen.append(graph.graph.program)
        seconds = fused_plan if graph.graph is fused else unfused_plan
        if seconds is None:
            raise CapacityError("it does not fit", 7)
        lowered: Any = SimpleNamespace(budget=Budget(None, 1 << 20), price=1.0)
        return PlannedVariant(graph.graph, lowered, Prediction(seconds, 0.0, {}, {}, {}), limit)

    kernels = {"fused": fused_kernels, "unfused": 1.0}
    monkeypatch.setattr("einturnip.planner.variants.min_seconds", lambda graph, _: kernels[graph.program])
    monkeypatch.setattr(variants, "plan_variant", planned)
    assert _fused_or_not(request_of(unfused), Variants(unfused, fused, None, Machine())).graph.program == taken
    assert seen == made


@pytest.mark.parametrize(
    "nodes, fused_plan, made", [(400, 1.5, ["fused"]), (400, 3.0, ["fused", "unfused"]), (4, 1.5, 2)]
)
def test_a_large_variant_is_planned_only_if_it_can_save_the_time_of_planning(
    nodes: int, fused_plan: float, made: list[str] | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning 400 nodes takes 0.63 s; that of few nodes is not counted."""
    node = InputNode("x", (), F64, 1)
    fused, unfused = EinGraph((node,) * nodes, (), "fused"), EinGraph((node,) * nodes, (), "unfused")
    seen = list[str]()

    def planned(request: PlanRequest, graph: GraphRequest, limit: int | None) -> PlannedVariant:
        seen.append(graph.graph.program)
        lowered: Any = SimpleNamespace(budget=Budget(None, 1 << 20), price=1.0)
        return PlannedVariant(graph.graph, lowered, Prediction(fused_plan, 0.0, {}, {}, {}), limit)

    monkeypatch.setattr("einturnip.planner.variants.min_seconds", lambda *_: 1.0)
    monkeypatch.setattr(variants, "plan_variant", planned)
    _fused_or_not(request_of(unfused), Variants(unfused, fused, None, Machine()))
    assert seen == made or len(seen) == made


@pytest.mark.parametrize(
    "sites, ops, fused_kernels, made",
    [
        (64, 60_000, 1.05, ["fused"]),
        (64, 40_000, 1.05, ["fused", "unfused"]),
        (64, 60_000, 1.5, ["fused", "unfused"]),  # the unfused kernels take less time
        (8, 60_000, 1.05, ["fused", "unfused"]),
    ],
)
def test_a_large_plan_for_many_sites_is_not_compared_with_a_similar_variant(
    sites: int, ops: int, fused_kernels: float, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fused, unfused = EinGraph((), (), "fused"), EinGraph((), (), "unfused")
    seen = list[str]()

    def planned(request: PlanRequest, graph: GraphRequest, limit: int | None) -> PlannedVariant:
        seen.append(graph.graph.program)
        lowered: Any = SimpleNamespace(budget=Budget(None, 1 << 20), price=1.0, memgraph=range(ops))
        return PlannedVariant(graph.graph, lowered, Prediction(9.0, 0.0, {}, {}, {}), limit)

    kernels = {"fused": fused_kernels, "unfused": 1.0}
    monkeypatch.setattr("einturnip.planner.variants.min_seconds", lambda graph, _: kernels[graph.program])
    monkeypatch.setattr(variants, "plan_variant", planned)
    request = replace(request_of(unfused), device=choose(of_sites(sites)))
    _fused_or_not(request, Variants(unfused, fused, None, Machine()))
    assert seen == made


def test_a_variant_that_cannot_beat_its_rival_is_not_made() -> None:
    """Nothing of it is lowered whole, whatever it costs by formula."""
    graph = et.compile(CHAIN).plan(arena="8MiB", dims={"m": 100, "k": 100, "n": 100, "p": 100})._job.planned.graph
    request = request_of(graph).of_graph(graph)
    assert len(variants.plan(request).memgraph) > 0
    with pytest.raises(TooExpensive):
        variants.plan(replace(request, rival=Rival(1e-9, 1e-9)))


def test_a_refusal_within_an_arena_collects_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes long in a process with many objects, and no limit of its memory is stated."""
    monkeypatch.setattr(variants, "trim_heap", lambda: pytest.fail("the heap was trimmed"))
    with pytest.raises(CapacityError, match="the minimum is"):
        et.compile("input A : f32[n, n]\nB[i, j] = exp(A[i, j]) * A[j, i]\noutput B\n").plan(
            A=np.ones((99, 99), np.float32), arena=1
        )
