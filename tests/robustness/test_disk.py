"""A full disk is found before the first tile, and named."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.robustness.programs import SPILLING, command, finished

TALL = "input x : f32[n]\nC[i,j: 1024] = x[i]\noutput C\n"


@pytest.fixture
def small(tmp_path: Path):
    """Eight MiB of tmpfs."""
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # whoever still has a file open there


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tall.ein").write_text(TALL)
    (tmp_path / "spill.ein").write_text(SPILLING)
    np.save(tmp_path / "X.npy", np.ones((64, 64), np.float32))
    return tmp_path


def test_an_output_that_does_not_fit_its_disk(folder, small):
    code, out, err = finished("run", "tall.ein", "--random", "--dim", "n=4096", "-o", "C=small/c.npy", cwd=folder)
    assert (code, out) == (1, "")
    assert "small/c.npy" in err and "needs 16.0 MiB" in err and "8.0 MiB free" in err
    assert os.listdir(small) == []


def test_a_spill_that_does_not_fit_its_disk(folder, small):
    (small / "ballast").write_bytes(bytes(7 << 20))
    line = ["run", "spill.ein", "--random", "--dim", "n=600", "--arena", "256KiB", "--spill", "small", "-o", "C=c.npy"]
    code, out, err = finished(*line, cwd=folder)
    assert (code, out) == (1, "")
    assert "spill file" in err and "small" in err and "needs 1." in err and "1.0 MiB free" in err
    assert os.listdir(small) == ["ballast"] and not (folder / "c.npy").exists()
    (small / "ballast").unlink()
    code, _, err = finished(*line, cwd=folder)
    assert code == 0, err
    assert os.listdir(small) == [] and (folder / "c.npy").exists()


def test_a_limit_on_the_spill_is_kept(folder):
    line = ["run", "spill.ein", "--random", "--dim", "n=600", "--arena", "256KiB", "--spill-limit", "1MiB"]
    code, _, err = finished(*line, "-o", "C=c.npy", cwd=folder)
    assert code == 1 and "limit is 1.0 MiB" in err and "--spill-limit" in err
    assert not (folder / "c.npy").exists()


def test_two_runs_share_a_folder_for_their_spill(folder):
    (folder / "both").mkdir()
    line = ["run", "spill.ein", "--random", "--dim", "n=600", "--arena", "256KiB", "--spill", "both", "--quiet"]
    runs = [command(*line, "-o", f"C={name}.npy", cwd=folder) for name in "ab"]
    for run in runs:
        _, err = run.communicate()
        assert run.returncode == 0, err
    assert os.listdir(folder / "both") == []
    assert np.allclose(np.load(folder / "a.npy"), np.load(folder / "b.npy"), rtol=1e-4)
