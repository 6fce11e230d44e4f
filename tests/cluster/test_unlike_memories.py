"""Workers whose memories are stated one by one: each keeps its own, refusals name the one that has too little."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster.planning import WorkersRequest, plan_on
from einturnip.cluster.tensors import planned_inputs
from einturnip.cluster.workers import Worker
from einturnip.compiler import bind
from einturnip.core.errors import BindError, CapacityError, InternalError
from einturnip.core.units import MIB, smallest_and_extra
from einturnip.eingraph.types import InputNode
from einturnip.planner.request import Options
from einturnip.report.summary import summarise
from einturnip.storage.generated import RandomSource
from tests.cluster.faults import require_right, run_with

pytestmark = pytest.mark.timeout(120)
TEXT = "input A : f64[n,n]\nC[i,j] = A[i,k] * A[k,j]\noutput C\n"
WORKERS = tuple(Worker(f"tcp://10.0.0.7:{k}", "h", k, 60 * MIB, 8 << 30) for k in range(3))


def request(n: int, *memories: int) -> WorkersRequest:
    """Return the request for a product on workers with memories in MiB."""
    graph = bind(et.compile(TEXT)._program, {}, {"n": n})
    sources = {x.name: RandomSource(x.name, x.shape, x.dtype, 0) for x in graph.nodes if isinstance(x, InputNode)}
    memory, extra = smallest_and_extra([m * MIB for m in memories])
    return WorkersRequest(WORKERS, graph, planned_inputs(sources), {}, Options(memory=memory, extra=extra))


def test_each_arena_is_what_its_memory_leaves() -> None:
    alike, unlike = (plan_on(request(1500, *memories)) for memories in ((110, 110, 110), (110, 200, 110)))
    peaks = [[part.graph.peak_nbytes for part in plan.parts] for plan in (alike, unlike)]
    assert unlike.memories == (110 * MIB, 200 * MIB, 110 * MIB)
    assert peaks[1][1] > 1.2 * peaks[0][1] and max(peaks[1][0], peaks[1][2]) <= 1.1 * max(peaks[0])


@pytest.mark.parametrize("site", [0, 2])
def test_the_worker_with_too_little_memory_is_named(site: int) -> None:
    memories = [150, 150, 150]
    memories[site] = 62
    named = rf"in 62\.0 MiB of site {site} \(worker tcp://10.0.0.7:{site} on h\), for the tiles of C \(line 2\)"
    with pytest.raises(CapacityError, match=named) as refused:
        plan_on(request(900, *memories))
    memories[site] = refused.value.needed // MIB
    plan_on(request(900, *memories))


def test_memories_for_another_number_of_workers_are_refused() -> None:
    with pytest.raises(BindError, match=r"stated for 2 sites, and the plan is for 3 sites. help: state one size for a"):
        plan_on(request(100, 200, 150))


def test_each_op_belongs_to_a_site_that_has_it() -> None:
    plan = plan_on(replace(request(300, 200), options=Options(arena=256 << 10)))
    for number in range(len(plan.planned.memgraph)):
        assert number in plan.parts[plan.site_of(number)].number
    for number in (-1, len(plan.planned.memgraph)):
        with pytest.raises(InternalError, match=f"no site has op {number}"):
            plan.site_of(number)


def test_a_run_keeps_each_memory(client: Any, tmp_path: Path) -> None:
    a = np.random.default_rng(0).integers(-3, 4, (1200, 1200)).astype(float)
    out = {"C": str(tmp_path / "C.npy")}
    result = et.compile(TEXT)(A=a, client=client, memory="150MiB,250MiB,160MiB,150MiB", out=out)
    np.testing.assert_array_equal(np.asarray(result["C"]), a @ a)
    assert [site.memory_nbytes for site in result.report.sites] == [m * MIB for m in (150, 250, 160, 150)]
    assert all(site.peak_resident_nbytes <= (site.memory_nbytes or 0) for site in result.report.sites)
    assert not result.report.memory_exceeded_nbytes
    (line,) = [line for line in summarise(result.report, 0.0) if line.startswith("site 1 ")]
    assert " of the 250 MiB allowed, " in line


def test_the_workers_that_are_left_keep_their_memories(own: Any, tmp_path: Path) -> None:
    small, large = sorted(own.run(os.getpid).items())
    kill = partial(os.kill, small[1], signal.SIGKILL)
    error, found = run_with(own, kill, 0.3, tmp_path, arena="1MiB,2MiB", retries=1)
    assert error is None, error
    require_right(found)
    assert len(found.report.retries) == 1
    peaks = {site.worker: site.arena_peak_nbytes for site in found.report.sites}
    assert MIB < peaks.pop(large[0]) <= 2 * MIB
    assert all(peak <= MIB for peak in peaks.values())  # of one that Dask has started in the place of the lost one
