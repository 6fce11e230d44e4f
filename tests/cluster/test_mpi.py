"""Ranks of an MPI job, started by a real mpiexec: the numbers of one process, the planned bytes, one message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cluster.mpi_runs import COMMAND, MPIEXEC, command, run

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not (find_spec("mpi4py") and MPIEXEC.exists()), reason="needs mpi4py and mpich, of the extra dev"
    ),
]
CHAIN = "input A : f64[n,k], B : f64[k,m], E : f64[m,l]\nD[i,j] = A[i,k] * B[k,j]\nC[i,j] = D[i,k] * E[k,j]\noutput C\n"
GATHER = "input A : f64[n, m], k : i64[n]\nB[i,j] = exp(A[i,j])\nC[i,j] = B[k[i], j] * 2\noutput C\n"
LONG = "input A : f64[n,n]\nB[i,j] = A[i,k] * A[k,j]\n" + "".join(
    f"{'BCDEFGHI'[k + 1]}[i,j] = {'BCDEFGHI'[k]}[i,k] * A[k,j] / 1000\n" for k in range(7)
) + "output I\n"  # fmt: skip


def chain(folder: Path, n: int) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Write a program and its inputs; return the arguments that name them, and the result."""
    rng = np.random.default_rng(3)
    data = {name: rng.integers(-4, 5, (n, n)).astype(float) for name in "ABE"}
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "chain.ein").write_text(CHAIN)
    inputs = [word for name in data for word in ("-i", f"{name}={name}.npy")]
    return ["chain.ein", *inputs], data["A"] @ data["B"] @ data["E"]


@pytest.mark.parametrize(
    ("ranks", "target"),
    [(2, "C.zarr"), *(pytest.param(p, "C.npy", marks=pytest.mark.slow) for p in (1, 2, 3, 4))],
)
def test_ranks_compute_what_one_process_does(tmp_path: Path, ranks: int, target: str) -> None:
    arguments, expected = chain(tmp_path, 700)
    done = run(tmp_path, ranks, *arguments, "--memory", "130MiB", "-o", f"C={target}", "--report", "r.json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("C ")] == [["C", "f64[700,"]]
    assert [line[:18] for line in lines if line.startswith("site")] == [f"site {r}   rank {r} on" for r in range(ranks)]
    if target.endswith(".npy"):
        found = np.load(tmp_path / target)
    else:
        import zarr

        found = np.asarray(zarr.open_array(tmp_path / target, path="C", mode="r")[...])
    np.testing.assert_array_equal(found, expected)
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["sites"]) == ranks
    for site in report["sites"]:
        assert site["received_nbytes"] == site["planned_nbytes"]
        assert 0 < site["peak_resident_nbytes"] <= 130 << 20
    if ranks != 3:  # whose best plan moves nothing
        assert any(sum(site["received_nbytes"].values()) for site in report["sites"]) == (ranks > 1)
    assert sorted(os.listdir(tmp_path)) == sorted(["A.npy", "B.npy", "E.npy", "chain.ein", target, "r.json"])


def test_ranks_read_files_again_unless_a_fast_link_is_stated(tmp_path: Path) -> None:
    rng, across = np.random.default_rng(3), {}
    for name in "AB":
        np.save(tmp_path / f"{name}.npy", rng.integers(-4, 5, (500, 500)).astype(float))
    (tmp_path / "p.ein").write_text("input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n")
    files = ("p.ein", "-i", "A=A.npy", "-i", "B=B.npy", "-o", "C=C.npy", "--arena", "2MiB", "--report", "r.json")
    for link in ((), ("--link", "1TB/s,1ns")):
        done = run(tmp_path, 4, *files, *link)
        assert (done.returncode, done.stderr) == (0, "")
        sites = json.loads((tmp_path / "r.json").read_text())["sites"]
        assert all(site["received_nbytes"] == site["planned_nbytes"] for site in sites)
        across[link] = sum(sum(site["received_nbytes"].values()) for site in sites)
        np.testing.assert_array_equal(
            np.load(tmp_path / "C.npy"), np.load(tmp_path / "A.npy") @ np.load(tmp_path / "B.npy")
        )
    assert across[()] < across["--link", "1TB/s,1ns"]


@pytest.mark.parametrize("every", [(3,), pytest.param((1, 2, 3, 4), marks=pytest.mark.slow)])
def test_reproducible_runs_have_the_bits_of_one_process(tmp_path: Path, every: tuple[int, ...]) -> None:
    rng, digests = np.random.default_rng(7), set()
    n = 1200 if len(every) > 1 else 500
    for name in "AB":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((n, n)))
    (tmp_path / "p.ein").write_text(
        "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\ns = C[i,j]\noutput C, s\n"
    )
    files = ("p.ein", "-i", "A=A.npy", "-i", "B=B.npy", "--reproducible", "-o", "C=C.npy", "-o", "s=s.npy")
    alone = subprocess.run([*COMMAND, *files], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert alone.returncode == 0, alone.stderr
    for ranks in (None, *every):
        if ranks is not None:
            done = run(tmp_path, ranks, *files, "--arena", "16MiB")
            assert (done.returncode, done.stderr) == (0, "")
        content = b"".join((tmp_path / f"{name}.npy").read_bytes() for name in "Cs")
        digests.add(sha256(content).hexdigest())
        for name in "Cs":
            (tmp_path / f"{name}.npy").unlink()
    assert len(digests) == 1


def test_an_error_of_one_rank_ends_all_with_one_message(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(GATHER)
    np.save(tmp_path / "A.npy", np.ones((64, 64)))
    np.save(tmp_path / "k.npy", np.r_[np.zeros(63, int), 64])
    done = run(tmp_path, 3, "p.ein", "-i", "A=A.npy", "-i", "k=k.npy", "--arena", "32KiB", "-o", "C=C.npy")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: rank ") and "line 3" in line and "index 64" in line
    assert (done.returncode, done.stdout) == (1, "")
    assert sorted(os.listdir(tmp_path)) == ["A.npy", "k.npy", "p.ein"]


@pytest.mark.slow
def test_a_program_that_does_not_fit_is_refused_once_with_a_minimum_that_suffices(tmp_path: Path) -> None:
    arguments, expected = chain(tmp_path, 300)
    done = run(tmp_path, 2, *arguments, "--memory", "88MiB", "-o", "C=C.npy")
    assert done.returncode == 3 and done.stderr.count("error: ") == 1
    minimum = done.stderr.partition("minimum is ")[2].split()[0]
    done = run(tmp_path, 2, *arguments, "--memory", f"{minimum}MiB", "-o", "C=C.npy")
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "C.npy"), expected)


def test_arrays_of_rank_0_travel_by_tile_in_several_runs(tmp_path: Path) -> None:
    script = Path(__file__).with_name("mpi_arrays.py")
    start = [str(MPIEXEC), "-n", "3", sys.executable, str(script)]
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 2 * "3 [True, True, True] True\n" + "steps True\n"


def test_a_rank_that_frees_its_memory_late_does_not_confuse_the_next_run(tmp_path: Path) -> None:
    script = Path(__file__).with_name("mpi_slow_rank.py")
    start = [str(MPIEXEC), "-n", "2", sys.executable, str(script)]
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "right True\nleft 0 0\n")


def test_a_wrong_command_line_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(CHAIN)
    done = run(tmp_path, 2, "p.ein", "--retries", "2")
    assert done.returncode == 2 and done.stderr.count("error: --retries cannot be combined with --at mpi") == 1
    done = run(tmp_path, 2, "no-such.ein")
    assert done.returncode == 2 and done.stderr.count("no-such.ein") == 1


def test_without_mpi_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')\n")
    (tmp_path / "p.ein").write_text(CHAIN)
    done = subprocess.run(
        [*COMMAND, "p.ein", "--at", "mpi"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "pip install 'einturnip[mpi]'" in done.stderr


def started(folder: Path) -> subprocess.Popen[str]:
    """Start a job of three ranks and wait until its output has been begun."""
    np.save(folder / "A.npy", np.random.default_rng(0).standard_normal((1500, 1500)))
    (folder / "p.ein").write_text(LONG)
    process = subprocess.Popen(
        command(3, "p.ein", "-i", "A=A.npy", "-o", "I=I.npy", "--arena", "8MiB"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not any(name.endswith(".tmp") for name in os.listdir(folder)):
        assert time.monotonic() < until and process.poll() is None
    return process


@pytest.mark.slow
def test_ctrl_c_ends_all_ranks_without_litter(tmp_path: Path) -> None:
    process = started(tmp_path)
    try:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert errors.count("interrupted") == 1 and "error" not in errors
    assert sorted(os.listdir(tmp_path)) == ["A.npy", "p.ein"]


@pytest.mark.slow
def test_a_killed_rank_ends_all_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    process = started(tmp_path)
    try:
        mine = [p for p in Path("/proc").glob("[0-9]*") if str(tmp_path) == _folder(p) and b"einturnip" in _words(p)]
        ranks = [int(p.name) for p in mine if b"mpiexec" not in _words(p)[0]]
        assert len(ranks) == 3
        os.kill(max(ranks), signal.SIGKILL)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "I.npy" not in os.listdir(tmp_path)
    done = subprocess.run(
        [*COMMAND, "p.ein", "-i", "A=A.npy", "-o", "I=I.npy"], cwd=tmp_path, capture_output=True, timeout=100
    )
    assert done.returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["A.npy", "I.npy", "p.ein"]


def _words(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _folder(process: Path) -> str:
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""
