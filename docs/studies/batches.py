"""Percent of the ideal speed of offload policies in a fixed memory, as the batch or the prompt grows.

    python docs/studies/batches.py [--parts FOLDER] [--write]

``--parts`` stores each cell in FOLDER, so that the next run resumes. ``--write`` stores the numbers in batches.json,
the picture in batches.svg and the tables in batches.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from charts import Panel, svg
from einturnip.cost.described_machines import described
from einturnip.runtime.simulate.dispatch import fixed, free_order
from einturnip.runtime.simulate.simulator import TimingNoise, simulate_on
from pages import Numbers, options_of, stored_cell, with_sizes, write
from policies import FOLDER, Workload, cut_finely, placed, unlimited

PAGE = Path(__file__).with_suffix(".md")
MACHINE = described("p100")
POLICIES = ("ours", "turnip", "swapadvisor", "zero-infinity", "flexgen", "deepum", "lru")
# Program, bytes of the device, the size that grows, its values.
STUDIES = {
    "training, 2 GiB": ("mlp_training", 2 << 30, "n", (8192, 16384, 32768, 49152)),
    "Llama blocks, 160 MiB": ("llama", 160 << 20, "s", (2048, 4096, 8192, 16384)),
}


@cache
def work_of(name: str, size: int) -> Workload:
    """The program of a study with ``size`` samples or tokens."""
    program, _, label, _ = STUDIES[name]
    return cut_finely(program, with_sizes(FOLDER / f"{program}.ein", {label: size}), MACHINE)


def cell(name: str, size: int, policy: str) -> dict[str, float] | None:
    """Percent of the ideal in free and in fixed order; None if the policy fails."""
    work = work_of(name, size)
    graph = placed(work, MACHINE, min(1.0, STUDIES[name][1] / work.peak), policy)
    if graph is None:
        return None
    best = 100 * unlimited(work, MACHINE, 0.0, 0)
    ways = {"free": free_order, "fixed": fixed}
    return {k: round(best / simulate_on(graph, MACHINE, way, TimingNoise()).makespan, 1) for k, way in ways.items()}


def cells(name: str, size: int, parts: Path | None) -> Numbers:
    """The cells of a size, by policy."""
    return {p: stored_cell(parts, f"{name}-{size}-{p}", partial(cell, name, size, p)) for p in POLICIES}


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the page's tables."""
    for name, found in numbers.items():
        heads = (f"{size} ({share:.0%})" for size, share in found["shares"].items())
        yield from ("", f"### {name}", "", f"| {STUDIES[name][2]} | {' | '.join(heads)} |")
        yield f"|---|{'---|' * len(found['shares'])}"
        for policy in POLICIES:
            cells = (found["percent"][size][policy] for size in found["shares"])
            yield f"| {policy} | {' | '.join('{free} / {fixed}'.format(**c) if c else '-' for c in cells)} |"


def picture(numbers: Numbers) -> str:
    """Percent of the ideal in the better order, by size."""
    panels = [
        Panel(name, {p: [(n, max(of[p].values())) for n, of in found["percent"].items() if of[p]] for p in POLICIES})
        for name, found in numbers.items()
    ]
    return svg([panels], "percent of the speed with unlimited memory, by samples or tokens")


def main() -> None:
    """Simulate, print, store."""
    options = options_of(argparse.ArgumentParser())
    found: Numbers = {}
    for name, (_, device, _, sizes) in STUDIES.items():
        percent = {str(n): cells(name, n, options.parts) for n in sizes}
        shares = {str(n): min(1.0, device / work_of(name, n).peak) for n in sizes}
        found[name] = {"shares": shares, "percent": percent}
        print("\n".join(tables({name: found[name]})), flush=True)
    if options.write:
        write(PAGE, found, tables(found), picture(found))


if __name__ == "__main__":
    main()
