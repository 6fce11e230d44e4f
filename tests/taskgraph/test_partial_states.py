"""Accumulations of many tiles: partial states that join, in the task graph, the memory graph and a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.main import cli
from einturnip.taskgraph.accumulate import Accumulators
from einturnip.tuning.memory import MAX_ADDITIONS


class Recorded:
    """States of one key: what is added to each, as nested tuples of tiles, and the device of each."""

    def __init__(self, limit: int | None, group: int = 0) -> None:
        self.sums, self.device, self.taken = list[list[object]](), list[int](), Counter[int]()
        self.states = Accumulators(limit, group, self.new, self.combine, self.tree)

    def new(self, key: tuple[int, ...], device: int) -> int:
        self.sums.append([])
        self.device.append(device)
        return len(self.sums) - 1

    def combine(self, key: tuple[int, ...], upper: int, lower: int) -> None:
        self.taken[upper] += 1
        self.sums[upper].append(self.sums[lower])

    def tree(self, key: tuple[int, ...], group: Sequence[int]) -> Sequence[tuple[int, int]]:
        return [(d, group[-1]) for d in group[:-1]]

    def summed(self, device_of: Sequence[int]) -> tuple[list[object], int]:
        """Add a tile on each of the devices; return what the total is made of, and its device."""
        for tile, device in enumerate(device_of):
            state = self.states.next_state((), device)
            self.taken[state] += 1
            self.sums[state].append(tile)
        total, device = self.states.finalize(())
        assert self.device[total] == device
        return self.sums[total], device


def tiles_in(total: Sequence[object]) -> list[int]:
    """The tiles of a total, in the order in which they are added."""
    return [tile for x in total for tile in (tiles_in(x) if isinstance(x, list) else [x])]  # type: ignore[list-item]


@pytest.mark.parametrize("tiles", [1, MAX_ADDITIONS, MAX_ADDITIONS + 1, MAX_ADDITIONS**2 + 1, 5000])
@pytest.mark.parametrize("devices", [1, 3])
def test_each_tile_is_added_once_and_no_state_takes_too_many(tiles: int, devices: int) -> None:
    recorded = Recorded(MAX_ADDITIONS)
    total, owner = recorded.summed([tile % devices for tile in range(tiles)])
    assert owner == min(devices, tiles) - 1
    assert sorted(tiles_in(total)) == list(range(tiles))
    levels = math.ceil(math.log(max(2, tiles), MAX_ADDITIONS))
    assert max(recorded.taken.values()) <= levels * MAX_ADDITIONS + devices - 1


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from([None, 3, 8, 64]), st.data())
def test_an_ordered_sum_is_the_same_on_any_devices(
    tiles: int, group: int, limit: int | None, data: st.DataObject
) -> None:
    alone, _ = Recorded(limit, group).summed([0] * tiles)
    assert tiles_in(alone) == list(range(tiles))
    devices = data.draw(st.lists(st.integers(0, 4), min_size=tiles, max_size=tiles))
    recorded = Recorded(limit, group)
    assert recorded.summed(devices)[0] == alone
    if limit is None:
        assert {recorded.device[s] for s in range(len(recorded.sums))} == set(devices[::group])


def test_a_sum_whose_last_state_fills_the_levels_above_is_whole() -> None:
    """The last tiles of 64^2 + 4 make the second level full, which adds a third."""
    program = et.compile("input X : f64[i]\n@tile(i=1)\nY = sum[i] X[i]\noutput Y\n")
    assert float(program(X=np.ones(MAX_ADDITIONS**2 + 4))["Y"]) == MAX_ADDITIONS**2 + 4


def test_a_plan_of_many_tiles_is_right_and_proven(tmp_path: Path) -> None:
    (tmp_path / "m.ein").write_text("input X : f32[i]\nZ = mean[i] X[i]\noutput Z\n")
    arguments = [
        "plan",
        str(tmp_path / "m.ein"),
        "--dim",
        "i=1000000",
        "--arena",
        "64KiB",
        "--emit",
        "memgraph",
        "--format",
        "json",
    ]
    plan = CliRunner().invoke(cli, arguments)
    assert plan.exit_code == 0, plan.output
    (tmp_path / "plan.json").write_text(plan.stdout)
    proven = CliRunner().invoke(cli, ["verify", str(tmp_path / "plan.json")])
    assert proven.exit_code == 0, proven.output
    program = et.compile((tmp_path / "m.ein").read_text())
    assert program(X=np.ones(1_000_000, np.float32), arena="64KiB")["Z"] == 1
