"""``einturnip bench disk``: from files to a file, in a share of the data's size, beside Dask, Cubed, memory maps."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.core.units import format_size
from harness.contest import answer, peak_resident, start_worker
from harness.disk_cases import DiskCase, on_disk, prepare
from harness.disk_peers import LIMITED, OURS, present

SHARES = (2, 4, 8, 16)
FORMS = ("npy", "zarr")
# What Python and a contender's libraries take, about: no share is less.
LEAST = 64 << 20
# The part of a peer's peak in which einturnip is to be no slower.
SPARING = 4
# Seconds after which a run is given up.
PATIENCE = 900.0
_SAMPLED = 64


@dataclass(frozen=True)
class DiskRun:
    """How a case is run. ``share``: memory as a part of the data, 0 without a limit; ``cold``: nothing is cached.

    ``of``: the peer of whose peak with all memory it is a part, instead of the data.
    """

    contender: str
    form: str
    share: int
    cold: bool = True
    of: str = ""

    def __str__(self) -> str:
        memory = f"1/{self.share}{f'-of-{self.of}' if self.of else ''}" if self.share else "all"
        return f"{self.contender} {self.form} {'cold' if self.cold else 'warm'} {memory}"

    def is_one_of(self, described: Sequence[str]) -> bool:
        """Whether some description has only words of this one: ``npy cold``, ``einturnip 1/4``, ``1/4-of-dask``."""
        mine = set(str(self).split())
        return not described or any(mine.issuperset(words.split()) for words in described)

    def memory(self, case: DiskCase) -> int | None:
        """Bytes that the process may use, ``LEAST`` at least."""
        return max(LEAST, case.data_nbytes // self.share) if self.share else None


@dataclass
class DiskResult:
    """What came of it. Units: seconds, bytes. ``anonymous``: the most beside the pages of mapped files.

    ``memory``: what the process might use, None without a limit; ``raised``: to the least that the contender runs in.
    """

    way: DiskRun
    version: str = ""
    seconds: float = float("nan")
    resident: int = 0
    anonymous: int = 0
    read: int = 0
    written: int = 0
    agrees: bool = False
    error: str = ""
    memory: int | None = None
    raised: bool = False


def ways(contenders: Sequence[str], shares: Sequence[int], forms: Sequence[str]) -> list[DiskRun]:
    """einturnip at every share, without a limit, warm, and from each format; peers without a limit and held to 1/4.

    From other formats than the first at a quarter, and at the smallest share. After a peer without a limit einturnip in
    a quarter of the peer's peak, unless that peer (memory maps) holds to no limit anyway.
    """
    first, *others = forms
    quarter = 4 if 4 in shares else shares[0]
    ours = [DiskRun(OURS, first, share) for share in (0, *shares)] + [DiskRun(OURS, first, quarter, cold=False)]
    ours += [DiskRun(OURS, form, share) for form in others for share in dict.fromkeys((quarter, max(shares)))]
    peers = []
    for name, form in product(contenders, forms):
        beside = [DiskRun(OURS, form, SPARING, of=name)] if name in LIMITED else []
        peers += [DiskRun(name, form, 0), *beside, DiskRun(name, form, quarter)]
    warm = [DiskRun(name, first, 0, cold=False) for name in contenders]
    return ours + peers + warm


@dataclass
class DiskRecord:
    """What was measured of a case: runs, ways that a contender has not, elements of the first result."""

    case: DiskCase
    runs: list[DiskResult] = field(default_factory=list)
    absent: list[DiskRun] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)

    def medians(self) -> list[DiskResult]:
        """Of each way the run of median time."""
        found: dict[DiskRun, list[DiskResult]] = {}
        for run in self.runs:
            found.setdefault(run.way, []).append(run)
        return [_median(runs) for runs in found.values()]

    def wants(self, way: DiskRun, rounds: int) -> bool:
        """Whether it has fewer than ``rounds`` runs of a way that may end well, and the peak that its memory is of."""
        mine = [run for run in self.runs if run.way == way]
        known = not way.of or bool(self._peaks(way))
        return known and len(mine) < rounds and not any(run.error for run in mine) and way not in self.absent

    def memory(self, way: DiskRun) -> int | None:
        """Bytes that the process may use: of a peer's peaks the least counts."""
        return min(self._peaks(way)) // way.share if way.of else way.memory(self.case)

    def _peaks(self, way: DiskRun) -> list[int]:
        peer = DiskRun(way.of, way.form, 0)
        return [run.resident for run in self.runs if run.way == peer and not run.error]


def bench(
    names: Sequence[str],
    folder: Path,
    rounds: int,
    shares: Sequence[int],
    small: bool,
    records: dict[str, DiskRecord],
    until: float = math.inf,
    only: Sequence[str] = (),
) -> Iterator[tuple[DiskCase, DiskResult]]:
    """Run the cases whose name holds one of ``names`` (all where there are none), every way in turn in each round.

    ``records``: what was measured before, by case; it grows, and what it has is not run again. ``until``: no run begins
    after that time of the monotonic clock. ``only``: ways that are run (``DiskRun.is_one_of``), all where there are
    none.
    """
    for case in on_disk(small):
        if names and not any(n in case.name for n in names):
            continue
        record = records.setdefault(case.name, DiskRecord(case))
        forms = FORMS if _has_zarr() else FORMS[:1]
        chosen = [way for way in ways(present(), shares, forms) if way.is_one_of(only)]
        wanted = [(k, way) for k in range(1, rounds + 1) for way in chosen]
        for k, way in wanted:
            if not record.wants(way, k):
                continue
            files = prepare(case, way.form, folder) if time.monotonic() < until else {}
            if time.monotonic() >= until:
                return
            run = measure(DiskTrial(case, way, files, folder, small, record.expected), record.memory(way))
            if run is None:
                record.absent.append(way)
                continue
            record.runs.append(run)
            yield case, run


@dataclass(frozen=True)
class DiskTrial:
    """A case to be run in a way, with its files. ``expected``: elements of the case's first result, once there is one.

    ``inputs``: by name; ``folder``: where the result stands while it is looked at.
    """

    case: DiskCase
    way: DiskRun
    inputs: dict[str, Path]
    folder: Path
    small: bool
    expected: list[float] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The result."""
        return self.folder / f"result.{self.way.form}"

    def begin(self, memory: int | None) -> subprocess.Popen[str]:
        """The contender in a process, which imports what it needs and waits."""
        request = {
            "case": self.case.name, "contender": self.way.contender, "out": str(self.out), "memory": memory,
            "small": self.small, "inputs": {name: str(path) for name, path in self.inputs.items()},
        }  # fmt: skip
        return start_worker("disk_worker", json.dumps(request))


def measure(trial: DiskTrial, memory: int | None) -> DiskResult | None:
    """One run; where a share is less than einturnip runs in, in the least that it does."""
    run = run_once(trial, memory)
    if run is None or not run.error or trial.way.contender != OURS or memory is None:
        return run
    least = _least(trial)
    if least <= memory:
        return run
    again = run_once(trial, least)
    return again and replace(again, raised=True)


def _least(trial: DiskTrial) -> int:
    """The least memory of the process, in bytes, that einturnip names where it is given none; 0 if it names none."""
    process = trial.begin(1)
    try:
        answer(process)
        _go(process)
        return int(answer(process).get("least", 0))
    finally:
        process.kill()
        process.communicate()


def run_once(trial: DiskTrial, memory: int | None) -> DiskResult | None:
    """One process in so many bytes, watched from outside; None where the contender has no such thing."""
    out, process = trial.out, trial.begin(memory)
    try:
        about = answer(process)
        if about.get("absent"):
            return None
        run = DiskResult(trial.way, about.get("version", ""), error=about.get("error", ""), memory=memory)
        if not run.error:
            _watch(process, run, [p for path in trial.inputs.values() for p in _files(path)])
        if not run.error:
            run.agrees = _same(sample(out), trial.expected)
        return run
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _watch(process: subprocess.Popen[str], run: DiskResult, inputs: Sequence[Path]) -> None:
    """Let it work, with its files out of the cache or in it; end it once it holds more than it may."""
    memory = run.memory
    for path in inputs:
        _evict(path) if run.way.cold else _fetch(path)
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            run.anonymous = max(run.anonymous, _anonymous(process.pid))
            if memory is not None and run.anonymous > memory:
                process.kill()

    watcher, giver_up = threading.Thread(target=look), threading.Timer(PATIENCE, process.kill)
    read, written = _moved(process.pid)
    watcher.start()
    giver_up.start()
    begin = time.monotonic()
    _go(process)
    found = answer(process)
    giver_up.cancel()
    over.set()
    watcher.join()
    run.anonymous = max(run.anonymous, _anonymous(process.pid))
    run.resident = peak_resident(process.pid)
    now = _moved(process.pid)
    run.read, run.written = now[0] - read, now[1] - written
    run.seconds = found.get("seconds", float("nan"))
    run.error = found.get("error", "")
    if memory is not None and run.anonymous > memory:
        run.error = f"ended by the watcher: it held {format_size(run.anonymous)}"
    elif run.error and time.monotonic() - begin >= PATIENCE:
        run.error = f"given up after {PATIENCE:.0f} s"


def sample(path: Path) -> list[float]:
    """A few elements of a result, spread over it."""
    if path.suffix == ".npy":
        flat = np.load(path, mmap_mode="r").reshape(-1)
        return [float(x) for x in flat[np.linspace(0, flat.size - 1, _SAMPLED).astype(int)]]
    import zarr

    found = zarr.open(str(path), mode="r")
    array: Any = found["Z"] if isinstance(found, zarr.Group) else found
    places = np.unravel_index(np.linspace(0, array.size - 1, _SAMPLED).astype(int), array.shape)
    return [float(x) for x in np.asarray(array.vindex[tuple(places)])]


def _same(found: list[float], expected: list[float]) -> bool:
    """Whether a result has the elements of the first one, which is einturnip's without a limit."""
    if not expected:
        expected.extend(found)
    scale = max(map(abs, expected)) or 1.0
    return float(np.abs(np.subtract(found, expected)).max()) <= 1e-4 * scale


def _median(runs: list[DiskResult]) -> DiskResult:
    """The run of median time, with peak and memory of the one that came nearest to what it might use.

    A part of a peer's peak differs from run to run.
    """
    done = sorted((r for r in runs if not r.error), key=lambda r: r.seconds)
    if not done:
        return runs[-1]
    run = done[len(done) // 2]
    full = max(done, key=lambda r: r.resident / (r.memory or 1))
    agrees = all(r.agrees for r in done)
    return replace(run, memory=full.memory, resident=full.resident, anonymous=full.anonymous, agrees=agrees)


def _has_zarr() -> bool:
    from importlib.util import find_spec

    return find_spec("zarr") is not None


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]


def _evict(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _fetch(path: Path) -> None:
    block = bytearray(1 << 24)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _anonymous(pid: int) -> int:
    """Resident bytes that are no file's."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return 1024 * sum(int(x.split()[1]) for x in status if x.startswith(("RssAnon", "RssShmem")))
    except OSError:
        return 0


def _moved(pid: int) -> tuple[int, int]:
    """Bytes that a process had read from the disk, and written to it."""
    try:
        with open(f"/proc/{pid}/io") as counts:
            found = dict(x.split(": ") for x in counts.read().splitlines())
        return int(found["read_bytes"]), int(found["write_bytes"])
    except OSError:
        return 0, 0
