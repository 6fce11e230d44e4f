"""A GPU that fails or is full: the error names the statement, everything is freed, the caller's device is restored."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import RunError
from einturnip.devices.cuda import calls as calls_module
from einturnip.devices.cuda import kind as kind_module
from einturnip.devices.cuda import probe as probe_module
from einturnip.devices.cuda.calls import CupyCalls
from einturnip.devices.cuda.device import MAX_EVENT_SECONDS
from einturnip.devices.cuda.kind import open_cuda
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda.gemm import gemm
from einturnip.kernels.cuda.types import DeviceTile

from .conftest import put
from .fake_cuda import FakeCalls, FakedDevice

TEXT = "input A : f32[i,k], B : f32[k,j]\nC[i,j] = A[i,k] * B[k,j]\nD[i,j] = exp(C[i,j])\noutput D\n"


class Fault(RuntimeError):
    """CuPy's errors are RuntimeErrors with a status."""

    def __init__(self, status: int = 700) -> None:
        super().__init__("cudaErrorIllegalAddress: an illegal memory access was encountered")
        self.status = status


def failing(monkeypatch: pytest.MonkeyPatch, name: str, after: int) -> None:
    """From the call number ``after`` of a function on, it and every later call of the device fails, as CUDA's do."""
    left = [after]

    def wrap(function: str, counted: bool) -> None:
        real = getattr(FakeCalls, function)

        def call(self: FakeCalls, *given: Any) -> Any:
            left[0] -= counted
            if left[0] < 0:
                raise Fault
            return real(self, *given)

        monkeypatch.setattr(FakeCalls, function, call)

    for function in ("reached", "launch", "copy", "record", "synchronize"):
        wrap(function, function == name)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", ["reached", "launch"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_fault_names_the_statement_and_everything_is_freed(
    devices: int, name: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = put(monkeypatch, "cuda", [1e-3], devices)
    failing(monkeypatch, name, after)
    data = {name: np.ones((8, 8), np.float32) for name in "AB"}
    with pytest.raises(RunError, match=r"(?s)[ABCD]\b.*cudaErrorIllegalAddress"):
        et.compile(TEXT)(data=data, device="cuda", arena=4096)
    assert len(made) == devices
    assert all(calls.closed and not calls.memory for calls in made)


def test_a_wait_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake of the calls compares all accesses to the same bytes."""
    put(monkeypatch, "cuda", [1.0, 1e-6, 1e-3])
    monkeypatch.setattr(FakeCalls, "wait", lambda *given: None)
    data = {name: np.ones((8, 8), np.float32) for name in "AB"}
    with pytest.raises(RunError, match="bytes are used again without an order"):
        et.compile(TEXT)(data=data, device="cuda", arena=4096)


def test_a_device_that_cannot_be_opened_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = FakeCalls(lambda seconds: seconds)

    def full(self: FakeCalls, nbytes: int) -> int:
        raise Fault(kind_module.OUT_OF_MEMORY)

    monkeypatch.setattr(FakeCalls, "host_alloc", full)
    monkeypatch.setattr(calls_module, "CupyCalls", lambda *given: calls)
    monkeypatch.setattr(kind_module, "free_nbytes", lambda number: 77)
    with pytest.raises(et.DeviceError, match=r"cuda:3 .* needs 512 bytes .* of which 77 are free.*lower --memory"):
        open_cuda(3, 512, 256)
    assert calls.closed and not calls.memory


@pytest.mark.parametrize("error", [Fault(), ImportError("libnvrtc.so.13 was not found")])
def test_only_a_full_gpu_is_told_to_use_less(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(calls_module, "CupyCalls", fail)
    with pytest.raises(et.DeviceError) as told:
        open_cuda(0, 512, 256)
    assert str(error) in str(told.value) and "lower --memory" not in str(told.value)


def test_event_times_keep_their_grain_in_long_runs() -> None:
    """The driver tells the time between two events as milliseconds in f32: 60 us apart after ten minutes."""
    calls = FakeCalls(lambda seconds: seconds)
    device = FakedDevice("cuda:0", calls, 512, 256)
    start = calls.streams.clock
    seen = set()
    for seconds in np.arange(0.3, 1200, 0.9 * MAX_EVENT_SECONDS):
        for later in (0.0, 1e-5):
            mark = device.mark(0)
            seen.add(mark.event)  # type: ignore[attr-defined]
            calls.events[mark.event].event.time = start + seconds + later  # type: ignore[attr-defined]
            found = device.ended(mark)
            assert found is not None and abs(found - seconds - later) < 1e-6 * max(1.0, seconds / 100)
    assert len(seen) <= 4  # events are used again
    device.close()


def runtime(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> list[Any]:
    """CuPy's module of the CUDA runtime with these functions; gives the devices made current, the first before all."""
    made, current = types.ModuleType("cupy_backends.cuda.api.runtime"), [5]
    vars(made).update(functions, getDevice=lambda: current[-1], setDevice=current.append)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return current


def test_looking_for_gpus_makes_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"name": b"GPU", "major": 9, "minor": 0, "totalGlobalMem": 80 << 30}
    current = runtime(
        monkeypatch, driverGetVersion=lambda: 13000, getDeviceCount=lambda: 3, getDeviceProperties=lambda n: properties
    )
    found = probe_module._devices(sys.modules["cupy_backends.cuda.api.runtime"])
    assert [gpu.number for gpu in found.gpus] == [0, 1, 2] and found.gpus[0].memory_nbytes == 80 << 30
    assert current == [5]


def test_free_memory_is_that_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([30, 10])
    current = runtime(monkeypatch, memGetInfo=lambda: (next(free), 80))
    assert [probe_module.free_nbytes(2), probe_module.free_nbytes(2)] == [30, 10]
    assert current[-1] == 5


def test_the_caller_has_its_device_again_if_opening_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"major": 9, "minor": 0}
    current = runtime(
        monkeypatch, free=lambda at: None, getDeviceProperties=lambda n: properties, driverGetVersion=lambda: 13000
    )
    driver = types.ModuleType("cupy_backends.cuda.api.driver")
    monkeypatch.setitem(sys.modules, driver.__name__, driver)

    def missing() -> None:
        raise ImportError("libcublas.so.13 was not found")

    monkeypatch.setattr(calls_module, "load", missing)
    with pytest.raises(ImportError):
        CupyCalls(2)
    assert current == [5, 2, 5]


def test_the_caller_has_its_device_again(monkeypatch: pytest.MonkeyPatch) -> None:
    current = runtime(
        monkeypatch,
        free=lambda pointer: None,
        getDeviceProperties=lambda number: {"major": 9, "minor": 0},
        driverGetVersion=lambda: 13000,
        streamCreateWithFlags=lambda flags: 7,
        streamNonBlocking=1,
        streamDestroy=_fail,
        eventDestroy=_fail,
    )
    driver = types.ModuleType("cupy_backends.cuda.api.driver")
    vars(driver).update(moduleUnload=_fail)
    monkeypatch.setitem(sys.modules, driver.__name__, driver)
    monkeypatch.setattr(calls_module, "load", lambda: None)
    monkeypatch.setattr(calls_module, "Cublas", lambda library, tf32: types.SimpleNamespace(close=lambda: None))
    calls = CupyCalls(1)
    calls.stream()
    assert current[-1] == 1
    calls.close()  # after a fault, what cannot be released does not hide it
    assert current[-1] == 5


def _fail(handle: int) -> None:
    raise Fault


@pytest.mark.parametrize("rows", [(1 << 31) - 1, 1 << 31])
def test_products_beyond_the_integers_of_cublas_are_left_to_generated_kernels(rows: int) -> None:
    extents = (rows, 1, 2)
    product = ScalarCall("mul", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    einsum = Einsum(("i", "j", "k"), extents, 2, ((0, 2), (2, 1)), (F32, F32), product, aggregation("sum", F32))
    tiles = [DeviceTile((8, 4)), DeviceTile((4, 4))]
    assert (gemm(einsum, extents, tiles, DeviceTile((4, 4)), True) is None) == (rows == 1 << 31)
