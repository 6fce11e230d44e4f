"""Compares offload policies in simulation; prints the tables of docs/studies/policies.md.

    python docs/studies/policies.py [--machine p100] [--only gemm_chain ...] [--policies ours ...] [--seeds 3]
    [--parts FOLDER] [--seconds 90] [--write]

``--write`` stores the numbers in policies.json, the picture in policies.svg and the tables in policies.md.

With ``--parts`` each cell is stored in FOLDER; with ``--seconds`` no cell begins after that time, and the next run
resumes. Stored cells are of the code that computed them: use an empty folder for a new table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from charts import Panel, svg
from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine, described
from einturnip.cost.machine import Machine
from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.lang import compile_text
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.types import MemGraph
from einturnip.planner.io_lower_bound import io_lower_bound
from einturnip.runtime.simulate.dispatch import fixed, free_order
from einturnip.runtime.simulate.machine_prices import priced
from einturnip.runtime.simulate.simulator import CAUSES, Simulation, TimingNoise, simulate_on
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.build import lay_out
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.search import successive_tilings
from offload_policies import POLICIES, MemoryBudgets, place, place_trace
from offload_policies.choose_offload import place_default
from offload_policies.trace import peak_nbytes, trace, working_set_nbytes
from pages import Numbers, options_of, stored_cell, write

FOLDER = Path(__file__).parent / "programs"
PAGE = Path(__file__).with_suffix(".md")
WORKLOADS = ("gemm_chain", "attention", "mlp_training", "llama", "tensor_network")
SHARES = (0.9, 0.5, 0.25, 0.12)
JITTERS = (0.0, 0.3, 1.0)
# A kernel uses at most this share of the program's peak, so that the smallest budget holds a few.
WORKING_SET = 0.04
AMPLE = 1 << 46
MAX_TASKS = 50_000
# The builder is the policy of ``einturnip run`` on a host.
NAMES = ("builder", *POLICIES)
PAGED = ("deepum", "capuchin", "turnip", "builder", "ours")
DRAWN = ("ours", "builder", "turnip", "lru", "deepum", "capuchin", "zero-infinity", "flexgen")


@dataclass(frozen=True, eq=False)
class Workload:
    """A program, its tiling, and its peak bytes."""

    name: str
    together: EquivalenceClasses
    tiles: tuple[int, ...]
    peak: int

    def tasks(self, capacity: int) -> TaskGraph:
        """The tile tasks, in the order that the planner chooses for ``capacity``."""
        return tasks_of(self, capacity)

    def bound(self, capacity: int) -> int:
        """Bytes that any schedule must move."""
        return sum(io_lower_bound(self.together.graph, capacity).values())


@cache
def tasks_of(work: Workload, capacity: int) -> TaskGraph:
    """See ``Workload.tasks``."""
    return build_tasks(lay_out(work.together, work.tiles, capacity), Machine())


@cache
def workload(name: str, machine: DescribedMachine) -> Workload:
    """The program of that name in the coarsest tiling with small enough working sets."""
    return cut_finely(name, (FOLDER / f"{name}.ein").read_text(), machine)


def cut_finely(name: str, text: str, machine: DescribedMachine) -> Workload:
    """A program in the coarsest tiling with working sets that are small beside its peak."""
    return cut_for(name, text, machine, lambda peak: int(WORKING_SET * peak))


def cut_for(name: str, text: str, machine: DescribedMachine, working_set: Callable[[int], int]) -> Workload:
    """A program in the coarsest tiling whose working sets have at most ``working_set(peak)`` bytes."""
    graph = rewrite(build_graph(compile_text(text, f"{name}.ein"), {}, {}, {}), None)
    fused = fuse(graph, EinsumInterner(), None)
    together = equivalence_classes(fused, label_classes(fused))
    for cut in successive_tilings(together, search_machine(machine), {}, MAX_TASKS):
        seen = trace(build_tasks(lay_out(together, cut.tiles, AMPLE), Machine()), machine, MemoryBudgets(AMPLE, AMPLE))
        peak = peak_nbytes(seen)
        if working_set_nbytes(seen) <= working_set(peak):
            return Workload(name, together, cut.tiles, peak)
    raise SystemExit(f"{name} cannot be cut finely enough")


def search_machine(machine: DescribedMachine) -> Machine:
    """The machine that the search for tilings prices: inputs in host memory have no cost per run, unlike in a file."""
    return Machine() if machine.kernels is None else replace(Machine(), run_latency=0.0, cold_run_latency=0.0)


@cache
def unlimited(work: Workload, machine: DescribedMachine, jitter: float, seed: int) -> float:
    """Minimum makespan if everything fits: inputs are loaded once, outputs stored once, over all orders."""
    capacities = (AMPLE, *(int(work.peak * share) for share in SHARES))
    noise = TimingNoise(jitter, jitter, seed)
    return min(simulated(all_held(work, machine, c), machine, noise).makespan for c in capacities)


@cache
def all_held(work: Workload, machine: DescribedMachine, capacity: int) -> MemGraph:
    """The tasks in the order for ``capacity``, on a device that holds everything."""
    host = AMPLE if machine.memory["host"] else 0
    return place(work.tasks(capacity), machine, MemoryBudgets(AMPLE, host), POLICIES["ours"]())


def placed(work: Workload, machine: DescribedMachine, share: float, policy: str) -> MemGraph | None:
    """The memory graph within ``share`` of the peak, proved; None if the policy fails."""
    budget = int(work.peak * share)
    tasks = work.tasks(budget)
    seen = trace(tasks, machine, MemoryBudgets(budget, machine.memory["host"]))
    try:
        match policy:
            case "builder":
                outputs = frozenset(range(len(tasks.decomposition.graph.outputs)))  # stored outputs can be read again
                graph = priced(build(tasks, budget, Machine(), outputs), machine)
            case "ours":
                graph = place_default(seen)
            case _:
                graph = place_trace(seen, POLICIES[policy]())
    except CapacityError:
        return None
    check(graph)
    return graph


def simulated(graph: MemGraph, machine: DescribedMachine, noise: TimingNoise) -> Simulation:
    """The better of free order and streams in program order."""
    runs = (simulate_on(graph, machine, way, noise) for way in (free_order, fixed))
    return min(runs, key=lambda s: s.makespan)


@dataclass(frozen=True)
class Row:
    """One policy in one budget: speed by jitter, bytes over the bound, shares of the lost time."""

    policy: str
    percent: tuple[float, ...]
    bytes_over_bound: float
    stalls: dict[str, float]


def row(
    work: Workload,
    machine: DescribedMachine,
    share: float,
    policy: str,
    seeds: int,
    jitters: Sequence[float] = JITTERS,
) -> Row | None:
    """Measure one policy in one budget."""
    graph = placed(work, machine, share, policy)
    if graph is None:
        return None
    percent, first = [], None
    for jitter in jitters:
        drawn = range(1 if jitter == 0 else seeds)
        noises = [TimingNoise(jitter, jitter, s) for s in drawn]
        runs = [simulated(graph, machine, noise) for noise in noises]
        first = first or runs[0]
        best = sum(unlimited(work, machine, jitter, s) for s in drawn)
        percent.append(100 * best / sum(r.makespan for r in runs))
    assert first is not None
    moved = sum(nbytes for nbytes, _ in first.links.values())
    lost = {cause: 100 * t / first.makespan / machine.workers for cause, t in first.stalls.items()}
    return Row(policy, tuple(percent), moved / work.bound(int(work.peak * share)), lost)


class OutOfTime(Exception):
    """True if no further cell may begin."""


@dataclass
class Parts:
    """The rows computed so far, by program, machine, budget, policy and number of seeds; stored in files.

    ``until``: time of the clock after which no row begins.
    """

    folder: Path | None
    until: float

    def row(self, work: Workload, machine: DescribedMachine, share: float, policy: str, seeds: int) -> Row | None:
        """The stored row, else a new one, which is stored."""

        def compute() -> Numbers | None:
            if time.monotonic() > self.until:
                raise OutOfTime
            new = row(work, machine, share, policy, seeds)
            return None if new is None else asdict(new)

        found = stored_cell(self.folder, f"{work.name}-{machine.name}-{share}-{policy}-{seeds}", compute)
        return None if found is None else Row(**found | {"percent": tuple(found["percent"])})


def measured(work: Workload, machine: DescribedMachine, policies: Sequence[str], seeds: int, parts: Parts) -> Numbers:
    """The numbers of one program."""
    rows = {f"{share:.0%}": {p: parts.row(work, machine, share, p, seeds) for p in policies} for share in SHARES}
    found = {budget: {p: r and plain(r) for p, r in of.items()} for budget, of in rows.items()}
    return {"tasks": len(work.tasks(AMPLE)), "peak_mib": round(work.peak / 2**20), "budgets": found}


def plain(found: Row) -> Numbers:
    """A row as the tables show it."""
    stalls = {cause: round(lost, 1) for cause, lost in found.stalls.items()}
    percent = [round(p, 1) for p in found.percent]
    return {"percent": percent, "bytes_over_bound": round(found.bytes_over_bound, 2), "stalls": stalls}


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the tables of policies.md."""
    for name, found in numbers["programs"].items():
        yield from ("", f"### {name}", "", f"{found['tasks']:,} tasks; the peak is {found['peak_mib']:,} MiB.")
        budgets = found["budgets"]
        for title, shown in (("policy", speed), ("bytes; stalls", waits)):
            yield from ("", f"| {title} | {' | '.join(budgets)} |", f"|---|{'---|' * len(budgets)}")
            for p in next(iter(budgets.values())):
                yield f"| {p} | {' | '.join(shown(of[p]) for of in budgets.values())} |"
    yield from ("", "### Speed-up over demand paging", "", "Without noise, with a half and a quarter of the peak.", "")
    yield f"| policy | {' | '.join(f'{name}, 50% / 25%' for name in numbers['programs'])} |"
    yield f"|---|{'---|' * len(numbers['programs'])}"
    for p in PAGED:
        found = ((of["budgets"][b] for b in ("50%", "25%")) for of in numbers["programs"].values())
        cells = (" / ".join(f"{of[p]['percent'][0] / of['lru']['percent'][0]:.2f}" for of in pair) for pair in found)
        yield f"| {p} | {' | '.join(cells)} |"


def picture(numbers: Numbers) -> str:
    """Percent of the unlimited speed by budget, without noise, for some of the policies."""
    panels = [
        Panel(name, {p: [(b, of[p]["percent"][0]) for b, of in found["budgets"].items() if of[p]] for p in DRAWN})
        for name, found in numbers["programs"].items()
    ]
    caption = "percent of the speed with unlimited memory, by memory as a share of the peak"
    return svg([panels[:3], panels[3:]], caption)


def speed(found: Numbers | None) -> str:
    """Percent of unlimited speed for each jitter."""
    return "-" if found is None else " / ".join(f"{p:.1f}" for p in found["percent"])


def waits(found: Numbers | None) -> str:
    """Bytes over the bound; percent of the lost time by cause."""
    if found is None:
        return "-"
    return f"{found['bytes_over_bound']:.2f}; " + " ".join(f"{found['stalls'][cause]:.0f}" for cause in CAUSES)


def main() -> None:
    """Run the policies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="p100")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--policies", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = options_of(parser)
    machine = described(options.machine)
    parts = Parts(options.parts, time.monotonic() + options.seconds)
    try:
        found = {
            name: measured(workload(name, machine), machine, options.policies, options.seeds, parts)
            for name in options.only
        }
    except OutOfTime:
        sys.exit("not all cells are found: run the same command again")
    stored = {"machine": machine.name, "seeds": options.seeds, "jitters": JITTERS, "programs": found}
    print("\n".join(tables(stored)))
    if options.write:
        write(PAGE, stored, tables(stored), picture(stored))


if __name__ == "__main__":
    main()
