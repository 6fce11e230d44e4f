"""C = A B from files within a budget, compared with NumPy in memory: time, memory and bytes.

    python docs/benchmarks/gemm.py FOLDER [--size 16384] [--memory 512MiB 192MiB] [--rounds 3]

Contenders run alternately; each is a process of its own, observed through /proc. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PROGRAM = """input A : f32[m, p] = "A.npy"
input B : f32[p, n] = "B.npy"
C[i,k] = sum[j] A[i,j] * B[j,k]
output C = "C.npy"
"""
NUMPY = """import sys, time, numpy as np
begin = time.perf_counter()
a, b = np.load("A.npy"), np.load("B.npy")
loaded = time.perf_counter()
c = a @ b
done = time.perf_counter()
np.save("N.npy", c)
print(done - loaded, time.perf_counter() - begin)
"""


@dataclass
class Watched:
    """One process, observed from outside. Units: seconds, bytes."""

    seconds: float
    peak: int
    moved: int
    output: str


def watch(command: list[str], folder: Path) -> Watched:
    """Run a command and observe its resident memory and the bytes that it reads and writes."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    proc = Path("/proc") / str(process.pid)
    peak = moved = 0
    while process.poll() is None:
        try:
            status, io = (proc / "status").read_text(), (proc / "io").read_text()
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))])
        moved = max(moved, sum(int(line.split()[1]) for line in io.splitlines() if line[:5] in ("rchar", "wchar")))
        time.sleep(0.05)
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Watched(time.perf_counter() - begin, peak, moved, output)


def prepare(folder: Path, size: int) -> None:
    """Two matrices of normal numbers and the program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gemm.ein").write_text(PROGRAM)
    rng = np.random.default_rng(1)
    for name in "AB":
        out = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", "f4", (size, size))
        for row in range(0, size, 512):
            out[row : row + 512] = rng.standard_normal((min(512, size - row), size), dtype="f4")
        out.flush()


def forget(folder: Path) -> None:
    """Drop the inputs from the page cache."""
    for name in "AB":
        number = os.open(folder / f"{name}.npy", os.O_RDONLY)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)


def warm(folder: Path) -> None:
    """Bring the inputs into the page cache."""
    for name in "AB":
        with open(folder / f"{name}.npy", "rb") as f:
            while f.read(1 << 24):
                pass


def error(folder: Path, size: int) -> float:
    """Relative error of C against A (B r) in double precision for random r."""
    r = np.random.default_rng(5).standard_normal((size, 4))

    def times(name: str, right: np.ndarray) -> np.ndarray:
        matrix = np.load(folder / f"{name}.npy", mmap_mode="r")
        return np.concatenate([matrix[i : i + 512].astype("f8") @ right for i in range(0, size, 512)])

    expected = times("A", times("B", r))
    return float(np.linalg.norm(times("C", r) - expected) / np.linalg.norm(expected))


def main() -> None:
    """Run the contenders alternately."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--memory", nargs="+", default=["512MiB", "192MiB"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    prepare(options.folder, options.size)
    command = [str(Path(sys.executable).parent / "einturnip"), "run", "gemm.ein", "--quiet", "--memory"]
    numpy_seconds: list[float] = []
    rows: dict[str, list[Watched]] = {}
    for _ in range(options.rounds):
        warm(options.folder)
        inside = watch([sys.executable, "-c", NUMPY], options.folder)
        numpy_seconds.append(float(inside.output.split()[0]))
        rows.setdefault("NumPy, all in memory, with load and save", []).append(inside)
        for memory in options.memory:
            for state, make in (("warm", warm), ("cold", forget)):
                make(options.folder)
                rows.setdefault(f"einturnip {memory}, {state} files", []).append(
                    watch([*command, memory], options.folder)
                )
    base = statistics.median(numpy_seconds)
    print(f"`np.matmul` alone, in memory: {base:.1f} s (median of {', '.join(f'{s:.1f}' for s in numpy_seconds)})\n")
    print("| contender | seconds | against np.matmul | peak resident MiB | bytes read and written, GB |")
    print("|---|---|---|---|---|")
    for name, runs in rows.items():
        seconds = statistics.median(run.seconds for run in runs)
        peak, moved = max(run.peak for run in runs) / 2**20, statistics.median(run.moved for run in runs) / 1e9
        print(f"| {name} | {seconds:.1f} | {seconds / base:.2f} | {peak:.0f} | {moved:.2f} |")
    print(f"\nRelative error of the last product against double precision: {error(options.folder, options.size):.1e}")


if __name__ == "__main__":
    main()
