"""Every offload policy gives graphs that are proved, hold in any order, and compute what the program says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine, described
from einturnip.memgraph.check import check
from einturnip.memgraph.types import DISK, FILES, HOST, MemGraph, OpKind
from einturnip.runtime.simulate.machine_prices import priced, task_seconds
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.types import TaskGraph
from offload_policies import POLICIES, DefaultPolicy, MemoryBudgets, OffloadPolicy, place
from offload_policies.ahead_of_time import profile
from offload_policies.trace import peak_nbytes, trace, working_set_nbytes
from tests.drawn import examples
from tests.memgraph.cases import MACHINE, PROGRAMS, arrays, decomposed, graph_of
from tests.memgraph.test_build import assert_same, drawn_order, tile_sizes
from tests.reference.eingraph import evaluate as evaluate_graph
from tests.reference.memgraph import evaluate

P100 = described("p100")
AMPLE = 1 << 30
names = st.sampled_from(sorted(PROGRAMS))


def least(tasks: TaskGraph) -> int:
    """The largest working set."""
    return working_set_nbytes(trace(tasks, P100, MemoryBudgets(AMPLE >> 10, AMPLE)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=examples(6), deadline=None)
@given(names, tile_sizes, st.data())
def test_every_policy_computes_the_program_in_any_order(
    policy: str, name: str, tiles: list[list[int]], data: st.DataObject
) -> None:
    graph = graph_of(name)
    tasks = build_tasks(decomposed(graph, tiles, 2000), MACHINE)
    device = least(tasks) + 64 * data.draw(st.integers(0, 40))
    host = data.draw(st.sampled_from([0, 512, AMPLE]))
    try:
        placed = place(tasks, P100, MemoryBudgets(device, host), POLICIES[policy]())
    except CapacityError:
        assert policy == "zero-inference"  # only weights leave the device
        device = AMPLE
        placed = place(tasks, P100, MemoryBudgets(device, host), POLICIES[policy]())
    check(placed)
    assert placed.capacity <= device and placed.host_nbytes <= host
    assert_same(evaluate(placed, arrays(name), drawn_order(placed, data)), evaluate_graph(graph, arrays(name)))


@settings(max_examples=examples(20), deadline=None)
@given(names, tile_sizes, st.floats(0.5, 100.0), st.data())
def test_what_is_made_again_is_the_same(name: str, tiles: list[list[int]], remake: float, data: st.DataObject) -> None:
    graph = graph_of(name)
    tasks = build_tasks(decomposed(graph, tiles, 2000), MACHINE)
    device = least(tasks) + 64 * data.draw(st.integers(0, 40))
    try:
        placed = place(tasks, slow_links(), MemoryBudgets(device, AMPLE), DefaultPolicy(remake=remake))
    except CapacityError:  # a recomputed value needs room in addition to its reader's
        return
    check(placed)
    assert_same(evaluate(placed, arrays(name), drawn_order(placed, data)), evaluate_graph(graph, arrays(name)))


def slow_links() -> DescribedMachine:
    """A machine on which making anything again is cheaper than a transfer."""
    links = {name: link._replace(bandwidth=1.0) for name, link in P100.links.items()}
    return DescribedMachine(P100.name, P100.title, 1, P100.kernels, P100.memory, links, P100.inputs)


def tight(policy: str, machine: DescribedMachine = P100, host: int = AMPLE) -> MemGraph:
    tasks = build_tasks(decomposed(graph_of("chain"), [[3, 2, 2]] * 12, 1500), MACHINE)
    return place(tasks, machine, MemoryBudgets(least(tasks) + 128, host), POLICIES[policy]())


class WritesAgain(DefaultPolicy):
    """As though outputs could not be read."""

    rereads = False


def test_outputs_that_leave_are_read_from_where_they_were_stored() -> None:
    def moved(policy: OffloadPolicy) -> tuple[int, int]:
        tasks = build_tasks(decomposed(graph_of("chain"), [[3, 2, 2]] * 12, 1500), MACHINE)
        graph = place(tasks, P100, MemoryBudgets(least(tasks) + 128, AMPLE), policy)
        check(graph)
        read = graph.read[graph.read_ptr[:-1][graph.kind == OpKind.RELOAD], 0]
        outputs = FILES + len(tasks.decomposition.graph.nodes)
        return int((graph.kind == OpKind.OFFLOAD).sum()), int((read >= outputs).sum())

    (written, reread), (written_again, none) = moved(DefaultPolicy()), moved(WritesAgain())
    assert written < written_again and reread > 0 and none == 0


def test_values_are_made_again_where_links_are_slow() -> None:
    tasks = build_tasks(decomposed(graph_of("chain"), [[1, 3, 11]] * 12, 1500), MACHINE)
    graph = place(tasks, slow_links(), MemoryBudgets(least(tasks) * 2, AMPLE), WritesAgain(remake=1.0))
    runs = graph.task[np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE)) & (graph.unit < 0)]
    assert len(runs) > len(set(runs.tolist()))
    check(graph)


def test_the_disk_takes_what_the_host_cannot() -> None:
    to_host, to_disk = tight("lru"), tight("lru", host=0)
    assert (to_host.write[:, 0] == HOST).any() and not (to_host.write[:, 0] == DISK).any()
    assert (to_disk.write[:, 0] == DISK).any() and to_disk.host_nbytes == 0


def test_a_clean_copy_is_written_once_unless_forgotten() -> None:
    def offloads(graph: MemGraph) -> int:
        return int((graph.kind == OpKind.OFFLOAD).sum())

    assert offloads(tight("ours")) < offloads(tight("turnip"))


def test_too_little_is_refused_with_what_is_needed() -> None:
    tasks = build_tasks(decomposed(graph_of("chain"), [[9, 8, 6]] * 12, 1500), MACHINE)
    with pytest.raises(CapacityError) as refused:
        place(tasks, P100, MemoryBudgets(256, AMPLE), POLICIES["ours"]())
    assert refused.value.needed == least(tasks)


def test_with_room_for_all_nothing_leaves() -> None:
    tasks = build_tasks(decomposed(graph_of("chain"), [[3, 2, 2]] * 12, 1500), MACHINE)
    for policy in ("ours", "turnip", "lru", "deepum", "capuchin", "g10", "tflms", "flashneuron", "tensile"):
        graph = place(tasks, P100, MemoryBudgets(AMPLE, AMPLE), POLICIES[policy]())
        assert not np.isin(graph.kind, (OpKind.OFFLOAD, OpKind.RELOAD)).any(), policy


def test_the_profile_is_the_sum_of_what_lives() -> None:
    tasks = build_tasks(decomposed(graph_of("chain"), [[3, 2, 2]] * 12, 1500), MACHINE)
    seen = trace(tasks, P100, MemoryBudgets(4096, AMPLE))
    alive = [
        sum(n for n, uses in zip(seen.size, seen.uses, strict=True) if uses and uses[0] <= i <= uses[-1]) + w
        for i, w in enumerate(seen.workspace)
    ]
    assert profile(seen).tolist() == alive and peak_nbytes(seen) == max(alive)


def test_kernels_take_the_longer_of_operations_and_bytes() -> None:
    tasks = build_tasks(decomposed(graph_of("product"), [[9, 8, 6]] * 3, 1500), MACHINE)
    kernels = P100.kernels
    assert kernels is not None
    seconds = task_seconds(tasks, P100)
    moved = 4 * (9 * 6 + 6 * 8 + 9 * 8)
    i = int(tasks.flops.argmax())
    assert seconds[i] == kernels.latency + max(tasks.flops[i] / kernels.product_flops, moved / kernels.bandwidth)
    graph = priced(tight("ours"), described("h200"))
    reload = int(np.flatnonzero(graph.kind == OpKind.RELOAD)[0])
    expected = described("h200").link("host", "device").seconds(int(graph.read[graph.read_ptr[reload], 2]))
    assert graph.seconds[reload] == expected
