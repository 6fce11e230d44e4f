"""NVIDIA GPUs as a kind of device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from einturnip.caches import DEVICE_TESTS, DamagedEntry
from einturnip.core.errors import DeviceError
from einturnip.core.units import format_size
from einturnip.cost.described_machines import product_flops
from einturnip.devices.cuda.probe import driver, free_nbytes, probe
from einturnip.devices.kind import DeviceChoice, DeviceKind, unknown_rates
from einturnip.kernels.cuda.nvrtc import headers, nvrtc

if TYPE_CHECKING:
    from einturnip.cost.machine import Machine
    from einturnip.devices.protocol import Array, Device
    from einturnip.ir.region import Space
    from einturnip.kernels.protocol import Mode
    from einturnip.storage.device_arrays import DeviceArray

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
DEFAULT_FRACTION = 0.9
"""Fraction of a GPU's free memory for a run without a stated budget; the CUDA context and modules need the rest."""
CUBLAS_NBYTES = 4 * (32 << 20)
"""cuBLAS workspace of four streams, within the GPU's budget; NVIDIA recommends this size for its newest GPUs."""
CUBLAS_DIVISOR = 32
"""The cuBLAS workspace is at most the budget divided by this number; cuBLAS then uses kernels that need less."""


class CudaKind(DeviceKind):
    """NVIDIA GPUs. With the option ``tf32``, products of f32 can round their factors to 10 bits."""

    name = "cuda"
    options = ("tf32",)
    max_devices = 16

    def __init__(self) -> None:
        self._passed: set[str] = set()  # GPUs that this process need not test

    def choose(self, numbers: Sequence[int], option: str, word: str) -> DeviceChoice:
        """See DeviceKind."""
        found = probe()
        if not found.gpus:
            raise DeviceError(f"--device {word}: {found.reason()}")
        named = numbers or [found.gpus[0].number]
        if not {*named} <= {gpu.number for gpu in found.gpus}:
            usable = ", ".join(f"cuda:{gpu.number} ({gpu.name})" for gpu in found.gpus)
            raise DeviceError(f"--device {word}: there is no such GPU. help: there are {usable}")
        return super().choose(named, option, word)

    def automatic(self) -> DeviceChoice | str:
        """See DeviceKind."""
        if missing := driver():  # without a driver, nothing else has to be imported
            return missing
        found = probe()
        if not found.gpus:
            return found.reason()
        return DeviceChoice(self, found.gpus[0].number, f"{found.gpus[0].name}, the first that can be used")

    def findings(self) -> Iterator[tuple[str, str]]:
        """See DeviceKind."""
        found = probe()
        for gpu in found.gpus:
            memory = f"{format_size(free_nbytes(gpu.number))} free of {format_size(gpu.memory_nbytes)}"
            yield "gpu", f"cuda:{gpu.number}: {gpu.name}, compute capability {gpu.capability / 10}, {memory}"
        if found.gpus:
            yield "", f"the driver knows CUDA {found.driver // 1000}.{found.driver % 1000 // 10}"
            compiler = nvrtc(found.driver // 1000)
            yield "", f"kernels are compiled by NVRTC {compiler.version[0]}.{compiler.version[1]} ({compiler.path})"
        else:
            yield "gpu", f"none: {found.reason()}"

    def arena_nbytes(self, numbers: Sequence[int]) -> int:
        """See DeviceKind."""
        free = {number: free_nbytes(number) for number in {*numbers}}
        return int(DEFAULT_FRACTION * min(free[number] // [*numbers].count(number) for number in numbers))

    def library_nbytes(self, budget: int) -> int:
        """Return the bytes of cuBLAS's workspace."""
        return min(CUBLAS_NBYTES, budget // CUBLAS_DIVISOR)

    def workspace_nbytes(self, space: Space, extents: tuple[int, ...], mode: Mode, compiled: bool) -> int:
        """Return the bytes of workspace, which kernels of GPUs align to 256 bytes."""
        from einturnip.devices.cuda.products import packing_nbytes
        from einturnip.kernels.cuda.generate import generate

        nbytes = max(generate(space, mode).workspace_nbytes(extents), packing_nbytes(space, extents, mode))
        return nbytes + 256 if nbytes else 0

    def product_flops(self, chosen: DeviceChoice, host: Machine) -> Sequence[float]:
        """Return the rates of the described machines with these GPUs."""
        names = {gpu.number: gpu.name for gpu in probe().gpus}
        found = [product_flops(names[number]) for number in chosen.numbers]
        if None in found:
            where = found.index(None)
            raise unknown_rates(chosen, f"{chosen.names[where]} ({names[chosen.numbers[where]]})")
        return [rate for rate in found if rate is not None]

    def open(self, chosen: DeviceChoice, arenas: Sequence[int], pinned: int) -> Sequence[Device]:
        """See DeviceKind. A GPU that was never used passes a self-test first."""
        for number in sorted({*chosen.numbers}):
            self._test_once(number)
        found: list[Device] = []
        try:
            for number, name, arena in zip(chosen.numbers, chosen.names, arenas, strict=True):
                others = sorted({*chosen.numbers} - {number})
                own = 0 if found else pinned
                tf32 = chosen.option == "tf32"
                found.append(open_cuda(number, arena, own, chosen.library, tf32, name, others))
        except BaseException:
            for device in found:
                device.close()
            raise
        return found

    def empty(self, number: int, shape: Sequence[int], dtype: Any) -> Any:
        """Return a CuPy array, from the allocator that CuPy uses.

        Raises:
            DeviceError: too little of the GPU's memory is free, or CuPy lacks the dtype.
        """
        cupy = import_module("cupy")
        try:
            with cupy.cuda.Device(number):
                return cupy.empty(tuple(shape), dtype)
        except (MemoryError, RuntimeError, TypeError, ValueError) as error:
            raise DeviceError(
                f"a result of {list(shape)} {dtype} cannot be allocated on cuda:{number}: {error}. help: write it to a "
                "file with out=, or free memory: cupy.get_default_memory_pool().free_all_blocks()"
            ) from error

    def join_callers(self, device: Device, arrays: Sequence[DeviceArray]) -> None:
        """See DeviceKind."""
        from einturnip.devices.cuda.device import CudaDevice

        assert isinstance(device, CudaDevice)
        device.join_streams({stream for array in arrays if (stream := array.stream()) is not None})
        for array in arrays:
            array.fetch = partial(fetch, array.number)

    def _test_once(self, number: int) -> None:
        """Run the self-test, unless this GPU passed it with this driver and this version of einturnip.

        Raises:
            DeviceError: the GPU computes something wrong.
        """

        from einturnip.devices.self_test import self_test

        found = probe()
        gpu = next((gpu for gpu in found.gpus if gpu.number == number), None)
        if gpu is None:
            return
        version = nvrtc(found.driver // 1000).version
        parts = (gpu.name, gpu.capability, found.driver, version, metadata.version("einturnip"), *headers().values())
        entry = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]
        if entry in self._passed:
            return
        self._passed.add(entry)  # before the test, which opens the GPU itself
        try:
            pass_once(entry, lambda: f"{gpu.name}: {self_test(DeviceChoice(self, number))}")
        except BaseException:
            self._passed.discard(entry)
            raise


def fetch(number: int, target: Array, place: int) -> None:
    """Fill a contiguous array on the host from an address on a GPU; waits for the copy."""
    runtime = import_module("cupy_backends.cuda.api.runtime")
    before = runtime.getDevice()
    runtime.setDevice(number)
    try:
        runtime.memcpy(target.ctypes.data, place, target.nbytes, runtime.memcpyDefault)
    finally:
        runtime.setDevice(before)


def pass_once(entry: str, test: Callable[[], str]) -> None:
    """Run a test, which returns what it did, unless the cache has an entry for it."""
    with suppress(OSError, DamagedEntry):
        if DEVICE_TESTS.read(entry) is not None:
            return
    said = test()
    with suppress(OSError):
        DEVICE_TESTS.write({entry: [said.encode()]})


def open_cuda(
    number: int,
    arena: int,
    pinned: int,
    library: int = 0,
    tf32: bool = False,
    name: str = "",
    others: Sequence[int] = (),
) -> Device:
    """Open a GPU: allocate its arena, the workspace of cuBLAS, and pinned host memory.

    ``others``: numbers of the GPUs from whose arenas it copies.

    Raises:
        DeviceError: it has too little free memory, or does not start.
    """
    from einturnip.devices.cuda.calls import CupyCalls
    from einturnip.devices.cuda.device import CudaDevice

    try:
        return CudaDevice(name or f"cuda:{number}", CupyCalls(number, tf32, others), arena, pinned, library)
    except ImportError as error:
        raise DeviceError(
            f"cuda:{number} cannot be used: {error}. help: einturnip doctor says what to install"
        ) from error
    except RuntimeError as error:  # CuPy's errors are RuntimeErrors
        remedy = "nvidia-smi shows whether the GPU works, and who uses it"
        if getattr(error, "status", None) == OUT_OF_MEMORY:
            remedy = (
                f"the run needs {arena} bytes of its memory, of which {free_nbytes(number)} are free, and {pinned} "
                "bytes of pinned host memory; lower --memory or --host-memory"
            )
        raise DeviceError(f"cuda:{number} cannot be used: {error}. help: {remedy}") from error


CUDA = CudaKind()
