"""Programs that share an arena never wait for each other, and are right in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.multi_arena import ArenaParts
from einturnip.memgraph.types import COMPUTE, MemGraph
from einturnip.taskgraph.multi_program import join
from einturnip.taskgraph.types import TaskGraph
from tests.drawn import examples
from tests.memgraph.cases import MACHINE, PROGRAMS, arrays
from tests.memgraph.test_build import drawn_order
from tests.memgraph.test_several_devices import tasks_of
from tests.reference.memgraph import evaluate

names = st.sampled_from(sorted(PROGRAMS))


def in_parts(graphs: list[TaskGraph], nbytes: list[int]) -> MemGraph:
    """Return the programs p0, p1, ... placed in separate bytes."""
    owner = np.repeat(np.arange(len(graphs), dtype=np.uint8), [g.n_values for g in graphs])
    tasks = join(graphs, [f"p{k}" for k in range(len(graphs))], True)
    return build(tasks, sum(nbytes), MACHINE, parts=ArenaParts(nbytes, owner.tobytes()))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(names, st.integers(2, 9), st.integers(5, 64)), min_size=2, max_size=3), st.data())
def test_right_in_any_order_and_each_in_its_own_bytes(drawn: list[tuple[str, int, int]], data: st.DataObject) -> None:
    graphs, nbytes = [tasks_of(name, tile) for name, tile, _ in drawn], [64 * n for *_, n in drawn]
    try:
        graph = in_parts(graphs, nbytes)
    except CapacityError:
        return
    check(graph)
    assert graph.capacity == sum(nbytes) and graph.peak_nbytes <= graph.capacity
    ends = np.cumsum(nbytes)
    begins = np.cumsum([g.n_values for g in graphs])
    of_version = np.searchsorted(begins, [*range(begins[-1]), *graph.origin.tolist()], "right")
    program = []
    for op in range(len(graph)):
        mine = set()
        for rows, ptr in ((graph.read, graph.read_ptr), (graph.write, graph.write_ptr)):
            for tier, offset, size, version in rows[ptr[op] : ptr[op + 1]].tolist():
                if version >= 0:
                    mine.add(int(of_version[version]))
                if tier == COMPUTE and size:
                    mine.add(int(np.searchsorted(ends, offset, "right")))
        assert len(mine) == 1
        program.append(mine.pop())
    spilled = graph.spill_nbytes > 0  # bytes of the spill file may be anyone's
    for op in range(len(graph)):
        for before in graph.after[graph.after_ptr[op] : graph.after_ptr[op + 1]].tolist():
            assert spilled or program[before] == program[op]
    inputs = {f"p{k}.{name}": a for k, (p, *_) in enumerate(drawn) for name, a in arrays(p).items()}
    found = evaluate(graph, inputs, drawn_order(graph, data))
    for k, (name, *_) in enumerate(drawn):
        expected = evaluate(build(graphs[k], 1 << 20, MACHINE), arrays(name))
        for output, array in expected.items():
            np.testing.assert_array_equal(found[f"p{k}.{output}"], array)


def test_what_does_not_fit_its_part_is_refused() -> None:
    graphs = [tasks_of("product", 9), tasks_of("product", 2)]
    with pytest.raises(CapacityError):
        in_parts(graphs, [256, 1 << 20])
    with pytest.raises(CapacityError):
        in_parts(graphs[::-1], [1 << 20, 256])
