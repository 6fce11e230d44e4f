"""Runs the cases of ``clusters.py``: contenders alternate, and each run has workers of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster_cases import ClusterCase, on_workers, prepare
from harness.cluster_peers import present, takes
from harness.contest import answer, cpu_seconds, peak_resident, start_worker
from harness.disk import fetch, files_of, same, sample

WORKERS = 4
MEMORY = 512 << 20
_POLL_SECONDS, _ENDING_SECONDS = 0.05, 30.0


@dataclass
class ClusterTrial:
    """One run. Units: seconds, bytes.

    ``peak``: of the fullest worker; ``between``: that workers received from each other; ``read`` and ``written``: of
    files, by all workers, from the page cache too. ``disturbed``: the share of the machine's CPU time that other
    programs took. ``planning``: seconds of einturnip's call outside of the run.
    """

    contender: str
    version: str = ""
    seconds: float = float("nan")
    between: int = 0
    peak: int = 0
    read: int = 0
    written: int = 0
    disturbed: float = 0.0
    planning: float = 0.0
    agrees: bool = False
    error: str = ""


@dataclass
class ClusterOutcome:
    """A case with its runs, in their order. ``expected``: elements of its first result."""

    case: ClusterCase
    trials: list[ClusterTrial] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)

    def medians(self) -> dict[str, ClusterTrial]:
        """By contender, the median of the times and bytes of its runs, and the peak of all; or its failed run."""
        found = {}
        for name in dict.fromkeys(trial.contender for trial in self.trials):
            runs = [trial for trial in self.trials if trial.contender == name]
            failed = [trial for trial in runs if trial.error]
            found[name] = failed[0] if failed else _median(runs)
        return found


def _median(runs: Sequence[ClusterTrial]) -> ClusterTrial:
    middle = {
        name: statistics.median(getattr(run, name) for run in runs)
        for name in ("seconds", "between", "read", "written", "disturbed", "planning")
    }
    peak, agrees = max(run.peak for run in runs), all(run.agrees for run in runs)
    return ClusterTrial(runs[0].contender, runs[0].version, peak=peak, agrees=agrees, **middle)


def bench(
    names: Sequence[str], folder: Path, rounds: int, small: bool, patience: float
) -> Iterator[tuple[ClusterOutcome, ClusterTrial]]:
    """Run the cases whose name contains one of ``names`` (all if empty); yields after each run.

    A contender that fails is not run again. ``patience``: seconds after which a run is ended.
    """
    for case in on_workers(small):
        if names and not any(name in case.name for name in names):
            continue
        outcome, field_ = ClusterOutcome(case), [name for name in present() if takes(name, case)]
        inputs = prepare(case, folder)
        for k in range(rounds):
            for name in field_ if k % 2 == 0 else reversed(field_):
                if any(trial.error for trial in outcome.trials if trial.contender == name):
                    continue
                outcome.trials.append(_run(outcome, name, inputs, folder, small, patience))
                yield outcome, outcome.trials[-1]


def _run(
    outcome: ClusterOutcome, name: str, inputs: Mapping[str, Path], folder: Path, small: bool, patience: float
) -> ClusterTrial:
    """Run a contender once, with its inputs in the page cache."""
    case, scratch = outcome.case, folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # of a bench that was killed
    scratch.mkdir()
    tiny = prepare(next(c for c in on_workers(True) if c.kind == case.kind), folder)
    request = {
        "kind": case.kind, "small": small, "contender": name, "memory": MEMORY, "workers": WORKERS,
        "out": str(scratch / "Z.zarr"), "inputs": {n: str(path) for n, path in inputs.items()},
        "small_inputs": {n: str(path) for n, path in tiny.items()},
    }  # fmt: skip
    for path in inputs.values():
        for file in files_of(path):
            fetch(file)
    trial = ClusterTrial(name)
    before, children = cpu_seconds(), _seconds_of_children()
    process = start_worker("cluster_worker", json.dumps(request), cwd=scratch, start_new_session=True)
    giver_up = threading.Timer(patience, _kill, [process])
    giver_up.start()
    began = time.monotonic()
    try:
        _watch(process, trial)
        if trial.error and time.monotonic() - began >= patience:
            trial.error = f"timed out after {patience:.0f} s"
        if not trial.error:
            trial.agrees = same(sample(scratch / "Z.zarr"), outcome.expected)
    finally:
        giver_up.cancel()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        used = _used_seconds(process, children)
        shutil.rmtree(scratch, ignore_errors=True)
    busy, available = (now - then for now, then in zip(cpu_seconds(), before, strict=True))
    trial.disturbed = max(0.0, busy - used) / available
    return trial


def _watch(process: subprocess.Popen[str], trial: ClusterTrial) -> None:
    """Wait for what the run measures, and measure its workers from outside."""
    about = answer(process)
    trial.version, trial.error = about.get("version", ""), about.get("error", "")
    if trial.error:
        return
    workers, over = about["processes"], threading.Event()

    def look() -> None:
        while not over.wait(_POLL_SECONDS):  # a worker that dies leaves no other trace
            trial.peak = max(trial.peak, *map(peak_resident, workers))

    watcher = threading.Thread(target=look)
    watcher.start()
    moved = _moved(workers)
    _tell(process)
    found = answer(process)
    over.set()
    watcher.join()
    trial.error = found.get("error", "")
    if not trial.error:
        trial.peak = max(trial.peak, *map(peak_resident, workers))
        trial.read, trial.written = (now - then for now, then in zip(_moved(workers), moved, strict=True))
        trial.seconds, trial.between = found["seconds"], found["between"]
        trial.planning = max(0.0, trial.seconds - found["run_seconds"]) if "run_seconds" in found else 0.0
        _tell(process)


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _moved(workers: Sequence[int]) -> tuple[int, int]:
    """Bytes that processes have read from files and written to them; not what came through sockets."""
    total = {"rchar": 0, "wchar": 0}
    for pid in workers:
        try:
            counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        except OSError:
            continue
        for name in total:
            total[name] += int(counts[name])
    return total["rchar"], total["wchar"]


def _used_seconds(process: subprocess.Popen[str], before: float) -> float:
    """Wait for the end of a run; return the CPU time of its processes.

    ``before``: that of the processes that had ended before the run.
    """
    ender = threading.Timer(_ENDING_SECONDS, _kill, [process])
    ender.start()
    process.wait()
    ender.cancel()
    _kill(process)  # workers that did not notice
    return _seconds_of_children() - before


def _seconds_of_children() -> float:
    """CPU time of all processes that this one has started and that have ended, with theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _kill(process: subprocess.Popen[str]) -> None:
    """End a run with all its workers, which are in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def about(outcomes: Sequence[ClusterOutcome]) -> dict[str, Any]:
    """The state of the machine during the runs: the median share of CPU time that other programs took."""
    shares = [trial.disturbed for outcome in outcomes for trial in outcome.trials]
    return {"disturbed": round(statistics.median(shares), 3) if shares else 0.0}
