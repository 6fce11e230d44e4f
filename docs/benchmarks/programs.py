"""Programs of docs/examples/models and training at full memory, half of it and the minimum.

    python docs/benchmarks/programs.py FOLDER [--only WORD ...] [--model SmolLM2.gguf]

Every run is a process that waits at its end until the parent has read its peak resident memory (VmHWM). *Full* is 4
GiB, in which nothing is spilled; *half* is half of the peak in it; *least* is the memory that refusals name, repeated
until one runs. The parent compares answers with the reference. LoRA requires ``--model``. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from programs_run import RUNS, memory_of

FULL = 4 << 30
TRIES = 60


def child(case: str, folder: Path, memory: int) -> None:
    """Run the requested case, report the outcome, and wait for the parent."""

    from einturnip.core.errors import CapacityError

    begin = time.perf_counter()
    try:
        RUNS[case](folder, memory)
    except CapacityError as error:
        print("refused", error.needed, flush=True)
    else:
        print("done", time.perf_counter() - begin, flush=True)
    sys.stdin.readline()


def watched(case: str, folder: Path, memory: int) -> tuple[str, float, int]:
    """A child's report of its run, with a number, and its peak in bytes, observed from outside."""
    command = [sys.executable, __file__, str(folder), "--child", case, str(memory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline().split()
    if len(said) != 2:
        raise SystemExit(f"{case} at {memory >> 20} MiB ended with {process.wait()}")
    peak = memory_of(str(process.pid), "VmHWM")
    process.communicate("\n")
    return said[0], float(said[1]), peak


def least(case: str, folder: Path) -> tuple[int, float, int]:
    """The minimum memory that is not refused, with the seconds and the peak of the run in it."""
    memory = 1 << 20
    for _ in range(TRIES):
        said, number, peak = watched(case, folder, memory)
        if said == "done":
            return memory, number, peak
        memory = max(int(number), memory + (1 << 20))
    raise SystemExit(f"{case}: refused even {memory >> 20} MiB")


def rows(case: str, folder: Path, check: Callable[[], float]) -> None:
    """A line for each memory."""

    def line(name: str, memory: int, seconds: float, peak: int) -> None:
        held = "" if peak <= memory else " **over**"
        print(
            f"| {case} | {name} | {memory / 2**20:.0f} | {peak / 2**20:.0f}{held} | {seconds:.1f} | {check():.1e} |",
            flush=True,
        )

    said, seconds, full = watched(case, folder, FULL)
    if said != "done":
        raise SystemExit(f"{case}: refused 4 GiB")
    line("full", FULL, seconds, full)
    said, seconds, peak = watched(case, folder, full // 2)
    if said == "done":
        line("half", full // 2, seconds, peak)
    else:
        print(f"| {case} | half | {full // 2 >> 20} | refused: at least {seconds / 2**20:.0f} | | |", flush=True)
    line("least", *least(case, folder))


def main() -> None:
    """Create the data of each case, run it, and remove the data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--model", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "BYTES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], given.folder, int(given.child[1]))
        return
    from programs_data import CASES

    print("| program | memory | stated, MiB | peak, MiB | seconds | largest error |\n|---|---|---|---|---|---|")
    for case, make in CASES.items():
        if (given.only and not any(word in case for word in given.only)) or (case == "LoRA" and not given.model):
            continue
        given.folder.mkdir(parents=True, exist_ok=True)
        if case == "LoRA":
            (given.folder / "model.gguf").unlink(missing_ok=True)
            os.symlink(os.path.abspath(given.model), given.folder / "model.gguf")
        rows(case, given.folder, make(given.folder))
        for file in given.folder.glob("*.npy"):
            file.unlink()


if __name__ == "__main__":
    main()
