"""``einturnip bench disk``: out of core, compared with Dask, Cubed and memory maps."""

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
# Memory of Python and a contender's libraries, approximately: the minimum of every share.
LEAST = 64 << 20
# Share of a peer's peak in which einturnip must not be slower.
SPARING = 4
# Seconds after which a run is ended.
PATIENCE = 900.0
_SAMPLED = 64


@dataclass(frozen=True)
class DiskRun:
    """A way to run a case. ``share``: data divided by memory, or 0; ``cold``: nothing is cached.

    ``of``: the peer of whose peak without a limit the memory is a share, instead of the data.
    """

    contender: str
    form: str
    share: int
    cold: bool = True
    of: str = ""

    def __str__(self) -> str:
        """Return the text of a row: contender, form, cold or warm, and memory."""
        memory = f"1/{self.share}{f'-of-{self.of}' if self.of else ''}" if self.share else "all"
        return f"{self.contender} {self.form} {'cold' if self.cold else 'warm'} {memory}"

    def is_one_of(self, described: Sequence[str]) -> bool:
        """True if a description has only words of this one: ``npy cold``, ``einturnip 1/4``."""
        mine = set(str(self).split())
        return not described or any(mine.issuperset(words.split()) for words in described)

    def memory(self, case: DiskCase) -> int | None:
        """The limit of the process in bytes, at least ``LEAST``."""
        return max(LEAST, case.data_nbytes // self.share) if self.share else None


@dataclass
class DiskResult:
    """The result of a run. Units: seconds, bytes. ``anonymous``: peak without pages of mapped files.

    ``memory``: the limit of the process, None without one; ``raised``: it was raised to the contender's minimum.
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
    """The ways to run every contender.

    einturnip runs at every share, without a limit, warm, and from each format; peers run without a limit and with 1/4.
    Formats other than the first run at a quarter and at the smallest share. For each peer without a limit, einturnip
    also runs in a quarter of the peer's peak, unless the peer (memory maps) has no limit anyway.
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
    """The results of a case: runs, ways that a contender lacks, elements of the first result."""

    case: DiskCase
    runs: list[DiskResult] = field(default_factory=list)
    absent: list[DiskRun] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)

    def medians(self) -> list[DiskResult]:
        """The run of median time for each way."""
        found: dict[DiskRun, list[DiskResult]] = {}
        for run in self.runs:
            found.setdefault(run.way, []).append(run)
        return [_median(runs) for runs in found.values()]

    def wants(self, way: DiskRun, rounds: int) -> bool:
        """True if a way has fewer than ``rounds`` runs and may succeed, and the peak for its limit is known."""
        mine = [run for run in self.runs if run.way == way]
        known = not way.of or bool(self._peaks(way))
        return known and len(mine) < rounds and not any(run.error for run in mine) and way not in self.absent

    def memory(self, way: DiskRun) -> int | None:
        """The limit of the process in bytes; of a peer's peaks the smallest counts."""
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
    """Run the cases whose name contains one of ``names`` (all if empty); ways alternate in each round.

    ``records``: earlier results by case; they are extended, and not measured again. ``until``: no run begins after that
    time of the monotonic clock. ``only``: ways to run (``DiskRun.is_one_of``), all if empty.
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
    """A case with a way to run it, and its files.

    ``expected``: elements of the case's first result, if there is one; ``inputs``: by name; ``folder``: where the
    result is while it is checked.
    """

    case: DiskCase
    way: DiskRun
    inputs: dict[str, Path]
    folder: Path
    small: bool
    expected: list[float] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The path of the result."""
        return self.folder / f"result.{self.way.form}"

    def begin(self, memory: int | None) -> subprocess.Popen[str]:
        """Start the contender in a process that imports its modules and waits."""
        request = {
            "case": self.case.name, "contender": self.way.contender, "out": str(self.out), "memory": memory,
            "small": self.small, "inputs": {name: str(path) for name, path in self.inputs.items()},
        }  # fmt: skip
        return start_worker("disk_worker", json.dumps(request))


def measure(trial: DiskTrial, memory: int | None) -> DiskResult | None:
    """Run once; if the share is below einturnip's minimum, in the minimum."""
    run = run_once(trial, memory)
    if run is None or not run.error or trial.way.contender != OURS or memory is None:
        return run
    least = _least(trial)
    if least <= memory:
        return run
    again = run_once(trial, least)
    return again and replace(again, raised=True)


def _least(trial: DiskTrial) -> int:
    """The minimum memory of the process in bytes; 0 if einturnip refuses none.

    A refusal that stopped planning names an estimate, in which the next one names the minimum.
    """
    least = 0
    while (named := _named(trial, max(1, least))) > least:
        least = named
    return least


def _named(trial: DiskTrial, memory: int) -> int:
    """The memory that einturnip's refusal of a limit names; 0 if it runs."""
    process = trial.begin(memory)
    try:
        answer(process)
        _go(process)
        return int(answer(process).get("least", 0))
    finally:
        process.kill()
        process.communicate()


def run_once(trial: DiskTrial, memory: int | None) -> DiskResult | None:
    """Run one process within a limit, observed from outside; None if the contender lacks this work."""
    out, process = trial.out, trial.begin(memory)
    try:
        about = answer(process)
        if about.get("absent"):
            return None
        run = DiskResult(trial.way, about.get("version", ""), error=about.get("error", ""), memory=memory)
        if not run.error:
            _watch(process, run, [p for path in trial.inputs.values() for p in files_of(path)])
        if not run.error:
            run.agrees = same(sample(out), trial.expected)
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
    """Run the process, with its files in the cache or not; end it if it exceeds its limit."""
    memory = run.memory
    for path in inputs:
        _evict(path) if run.way.cold else fetch(path)
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
    """A few elements of a result, from all over it."""
    if path.suffix == ".npy":
        flat = np.load(path, mmap_mode="r").reshape(-1)
        return [float(x) for x in flat[np.linspace(0, flat.size - 1, _SAMPLED).astype(int)]]
    import zarr

    found = zarr.open(str(path), mode="r")
    array: Any = found["Z"] if isinstance(found, zarr.Group) else found
    places = np.unravel_index(np.linspace(0, array.size - 1, _SAMPLED).astype(int), array.shape)
    return [float(x) for x in np.asarray(array.vindex[tuple(places)])]


def same(found: list[float], expected: list[float]) -> bool:
    """True if a result has the elements of the first one, which is einturnip's without a limit."""
    if not expected:
        expected.extend(found)
    scale = max(map(abs, expected)) or 1.0
    return float(np.abs(np.subtract(found, expected)).max()) <= 1e-4 * scale


def _median(runs: list[DiskResult]) -> DiskResult:
    """The run of median time, with peak and memory of the run nearest to its limit.

    A share of a peer's peak differs from run to run.
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


def files_of(path: Path) -> list[Path]:
    """The files of an input: itself, or those of a store."""
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]


def _evict(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def fetch(path: Path) -> None:
    """Read a file into the page cache."""
    block = bytearray(1 << 24)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _anonymous(pid: int) -> int:
    """Resident bytes that belong to no file."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return 1024 * sum(int(x.split()[1]) for x in status if x.startswith(("RssAnon", "RssShmem")))
    except OSError:
        return 0


def _moved(pid: int) -> tuple[int, int]:
    """Bytes that a process caused to be read from the disk, and written to it."""
    try:
        with open(f"/proc/{pid}/io") as counts:
            found = dict(x.split(": ") for x in counts.read().splitlines())
        return int(found["read_bytes"]), int(found["write_bytes"])
    except OSError:
        return 0, 0
