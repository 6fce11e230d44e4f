"""Behaviour that only a process of its own shows: pipes, the modules that an import loads."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def python(*arguments, cwd, more=None, **options):
    env = ENVIRONMENT | (more or {})
    return subprocess.Popen([sys.executable, *arguments], cwd=cwd, env=env, text=True, **options)


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    (tmp_path / "p.ein").write_text("input A : f64[n]\nB[i] = A[i]\noutput B\n")
    process = python("-m", "einturnip", "check", "p.ein", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


LOADED = """
import sys
{statement}
print(*sorted({{name.partition('.')[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import einturnip", {"numpy", "lark", "opt_einsum", "rich", "click", "cupy", "numba"}),
        ("import einturnip; einturnip.compile", {"rich", "click", "cupy", "numba"}),
        ("import einturnip.cli.main", {"numpy", "lark", "rich", "cupy", "numba"}),
    ],
)
def test_what_an_import_does_not_load(tmp_path, statement, forbidden):
    process = python("-c", LOADED.format(statement=statement), cwd=tmp_path, stdout=subprocess.PIPE)
    loaded = set(process.communicate()[0].split())
    assert "einturnip" in loaded
    assert not loaded & forbidden


RUN = """
import sys
from einturnip.cli.main import run
code = run(["run", "p.ein", "-i", "x=x.npy", "-o", "y=y.npy", "-q"])
print(code, *sys.modules)
"""


def test_what_a_run_that_was_planned_before_does_not_load(tmp_path):
    """Neither what reads programs, nor what searches for plans, nor what makes kernels that it has none of."""
    (tmp_path / "p.ein").write_text("input x : f32[n]\ny[i] = 2 * x[i] + 1\noutput y\n")
    np.save(tmp_path / "x.npy", np.ones(8, np.float32))
    where = {"EINTURNIP_PLANS": str(tmp_path / "plans")}
    for _ in range(2):
        process = python("-c", RUN, cwd=tmp_path, stdout=subprocess.PIPE, more=where)
        code, *loaded = process.communicate()[0].split()
        assert code == "0"
    assert np.load(tmp_path / "y.npy").tolist() == [3.0] * 8
    searched = {f"einturnip.{name}" for name in ("planner.variants", "planner.candidates", "cost.kernel_time")}
    kernels = {f"einturnip.kernels.{name}" for name in ("fused.region_kernel", "numpy.keyed", "llvm.nest")}
    read = {
        "lark",
        "einturnip.lang.syntax.parser",
        "einturnip.lang.elaborate.resolve",
        "einturnip.eingraph.autodiff.reverse",
    }
    assert all(find_spec(name) for name in searched | kernels | read), "a module has another name"
    assert not set(loaded) & (searched | kernels | read | {"llvmlite", "rich", "numpy.ma", "subprocess", "zarr"})
