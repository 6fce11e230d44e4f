"""The last thin layer: every call of CuPy that a run on a GPU makes. Nothing here decides anything."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from einturnip.codegen.cuda.cache import compiled
from einturnip.codegen.cuda.types import CudaKernel, Dim3

NOT_READY = 600  # cudaErrorNotReady
OVER_SHARED = 48 << 10  # bytes of shared memory from which a kernel must be told that it may


@dataclass(frozen=True, slots=True)
class Product:
    """``c[b] = alpha a[b] b[b] + beta c[b]``, columns first as cuBLAS counts: (m, k) by (k, n), addresses, elements."""

    m: int
    n: int
    k: int
    batch: int
    a: tuple[int, bool, int, int]  # address, transposed, leading dimension, stride of the batch
    b: tuple[int, bool, int, int]
    c: tuple[int, int, int]  # address, leading dimension, stride of the batch
    dtypes: tuple[str, str, str]  # of a and b, of the sums, of c
    alpha: complex
    beta: float


class Calls(Protocol):
    """What a device asks of CUDA; addresses and handles are numbers, sizes in bytes."""

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
    def multiply(self, product: Product, stream: int) -> None: ...
    def close(self) -> None: ...


_CUDA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "c64": 4, "c128": 5, "bf16": 14}  # cudaDataType
_COMPUTE_TYPES = {"f16": 68, "bf16": 68, "f32": 68, "c64": 68, "f64": 70, "c128": 70}  # cublasComputeType: sums of f32
TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
_SCALARS = {"f32": "f", "f64": "d", "c64": "ff", "c128": "dd"}


class CupyCalls:
    """See Calls. ``tf32``: products of f32 may round their factors to 10 bits, which tensor cores multiply faster."""

    def __init__(self, number: int, tf32: bool = False) -> None:
        self._runtime: Any = import_module("cupy_backends.cuda.api.runtime")
        self._driver: Any = import_module("cupy_backends.cuda.api.driver")
        self._cublas: Any = import_module("cupy_backends.cuda.libs").cublas
        self._tf32 = tf32
        self._runtime.setDevice(number)
        self._runtime.free(0)  # makes the context
        properties = self._runtime.getDeviceProperties(number)
        self._arch = f"sm_{properties['major']}{properties['minor']}"
        self._handles: dict[int, Any] = {}  # cuBLAS handles by stream: a handle's workspace serves one stream
        self._streams: list[int] = []
        self._events: list[int] = []

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
        return self._driver.moduleLoadData(compiled(kernel.source, self._arch))

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

    def multiply(self, product: Product, stream: int) -> None:
        """One product, or a batch of them, by cuBLAS."""
        p, cublas = product, self._cublas
        handle = self._handle(stream)
        factors, sums, result = p.dtypes
        kind = _SCALARS[sums]
        parts = [[z.real, z.imag][: len(kind)] for z in (p.alpha, complex(p.beta))]
        number = ctypes.c_float if kind[0] == "f" else ctypes.c_double
        alpha, beta = ((number * len(kind))(*values) for values in parts)
        compute = TF32 if self._tf32 and factors == "f32" else _COMPUTE_TYPES[factors]
        common = (_CUDA_TYPES[factors], _CUDA_TYPES[factors], _CUDA_TYPES[result])
        cublas.gemmStridedBatchedEx(
            handle, int(p.a[1]), int(p.b[1]), p.m, p.n, p.k, ctypes.addressof(alpha),
            p.a[0], common[0], p.a[2], p.a[3], p.b[0], common[1], p.b[2], p.b[3], ctypes.addressof(beta),
            p.c[0], common[2], p.c[1], p.c[2], p.batch, compute, -1,
        )  # fmt: skip

    def _handle(self, stream: int) -> Any:
        if stream not in self._handles:
            self._handles[stream] = self._cublas.create()
            self._cublas.setStream(self._handles[stream], stream)
        return self._handles[stream]

    def close(self) -> None:
        """Give handles, events and streams back."""
        for handle in self._handles.values():
            self._cublas.destroy(handle)
        for event in self._events:
            self._runtime.eventDestroy(event)
        for stream in self._streams:
            self._runtime.streamDestroy(stream)
        self._handles, self._events, self._streams = {}, [], []
