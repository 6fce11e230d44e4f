"""Accumulations of many tiles: partial states that join, in the task graph, the memory graph and a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import einturnip as et
from einturnip.cli.main import cli
from einturnip.taskgraph.accumulate import Accumulators
from einturnip.tuning.memory import MAX_ADDITIONS


def test_no_state_takes_too_many_things() -> None:
    for tiles in (1, MAX_ADDITIONS, MAX_ADDITIONS + 1, MAX_ADDITIONS**2 + 4, 5000):
        taken, made = Counter[int](), list[int]()

        def new(key: tuple[int, ...], device: int, made: list[int] = made) -> int:
            made.append(len(made))
            return made[-1]

        def combine(key: tuple[int, ...], upper: int, lower: int, taken: Counter[int] = taken) -> None:
            taken[upper] += 1

        for devices in (1, 3):
            taken.clear()
            made.clear()
            states = Accumulators(MAX_ADDITIONS, new, combine, lambda key, group: [(d, group[-1]) for d in group[:-1]])
            for tile in range(tiles):
                taken[states.next_state((), tile % devices)] += 1
            last, owner = states.finalize(())
            assert owner == min(devices, tiles) - 1
            assert max(taken.values()) <= MAX_ADDITIONS + devices - 1
            assert sum(taken.values()) == tiles + len(made) - 1  # every state but the last joins another
            assert last in made


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
