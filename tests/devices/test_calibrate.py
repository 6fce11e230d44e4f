"""Calibration measures what plans are priced with: every rate is there and positive. No time is asserted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from einturnip.cli.doctor import command
from einturnip.cost.machine import Machine
from einturnip.cost.machine_defaults import SIDES
from einturnip.devices.calibrate import (
    contention,
    fault_seconds,
    memory_rate,
    point_rates,
    product_table,
    seconds_in_parallel,
)
from einturnip.devices.calibrate_files import file_rates
from einturnip.devices.calibrate_kernels import keyed_rates, python_times
from einturnip.devices.stored import SWITCH, read_stored
from einturnip.ir.dtypes import F32
from einturnip.ir.functions import PRICED_AS


def test_the_rates_are_those_of_the_built_in_machine() -> None:
    points = point_rates(1e-5)
    turns = python_times(2, 1e-4)
    known = Machine(points=tuple(points.items()), turns=tuple(turns.items()))
    points |= keyed_rates(1e-4, known)
    defaults = set(dict(Machine().points))
    predicted = {f"{name}.{dtype}" for name in PRICED_AS for dtype in ("float32", "float64")}
    lacking = sorted(set(points) - defaults - predicted)
    assert not lacking, f"measured without a default in einturnip/cost/machine_defaults.py: {lacking}"
    unmeasured = sorted(defaults - set(points))
    assert not unmeasured, f"defaults that einturnip/devices/calibrate.py does not measure: {unmeasured}"
    assert set(turns) == set(dict(Machine().turns))
    assert all(x > 0 for x in (*points.values(), *turns.values()))


def test_products_are_measured_at_every_size() -> None:
    table = product_table(F32, 0.0)
    assert len(table) == len(SIDES) ** 3
    assert all(x > 0 for x in table)


def test_memory_and_contention() -> None:
    assert memory_rate(2, 0.0, 1 << 20) > 0
    assert fault_seconds(2, 1 << 20) > 0
    assert all(x >= 1 for x in contention(2, 1e-4))


def test_every_worker_calls_what_was_made_for_it() -> None:
    calls = [0, 0, 0]

    def make(w: int):
        def run() -> None:
            calls[w] += 1

        return run

    assert seconds_in_parallel(make, 3, 0.0) >= 0
    assert calls == [3, 3, 3]  # one to warm up, then two at the least


def test_files_are_measured_and_nothing_stays(tmp_path: Path) -> None:
    found = file_rates(tmp_path, 8 << 20)
    assert set(found) <= set(Machine.__dataclass_fields__)
    assert all(x > 0 for x in found.values())
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_which_rates_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, str(tmp_path / "machine.json"))
    (tmp_path / "machine.json").write_text("{")
    assert read_stored().word == "ignored: it is damaged"
    refused = CliRunner().invoke(command, ["--quick"])
    assert refused.exit_code == 2
    assert "--calibrate" in refused.output
