"""Which device a word asks for, and how a machine without a GPU explains itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from einturnip import BindError, DeviceError
from einturnip.devices import choice, probe

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cupy", "cupy_backends"):
            raise ImportError("blocked")
sys.meta_path.insert(0, Block())
from einturnip.devices import probe
probe.driver = lambda: ""
print(probe.probe().reason())
"""


def test_words() -> None:
    assert choice.choose("cpu").kind == "cpu"
    assert choice.choose("sim:7").number == 7
    with pytest.raises(BindError, match="no device"):
        choice.choose("abacus")
    with pytest.raises(DeviceError, match="several GPUs"):
        choice.choose("cuda:0,1")


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    probe.probe.cache_clear()
    for module in (choice, probe):
        monkeypatch.setattr(module, "driver", lambda: "no NVIDIA driver")
    assert choice.choose("auto") == choice.Chosen(why="no NVIDIA driver")
    with pytest.raises(DeviceError, match="no NVIDIA driver.*help: install the driver"):
        choice.choose("cuda")
    probe.probe.cache_clear()


def test_without_cupy() -> None:
    told = subprocess.run([sys.executable, "-c", BLOCK], capture_output=True, text=True, check=True).stdout
    assert "CuPy is not installed" in told and "pip install" in told


def test_importing_einturnip_loads_no_cupy() -> None:
    code = "import sys, einturnip; print(any(m.startswith('cupy') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
