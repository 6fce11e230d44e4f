"""The self-test of a device: it passes where kernels are right, finds a wrong one, and runs once for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from einturnip.cli.main import run
from einturnip.core.errors import DeviceError
from einturnip.devices import self_test as self_test_module
from einturnip.devices.cuda import kind as kind_module
from einturnip.devices.cuda.kind import CudaKind
from einturnip.devices.cuda.probe import FoundGpus, GpuInfo
from einturnip.devices.kind import DeviceChoice, choose
from einturnip.devices.self_test import self_test
from einturnip.kernels.cuda.nvrtc import nvrtc
from tests.kernels.cuda.emulation import LaunchExecutor, no_nvrtc, why_not

from .conftest import put
from .fake_cuda import FakeCalls, FakedDevice


def test_the_command_says_what_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--device", "sim"]) == 0
    said = capsys.readouterr().out
    assert "sim:0: passed" in said and "scatter, gather, fused region" in said


def test_threads_of_the_process_need_none() -> None:
    assert "nothing to test" in self_test(choose("cpu"))


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("devices", [1, 2])
def test_generated_kernels_pass(devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = put(monkeypatch, "cuda", [1e-6], devices, LaunchExecutor(tmp_path))
    assert "passed" in self_test(choose("cuda"))
    assert len(made) == devices and all(calls.closed and not calls.memory for calls in made)


@pytest.mark.parametrize(("name", "kernel"), [("launch", "map"), ("multiply", "product"), ("wait", "map")])
def test_a_call_without_effect_is_found(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake refuses a wait that is left out; a GPU would give wrong values."""
    made = put(monkeypatch, "cuda", [1e-6])
    monkeypatch.setattr(FakeCalls, name, lambda *given: None)
    found: type[Exception] = AssertionError if name == "wait" else DeviceError
    with pytest.raises(found, match="without an order" if name == "wait" else f"self-test's {kernel} gives .* wrong"):
        self_test(choose("cuda"))
    assert all(calls.closed and not calls.memory for calls in made)


@pytest.mark.skipif(bool(no_nvrtc()), reason=no_nvrtc())
def test_a_gpu_is_tested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tested: list[tuple[int, ...]] = []
    real: Callable[[DeviceChoice], str] = self_test_module.self_test

    def noted(choice: DeviceChoice) -> str:
        tested.append(choice.numbers)
        return real(choice)

    def opened(number: int, arena: int, pinned: int, *rest: Any) -> FakedDevice:
        return FakedDevice(f"cuda:{number}", FakeCalls(lambda seconds: 1e-6), arena, pinned)

    gpus = tuple(GpuInfo(n, f"GPU {n}", 90, 80 << 30) for n in range(2))
    monkeypatch.setattr(kind_module, "probe", lambda: FoundGpus(gpus, driver=1000 * nvrtc().version[0]))
    monkeypatch.setattr(kind_module, "open_cuda", opened)
    monkeypatch.setattr(self_test_module, "self_test", noted)
    kind = CudaKind()
    for numbers in ([0], [0], [0, 1]):
        for device in kind.open(kind.choose(numbers, "", ""), [4096] * len(numbers), 4096):
            device.close()
    assert tested == [(0,), (1,)]
    CudaKind().open(kind.choose([1], "", ""), [4096], 4096)[0].close()  # another process
    assert tested == [(0,), (1,)]


@pytest.mark.skipif(bool(no_nvrtc()), reason=no_nvrtc())
def test_a_gpu_that_fails_is_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def failed(choice: DeviceChoice) -> str:
        raise DeviceError("wrong")

    gpu = GpuInfo(0, "GPU", 90, 80 << 30)
    monkeypatch.setattr(kind_module, "probe", lambda: FoundGpus((gpu,), driver=1000 * nvrtc().version[0]))
    monkeypatch.setattr(self_test_module, "self_test", failed)
    kind = CudaKind()
    for _ in range(2):
        with pytest.raises(DeviceError, match="wrong"):
            kind.open(kind.choose([], "", ""), [4096], 4096)
