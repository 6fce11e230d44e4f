"""Bytes moved by C = A B in arenas of 1/4 to 1/64 of its data, compared with square blocks of C.

    python docs/benchmarks/planner_gemm.py FOLDER [--sizes 8192x8192x8192] [--shares 4 8 16 32 64] [--plan]

Every product is run by a process of its own from ``.npy`` files, with ``--arena`` at that share of the bytes of A, B
and C. Bytes moved are those of ``/proc/PID/io`` (``rchar`` and ``wchar``, with Python's own files). So that they are
counted there, each run of a file is read by a call of its own, so seconds are not those of a usual run. The reference
is max(2MNK/sqrt(S), MK + KN) + MN elements for an arena of S elements. ``--plan`` runs nothing and prints planned
bytes. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

PROGRAM = "input A : f32[m,p]\ninput B : f32[p,n]\nC[i,k] = sum[j] A[i,j] * B[j,k]\noutput C\n"
EINTURNIP = [sys.executable, "-m", "einturnip"]
# /proc/PID/io does not count what io_submit(2) reads from the page cache.
SINGLY = "import einturnip.storage.io.batched_io as t; t.together = lambda: None\n"
SINGLY += "import einturnip.storage.io.coalesced_reads as t; t.together = lambda: None\n"
SINGLY += "import einturnip.storage.io.transfer as t; t.together = lambda: None\n"
SINGLY += "from einturnip.cli.main import main; main()"
COUNTED = [sys.executable, "-c", SINGLY]


def bound(m: int, n: int, k: int, points: float) -> float:
    """Elements that square blocks of C move if they fill the arena, at least everything once."""
    return max(2 * m * n * k / math.sqrt(points), m * k + k * n) + m * n


def make(path: Path, rows: int, columns: int) -> None:
    """Create a file of normal numbers, unless it exists."""
    if not path.exists():
        rng, out = np.random.default_rng(rows), np.lib.format.open_memmap(path, "w+", "f4", (rows, columns))
        for row in range(0, rows, 512):
            out[row : row + 512] = rng.standard_normal((min(512, rows - row), columns), dtype="f4")
        out.flush()


def counted(folder: Path, m: int, n: int, k: int, arena: int) -> tuple[int, str, float]:
    """Bytes that a run moves, observed from outside, its tiles, its seconds."""
    make(folder / f"{m}x{k}.npy", m, k)
    make(folder / f"{k}x{n}.npy", k, n)
    report = folder / "report.json"
    command = [*COUNTED, "run", "gemm.ein", "--quiet", "--arena", f"{arena}B", "--report", report.name]
    command += ["-i", f"A={m}x{k}.npy", "-i", f"B={k}x{n}.npy", "-o", "C=C.npy"]
    # The waiting shell's count contains its child's bytes, and hardly any of its own.
    script = 'before=$(cat /proc/$$/io); "$@"; echo "$before"; cat /proc/$$/io'
    said = subprocess.run(["bash", "-c", script, "-", *command], cwd=folder, capture_output=True, text=True, check=True)
    counts = [int(x) for x in re.findall(r"[rw]char: (\d+)", said.stdout)]
    seconds = json.loads(report.read_text())["wall_seconds"]
    (folder / "C.npy").unlink()
    return sum(counts[2:]) - sum(counts[:2]), "", seconds


def planned(folder: Path, m: int, n: int, k: int, arena: int) -> tuple[int, str, float]:
    """Bytes that the plan moves, its tiles, its predicted seconds."""
    command = [*EINTURNIP, "plan", "gemm.ein", "--no-budgets", "--emit", "decomposition", "--format", "json"]
    command += [
        "--arena",
        f"{arena}B",
        *(w for d, x in zip("mnp", (m, n, k), strict=True) for w in ("--dim", f"{d}={x}")),
    ]
    told = json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)
    node = told["nodes"][-1]
    tiles = " x ".join(str(-(-b // c)) for b, c in zip(node["bounds"], node["counts"], strict=True))
    return sum(told["predicted"]["link_bytes"].values()), tiles, told["predicted"]["seconds"]


def main() -> None:
    """A row for each size and share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["8192x8192x8192"], metavar="MxNxK")
    parser.add_argument("--shares", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "gemm.ein").write_text(PROGRAM)
    print(f"| M x N x K | arena, of the data | MiB | {'tiles | ' if options.plan else ''}GB | of the bound | seconds |")
    print("|---|---|---|---|---|---|" + ("---|" if options.plan else ""))
    for size in options.sizes:
        m, n, k = map(int, size.split("x"))
        for share in options.shares:
            arena = 4 * (m * k + k * n + m * n) // share
            moved, tiles, seconds = (planned if options.plan else counted)(options.folder, m, n, k, arena)
            tiles = f"{tiles} | " if tiles else ""
            over = moved / 4 / bound(m, n, k, arena / 4)
            print(
                f"| {m} x {n} x {k} | 1/{share} | {arena / 2**20:.0f} | {tiles}{moved / 1e9:.2f} | {over:.3f} "
                f"| {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
