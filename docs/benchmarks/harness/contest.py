"""Runs contenders alternately, each in a process of its own, so that disturbances affect all of them.

A contender that waits is stopped, because threads of several libraries spin after a call and would take the cores of
the next one.
A round is clean if other programs used little CPU time meanwhile (``/proc/stat``); medians are over clean rounds if
there are enough. Ratios are of seconds of the same round, with a bootstrap interval of their median.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Maximum share of the machine's CPU time that other programs use in a clean round.
MOST_DISTURBED = 0.05
# Minimum number of rounds for a median.
FEWEST_CLEAN = 3
# Cases of short calls run more rounds: for each requested round, up to this many seconds and this many rounds. Rates of
# memory and cores change by a third and more within a second.
ROUND_SECONDS, MOST_TURNS = 1.0, 10
_RESAMPLED = 1000


@dataclass
class Contender:
    """One process of a contender. ``seconds``: of its calls, by round; ``clean``: whether each round was.

    ``last``: elements of the last call's result, to compare with those of the first in ``about``.
    """

    name: str
    process: subprocess.Popen[str]
    about: dict[str, Any]
    seconds: list[float] = field(default_factory=list)
    clean: list[bool] = field(default_factory=list)
    peak_nbytes: int = 0
    error: str = ""
    last: list[float] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """True if it takes part."""
        return not self.error and not self.about.get("absent")

    def call(self) -> None:
        """Run one round."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        before = cpu_seconds()
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        said = answer(self.process)
        self.process.send_signal(signal.SIGSTOP)
        if "seconds" not in said:
            self.error = said["error"]
            return
        busy, wall = (now - then for now, then in zip(cpu_seconds(), before, strict=True))
        self.seconds.append(said["seconds"])
        self.last = said.get("sample", [])
        self.clean.append(busy - said["used"] <= MOST_DISTURBED * wall + 0.02)

    def end(self) -> None:
        """Record its peak and end the process."""
        self.process.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.peak_nbytes = peak_resident(self.process.pid)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class ContenderFigure:
    """A contender's result. Units: seconds, bytes. ``ratio``: einturnip's speed relative to it."""

    name: str
    version: str
    seconds: float
    clean_rounds: int
    peak_nbytes: int
    ratio: float
    low: float
    high: float
    agrees: bool
    error: str = ""


def start_worker(module: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a module of the harness in a process of its own. ``options``: of ``subprocess.Popen``."""
    search = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", f"harness.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, search))},
        **options,
    )


def start(case: str, contender: str, small: bool) -> Contender:
    """Start one contender and wait until it has warmed up."""
    process = start_worker("worker", case, contender, "1" if small else "0")
    about = answer(process)
    process.send_signal(signal.SIGSTOP)
    return Contender(contender, process, about, error=about.get("error", ""))


def contest(case: str, contenders: Sequence[str], rounds: int, small: bool, tolerance: float) -> list[ContenderFigure]:
    """Run all contenders of a case alternately, ``rounds`` times or more; ratios are of the first."""
    field_: list[Contender] = []
    try:
        for name in contenders:
            field_.append(start(case, name, small))
        for k in turns(rounds, 0.0 if small else rounds * ROUND_SECONDS):
            for c in field_ if k % 2 else reversed(field_):
                if c.alive:
                    c.call()
    finally:  # a stopped process does not notice the end of its input
        for c in field_:
            c.end()
    return [_figure(c, field_, tolerance) for c in field_ if not c.about.get("absent")]


def turns(rounds: int, seconds: float) -> Iterator[int]:
    """Yield numbers of ``rounds`` rounds, and of more until ``seconds`` have passed."""
    end = time.monotonic() + seconds
    for k in range(MOST_TURNS * rounds):
        if k >= rounds and time.monotonic() >= end:
            return
        yield k


def peak_resident(pid: int) -> int:
    """The peak resident memory of a process so far, in bytes, from the system."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next JSON object from a worker, or the error that ended it."""
    assert process.stdout is not None
    for line in process.stdout:  # peers may print other lines
        if line.startswith("{"):
            said: dict[str, Any] = json.loads(line)
            return said
    assert process.stderr is not None
    last = process.stderr.read().strip().splitlines()
    return {"error": last[-1][:200] if last else f"exit {process.wait()}"}


def cpu_seconds() -> tuple[float, float]:
    """Seconds of CPU time used since the start of the machine, and of CPU time available."""
    with open("/proc/stat") as stat:
        counts = [int(x) for x in stat.readline().split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    idle = counts[3] + counts[4]
    return (sum(counts) - idle) / tick, sum(counts) / tick


def _figure(c: Contender, all_of_them: Sequence[Contender], tolerance: float) -> ContenderFigure:
    ours = all_of_them[0]
    version = c.about.get("version", "")
    if c.error or not c.seconds:
        return ContenderFigure(c.name, version, np.nan, 0, c.peak_nbytes, np.nan, np.nan, np.nan, False, c.error)
    mine = clean(c)
    pairs = np.array([b / a for a, b in zip(ours.seconds, c.seconds, strict=False)])
    low, high = interval(pairs) if len(pairs) else (np.nan, np.nan)
    return ContenderFigure(
        c.name, version, float(np.median(mine)), sum(c.clean), c.peak_nbytes,
        float(np.median(pairs)) if len(pairs) else np.nan, low, high, _agree(ours, c, tolerance),
    )  # fmt: skip


def clean(c: Contender) -> list[float]:
    """Its seconds in clean rounds, or in all if there are too few."""
    kept = [s for s, ok in zip(c.seconds, c.clean, strict=True) if ok]
    return kept if len(kept) >= FEWEST_CLEAN else c.seconds


def interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    """A 95% bootstrap interval of a median."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (_RESAMPLED, len(values))), 1)
    return float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


def _agree(a: Contender, b: Contender, tolerance: float) -> bool:
    """True if b's first and last results agree with a's first in the sampled elements."""
    x = np.array(a.about.get("sample", []))
    return all(_same(x, np.array(y), tolerance) for y in (b.about.get("sample", []), b.last))


def _same(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], tolerance: float) -> bool:
    if x.shape != y.shape or not x.size:
        return False
    scale = float(np.abs(y).max(initial=0.0)) or 1.0
    return bool(np.abs(x - y).max() <= tolerance * scale)
