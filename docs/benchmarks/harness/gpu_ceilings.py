"""Measures the ceilings of a GPU: a copy, its host link, a loop of multiply-adds, cuBLAS's products."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from einturnip.devices.cuda.calls import CudaCalls
from einturnip.devices.cuda.cublas import CublasProduct

ROUNDS = 7
WORKSPACE = 32 << 20  # bytes for cuBLAS, as NVIDIA recommends for its newest GPUs
STEPS = 4096  # multiply-adds of each of eight sums of a thread

FMA = f"""
struct Head {{ float* out; long long n; }};
struct Fixed {{ float a; float b; }};
extern "C" __global__ void fma_loop(Head head, Fixed fixed) {{
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = threadIdx.x + i;
  for (int s = 0; s < {STEPS}; ++s)
    for (int i = 0; i < 8; ++i) x[i] = x[i] * fixed.a + fixed.b;
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == 12345.678f) head.out[0] = sum;  // never, but the compiler cannot know
}}
"""


def ceilings(calls: CudaCalls, nbytes: int = 1 << 30, n: int = 8192, grid: int = 4096) -> dict[str, float]:
    """Bytes/s of a copy and of each direction of the link, FLOP/s of f32 and of products."""
    device, host = calls.malloc(2 * nbytes + WORKSPACE), calls.host_alloc(nbytes)
    stream = calls.stream()
    calls.workspace(stream, device + 2 * nbytes, WORKSPACE)
    try:
        copies = {"copy": (device + nbytes, device), "host to device": (device, host), "device to host": (host, device)}
        found = {}
        for name, (to, since) in copies.items():
            seconds = _best(calls, stream, partial(calls.copy, to, since, nbytes, stream))
            found[name] = (2 if name == "copy" else 1) * nbytes / seconds
        kernel: Any = SimpleNamespace(source=FMA)
        function = calls.function(calls.module(kernel), "fma_loop")
        head, fixed = struct.pack("qq", device, 0), struct.pack("ff", 0.999, 0.001)
        seconds = _best(
            calls, stream, lambda: calls.launch(function, (grid, 1, 1), (256, 1, 1), 0, head, fixed, stream)
        )
        found["multiply-adds f32"] = 2.0 * 8 * STEPS * 256 * grid / seconds
        return found | _products(calls, stream, device, nbytes, n)
    finally:
        calls.free(device)
        calls.host_free(host)


def _products(calls: CudaCalls, stream: int, device: int, nbytes: int, n: int) -> dict[str, float]:
    """FLOP/s of square products; three f32 matrices are in memory."""
    found = {}
    for dtype, item in (("f32", 4), ("f16", 2), ("bf16", 2)):
        size = item * n * n
        assert 3 * size <= 2 * nbytes
        a, b, c = (device + k * size for k in range(3))
        product = CublasProduct(
            n, n, n, 1, (a, False, n, 0), (b, False, n, 0), (c, n, 0), (dtype, "f32", dtype), 1, 0.0
        )
        found[f"cuBLAS {dtype}"] = 2.0 * n**3 / _best(calls, stream, partial(calls.multiply, product, stream))
    return found


def _best(calls: CudaCalls, stream: int, work: Callable[[], None]) -> float:
    """The median of a few runs, after one to warm up."""
    taken = []
    for _ in range(ROUNDS + 1):
        first, last = calls.event(), calls.event()
        calls.record(first, stream)
        work()
        calls.record(last, stream)
        calls.synchronize(stream)
        taken.append(calls.seconds_between(first, last))
    return float(np.median(taken[1:]))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class DriverMemory:
    """Bytes in use on a GPU by the driver's count, sampled: ``peak`` since ``restart``.

    The driver counts all processes, and numbers GPUs as nvidia-smi does: run alone, and without CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, number: int, seconds: float = 0.005) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._handle, self._held = ctypes.c_void_p(), _Memory()
        for status in (
            self._nvml.nvmlInit_v2(),
            self._nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(self._handle)),
        ):
            if status:
                raise OSError(f"NVML answers with status {status}")
        self._seconds, self._stop = seconds, threading.Event()
        self.peak = self.used()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def used(self) -> int:
        """Bytes in use now."""
        self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(self._held))
        return int(self._held.used)

    def restart(self) -> int:
        """Begin a new peak; returns the bytes in use now."""
        self.peak = self.used()
        return self.peak

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        held = _Memory()
        while not self._stop.wait(self._seconds):
            self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(held))
            self.peak = max(self.peak, int(held.used))
