"""The device that each word selects, and the explanation on a machine without a GPU."""

from __future__ import annotations

import pytest

from einturnip import BindError, DeviceError
from einturnip.api.call_settings import Settings
from einturnip.devices import kind as kinds
from einturnip.devices.cuda import kind, probe
from einturnip.devices.cuda.kind import CUDA
from einturnip.devices.kind import CPU, DeviceChoice


def test_words() -> None:
    assert kinds.choose("cpu").kind is CPU
    assert kinds.choose("sim:7").number == 7
    for word in ("abacus", "sim+tf32", "cpu:0", "cuda:", "cuda:1,", "cuda:1:2", "Cuda", "auto:1", ""):
        with pytest.raises(BindError, match="not a device. help: auto, cpu, cuda, sim, or"):
            kinds.choose(word)
    several = kinds.choose("sim:7,8,7")
    assert several.numbers == (7, 8, 7) and several.names == ("sim:0", "sim:1", "sim:2")
    assert DeviceChoice(CUDA, 1, further=(0, 1)).names == ("cuda:1", "cuda:0", "cuda:1.1")
    for name in ("cuda", "sim"):
        most = kinds.kind_of(name).max_devices
        with pytest.raises(BindError, match=f"at most {most} devices"):
            kinds.check(f"{name}:" + ",".join(map(str, range(most + 1))))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    probe.probe.cache_clear()
    for module in (kind, probe):
        monkeypatch.setattr(module, "driver", lambda: "no NVIDIA driver")
    assert kinds.choose("auto") == DeviceChoice(CPU, why="no NVIDIA driver")
    with pytest.raises(DeviceError, match="no NVIDIA driver.*help: install the driver"):
        kinds.choose("cuda")
    probe.probe.cache_clear()


def test_memory_is_the_process_s_where_auto_takes_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDA, "automatic", lambda: "no GPU")
    for device in ("cpu", "auto"):
        settings = Settings(memory="8MiB", device=device)
        assert settings.allowed() == 8 << 20 and settings.options().memory is None
    settings = Settings(memory="8MiB", device="sim")
    assert settings.allowed() is None and settings.options().memory == 8 << 20
