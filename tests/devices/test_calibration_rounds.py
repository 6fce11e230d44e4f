"""Calibration in rounds: a disturbance in one round does not change the rates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.cli.calibrate import MIN_FREE_SHARE, ROUNDS, CalibrationRound, best, median, unsteady
from einturnip.core.process_resources import others_seconds
from einturnip.cost.machine import Machine
from einturnip.cost.machine_defaults import TABLE_BITS


@given(st.floats(1.01, 10.0), st.floats(1.01, 10.0))
def test_one_round_cannot_move_a_rate_past_the_others(slower: float, faster: float) -> None:
    plain = Machine()
    slow = replace(plain, memory_bandwidth=plain.memory_bandwidth / slower, op_latency=plain.op_latency * slower)
    fast = replace(plain, memory_bandwidth=plain.memory_bandwidth * faster, points=plain.points)
    assert median([slow, plain, fast]) == replace(plain, points=tuple(sorted(plain.points, key=plain.points.index)))


def test_tables_are_taken_rate_by_rate() -> None:
    found = [replace(Machine(), points=(("a", x), ("b", y))) for x, y in ((1.0, 9.0), (2.0, 8.0), (3.0, 7.0))]
    assert median(found).points == (("a", 2.0), ("b", 8.0))


def test_a_figure_in_which_no_two_rounds_agree_is_named() -> None:
    machines = [replace(Machine(), write_bandwidth=x) for x in (1e9, 2e9, 4e9)]
    assert unsteady(machines) == {"writing": 4.0}
    assert unsteady([*machines, replace(Machine(), write_bandwidth=2.1e9)]) == {}


def test_disturbed_rounds_count_only_where_others_are_missing() -> None:
    def rounds(*free: float) -> list[CalibrationRound]:
        return [CalibrationRound(Machine(), share) for share in free]

    assert [r.free for r in best(rounds(0.5, 0.99, MIN_FREE_SHARE, 0.95, 0.97))] == [0.99, 0.97, 0.95, MIN_FREE_SHARE]
    assert [r.free for r in best(rounds(0.5, 0.99, 0.6, 0.7))] == [0.99, 0.7, 0.6]
    assert ROUNDS == 3


def test_what_others_took_is_a_number_of_seconds() -> None:
    assert math.isfinite(others_seconds())


@pytest.mark.parametrize("k", range(len(TABLE_BITS)))
def test_a_row_costs_by_the_size_of_its_table(k: int) -> None:
    machine = replace(Machine(), points=tuple((f"rows.{b}", 1e-9 * 2**i) for i, b in enumerate(TABLE_BITS)))
    assert machine.row_seconds(1 << TABLE_BITS[k]) == pytest.approx(1e-9 * 2**k)
    if k:
        between = machine.row_seconds(2 ** ((TABLE_BITS[k - 1] + TABLE_BITS[k]) / 2))
        assert between == pytest.approx(0.75e-9 * 2**k)
    assert machine.row_seconds(1) == pytest.approx(1e-9)
    assert machine.row_seconds(1 << 40) == pytest.approx(1e-9 * 2 ** (len(TABLE_BITS) - 1))
