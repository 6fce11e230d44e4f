"""Accumulations of many tiles on devices with streams: partial states join as they do on the host."""

from __future__ import annotations

import numpy as np
import pytest

import einturnip as et
from einturnip.ir.region import Region
from einturnip.planner import variants
from einturnip.taskgraph.types import TaskKind
from einturnip.tuning.memory import MAX_ADDITIONS

from .conftest import put

N = 300_000
AGGREGATIONS = ("sum", "mean", "logsumexp", "argmax")


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", ["sim", "cuda"])
@pytest.mark.parametrize("op", AGGREGATIONS)
def test_more_tiles_than_a_state_takes(op: str, kind: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, [1e-3, 1e-6, 1.0], devices)
    x = np.full(N, 0.1, np.float32)
    x[N // 2] = x[N - 5] = 0.2
    plan = et.compile(f"input X : f32[i]\nZ = {op}[i] X[i]\noutput Z\n").plan(
        data={"X": x}, arena="16KiB", workers=1, device=kind
    )
    kinds = list(plan._job.planned.memgraph.taskgraph.kind)
    moves, tiles, joins = (kinds.count(kind) for kind in (TaskKind.MOVE, TaskKind.ACCUMULATE, TaskKind.COMBINE))
    assert moves == devices - 1  # each device has a state of its own, which moves to one of them
    assert tiles > MAX_ADDITIONS
    assert joins >= tiles // MAX_ADDITIONS if op != "argmax" else joins == devices - 1  # a place is not rounded
    wide = x.astype(np.float64)
    exact = {"sum": wide.sum(), "mean": wide.mean(), "logsumexp": np.log(np.exp(wide).sum()), "argmax": N // 2}[op]
    bound = 0 if op == "argmax" else (4 * np.log2(N) + 1) * np.spacing(np.float32(exact))
    assert abs(plan.run()["Z"] - exact) <= bound


@pytest.mark.parametrize("devices", [1, 2])
def test_states_of_regions_are_combined(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", [1e-3, 1e-6, 1.0], devices)
    monkeypatch.setattr(
        variants, "_fused_or_not", lambda r, made, *_: variants.plan_variant(r, r.of_graph(made.fused), None)
    )
    rows, columns = (2, 4) if devices == 1 else (1, 1)  # so that two devices divide the sum over m
    x, v = np.full((rows, 10_000), 0.1, np.float32), np.full((10_000, columns), 0.1, np.float32)
    x[0, ::1000] = 2.0
    text = "input X : f32[n,m], V : f32[m,d]\nM[n] = max[m] X[n,m]\nT[n,m] = exp(X[n,m]-M[n])\n"
    text += "S[n] = sum[m] T[n,m]\nZ[n,d] = sum[m] T[n,m]*V[m,d] / S[n]\noutput Z\n"
    plan = et.compile(text).plan(data={"X": x, "V": v}, arena="16KiB", workers=1, device="cuda")
    tasks = plan._job.planned.memgraph.taskgraph
    joined = [
        tasks.decomposition.graph.nodes[tasks.node[i]].einsum for i in np.flatnonzero(tasks.kind == TaskKind.COMBINE)
    ]
    assert any(isinstance(space, Region) for space in joined)
    assert np.abs(plan.run()["Z"] - 0.1).max() <= (4 * np.log2(10_000) + 1) * np.spacing(np.float32(0.1))
