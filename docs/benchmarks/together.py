"""A program that waits for the disk and one that computes: one after the other, and together.

    python docs/benchmarks/together.py FOLDER [--gib 2] [--size 4096] [--memory 512MiB] [--rounds 3]

Each run is a process of its own on files that are not in the page cache; the ways alternate. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PROGRAMS = {
    "rows": 'input X : f32[n, d] = "X.npy"\ns[j] = max[i] X[i,j]\noutput s = "s.npy"\n',
    "products": 'input A : f32[m, m] = "A.npy"\nB[i,k] = sum[j] A[i,j] * A[j,k]\n'
    'C[i,k] = sum[j] B[i,j] * A[j,k]\noutput C = "C.npy"\n',
}
WAYS = (("rows",), ("products",), ("rows", "products"))
WIDTH = 4096


def prepare(folder: Path, gib: float, size: int) -> None:
    """Write programs and inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PROGRAMS.items():
        (folder / f"{name}.ein").write_text(text)
    rng = np.random.default_rng(0)
    np.save(folder / "A.npy", rng.standard_normal((size, size), np.float32))
    rows = int(gib * 2**30) // (4 * WIDTH)
    if (folder / "X.npy").exists() and np.load(folder / "X.npy", mmap_mode="r").shape == (rows, WIDTH):
        return
    whole = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (rows, WIDTH))
    block = rng.standard_normal((4096, WIDTH), np.float32)
    for row in range(0, rows, len(block)):
        whole[row : row + len(block)] = block[: rows - row]
    whole.flush()


def forget(folder: Path) -> None:
    """Remove the folder's files from the page cache."""
    for path in folder.glob("*.npy"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(folder: Path, programs: tuple[str, ...], memory: str) -> tuple[float, float]:
    """Seconds from the start of the process to its end, and CPU seconds."""
    forget(folder)
    files = [f"{name}.ein" for name in programs]
    before, begin = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "einturnip", "run", *files, "--memory", memory, "-q"], cwd=folder, check=True)
    seconds, after = time.perf_counter() - begin, os.times()
    return seconds, after[2] + after[3] - before[2] - before[3]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    prepare(given.folder, given.gib, given.size)
    runs: dict[tuple[str, ...], list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, found in runs.items():
            found.append(timed(given.folder, way, given.memory))
    print("| programs | seconds | of processor |\n|---|---|---|")
    medians = {way: statistics.median(seconds for seconds, _ in found) for way, found in runs.items()}
    for way, found in runs.items():
        print(f"| {' and '.join(way)} | {medians[way]:.2f} | {statistics.median(cpu for _, cpu in found):.2f} |")
    both, apart = medians[WAYS[2]], medians[WAYS[0]] + medians[WAYS[1]]
    print(f"\ntogether {both:.2f} s, one after the other {apart:.2f} s: {both / apart:.2f}")


if __name__ == "__main__":
    main()
