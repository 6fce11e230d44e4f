"""``einturnip fmt``: what it writes, what it leaves alone, and its exit codes."""

import io
import os
import sys
from pathlib import Path

import pytest

from einturnip.cli.main import run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_written_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.ein").write_text("x=1\n")
    (folder / "b.ein").write_bytes(b"x = 1 +\r\n 2")
    (folder / "c.ein").write_text("x = 1\n")
    os.chmod("a.ein", 0o640)
    os.symlink("b.ein", "link.ein")
    assert run(["fmt", "--check", "a.ein", "b.ein", "c.ein"]) == 1
    assert capsys.readouterr().out == "would change a.ein\nwould change b.ein\n"
    assert (folder / "a.ein").read_text() == "x=1\n"
    before = (folder / "c.ein").stat()
    assert run(["fmt", "a.ein", "link.ein", "c.ein"]) == 0
    assert (folder / "a.ein").read_bytes() == b"x = 1\n" and (folder / "b.ein").read_bytes() == b"x = 1 + 2\n"
    assert (folder / "a.ein").stat().st_mode & 0o777 == 0o640 and (folder / "link.ein").is_symlink()
    assert (folder / "c.ein").stat().st_ino == before.st_ino
    assert run(["fmt", "--check", "a.ein", "b.ein", "c.ein"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a.ein", "b.ein", "c.ein", "link.ein"]


def test_a_file_with_errors_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.ein").write_text("x=1\n")
    (folder / "bad.ein").write_text("x=1 1\ny=(\n")
    (folder / "bytes.ein").write_bytes(b"\xff")
    assert run(["fmt", "bad.ein", "bytes.ein", "missing.ein", "good.ein"]) == 2
    told = capsys.readouterr().err
    assert "bad.ein:1:5" in told and "bad.ein:2:3" in told
    assert "bytes.ein is not a program" in told and "there is no program missing.ein" in told
    assert (folder / "bad.ein").read_text() == "x=1 1\ny=(\n" and (folder / "good.ein").read_text() == "x = 1\n"
    assert run(["fmt", "--check", "bad.ein", "good.ein"]) == 2


def test_standard_streams(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.ein").write_text("x=1")
    assert run(["fmt", "--stdout", "a.ein"]) == 0
    assert capsys.readouterr().out == "x = 1\n" and (folder / "a.ein").read_text() == "x=1"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("y=2  #é\n".encode())))
    assert run(["fmt", "-"]) == 0
    assert capsys.readouterr().out == "y = 2  # é\n"


def test_a_write_that_fails_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.ein").write_text("x=1")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    assert run(["fmt", "a.ein"]) == 1
    assert [path.name for path in folder.iterdir()] == ["a.ein"] and (folder / "a.ein").read_text() == "x=1"
