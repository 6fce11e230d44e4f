"""Predicted and measured time of random plans of one program: a product of 3072 x 3072.

    python docs/benchmarks/plans.py FOLDER [--plans 16]

Prints each plan's tile and times, and the correlation of the two, plain and of their logarithms.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import einturnip as et

SIZE = 3072
TILES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536)
PROGRAM = """input A : f32[m,n]
input B : f32[n,p]
@tile(i = {}, k = {}, j = {})
C[i,k] = sum[j] A[i,j] * B[j,k]
output C
"""


def main() -> None:
    """Run the plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plans", type=int, default=16)
    options = parser.parse_args()
    rng = np.random.default_rng(7)
    files = {name: str(options.folder / f"{name}-{SIZE}.npy") for name in "AB"}
    for path in files.values():
        np.save(path, rng.uniform(-1, 1, (SIZE, SIZE)).astype(np.float32))
    rows = []
    for _ in range(options.plans):
        tile = [int(x) for x in rng.choice(TILES, 3)]
        program = et.compile(PROGRAM.format(*tile))
        out = {"C": str(options.folder / "C.npy")}
        report = program(arena=int(rng.choice([24, 48, 160])) << 20, spill=options.folder, out=out, **files).report
        rows.append((report.predicted.seconds, report.wall_seconds))
        print(
            f"{' x '.join(map(str, tile)):<20}predicted {rows[-1][0]:6.2f} s  measured {rows[-1][1]:6.2f} s", flush=True
        )
    predicted, measured = np.array(rows).T
    plain, logs = (np.corrcoef(x, y)[0, 1] for x, y in ((predicted, measured), (np.log(predicted), np.log(measured))))
    print(f"correlation {plain:.3f}, of logarithms {logs:.3f}")


if __name__ == "__main__":
    main()
