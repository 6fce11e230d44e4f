"""The host as a device: its arena, its BLAS, what it is and how fast it is."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from einturnip.core.process_limits import available_memory, total_memory, usable_cores
from einturnip.devices.measure import measure_copy, measure_disk, measure_gemm
from einturnip.kernels.blas.cblas import cblas_name

__all__ = [
    "BlasInfo",
    "HostArena",
    "HostInfo",
    "available_memory",
    "blas_threads",
    "host_info",
    "measure_copy",
    "measure_disk",
    "measure_gemm",
    "total_memory",
    "usable_cores",
]

Array = np.ndarray[Any, np.dtype[Any]]


# Bytes of an arena whose pages are counted at once.
_COUNTED_NBYTES = 1 << 26
# Arenas that are open and larger than a small plan's, by the address of each.
_LARGE_NBYTES = 1 << 20
_open_arenas: dict[int, weakref.ref[HostArena]] = {}


def arenas_nbytes() -> int:
    """Resident bytes of all arenas of this process, but for small ones."""
    arenas = [arena() for arena in list(_open_arenas.values())]
    return sum(arena.touched_nbytes() or 0 for arena in arenas if arena is not None)


class HostArena:
    """All the memory that a run computes in: one private anonymous mapping of ``nbytes``, page-aligned.

    Pages count as resident from their first use on; the mapping never grows.
    """

    def __init__(self, nbytes: int, large_pages: bool = False) -> None:
        """``large_pages``: what is touched may take up to 2 MiB more, and is found in less time."""
        if nbytes <= 0:
            raise ValueError(f"an arena needs at least one byte, not {nbytes}")
        self.nbytes = nbytes
        self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if large_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        # arrays made from the mapping itself would not hold it open, and reading them after close would be fatal
        self._bytes = np.frombuffer(self._map, np.uint8)
        if nbytes > _LARGE_NBYTES:
            number = id(self)
            _open_arenas[number] = weakref.ref(self, lambda _: _open_arenas.pop(number, None))

    def view(self, offset: int, nbytes: int) -> Array:
        """Bytes of the arena as a uint8 array.

        Raises:
            TypeError, ValueError: the bytes are not all in the arena.
        """
        return np.ndarray((nbytes,), np.uint8, self._bytes, offset)

    def array(self, offset: int, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None) -> Array:
        """An array over the arena's bytes as they are, C-contiguous unless ``strides`` (bytes) say otherwise.

        Raises:
            TypeError, ValueError: the array is not all in the arena.
        """
        return np.ndarray(shape, dtype, self._bytes, offset, strides)

    def touched_nbytes(self) -> int | None:
        """Bytes of the pages that were used so far, as the kernel counts them; None where it does not tell."""
        try:
            mincore = ctypes.CDLL(None, use_errno=True).mincore
        except (OSError, AttributeError):
            return None
        page, touched = os.sysconf("SC_PAGE_SIZE"), 0
        for begin in range(0, self.nbytes, _COUNTED_NBYTES):
            nbytes = min(_COUNTED_NBYTES, self.nbytes - begin)
            resident = np.zeros(-(-nbytes // page), np.uint8)
            at = ctypes.c_void_p(self._bytes.ctypes.data + begin)
            if mincore(at, ctypes.c_size_t(nbytes), ctypes.c_void_p(resident.ctypes.data)) != 0:
                return None
            touched += int(np.count_nonzero(resident & 1)) * page
        return touched

    def forget(self) -> None:
        """Hold nothing: the system has the pages back as soon as it wants them, and what is left is used again."""
        self._map.madvise(getattr(mmap, "MADV_FREE", mmap.MADV_DONTNEED))

    def close(self) -> None:
        """Give the memory back; where arrays over it still live, when the last of them goes."""
        _open_arenas.pop(id(self), None)
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):
            self._map.close()


class _Limited(NamedTuple):
    """A library's number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


@cache
def _libraries() -> list[_Limited]:
    """The libraries whose threads are limited, found once: that takes a millisecond. NumPy's is there before."""
    found = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return [_openblas(library) or _Limited(library.get_num_threads, library.set_num_threads) for library in found]


def _openblas(library: threadpoolctl.LibController) -> _Limited | None:
    """OpenBLAS's own functions: they take a tenth of the time, and serve whichever thread calls them."""
    if library.internal_api != "openblas" or getattr(library, "threading_layer", "") == "openmp":
        return None
    functions = ctypes.CDLL(library.filepath)
    for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
        if all(hasattr(functions, name) for name in names):
            return _Limited(*(functions[name] for name in names))
    return None


class _BlasLimits:
    """The limits in force, oldest first: runs in several threads begin and end in any order.

    Each is a weak reference: one that Ctrl-C kept from ending is forgotten when the next one ends.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limits: dict[int, tuple[weakref.ref[blas_threads], int]] = {}
        self.before: list[int] = []

    def enter(self, limit: blas_threads, n: int) -> None:
        libraries = _libraries()
        with self.lock:
            if not self.limits:
                self.before = [library.get() for library in libraries]
            self.limits[id(limit)] = weakref.ref(limit), n
            for library in libraries:
                library.set(n)

    def leave(self, limit: blas_threads) -> None:
        """End a limit; once more where an interrupt came between: it is in force until all is done."""
        with self.lock:
            if id(limit) not in self.limits:
                return
            alone = len(self.limits) == 1
            others = [] if alone else [n for held, n in self.limits.values() if held() not in (None, limit)]
            for library, before in zip(_libraries(), self.before, strict=True):
                library.set(others[-1] if others else before)
            if others:
                del self.limits[id(limit)]
            else:
                self.limits.clear()


_blas_limits = _BlasLimits()


class blas_threads:
    """Within, BLAS calls use at most ``n`` threads, in the whole process; after the last one, as many as before."""

    __slots__ = ("__weakref__", "_n")

    def __init__(self, n: int) -> None:
        self._n = n

    def __enter__(self) -> None:
        try:
            _blas_limits.enter(self, self._n)
        except BaseException:  # Ctrl-C: there is no __exit__ after it
            _blas_limits.leave(self)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            _blas_limits.leave(self)
        except BaseException:
            _blas_limits.leave(self)
            raise


@dataclass(frozen=True, slots=True)
class BlasInfo:
    """A BLAS library in this process. ``core`` is the CPU it takes this one for; ``called`` whether kernels call it."""

    name: str
    version: str
    core: str
    threads: int
    path: str
    called: bool


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What this process has of the machine.

    Units: memory in bytes; ``flags`` are the CPU's features that matter to kernels.
    """

    cpu: str
    cores: int
    flags: tuple[str, ...]
    memory_nbytes: int
    available_nbytes: int
    blas: tuple[BlasInfo, ...]


_FLAGS = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512dq", "avx512_bf16", "avx512_fp16", "amx_tile")
_FLAGS_ARM = ("asimd", "fphp", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm")


def host_info() -> HostInfo:
    """What this process has of the machine, without measuring it."""
    name, found = _cpu()
    libraries = tuple(
        BlasInfo(
            name=str(i["internal_api"]),
            version=str(i["version"] or "unknown"),
            core=str(i.get("architecture", "unknown")),
            threads=int(i["num_threads"]),
            path=str(i["filepath"]),
            called=i["filepath"] == cblas_name(),
        )
        for i in threadpoolctl.threadpool_info()
        if i["user_api"] == "blas"
    )
    flags = tuple(f for f in (*_FLAGS, *_FLAGS_ARM) if f in found)
    return HostInfo(name, usable_cores(), flags, total_memory(), available_memory(), libraries)


def _cpu() -> tuple[str, frozenset[str]]:
    """The CPU's name and features, from /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown", frozenset()
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in reversed(lines))}
    name = fields.get("model name") or fields.get("CPU part") or "unknown"
    return name, frozenset((fields.get("flags") or fields.get("Features") or "").split())
