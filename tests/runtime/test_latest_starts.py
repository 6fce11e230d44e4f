"""Latest starts: a backward schedule is legal, and tiles are completed one after another."""

from __future__ import annotations

import numpy as np
import pytest

import einturnip as et
from einturnip.cost.described_machines import described
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.scheduler.latest_starts import latest_starts
from einturnip.runtime.scheduler.policies import critical_path, fixed_order, path_lengths
from einturnip.runtime.simulate.machine_prices import priced
from einturnip.runtime.simulate.simulator import lanes_of, slots_of
from einturnip.runtime.simulate.virtual_clock import run

MACHINE = described("ethernet100")
PRODUCT = "input A : f32[n, n], B : f32[n, n]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n"
CHAIN = "input A : f32[n, n], B : f32[n, n]\nC[i,k] = A[i,j] * B[j,k]\nD[i,l] = C[i,k] * A[k,l]\noutput D\n"


def on_sites(text: str, n: int, sites: int, arena: str) -> MemGraph:
    plan = et.compile(text).plan(dims={"n": n}, arena=arena, workers=1, sites=sites, force=True)
    return priced(plan._job.planned.memgraph, MACHINE)


@pytest.mark.parametrize("arena", ["1MiB", "8MiB"])
@pytest.mark.parametrize("text", [PRODUCT, CHAIN])
def test_a_backward_schedule_keeps_dependencies_and_lanes(text: str, arena: str) -> None:
    graph = on_sites(text, 1024, 4, arena)
    starts = np.array(latest_starts(graph))
    ends = starts + graph.seconds
    assert ends.max() == pytest.approx(0.0)
    op = np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr))
    assert (ends[graph.after] <= starts[op] + 1e-12).all()
    kinds = np.where(graph.between_devices(), -1, np.array([kind.lane for kind in OpKind])[graph.kind])
    for lane in (-1, *map(int, Lane)):
        for device in range(graph.devices):
            mine = np.flatnonzero((kinds == lane) & (graph.op_devices() == device))
            mine = mine[np.argsort(starts[mine])]
            assert (ends[mine[:-1]] <= starts[mine[1:]] + 1e-12).all()


def test_tiles_are_completed_one_after_another() -> None:
    """By longest paths all tiles of a site advance together, so their moves and stores follow the last kernels."""
    graph = on_sites(PRODUCT, 16384, 8, "2GiB")
    names, lanes = lanes_of(graph, MACHINE)
    slots, of = slots_of(names, MACHINE), lanes.tolist()
    longest = (-np.array(path_lengths(graph, graph.seconds))).tolist()
    by_rank = {
        name: run(graph, ranks, slots, graph.seconds.tolist(), of).makespan
        for name, ranks in (
            ("latest", critical_path(graph)),
            ("longest", longest),
            ("serial", fixed_order(graph)),
        )
    }
    assert by_rank["latest"] < 0.97 * by_rank["longest"]
    assert by_rank["latest"] <= by_rank["serial"]
