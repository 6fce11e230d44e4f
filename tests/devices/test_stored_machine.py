"""The stored calibration: read back unchanged, and ignored if it is damaged or of another machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from einturnip.caches import CALIBRATION
from einturnip.cost.machine import Machine
from einturnip.devices.stored import SWITCH, machine_here, read_stored, store, stored_path


@pytest.fixture()
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SWITCH, "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = stored_path()
    assert found == tmp_path / "einturnip" / "machine.json"
    return found


def test_what_is_stored_is_read_back(path: Path) -> None:
    assert read_stored().word == "none yet"
    machine = replace(Machine(), workers=3, read_bandwidth=1.25e9, points=(("exp.float32", 3e-9),))
    assert store(machine, "today", "/somewhere") == path
    found = read_stored()
    assert found.machine == machine
    assert (found.measured, found.folder, found.word) == ("today", "/somewhere", "")
    assert machine_here(5) == replace(machine, workers=5)
    assert [p.name for p in path.parent.iterdir()] == ["machine.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "einturnip.machine/2"}', "null", "[" * 9999])
def test_a_damaged_file_is_ignored_with_a_word(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    found = read_stored()
    assert found.machine is None
    assert found.word.startswith("ignored")
    assert machine_here(2) == Machine()


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("identity", "another", "another machine"),
        ("schema", "einturnip.machine/0", "another version"),
        ("read_bandwidth", -1.0, "damaged"),
        ("op_latency", "soon", "damaged"),
        ("products", {"float32": [1.0]}, "damaged"),
        ("points", {"exp.float32": float("nan")}, "damaged"),
        ("turns", None, "damaged"),
    ],
)
def test_a_file_that_is_not_of_this_machine_is_ignored(path: Path, name: str, value: object, word: str) -> None:
    store(Machine(), "today", "/somewhere")
    told = json.loads(bytes(CALIBRATION.read())) | {name: value}
    CALIBRATION.write({"": [json.dumps(told).encode()]})
    found = read_stored()
    assert found.machine is None
    assert word in found.word


def test_the_environment_turns_it_off_or_names_another_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(Machine(), op_latency=1.0)
    store(machine, "today", "/somewhere")
    monkeypatch.setenv(SWITCH, "off")
    assert machine_here(2) == Machine()
    with pytest.raises(OSError, match=SWITCH):
        store(machine, "today", "/somewhere")
    monkeypatch.setenv(SWITCH, str(path.parent / "other.json"))
    assert read_stored().word == "none yet"
    path.rename(path.parent / "other.json")
    assert machine_here(2) == machine


def test_a_file_that_others_could_have_written_is_ignored_with_the_reason(path: Path) -> None:
    store(Machine(), "today", "/somewhere")
    path.chmod(0o666)
    assert read_stored().word == "ignored: other users can write to it"
    path.chmod(0o600)
    assert read_stored().machine == Machine()


def test_a_fingerprint_tells_rates_apart_and_nothing_else() -> None:
    assert Machine().fingerprint == Machine().fingerprint
    others = [replace(Machine(), op_latency=1.0), replace(Machine(), workers=7), replace(Machine(), points=())]
    assert len({Machine().fingerprint, *(m.fingerprint for m in others)}) == 4
