"""Instructions and bytes of generated CUDA kernels, counted without a GPU.

    python docs/benchmarks/cuda_counts.py [--write]

NVRTC's PTX is translated to C++ and executed (tests/kernels/cuda/ptx.py). Prints a table; ``--write`` stores it in
cuda_counts.md, and the counts in tests/kernels/cuda/counts.json, which a test compares with.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- counts -->", "<!-- end -->"
COLUMNS = "kernel", "per", "instructions", "read, B", "written, B", "sectors, B", "shared, B", "registers", "KiB"
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the table and the counts")
    write = parser.parse_args().write
    sys.path.insert(0, str(ROOT))
    from einturnip.kernels.cuda.nvrtc import nvrtc
    from tests.kernels.cuda.counts import all_counts

    rows, stored = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        for kernel, c in all_counts(Path(scratch)):
            stored[kernel.name] = asdict(c)
            numbers = *(f"{x:.2f}" for x in (c.instructions, c.read, c.written, c.sectors, c.shared)), c.registers
            rows.append(
                f"| {kernel.name} | {kernel.unit} | {' | '.join(map(str, numbers))} | {c.shared_nbytes / 1024:.1f} |"
            )
            print(rows[-1], flush=True)
    if write:
        page = Path(__file__).with_suffix(".md")
        text = page.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        page.write_text(f"{text[:begin]}\n{HEAD}" + "\n".join(rows) + f"\n{text[end:]}")
        version = ".".join(map(str, nvrtc().version))
        found = {"nvrtc": version, "kernels": stored}
        (ROOT / "tests/kernels/cuda/counts.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
