"""Checkpoints that are not as they were written are found, told of and passed over."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.api import checkpoints
from einturnip.cli.main import run as command
from einturnip.core.errors import StoreError
from einturnip.core.regular_files import temporary_path
from einturnip.ir.dtypes import DTYPES
from einturnip.storage.arrays import array_source

TEXT = "state W : f64[4] = 1\nstate k : i64 = 0\ninput x : f64[4]\nW[i] <- 2 * W[i] + x[i]\nk <- k + 1\noutput k\n"
X = np.arange(4.0)


def flip(path: Path, at: int = -1) -> None:
    held = bytearray(path.read_bytes())
    held[at] ^= 1
    path.write_bytes(held)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def edited(path: Path) -> None:
    """A record that says something else, and is as well formed."""
    record = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps(record | {"steps": record["steps"] + 1}))


def swapped(path: Path) -> None:
    os.replace(path / "k.npy", path / "W.npy")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the data": lambda path: flip(path / "W.npy"),
    "a bit of the header": lambda path: flip(path / "W.npy", 20),
    "cut short": lambda path: os.truncate(path / "W.npy", 140),
    "empty": lambda path: os.truncate(path / "W.npy", 0),
    "longer": lambda path: (path / "k.npy").write_bytes((path / "k.npy").read_bytes() + b"1"),
    "a file missing": lambda path: (path / "W.npy").unlink(),
    "a pipe": lambda path: pipe(path / "W.npy"),
    "another's place": swapped,
    "the record missing": lambda path: (path / "checkpoint.json").unlink(),
    "the record cut short": lambda path: os.truncate(path / "checkpoint.json", 30),
    "the record edited": edited,
    "the record a pipe": lambda path: pipe(path / "checkpoint.json"),
    "everything missing": lambda path: [file.unlink() for file in path.iterdir()],
    "a file": lambda path: (shutil.rmtree(path), path.touch()),
}


def saved(folder: Path, *steps: int) -> None:
    with et.compile(TEXT).session(x=X, arena="64KiB") as session:
        for step in range(1, max(steps) + 1):
            session.step()
            if step in steps:
                session.save(folder)


def after(steps: int) -> np.ndarray:
    W = np.ones(4)
    for _ in range(steps):
        W = 2 * W + X
    return W


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_one_is_passed_over_with_a_warning(how: str, tmp_path: Path) -> None:
    saved(tmp_path, 3, 5)
    DAMAGES[how](tmp_path / "step-000000005")
    with et.compile(TEXT).session(x=X, arena="64KiB") as session:
        with pytest.warns(RuntimeWarning, match=r"step-000000005 is damaged \(.*\); resuming from step-000000003"):
            assert session.load(tmp_path)
        assert session.steps == 3 and (session.state("W") == after(3)).all()
        session.step()
        session.save(tmp_path)
        assert sorted(os.listdir(tmp_path)) == ["step-000000003", "step-000000004"]
        session.step()
        session.save(tmp_path)
    with warnings.catch_warnings(), et.compile(TEXT).session(x=X, arena="64KiB") as session:
        warnings.simplefilter("error")
        assert session.load(tmp_path) and session.steps == 5 and (session.state("W") == after(5)).all()


def test_where_all_are_damaged_it_is_an_error_that_names_them(tmp_path: Path) -> None:
    saved(tmp_path, 3, 5)
    flip(tmp_path / "step-000000005" / "k.npy")
    (tmp_path / "step-000000003" / "W.npy").unlink()
    with et.compile(TEXT).session(x=X) as session:
        with pytest.raises(StoreError) as refused:
            session.load(tmp_path)
        assert session.steps == 0
    told = str(refused.value)
    assert "step-000000005: k.npy is not as it was written" in told
    assert "step-000000003: W.npy cannot be read: No such file" in told
    assert len(os.listdir(tmp_path)) == 2, "what is damaged stays for whoever wants to mend it"


def test_no_checkpoint_is_no_damage(tmp_path: Path) -> None:
    with et.compile(TEXT).session(x=X) as session:
        assert not session.load(tmp_path / "nowhere") and not session.load(tmp_path)


@given(data=st.data())
def test_every_flipped_bit_is_found(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    W = array_source(np.arange(30.0), "W")
    path = checkpoints.save(folder, 2, {"W": W})
    file = path / data.draw(st.sampled_from(["W.npy", "checkpoint.json"]))
    held = bytearray(file.read_bytes())
    held[data.draw(st.integers(0, len(held) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(held)
    with pytest.raises(StoreError, match="every checkpoint is damaged"):
        checkpoints.newest_intact(folder)


@pytest.mark.parametrize("shape", [(), (0, 5), (3,), (1300, 700), (2, 3, 200_000), (1_200_000,)], ids=str)
def test_digests_are_those_of_the_files_however_they_are_written(shape: tuple[int, ...], tmp_path: Path) -> None:
    """States of several blocks; ``sha256sum`` gives the same."""
    W = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    path = checkpoints.save(tmp_path, 7, {"W": array_source(W, "W")})
    found, damaged = checkpoints.newest_intact(tmp_path)
    assert found is not None and (found.path, found.steps, damaged) == (path, 7, [])
    assert np.array_equal(np.load(path / "W.npy"), W)
    told = json.loads((path / "checkpoint.json").read_text())["sha256"]["W.npy"]
    assert subprocess.run(["sha256sum", path / "W.npy"], capture_output=True, text=True).stdout.split()[0] == told


def test_states_of_every_dtype_are_stored_and_come_back(tmp_path: Path) -> None:
    """bf16 too, which .npy cannot name."""
    names = [name for name in sorted(DTYPES) if name != "bool"]
    lines = [f"state S_{name} : {name}[4] = 3\nS_{name}[i] <- S_{name}[i]" for name in names]
    program = et.compile("\n".join([*lines, "state S_bool : bool = true", "S_bool <- S_bool", "output S_bool\n"]))
    with program.session(arena="64KiB") as session:
        session.step()
        path = session.save(tmp_path)
    assert (path / "S_bf16.safetensors").exists() and (path / "S_f32.npy").exists()
    told = json.loads((path / "checkpoint.json").read_text())["sha256"]["S_bf16.safetensors"]
    assert told == hashlib.sha256((path / "S_bf16.safetensors").read_bytes()).hexdigest()
    with program.session(arena="64KiB") as session:
        assert session.load(tmp_path) and session.steps == 1
        for name in names:
            state = session.state(f"S_{name}")
            assert state.dtype == DTYPES[name].numpy and (state == 3).all()
        assert session.state("S_bool")
        flip(path / "S_bf16.safetensors")
        with pytest.raises(StoreError, match="S_bf16.safetensors is not as it was written"):
            session.load(tmp_path)


def test_the_command_line_tells_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    np.save(tmp_path / "x.npy", X)
    line = ["run", str(tmp_path / "p.ein"), "-i", f"x={tmp_path}/x.npy", "--arena", "64KiB", "-q", "--every", "2"]
    line += ["--checkpoint", str(tmp_path / "ck"), "-o", f"W={tmp_path}/W.npy"]
    assert command([*line, "--steps", "4"]) == 0
    flip(tmp_path / "ck" / "step-000000004" / "W.npy")
    capsys.readouterr()
    assert command([*line, "--steps", "6"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("warning: ") and "step-000000004 is damaged (W.npy is not as it was written)" in said.err
    assert "resuming from step-000000002" in said.err and said.out == ""
    assert (np.load(tmp_path / "W.npy") == after(6)).all()
    for path in (tmp_path / "ck").iterdir():
        flip(path / "k.npy")
    assert command([*line, "--steps", "8"]) == 1
    assert "every checkpoint is damaged" in capsys.readouterr().err


KILLED = """
import os, signal, sys
import numpy as np
from einturnip.api import checkpoints
from einturnip.storage.arrays import array_source
checkpoints._sync = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save(checkpoints.Path(sys.argv[1]), 5, {"W": array_source(np.ones(4), "W")})
"""


def test_one_whose_writer_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path]).returncode == -9
    (torn,) = (name for name in os.listdir(tmp_path) if name != "step-000000003")
    assert torn.startswith(".step-000000005.einturnip-")
    with et.compile(TEXT).session(x=X) as session:
        assert session.load(tmp_path) and session.steps == 3
        session.save(tmp_path)
    assert os.listdir(tmp_path) == ["step-000000003"]


def test_one_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    from einturnip.core.regular_files import create_folder

    held, path = create_folder(str(tmp_path / "step-000000009"))
    try:
        saved(tmp_path, 3)
        assert sorted(os.listdir(tmp_path)) == [os.path.basename(path), "step-000000003"]
    finally:
        os.close(held)
    assert Path(temporary_path(str(tmp_path / "step-000000009"))) != Path(path)
