"""Measures the rates of a folder's disk with the sinks and sources of runs.

Outputs, spill file, and inputs: cold, in the page cache, and in short strided runs of bytes.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from einturnip.devices.calibrate import copying_threads, settle_threads
from einturnip.ir.dtypes import F32
from einturnip.storage.io.batched_io import thread_batched_io
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.io.spill_file import SpillFile
from einturnip.storage.open import open_sink, open_source
from einturnip.storage.types import Region

READERS = 2  # reading threads, as in a run
_TILE = 4 << 20
_BUFFERS = 12  # tiles that each reader fills cyclically: like an arena, larger than the caches
_COLUMNS, _SHORT = 1024, 64  # numbers in a run of a strided read: a page; so few that the bytes take no time
_ROUNDS = 3
"""Measurements whose median counts.

The first bytes written after a pause can need pages from the host of a virtual machine and then take ten times as long;
pages that were just freed are written three times as fast as others.
"""
BufferCycles: TypeAlias = Sequence[Iterator[int]]
"""By reader, the numbers of the buffers that it fills, repeated without end."""


def file_rates(folder: str | os.PathLike[str], nbytes: int, workers: int = 1) -> dict[str, float]:
    """Return rates by the names of Machine's fields, measured with temporary files of ``nbytes``.

    All ``workers`` are busy, as in a run: those that do not read or write copy memory.

    Units: bytes/s, seconds, fractions of a core.

    Raises:
        OSError, StoreError: the folder cannot be written, or its disk is full.
    """
    own = f".einturnip-calibrate-{os.getpid()}-{secrets.token_hex(4)}"
    paths = [Path(folder) / f"{own}-{k}.npy" for k in range(_ROUNDS)]
    width = 16 * _COLUMNS
    height = nbytes // (4 * width)
    rows = _TILE // (4 * width)
    tiles: list[Region] = [((at, min(at + rows, height)), (0, width)) for at in range(0, height, rows)]
    try:
        with mmap.mmap(-1, _BUFFERS * READERS * _TILE) as memory:
            whole = np.frombuffer(memory, np.float32).reshape(_BUFFERS * READERS, rows, width)
            whole[...] = 1
            with copying_threads(workers - 1):
                wrote = [_write(path, whole, tiles, (height, width)) for path in paths]
            found = {name: statistics.median(rates[name] for rates in wrote) for name in wrote[0]}
            with copying_threads(workers - READERS):
                found |= _read(paths[-1], whole, tiles, (height, width))
            with copying_threads(workers - 1):
                spilled = [_spill(folder, memory, nbytes) for _ in paths]
            found |= {name: statistics.median(rates[name] for rates in spilled) for name in spilled[0]}
            del whole
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    return found


def _write(
    path: Path,
    buffers: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    tiles: Sequence[Region],
    shape: tuple[int, int],
) -> dict[str, float]:
    sink = open_sink(path, "calibrate", shape, F32)
    begin, busy = time.perf_counter(), time.thread_time()
    for number, region in enumerate(tiles):
        sink.write(region, buffers[number % len(buffers)][: region[0][1] - region[0][0]])
    seconds, busy = time.perf_counter() - begin, time.thread_time() - busy
    sink.commit()
    return {"write_bandwidth": 4 * shape[0] * shape[1] / seconds, "write_core": _core(busy, seconds)}


def _core(busy: float, seconds: float) -> float:
    """Return the fraction of a core that a thread used."""
    return min(1.0, max(0.01, busy / seconds))


def _read(
    path: Path,
    buffers: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    tiles: Sequence[Region],
    shape: tuple[int, int],
) -> dict[str, float]:
    """Measure reads from the disk, from the page cache, and in short strided runs.

    If the "disk" is memory, the page cache cannot be dropped, and cold reads have the rate of cached ones. The file is
    read once before, so that cold and cached reads differ in nothing but the page cache.
    """
    source = open_source(os.fspath(path), "calibrate")
    assert isinstance(source, FileSource)
    nbytes = 4 * shape[0] * shape[1]

    cycles = _buffer_cycles(len(buffers))
    near = _buffer_cycles(max(READERS, min(len(buffers), int(cache_nbytes()) // (4 * _TILE))))

    def read(region: Region, reader: int, cycles: BufferCycles = cycles) -> None:
        buffer = buffers[next(cycles[reader])].reshape(-1)[: _points(region)]
        source.read(region, buffer.reshape([b - a for a, b in region]))

    def strips(columns: int) -> list[Region]:
        """Return regions of the first half of the rows, in runs of ``columns`` numbers, at four columns."""
        rows = [(at, min(at + 512, shape[0] // 2)) for at in range(0, shape[0] // 2, 512)]
        return [(r, (at, at + columns)) for at in range(0, 4 * _COLUMNS, _COLUMNS) for r in rows]

    def forget() -> None:
        os.posix_fadvise(source.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def each(seconds: float, regions: Sequence[Region], whole: float) -> float:
        """Return the latency of a run: its seconds beyond those of its bytes.

        ``whole``: seconds of the whole file.
        """
        runs = sum(b - a for (a, b), _ in regions)
        return (seconds - 4 * sum(map(_points, regions)) * whole / nbytes) / runs

    def alone() -> float:
        """Return the seconds to read a single page."""
        rows = range(0, shape[0], max(1, shape[0] // 64))
        begin = time.perf_counter()
        for row in rows:
            os.pread(source.fd, 64, source.layout.offset + row * source.layout.strides[0])
        return (time.perf_counter() - begin) / len(rows)

    try:
        _timed(read, tiles)
        source.release(((0, shape[0]), (0, shape[1])))
        forget()
        cold, busy = _timed(read, tiles)
        cached, _ = _timed(read, tiles)
        inside = min(_timed(partial(read, cycles=near), tiles)[0] for _ in range(2))
        _timed(read, strips(_SHORT))
        run = max(1e-7, each(_timed(read, strips(_SHORT))[0], strips(_SHORT), cached))
        source.release(((0, shape[0]), (0, shape[1])))
        forget()
        cold_run = each(_timed(read, strips(_COLUMNS))[0], strips(_COLUMNS), cold) - run
        forget()
        first = alone()
        page = first - alone()
    finally:
        source.close()
    return {
        "read_bandwidth": nbytes / cold,
        "cached_bandwidth": nbytes / cached,
        "near_bandwidth": nbytes / min(inside, cached),
        "cache_nbytes": cache_nbytes(),
        "read_core": busy,
        "run_latency": run,
        "page_latency": max(page, 1e-7),
        "cold_run_latency": max(1e-7, cold_run),
    }


def cache_nbytes() -> float:
    """Return the bytes of the processor's last-level cache; 1 if the system does not report it."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return float(max([1, *(int(size[:-1]) << 10 for size in sizes if size.endswith("K"))]))


def _buffer_cycles(buffers: int) -> BufferCycles:
    """Divide the buffers among the readers."""
    return [itertools.cycle(range(reader, buffers, READERS)) for reader in range(READERS)]


def _points(region: Region) -> int:
    return (region[0][1] - region[0][0]) * (region[1][1] - region[1][0])


def _timed(read: Callable[[Region, int], None], regions: Sequence[Region]) -> tuple[float, float]:
    """Return the seconds to read all regions with all readers, and the core fraction of each reader.

    The time to start and end the threads is not included.
    """
    scratch = np.empty(1 << 20, np.uint8)
    begun, ends, busy = list[float](), [0.0] * READERS, [0.0] * READERS
    gate = threading.Barrier(READERS, lambda: begun.append(time.perf_counter()))

    def work(reader: int) -> None:
        thread_batched_io()
        settle_threads(partial(scratch.fill, reader))
        gate.wait()
        begin = time.thread_time()
        for region in regions[reader::READERS]:
            read(region, reader)
        ends[reader], busy[reader] = time.perf_counter(), time.thread_time() - begin

    threads = [threading.Thread(target=work, args=(r,)) for r in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = max(ends) - begun[0]
    return seconds, _core(sum(busy) / READERS, seconds)


def _spill(folder: str | os.PathLike[str], memory: mmap.mmap, nbytes: int) -> dict[str, float]:
    spill = SpillFile(os.fspath(folder))
    with memoryview(memory) as view:
        try:
            spill.reserve(nbytes)
            begin, busy = time.perf_counter(), time.thread_time()
            for at in range(0, nbytes - _TILE + 1, _TILE):
                with view[at % len(view) :][:_TILE] as tile:
                    spill.write(at, tile)
            wrote = time.perf_counter()
            for at in range(0, nbytes - _TILE + 1, _TILE):
                with view[at % len(view) :][:_TILE] as tile:
                    spill.read(at, tile)
            end, busy = time.perf_counter(), time.thread_time() - busy
        finally:
            spill.close()
    moved = nbytes // _TILE * _TILE
    core = _core(busy, end - begin)
    return {"spill_write": moved / (wrote - begin), "spill_read": moved / (end - wrote), "spill_core": core}
