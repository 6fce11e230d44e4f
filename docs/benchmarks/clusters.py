"""Programs on four local workers, compared with dask.array, Cubed and Ray actors.

    python docs/benchmarks/clusters.py [CASE]... [--rounds 5] [--folder build/clusters] [--out docs/benchmarks]

CASE: a part of a case's name. Peers that are not installed are left out: pip install 'einturnip[dask,zarr]' cubed ray.
Writes clusters.json and clusters.md into --out. The inputs, 5 GB, stay in --folder.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from harness.cluster_bench import ClusterOutcome, about, bench
from harness.cluster_page import line, write
from harness.host import machine


def main() -> None:
    """Measure, and write the page after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender")
    parser.add_argument("--small", action="store_true", help="tiny sizes: they try the script and measure nothing")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds after which a run is ended")
    parser.add_argument("--folder", type=Path, default=Path("build/clusters"), help="where inputs are, and are made")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the page")
    given = parser.parse_args()
    outcomes: list[ClusterOutcome] = []
    small = ["--small"] if given.small else []
    words = [*given.cases, *small, "--rounds", str(given.rounds), "--patience", f"{given.patience:.0f}"]
    command = shlex.join(["python", "docs/benchmarks/clusters.py", *words])
    for outcome, trial in bench(given.cases, given.folder.absolute(), given.rounds, given.small, given.patience):
        print(line(outcome.case, trial), flush=True)
        outcomes += [outcome] if outcome not in outcomes else []
        write(outcomes, given.out, machine() | about(outcomes), command)


if __name__ == "__main__":
    main()
