"""All CUDA calls of a run on a GPU, through CuPy.

A thin layer without decisions, which tests replace by a fake.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from einturnip.devices.cuda.cublas import Cublas, CublasProduct, load
from einturnip.kernels.cuda.cache import compiled
from einturnip.kernels.cuda.types import CudaKernel, Dim3

NOT_READY = 600  # cudaErrorNotReady
ALREADY = 704  # cudaErrorPeerAccessAlreadyEnabled


class CudaCalls(Protocol):
    """The CUDA calls that CudaDevice uses. Addresses and handles are integers. Units: bytes, seconds."""

    def use(self) -> None: ...
    def malloc(self, nbytes: int) -> int: ...
    def host_alloc(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def host_free(self, address: int) -> None: ...
    def stream(self) -> int: ...
    def event(self) -> int: ...
    def record(self, event: int, stream: int) -> None: ...
    def wait(self, stream: int, event: int) -> None: ...
    def reached(self, event: int) -> bool: ...
    def seconds_between(self, first: int, second: int) -> float: ...
    def synchronize(self, stream: int) -> None: ...
    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None: ...
    def module(self, kernel: CudaKernel) -> object: ...
    def function(self, module: object, entry: str) -> object: ...
    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared: int, head: bytes, fixed: bytes, stream: int
    ) -> None: ...
    def multiply(self, product: CublasProduct, stream: int) -> None: ...
    def workspace(self, stream: int, address: int, nbytes: int) -> None: ...
    def close(self) -> None: ...


class CupyCalls:
    """CudaCalls through CuPy. ``tf32``: see Cublas.

    ``others``: numbers of the GPUs from whose memory it copies.
    """

    def __init__(self, number: int, tf32: bool = False, others: Iterable[int] = ()) -> None:
        self._runtime: Any = import_module("cupy_backends.cuda.api.runtime")
        self._driver: Any = import_module("cupy_backends.cuda.api.driver")
        self._number, self._callers_device = number, self._runtime.getDevice()
        self._streams: list[int] = []
        self._events: list[int] = []
        self._modules: list[int] = []
        try:
            self._runtime.setDevice(number)
            self._runtime.free(0)  # makes the context
            self._reach(others)
            properties = self._runtime.getDeviceProperties(number)
            self._capability = 10 * properties["major"] + properties["minor"]
            self._cuda = self._runtime.driverGetVersion() // 1000
            self._cublas = Cublas(load(), tf32)
        except BaseException:
            self._restore_device()
            raise

    def use(self) -> None:
        """Make this GPU the current device of the calling thread."""
        self._runtime.setDevice(self._number)

    def _reach(self, others: Iterable[int]) -> None:
        """Enable direct access to other GPUs' memory; without it, the driver copies through the host."""
        for other in others:
            if self._runtime.deviceCanAccessPeer(self._number, other):
                try:
                    self._runtime.deviceEnablePeerAccess(other)
                except self._runtime.CUDARuntimeError as error:
                    if error.status != ALREADY:
                        raise

    def malloc(self, nbytes: int) -> int:
        """Allocate device memory; return its address."""
        return int(self._runtime.malloc(nbytes))

    def host_alloc(self, nbytes: int) -> int:
        """Allocate pinned host memory; return its address."""
        return int(self._runtime.hostAlloc(nbytes, self._runtime.hostAllocPortable))

    def free(self, address: int) -> None:
        """Free device memory."""
        self._runtime.free(address)

    def host_free(self, address: int) -> None:
        """Free pinned host memory."""
        self._runtime.freeHost(address)

    def stream(self) -> int:
        """Create a stream that does not synchronize with the default stream."""
        self._streams.append(int(self._runtime.streamCreateWithFlags(self._runtime.streamNonBlocking)))
        return self._streams[-1]

    def event(self) -> int:
        """Create an event with timing."""
        self._events.append(int(self._runtime.eventCreate()))
        return self._events[-1]

    def record(self, event: int, stream: int) -> None:
        """Record the event after the work submitted to the stream so far."""
        self._runtime.eventRecord(event, stream)

    def wait(self, stream: int, event: int) -> None:
        """Make the stream wait for the last record of the event."""
        self._runtime.streamWaitEvent(stream, event)

    def reached(self, event: int) -> bool:
        """Return whether the event was reached; raises the error of work before it."""
        status = self._runtime.eventQuery(event)
        if status not in (0, NOT_READY):
            self._runtime.check_status(status)
        return bool(status == 0)

    def seconds_between(self, first: int, second: int) -> float:
        """Return the seconds between two reached events."""
        return float(self._runtime.eventElapsedTime(first, second)) / 1e3

    def synchronize(self, stream: int) -> None:
        """Block until the stream's work has ended. Used only in rare cases."""
        self._runtime.streamSynchronize(stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes between any two of device, pinned and other GPUs' memory."""
        self._runtime.memcpyAsync(target, source, nbytes, self._runtime.memcpyDefault, stream)

    def module(self, kernel: CudaKernel) -> object:
        """Load the machine code of a kernel; return the module."""
        self._modules.append(int(self._driver.moduleLoadData(compiled(kernel.source, self._capability, self._cuda))))
        return self._modules[-1]

    def function(self, module: object, entry: str) -> object:
        """Return a function of a module."""
        return self._driver.moduleGetFunction(module, entry)

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared: int, head: bytes, fixed: bytes, stream: int
    ) -> None:
        """Launch a function with its two parameter structs, which the driver copies before this returns."""
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in (head, fixed)]
        parameters = (ctypes.c_void_p * 2)(*map(ctypes.addressof, buffers))
        self._driver.launchKernel(function, *grid, *block, shared, stream, ctypes.addressof(parameters), 0)

    def multiply(self, product: CublasProduct, stream: int) -> None:
        """Submit a batch of products to cuBLAS."""
        self._cublas.multiply(product, stream)

    def workspace(self, stream: int, address: int, nbytes: int) -> None:
        """Set the workspace that cuBLAS uses for a stream."""
        self._cublas.workspaces[stream] = (address, nbytes)

    def close(self) -> None:
        """Release the cuBLAS handle, modules, events and streams; make the caller's device current."""
        self._cublas.close()
        for release, handles in (
            (self._driver.moduleUnload, self._modules),
            (self._runtime.eventDestroy, self._events),
            (self._runtime.streamDestroy, self._streams),
        ):
            while handles:
                with suppress(RuntimeError):  # after a fault every call fails, and the fault itself was raised before
                    release(handles.pop())
        self._restore_device()

    def _restore_device(self) -> None:
        """Make the caller's device current again."""
        with suppress(RuntimeError):
            self._runtime.setDevice(self._callers_device)
