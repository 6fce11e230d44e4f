"""Finds usable GPUs; if there are none, says why and what helps.

Checks in this order: the driver, CuPy, CUDA's libraries, the devices and their compute capability.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from einturnip.core.errors import DeviceError
from einturnip.kernels.cuda.nvrtc import nvrtc

EXTRA = "pip install 'einturnip[cuda]'"
MIN_CAPABILITY = 75
"""The oldest compute capability that the compiler of CUDA 13 supports."""


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A GPU. Units: bytes. ``capability``: 90 for 9.0."""

    number: int
    name: str
    capability: int
    memory_nbytes: int


@dataclass(frozen=True, slots=True)
class FoundGpus:
    """The usable GPUs; if there are none, ``why`` and the ``remedy``.

    ``driver``: its CUDA version, 13000 for 13.0.
    """

    gpus: tuple[GpuInfo, ...] = ()
    why: str = ""
    remedy: str = ""
    driver: int = 0

    def reason(self) -> str:
        """Return why there is no usable GPU, with the remedy; empty if there is one."""
        return f"{self.why}. help: {self.remedy}" if self.why else ""


def driver() -> str:
    """Return why there is no NVIDIA driver; empty if there is one.

    Cheap: loads one library and creates no context.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 was not found)"
    return ""


@lru_cache(maxsize=1)
def probe() -> FoundGpus:
    """Return the GPUs of this machine, probed once per process. Imports CuPy only if there is a driver."""
    missing = driver()
    if missing:
        return FoundGpus(
            why=missing,
            remedy="install the driver of the machine's GPU (nvidia-smi shows it), or give a container its GPUs "
            "(docker run --gpus all)",
        )
    try:
        runtime = import_module("cupy_backends.cuda.api.runtime")
    except ImportError as error:
        return _no_cupy(error)
    try:
        _ = import_module("cupy_backends.cuda.libs").cublas
    except ImportError as error:
        return FoundGpus(
            why=f"CuPy is installed, but a CUDA library that it needs is not ({' '.join(str(error).split())})",
            remedy="install them with: pip install 'cupy-cuda13x[ctk]', or a CUDA toolkit of the same major version",
        )
    try:
        return _devices(runtime)
    except RuntimeError as error:  # CuPy's CUDARuntimeError
        return FoundGpus(
            why=f"CUDA does not start: {error}",
            remedy="check that nvidia-smi shows a GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that the driver "
            "is new enough for this CuPy (cupy-cuda12x works with older ones)",
        )


def free_nbytes(number: int) -> int:
    """Return the free memory of a GPU at this moment; makes a context on it.

    Raises:
        RuntimeError: the GPU does not answer.
    """
    runtime = import_module("cupy_backends.cuda.api.runtime")
    before = runtime.getDevice()
    runtime.setDevice(number)
    try:
        return int(runtime.memGetInfo()[0])
    finally:
        runtime.setDevice(before)


def _no_cupy(error: ImportError) -> FoundGpus:
    if find_spec_quietly("cupy") is None and find_spec_quietly("cupy_backends") is None:
        return FoundGpus(
            why="there is a driver, but CuPy is not installed", remedy=f"{EXTRA} (CUDA 12's drivers: cupy-cuda12x)"
        )
    return FoundGpus(
        why=f"CuPy is installed but cannot be imported ({error})",
        remedy=f"only one CuPy can be installed at a time: pip uninstall those that 'pip list' shows, then {EXTRA}",
    )


def find_spec_quietly(name: str) -> Any:
    """Return the module's spec; None if it is absent or its import is blocked."""
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _devices(runtime: Any) -> FoundGpus:
    version = int(runtime.driverGetVersion())
    gpus, old = [], []
    for number in range(runtime.getDeviceCount()):
        properties = runtime.getDeviceProperties(number)
        name = properties["name"]
        name = name.decode() if isinstance(name, bytes) else str(name)
        capability = 10 * int(properties["major"]) + int(properties["minor"])
        if capability < MIN_CAPABILITY:
            old.append(f"{name} (compute capability {capability / 10})")
            continue
        gpus.append(GpuInfo(number, name, capability, int(properties["totalGlobalMem"])))
    if gpus:
        try:
            nvrtc(version // 1000)
        except DeviceError as error:
            why, _, remedy = str(error).partition("; ")
            return FoundGpus(why=f"no kernel can be compiled for {gpus[0].name}: {why}", remedy=remedy, driver=version)
        return FoundGpus(tuple(gpus), driver=version)
    if old:
        why = f"the GPU is too old: {', '.join(old)}"
        remedy = f"use a GPU of compute capability {MIN_CAPABILITY / 10} or newer"
        return FoundGpus(why=why, remedy=remedy, driver=version)
    return FoundGpus(
        why="the driver shows no GPU",
        remedy="check the output of nvidia-smi, and that CUDA_VISIBLE_DEVICES is not empty",
        driver=version,
    )
