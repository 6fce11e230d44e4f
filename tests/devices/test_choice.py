"""Which device a word asks for, and how a machine without a GPU explains itself."""

from __future__ import annotations

import pytest

from einturnip import BindError, DeviceError
from einturnip.devices import choice, probe


def test_words() -> None:
    assert choice.choose("cpu").kind == "cpu"
    assert choice.choose("sim:7").number == 7
    with pytest.raises(BindError, match="no device"):
        choice.choose("abacus")
    with pytest.raises(BindError, match="no device"):
        choice.choose("sim+tf32")
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
