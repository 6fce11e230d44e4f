"""The host as a device: HostArena, the limit on BLAS threads, and information about the host."""

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

from einturnip.core.process_resources import available_memory, total_memory, usable_cores
from einturnip.kernels.blas.cblas import cblas_name

Array = np.ndarray[Any, np.dtype[Any]]


_COUNTED_NBYTES = 1 << 26  # of an arena whose pages are counted by one system call
_LARGE_NBYTES = 1 << 20  # above this size, an arena is counted by ``arenas_nbytes``
_open_arenas: dict[int, weakref.ref[HostArena]] = {}
"""Open large arenas by the id of the object."""


def arenas_nbytes() -> int:
    """Return the resident bytes of all large arenas of this process."""
    arenas = [arena() for arena in list(_open_arenas.values())]
    return sum(arena.touched_nbytes() or 0 for arena in arenas if arena is not None)


class HostArena:
    """The memory of a run's tiles and workspace: one private anonymous mapping of fixed size.

    A page becomes resident at its first use.
    """

    def __init__(self, nbytes: int, large_pages: bool = False) -> None:
        """``large_pages``: use pages of 2 MiB, which need fewer TLB entries but can waste up to 2 MiB."""
        if nbytes <= 0:
            raise ValueError(f"an arena needs at least one byte, not {nbytes}")
        self.nbytes = nbytes
        self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if large_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        # Arrays made from this array keep the mapping open. Arrays made from the mapping itself would not, and reading
        # them after close would crash the process.
        self._bytes = np.frombuffer(self._map, np.uint8)
        if nbytes > _LARGE_NBYTES:
            number = id(self)
            _open_arenas[number] = weakref.ref(self, lambda _: _open_arenas.pop(number, None))

    def view(self, offset: int, nbytes: int) -> Array:
        """Return bytes of the arena as a uint8 array.

        Raises:
            TypeError, ValueError: some of the bytes are outside the arena.
        """
        return np.ndarray((nbytes,), np.uint8, self._bytes, offset)

    def array(self, offset: int, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None) -> Array:
        """Return an array over bytes of the arena, which keep their values.

        ``strides``: in bytes; by default the array is C-contiguous.

        Raises:
            TypeError, ValueError: a part of the array is outside the arena.
        """
        return np.ndarray(shape, dtype, self._bytes, offset, strides)

    def touched_nbytes(self) -> int | None:
        """Return the bytes of the resident pages, as the kernel counts them; None if it does not report them."""
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

    def forget(self, at_once: bool = False) -> None:
        """Drop the contents. The system takes pages when it needs memory; pages that remain are used again.

        ``at_once``: it takes them now, so that they no longer count as memory of the process.
        """
        self._map.madvise(mmap.MADV_DONTNEED if at_once else getattr(mmap, "MADV_FREE", mmap.MADV_DONTNEED))

    def close(self) -> None:
        """Release the memory, or if arrays over it exist, as soon as the last of them is deleted."""
        _open_arenas.pop(id(self), None)
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):
            self._map.close()


class _Limited(NamedTuple):
    """Functions that get and set a BLAS library's number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


@cache
def _libraries() -> list[_Limited]:
    """Return the loaded BLAS libraries.

    Finding them takes a millisecond, so it is done once; NumPy has loaded its own by then.
    """
    found = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return [_openblas(library) or _Limited(library.get_num_threads, library.set_num_threads) for library in found]


def _openblas(library: threadpoolctl.LibController) -> _Limited | None:
    """Return OpenBLAS's own functions, which take a tenth of threadpoolctl's time and work in any thread."""
    if library.internal_api != "openblas" or getattr(library, "threading_layer", "") == "openmp":
        return None
    functions = ctypes.CDLL(library.filepath)
    for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
        if all(hasattr(functions, name) for name in names):
            return _Limited(*(functions[name] for name in names))
    return None


class _BlasLimits:
    """The active limits, oldest first; the newest one applies.

    Runs in several threads begin and end in any order.

    Limits are weak references, so that one that Ctrl-C kept from ending is removed when another one ends.
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
        """End a limit. It stays registered until the end, so that the call can be repeated after an interrupt."""
        with self.lock:
            if id(limit) not in self.limits:
                return
            is_last = len(self.limits) == 1
            others = [] if is_last else [n for other, n in self.limits.values() if other() not in (None, limit)]
            for library, before in zip(_libraries(), self.before, strict=True):
                library.set(others[-1] if others else before)
            if others:
                del self.limits[id(limit)]
            else:
                self.limits.clear()


_blas_limits = _BlasLimits()


class blas_threads:
    """Context in which BLAS calls of the whole process use at most ``n`` threads.

    When the last such context ends, the libraries get the number of threads that they had before.
    """

    __slots__ = ("__weakref__", "_n")

    def __init__(self, n: int) -> None:
        self._n = n

    def __enter__(self) -> None:
        """Set the number of threads of BLAS; the last block to end restores it."""
        try:
            _blas_limits.enter(self, self._n)
        except BaseException:  # Ctrl-C: Python does not call __exit__ then
            _blas_limits.leave(self)
            raise

    def __exit__(self, *_: object) -> None:
        """Restore the number of threads, if this is the last block."""
        try:
            _blas_limits.leave(self)
        except BaseException:
            _blas_limits.leave(self)
            raise


@dataclass(frozen=True, slots=True)
class BlasInfo:
    """A BLAS library in this process.

    ``core``: the processor type whose kernels it uses. ``called``: whether einturnip's kernels call it.
    """

    name: str
    version: str
    core: str
    threads: int
    path: str
    called: bool


@dataclass(frozen=True, slots=True)
class HostInfo:
    """The processor, cores, memory and BLAS libraries that this process can use.

    Units: memory in bytes. ``flags``: features of the processor that matter to kernels.
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
    """Return the properties of the host that need no measurement."""
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
    """Return the processor's name and features from /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown", frozenset()
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in reversed(lines))}
    name = fields.get("model name") or fields.get("CPU part") or "unknown"
    return name, frozenset((fields.get("flags") or fields.get("Features") or "").split())
