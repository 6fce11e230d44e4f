"""Closed streams, readers that leave, and characters that an encoding lacks do not stop a run."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.robustness.programs import ENVIRONMENT

PROGRAM = "input α : f32[n]\nβ[i] = α[i] + 1\noutput β\n"
RUN = "run p.ein -i α=x.npy -o β=y.npy"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p.ein").write_text(PROGRAM, "utf-8")
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    return tmp_path


def shell(folder, redirected, command=RUN, **more):
    return subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m einturnip {command} {redirected}"],
        cwd=folder, env=ENVIRONMENT | more, capture_output=True, text=True, check=False,
    )  # fmt: skip


def require_output(folder):
    assert np.load(folder / "y.npy").tolist() == [1.0] * 4


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_name_that_the_encoding_lacks_is_printed_as_an_escape(folder, encoding):
    done = shell(folder, "", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "written to y.npy" in done.stdout and (encoding == "ascii" or "\\u03b2" in done.stdout)
    require_output(folder)
    done = shell(folder, "", "check p.ein", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "closed", [*(pytest.param(c, marks=pytest.mark.slow) for c in (">&-", "2>&-", ">&- 2>&-")), "<&- >&- 2>&-"]
)
def test_closed_streams_change_nothing(folder, closed):
    done = shell(folder, closed)
    assert (done.returncode, done.stderr) == (0, "")
    require_output(folder)
    assert shell(folder, closed, "run none.ein").returncode == 2
    for command in ("check p.ein", "--help", "run --help", "plan p.ein --dim n=4"):
        done = shell(folder, closed, command)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (RUN, 0),
        ("check p.ein", 0),
        ("plan p.ein --dim n=4", 0),
        ("run p.ein", 2),
        ("run p.ein -i α=x.npy --analyze", 0),
    ],
)
def test_a_reader_that_left_changes_no_exit_code(folder, stream, command, code):
    read, write = os.pipe()
    os.close(read)
    arguments = [sys.executable, "-m", "einturnip", *command.split()]
    done = subprocess.run(
        arguments, cwd=folder, env=ENVIRONMENT, check=False, text=True,
        stdout=write if stream == 1 else subprocess.PIPE, stderr=write if stream == 2 else subprocess.PIPE,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == code
    assert "Traceback" not in (done.stderr or "") and "Broken" not in (done.stderr or "")
    if command == RUN:
        require_output(folder)


def test_a_full_disk_under_standard_output_is_an_error_that_keeps_the_outputs(folder):
    done = shell(folder, "> /dev/full")
    assert done.returncode == 1 and "No space left" in done.stderr and "Traceback" not in done.stderr
    require_output(folder)
