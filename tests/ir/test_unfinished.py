"""Unfinished files of killed processes are removed; files of live processes or other users are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import einturnip as et
from einturnip import caches
from einturnip.cli.doctor import command
from einturnip.core.regular_files import create_file, create_folder, is_temporary, remove_abandoned, temporary_path
from einturnip.ir.dtypes import F64
from einturnip.storage import open_sink

WRITER = """
import sys
import numpy as np
from einturnip.ir.dtypes import F64
from einturnip.storage import open_sink
sink = open_sink(sys.argv[1], "Y", (500, 100), F64)
sink.write(((0, 200), (0, 100)), np.ones((200, 100)))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes a Zarr directory."""
    arguments = [sys.executable, "-c", WRITER, str(tmp_path / "y.zarr")]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))


def cleaned(*arguments: str) -> str:
    done = CliRunner().invoke(command, ["--clean", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_doctor_removes_what_a_killed_run_left_of_a_zarr_directory(
    tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".y.zarr.einturnip-") and is_temporary(left)
    assert cleaned(str(tmp_path)) == "nothing to remove\n" and os.listdir(tmp_path) == [left]
    writer.kill()
    writer.wait()
    assert os.listdir(tmp_path) == [left]
    assert cleaned(str(tmp_path)) == f"removed  {tmp_path / left}\n" and os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["z.npy", "z.npz", "z.safetensors", "z.zarr"])
def test_so_does_the_next_output_of_any_kind(tmp_path: Path, writer: subprocess.Popen[str], name: str) -> None:
    program = et.compile("input x : f64[n]\nY[i] = 2 * x[i]\noutput Y")
    program(x=np.ones(3), out={"Y": str(tmp_path / name)})
    assert len(os.listdir(tmp_path)) == 2
    writer.kill()
    writer.wait()
    program(x=np.ones(3), out={"Y": str(tmp_path / name)})
    assert os.listdir(tmp_path) == [name]


def test_doctor_looks_in_the_current_folder_and_in_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    caches.KERNELS.write({"whole.o": [b"1"], "damaged.o": [b"2"]})
    kernels = Path(caches.KERNELS.path() or "")
    (kernels / "damaged.o").write_bytes(b"2")
    left = [Path(temporary_path(str(folder / "x"))) for folder in (tmp_path, kernels)]
    for path in left:
        path.write_text("half")
    told = cleaned()
    assert {line.split(None, 1)[1] for line in told.splitlines()} == {*map(str, left), str(kernels / "damaged.o")}
    assert os.listdir(tmp_path) == [] and os.listdir(kernels) == ["whole.o"]
    wrong = CliRunner().invoke(command, [str(tmp_path)])
    assert wrong.exit_code == 2 and "--clean" in wrong.output


def test_only_names_of_ours_that_nobody_holds(tmp_path: Path) -> None:
    target = str(tmp_path / ("long" * 60))
    fd, held = create_file(target, 0o600)
    folder, held_folder = create_folder(target)
    (Path(held_folder) / "inner").mkdir()
    (tmp_path / ".notes.einturnip-1-xyz.tmp").touch()
    (tmp_path / "y.einturnip-1-0123456789abcdef.tmp").touch()
    os.mkfifo(temporary_path(str(tmp_path / "pipe")))
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", temporary_path(str(tmp_path / "link")))
    before = sorted(os.listdir(tmp_path))
    assert remove_abandoned(str(tmp_path)) == [] and sorted(os.listdir(tmp_path)) == before
    os.close(fd)
    os.close(folder)
    if os.geteuid() == 0:
        os.chown(held, 65534, 65534)
        assert remove_abandoned(str(tmp_path)) == [held_folder]
        os.chown(held, 0, 0)
    assert held in remove_abandoned(str(tmp_path))
    assert len(os.listdir(tmp_path)) == len(before) - 2
    assert remove_abandoned(str(tmp_path / "nowhere")) == []


def test_an_older_zarr_directory_survives_where_directories_cannot_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two renames the older one has a name that nobody removes; if the second fails, it is put back."""
    from einturnip.storage.formats import zarr_output

    def filled(value: float) -> None:
        sink = open_sink(str(tmp_path / "y.zarr"), "Y", (3,), F64)
        sink.write(((0, 3),), np.full(3, value))
        sink.commit()

    def content() -> list[float]:
        return np.asarray(et.open(str(tmp_path / "y.zarr"))).tolist()

    filled(1)
    monkeypatch.setattr(zarr_output.ctypes, "CDLL", lambda *_, **__: object())
    filled(2)
    assert content() == [2, 2, 2] and os.listdir(tmp_path) == ["y.zarr"]
    rename, calls = os.rename, []

    def second_fails(old: str, new: str) -> None:
        calls.append(new)
        if len(calls) == 2:
            assert not [name for name in os.listdir(tmp_path) if is_temporary(name) and name in calls[0]]
            raise OSError(5, "Input/output error")
        rename(old, new)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(et.EinturnipError, match="cannot be put in place"):
        filled(3)
    assert content() == [2, 2, 2] and os.listdir(tmp_path) == ["y.zarr"]
