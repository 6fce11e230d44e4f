"""The last thin layer: every call of CuPy that a run on a GPU makes. Nothing here decides anything."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol

from einturnip.devices.cuda.cublas import Cublas, CublasProduct, load
from einturnip.kernels.cuda.cache import compiled
from einturnip.kernels.cuda.types import CudaKernel, Dim3

NOT_READY = 600  # cudaErrorNotReady
ALREADY = 704  # cudaErrorPeerAccessAlreadyEnabled
OVER_SHARED = 48 << 10  # bytes of shared memory from which a kernel must be told that it may


class CudaCalls(Protocol):
    """What a device asks of CUDA; addresses and handles are numbers, sizes in bytes."""

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
    def room(self) -> tuple[int, int]: ...
    def close(self) -> None: ...


class CupyCalls:
    """See Calls. ``tf32``: see Cublas."""

    def __init__(self, number: int, tf32: bool = False) -> None:
        self._runtime: Any = import_module("cupy_backends.cuda.api.runtime")
        self._driver: Any = import_module("cupy_backends.cuda.api.driver")
        self._number = number
        self._runtime.setDevice(number)
        self._runtime.free(0)  # makes the context
        self._cublas = Cublas(load(), tf32)
        properties = self._runtime.getDeviceProperties(number)
        self._arch = f"sm_{properties['major']}{properties['minor']}"
        self._streams: list[int] = []
        self._events: list[int] = []
        self._modules: list[int] = []

    def use(self) -> None:
        """Make it the current device of this thread."""
        self._runtime.setDevice(self._number)

    def reach(self, others: Iterable[int]) -> None:
        """Let it read other GPUs' memory where a link joins them; elsewhere the driver copies by way of the host."""
        for other in others:
            if self._runtime.deviceCanAccessPeer(self._number, other):
                try:
                    self._runtime.deviceEnablePeerAccess(other)
                except self._runtime.CUDARuntimeError as error:
                    if error.status != ALREADY:
                        raise

    def malloc(self, nbytes: int) -> int:
        """Memory of the device."""
        return int(self._runtime.malloc(nbytes))

    def host_alloc(self, nbytes: int) -> int:
        """Pinned memory of the host."""
        return int(self._runtime.hostAlloc(nbytes, self._runtime.hostAllocPortable))

    def free(self, address: int) -> None:
        """Give memory of the device back."""
        self._runtime.free(address)

    def host_free(self, address: int) -> None:
        """Give pinned memory back."""
        self._runtime.freeHost(address)

    def stream(self) -> int:
        """A stream that does not wait for the default one."""
        self._streams.append(int(self._runtime.streamCreateWithFlags(self._runtime.streamNonBlocking)))
        return self._streams[-1]

    def event(self) -> int:
        """An event that keeps the time."""
        self._events.append(int(self._runtime.eventCreate()))
        return self._events[-1]

    def record(self, event: int, stream: int) -> None:
        """Have the event stand behind what the stream was given."""
        self._runtime.eventRecord(event, stream)

    def wait(self, stream: int, event: int) -> None:
        """Have the stream wait for the event as last recorded."""
        self._runtime.streamWaitEvent(stream, event)

    def reached(self, event: int) -> bool:
        """Whether the event was reached; what failed before it is raised."""
        status = self._runtime.eventQuery(event)
        if status not in (0, NOT_READY):
            self._runtime.check_status(status)
        return bool(status == 0)

    def seconds_between(self, first: int, second: int) -> float:
        """Seconds from one event to another, both reached."""
        return float(self._runtime.eventElapsedTime(first, second)) / 1e3

    def synchronize(self, stream: int) -> None:
        """Wait for all that the stream was given; for what is rare."""
        self._runtime.streamSynchronize(stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes, wherever they lie."""
        self._runtime.memcpyAsync(target, source, nbytes, self._runtime.memcpyDefault, stream)

    def module(self, kernel: CudaKernel) -> object:
        """A kernel's machine code, loaded."""
        self._modules.append(int(self._driver.moduleLoadData(compiled(kernel.source, self._arch))))
        return self._modules[-1]

    def function(self, module: object, entry: str) -> object:
        """An entry of a module."""
        return self._driver.moduleGetFunction(module, entry)

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared: int, head: bytes, fixed: bytes, stream: int
    ) -> None:
        """Launch an entry with its two structs; the driver copies them before this returns."""
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in (head, fixed)]
        parameters = (ctypes.c_void_p * 2)(*map(ctypes.addressof, buffers))
        if shared > OVER_SHARED:
            self._driver.funcSetAttribute(function, 8, shared)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._driver.launchKernel(function, *grid, *block, shared, stream, ctypes.addressof(parameters), 0)

    def multiply(self, product: CublasProduct, stream: int) -> None:
        """One product, or a batch of them, by cuBLAS."""
        self._cublas.multiply(product, stream)

    def workspace(self, stream: int, address: int, nbytes: int) -> None:
        """Where cuBLAS may work for a stream, and for no other."""
        self._cublas.room[stream] = (address, nbytes)

    def room(self) -> tuple[int, int]:
        """Bytes of the device's memory that are free, and all of them, as the driver counts."""
        free, total = self._runtime.memGetInfo()
        return int(free), int(total)

    def close(self) -> None:
        """Give the handle, modules, events and streams back."""
        self._cublas.close()
        for module in self._modules:
            self._driver.moduleUnload(module)
        for event in self._events:
            self._runtime.eventDestroy(event)
        for stream in self._streams:
            self._runtime.streamDestroy(stream)
        self._modules, self._events, self._streams = [], [], []
