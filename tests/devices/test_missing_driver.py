"""Machines without a driver, without CuPy, with CuPy and no driver: the messages, in separate processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = "input A : f32[i]\nB[i] = 2 * A[i]\noutput B\n"
# Runs in the process before the command: the driver and CuPy as a machine would have them.
NO_DRIVER = """
import ctypes
real = ctypes.CDLL
def load(name, *rest, **more):
    if str(name).startswith("libcuda.so"):
        raise OSError(f"{name}: cannot open shared object file")
    return real(name, *rest, **more)
ctypes.CDLL = load
"""
DRIVER = NO_DRIVER.replace("raise OSError", "return None #")
NO_CUPY = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cupy", "cupy_backends"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Block())
"""
CUPY = """
import sys, types
def module(name, **held):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(held)
    return made
class CUDARuntimeError(RuntimeError): pass
def none():
    raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.api"):
    module(name, __path__=[])
module("cupy_backends.cuda.api.runtime", getDeviceCount=none, driverGetVersion=lambda: 13000)
module("cupy_backends.cuda.api.driver")
"""
LIBRARIES = 'module("cupy_backends.cuda.libs", cublas=None)\n'
NO_LIBRARIES = """
def missing(name):
    raise ImportError("libcublas.so.13 was not found")
module("cupy_backends.cuda.libs", __getattr__=missing)
"""

MACHINES = {
    "no driver": (NO_DRIVER, "no NVIDIA driver", "install the driver"),
    "no driver, with CuPy": (NO_DRIVER + CUPY + LIBRARIES, "no NVIDIA driver", "install the driver"),
    "no CuPy": (DRIVER + NO_CUPY, "CuPy is not installed", "pip install 'einturnip[cuda]'"),
    "no cuBLAS": (DRIVER + CUPY + NO_LIBRARIES, "libcublas.so.13 was not found", "pip install 'cupy-cuda13x[ctk]'"),
    "no GPU": (DRIVER + CUPY + LIBRARIES, "cudaErrorNoDevice", "CUDA_VISIBLE_DEVICES"),
}
MAIN = """
import sys, traceback
from einturnip.cli.main import main
def command(*words):
    sys.argv = ["einturnip", *words]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0
"""
RUN = '"run", "p.ein", "-i", "A=A.npy", "-o", "B=B.npy", "--device"'


def process(code: str, folder: Path) -> tuple[str, str]:
    """The output of a process on both its streams, each in one line."""
    told = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0 and "Traceback" not in told.stderr, told.stderr
    return " ".join(told.stdout.split()), " ".join(told.stderr.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.ein").write_text(PROGRAM)
    np.save(tmp_path / "A.npy", np.arange(4, dtype=np.float32))
    return tmp_path


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_said(name: str, folder: Path) -> None:
    machine, why, remedy = MACHINES[name]
    code = machine + MAIN
    code += f"assert command({RUN}, 'cuda') not in (0, 70)\n"
    code += "import os; assert not os.path.exists('B.npy')\n"
    code += f"assert command({RUN}, 'auto', '--analyze') == 0\n"
    code += "from einturnip.cli.doctor import _devices\nfor line in _devices(): print(*line)\n"
    out, err = process(code, folder)
    np.testing.assert_array_equal(np.load(folder / "B.npy"), [0, 2, 4, 6])
    assert err.startswith("error: --device cuda: ") and why in err and "help: " in err and remedy in err
    assert "on cpu:0: " in out and why in out.partition("on cpu:0: ")[2]
    doctor = out.partition("gpu none: ")[2]
    assert why in doctor and remedy in doctor and "--device auto takes cpu:0" in doctor


def test_importing_einturnip_asks_for_nothing(folder: Path) -> None:
    code = NO_DRIVER + NO_CUPY + "import sys, einturnip; print(any(m.startswith('cupy') for m in sys.modules))"
    assert process(code, folder) == ("False", "")


def test_the_doctor(folder: Path) -> None:
    out, _ = process(NO_DRIVER + MAIN + f"sys.exit(command('doctor', '--spill', {str(folder)!r}))", folder)
    assert "none: no NVIDIA driver" in out
