"""Plans whose runs would exceed the memory are placed in a smaller arena; refused only if none fits."""

from __future__ import annotations

import re

import pytest

import einturnip as et
from einturnip.core.errors import CapacityError
from einturnip.memgraph.types import MemGraph
from einturnip.planner import variants
from tests.robustness.programs import SPILLING

MIB = 1 << 20


def peak_within(arena: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The peak of the plan's arena, where a run is found to leave ``arena`` bytes to tiles."""

    def excess(graph: MemGraph, memory: int, workers: int) -> int:
        return graph.peak_nbytes - arena

    monkeypatch.setattr(variants, "excess_nbytes", excess)
    plan = et.compile(SPILLING).plan(memory="200MiB", dims={"n": 600}, workers=2, out={"C": "C.npy"})
    planned = plan._job.planned
    assert planned.memgraph.peak_nbytes <= planned.budget.arena <= arena
    return planned.memgraph.peak_nbytes


@pytest.mark.parametrize("arena", [3 * MIB, MIB])
def test_a_plan_that_uses_less_than_its_room_is_laid_out_in_less_than_it_uses(
    arena: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking bytes off the room of 100 MiB would not make a plan smaller that uses 4 of it."""
    assert peak_within(arena, monkeypatch) <= arena


def test_the_minimum_that_is_named_comes_from_the_plan_that_takes_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapacityError) as refused:
        peak_within(1, monkeypatch)
    named = re.search(r"the minimum is ([\d.]+) MiB", str(refused.value))
    assert named and 200 < float(named[1]) <= 204
