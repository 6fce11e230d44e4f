"""Predicted time and bytes as functions of the arena: do they ever rise with it?

    python docs/benchmarks/budgets.py FOLDER [--budgets 50] [--only WORD ...] [--points]

Ten programs of the suite (suite_programs.py), planned and not run, for arenas evenly spaced on a logarithmic scale from
the minimum, or a 256th of the bytes of all files, to twice these bytes. A row for each program: how often the plan for
more memory is predicted to take longer than one for less, the largest such rise, and the largest rise of bytes among
plans of equal time. Files are sparse.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

import einturnip as et
from suite_programs import POOL, SUITE, Case

NAMES = (
    "matmul f32",
    "matmul c64",
    "four-index contraction",
    "mttkrp",
    "product, then a map",
    "a b + 1",
    "softmax of a sum",
    "heat",
    "convolution, out of core",
    "attention, out of core",
)
# Times nearer than this count as equal.
EQUAL = 1.001


def points(case: Case, folder: Path, budgets: int) -> list[tuple[int, float, int, float]]:
    """For each arena its bytes, the predicted seconds and bytes, and the seconds of planning."""
    files = {}
    for name, file in case.files.items():
        dtype, shape, _ = POOL[file]
        files[name] = folder / f"{file}.npy"
        if not files[name].exists():
            np.lib.format.open_memmap(files[name], "w+", dtype, shape)
    program = et.compile(case.text)
    outputs = {name: folder / f"out-{name}.npy" for name in program.outputs}
    weight = sum(path.stat().st_size for path in set(files.values()))
    try:
        program.plan(data=files, dims=case.dims, arena=1)
        least = 1
    except et.CapacityError as error:
        least = error.needed
    found = []
    for arena in np.geomspace(max(least, weight / 256), 2 * weight, budgets):
        begin = time.perf_counter()
        plan = program.plan(data=files, dims=case.dims, arena=math.ceil(arena), out=outputs)
        took = time.perf_counter() - begin
        told = plan.prediction
        found.append((math.ceil(arena), told.seconds, sum(told.link_bytes.values()), took))
    return found


def row(name: str, found: list[tuple[int, float, int, float]]) -> str:
    """The rises, as a row of Markdown."""
    pairs = [(a, b) for n, a in enumerate(found) for b in found[n + 1 :]]
    slower = [b[1] / a[1] for a, b in pairs if b[1] > EQUAL * a[1]]
    moving = [b[2] / a[2] for a, b in pairs if 1 / EQUAL <= b[1] / a[1] <= EQUAL and b[2] > a[2]]
    rising = sum(b[1] > EQUAL * min(a[1] for a in found[:n]) for n, b in enumerate(found) if n)
    return (
        f"| {name} | {found[0][0] / 2**20:.1f} to {found[-1][0] / 2**20:.0f} | {rising} of {len(found) - 1} | "
        f"{max(slower, default=1.0):.3f} | {max(moving, default=1.0):.3f} | {sum(f[3] for f in found):.0f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budgets", type=int, default=50)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--points", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    assert set(NAMES) <= {case.name for case in SUITE}
    print("| program | arenas, MiB | slower than for less | largest rise of time | of bytes | planning, s |")
    print("|---|---|---|---|---|---|")
    for case in SUITE:
        if case.name in NAMES and (not options.only or any(word in case.name for word in options.only)):
            found = points(case, options.folder, options.budgets)
            print(row(case.name, found), flush=True)
            if options.points:
                for arena, seconds, nbytes, took in found:
                    print(f"    {arena / 2**20:9.2f} MiB {seconds:8.3f} s {nbytes / 2**20:10.1f} MiB {took:6.2f} s")


if __name__ == "__main__":
    main()
