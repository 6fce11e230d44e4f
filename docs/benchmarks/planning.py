"""Time and memory of planning 10^3 to 10^6 tile tasks with ``einturnip plan``.

    python docs/benchmarks/planning.py FOLDER [--tiles 10 22 46 100] [--memory 1GiB]

A matrix product in N x N x N tiles of 32 x 32, and as many tile tasks of an elementwise statement, observed through
/proc. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TILE = 32
PRODUCT = """input A : f32[m, p] = "A.npy"
input B : f32[p, n] = "B.npy"
@tile(i = 32, j = 32, k = 32)
C[i,k] = sum[j] A[i,j] * B[j,k]
output C = "C.npy"
"""
ELEMENTWISE = """input A : f32[m, n] = "A.npy"
input B : f32[m, n] = "B.npy"
@tile(i = 32, j = 32)
C[i,j] = exp(A[i,j]) * B[i,j]
output C = "C.npy"
"""


@dataclass(frozen=True)
class Watched:
    """One process, observed from outside. Units: seconds, bytes."""

    seconds: float
    processor_seconds: float
    peak: int
    output: str


def watch(command: list[str]) -> Watched:
    """Run a command and observe its peak resident memory."""
    begin = time.perf_counter()
    anew = os.environ | {"EINTURNIP_PLANS": "off"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=anew)
    peak = 0
    while True:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        found = re.search(r"VmHWM:\s*(\d+)", status)
        if found is None:  # it has ended, and waits to be reaped
            break
        peak = max(peak, int(found[1]) << 10)
        time.sleep(0.02)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status_code, usage = os.wait4(process.pid, 0)
    if status_code:
        raise SystemExit(f"{command} failed")
    return Watched(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, peak, output)


def planned(folder: Path, program: str, dims: dict[str, int], memory: str) -> Watched:
    """Plan a program whose inputs have these sizes; no data are needed."""
    path = folder / "planned.ein"
    path.write_text(program)
    sizes = [word for name, size in dims.items() for word in ("--dim", f"{name}={size}")]
    return watch([sys.executable, "-m", "einturnip", "plan", str(path), "--memory", memory, *sizes])


def main() -> None:
    """Plan both programs at each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiles", type=int, nargs="+", default=[10, 22, 46, 100])
    parser.add_argument("--memory", default="1GiB")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| program | tile tasks | seconds | processor, seconds | microseconds a task | peak resident, MiB |")
    print("|---|---|---|---|---|---|")
    for n in options.tiles:
        rows, columns = n, n * n // 4  # a load of each operand, a kernel and a store: four tasks per tile
        cases = (
            ("product", PRODUCT, dict.fromkeys("mpn", n * TILE)),
            ("elementwise", ELEMENTWISE, {"m": rows * TILE, "n": columns * TILE}),
        )
        for name, program, dims in cases:
            found = planned(options.folder, program, dims, options.memory)
            steps = re.search(r"steps\s+(.*)", found.output)
            assert steps is not None
            tasks = sum(int(x.replace(",", "")) for x in re.findall(r"([\d,]+) (?:load|kernel|store)", steps[1]))
            each = found.seconds / tasks * 1e6
            print(
                f"| {name} | {tasks:,} | {found.seconds:.1f} | {found.processor_seconds:.1f} | {each:.0f} "
                f"| {found.peak >> 20} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
