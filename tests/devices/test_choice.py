"""The device that each word selects, and the explanation on a machine without a GPU."""

from __future__ import annotations

import pytest

from einturnip import BindError, DeviceError
from einturnip.devices import choice, probe


def test_words() -> None:
    assert choice.choose("cpu").kind == "cpu"
    assert choice.choose("sim:7").number == 7
    with pytest.raises(BindError, match="not a device"):
        choice.choose("abacus")
    with pytest.raises(BindError, match="not a device"):
        choice.choose("sim+tf32")
    several = choice.choose("sim:7,8,7")
    assert several.numbers == (7, 8, 7) and several.names == ("sim:0", "sim:1", "sim:2")
    assert choice.DeviceChoice("cuda", 1, further=(0, 1)).names == ("cuda:1", "cuda:0", "cuda:1.1")
    for kind, most in choice.MAX_DEVICES.items():
        with pytest.raises(BindError, match=f"at most {most} devices"):
            choice.check(f"{kind}:" + ",".join(map(str, range(most + 1))))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    probe.probe.cache_clear()
    for module in (choice, probe):
        monkeypatch.setattr(module, "driver", lambda: "no NVIDIA driver")
    assert choice.choose("auto") == choice.DeviceChoice(why="no NVIDIA driver")
    with pytest.raises(DeviceError, match="no NVIDIA driver.*help: install the driver"):
        choice.choose("cuda")
    probe.probe.cache_clear()
