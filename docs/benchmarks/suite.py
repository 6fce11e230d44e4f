"""Predicted and measured time of twice forty programs, each in its own process.

    python docs/benchmarks/suite.py FOLDER --calibrate [--suite loops]
    python docs/benchmarks/suite.py FOLDER [--suite loops] [--only WORD ...] [--rounds 1] [--seconds 150] [--table]

The programs are those of suite_programs.py, or with ``--suite loops`` those of suite_loops.py.

``--calibrate`` measures the rates into FOLDER/machine.json, which the runs then use, and creates the inputs. Every run
appends a line to FOLDER/results.jsonl; a program with as many lines as rounds is skipped, so that the suite can be run
in parts. A run in which other programs, or the host of a virtual machine, took more than a twentieth of the CPU time is
repeated, at most four times. ``--table`` prints the results as Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.core.process_resources import others_seconds, usable_cores
from einturnip.devices.stored import SWITCH
from suite_loops import FILES, LOOPS
from suite_programs import POOL, SUITE, Case

SUITES = {"first": SUITE, "loops": LOOPS}
# Maximum share of the CPU time that others take during a run: of two cores a tenth of one, for which ops on both wait.
OTHERS = 0.05


def prepare(folder: Path, case: Case) -> None:
    """Create a program's missing files: numbers between -1 and 1, and indices within their range."""
    for number, (name, (dtype, shape, below)) in enumerate((POOL | FILES).items()):
        path = folder / f"{name}.npy"
        if path.exists() or name not in case.files.values():
            continue
        rng = np.random.default_rng(number)
        out = np.lib.format.open_memmap(path, "w+", dtype, shape)
        flat = out.reshape(-1)
        for at in range(0, flat.size, 1 << 22):
            n = min(1 << 22, flat.size - at)
            flat[at : at + n] = rng.integers(0, below, n) if below else rng.uniform(-1, 1, n)
        out.flush()
        del out


def forget(paths: list[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@contextlib.contextmanager
def warmed(folder: Path, inputs: list[Path], nbytes: int = 15 << 27) -> Iterator[None]:
    """Read the inputs, and free as many recently written bytes as the longest output has.

    The host of a virtual machine reclaims memory that is free for seconds, 2 MiB at a time, and takes seconds to
    provide it again: the memory freed here is between pages that stay in use.
    """
    piece = memoryview(bytearray(1 << 20))
    for path in inputs:
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass
    fallocate = ctypes.CDLL(None).fallocate
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(0, nbytes, len(piece)):
            file.write(piece)
        keep, punch = 1 << 16, 3  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
        for at in range(0, nbytes, len(piece)):
            fallocate(file.fileno(), punch, ctypes.c_long(at + keep), ctypes.c_long(len(piece) - keep))
        yield


def undisturbed(case: Case, folder: Path, tries: int = 5) -> dict[str, Any]:
    """The report of the first undisturbed run, else of the least disturbed one."""
    runs = []
    for _ in range(tries):
        runs.append(run(case, folder))
        if runs[-1]["others"] <= OTHERS:
            break
    return min(runs, key=lambda r: r["others"])


def arguments(case: Case, folder: Path) -> list[str]:
    """Options of the command line: the arena, files of inputs, sizes."""
    files = [x for name, file in case.files.items() for x in ("-i", f"{name}={folder / file}.npy")]
    sizes = [x for name, size in case.dims.items() for x in ("--dim", f"{name}={size}")]
    return ["--arena", f"{case.arena}MiB", *files, *sizes]


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Run a program from cold files and return its report; ``others``: CPU share of other programs."""
    prepare(folder, case)
    program, report = folder / "program.ein", folder / "report.json"
    program.write_text(case.text)
    outputs = [w.strip(" ,") for line in case.text.splitlines() if line.startswith("output") for w in line.split()[1:]]
    inputs = [folder / f"{file}.npy" for file in set(case.files.values())]
    command = [sys.executable, "-m", "einturnip", "run", os.fspath(program), "--quiet", *arguments(case, folder)]
    command += [x for name in outputs for x in ("-o", f"{name}={folder / f'out-{name}.npy'}")]
    command += ["--spill", os.fspath(folder), "--report", os.fspath(report)]
    with warmed(folder, inputs):
        forget(inputs)
        begin, others = time.perf_counter(), others_seconds()
        subprocess.run(command, check=True)
        shell = time.perf_counter() - begin
        taken = (others_seconds() - others) / (usable_cores() * shell)
    for name in outputs:
        (folder / f"out-{name}.npy").unlink()
    return {"name": case.name, "shell": shell, "others": taken, **json.loads(report.read_text())}


def table(lines: list[dict[str, Any]], suite: tuple[Case, ...]) -> list[str]:
    """A row for each program: medians of measured values, with the predicted ones."""
    rows = ["| program | arena, MiB | predicted, s | measured, s | ratio | bytes equal | peak, predicted / measured |"]
    rows += ["|---|---|---|---|---|---|---|"]
    near = equal = peaks = count = 0
    for case in suite:
        runs = [line for line in lines if line["name"] == case.name]
        if not runs:
            continue
        measured, last = statistics.median(r["wall_seconds"] for r in runs), runs[-1]
        predicted = last["predicted"]["seconds"]
        same = all(r["link_bytes"] == r["predicted"]["link_bytes"] for r in runs)
        peak = last["predicted"]["peak_bytes"]["cpu:0"] / max(1, last["arena_peak_nbytes"])
        count, near, equal = count + 1, near + (0.75 <= predicted / measured <= 1.25), equal + same
        peaks += 1 <= peak <= 1.1
        rows.append(
            f"| {case.name} | {case.arena} | {predicted:.2f} | {measured:.2f} | {predicted / measured:.2f} | "
            f"{'yes' if same else 'no'} | {peak:.2f} |"
        )
    rows += ["", f"Of {count}: {near} within 25%, {equal} with equal bytes, {peaks} with a peak within 10%."]
    return rows


def main() -> None:
    """Run the missing programs, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--suite", choices=SUITES, default="first")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[SWITCH] = os.fspath(folder / "machine.json")
    if options.calibrate:
        for case in suite:
            prepare(folder, case)
        with warmed(folder, []):
            command = [sys.executable, "-m", "einturnip", "doctor", "--calibrate", "--spill", os.fspath(folder)]
            subprocess.run(command, check=True)
        return
    results, begin = folder / "results.jsonl", time.monotonic()
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for round_ in range(0 if options.table else options.rounds):
        for case in suite:
            wanted = not options.only or any(word in case.name for word in options.only)
            done = sum(line["name"] == case.name for line in lines) > round_
            if wanted and not done and time.monotonic() - begin < options.seconds:
                lines.append(undisturbed(case, folder))
                with results.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print("\n".join(table(lines, suite)))


if __name__ == "__main__":
    main()
