"""Compares offload policies in simulation; prints the tables of docs/studies/policies.md.

    python docs/studies/policies.py [--machine p100] [--only gemm_chain ...] [--policies ours ...] [--seeds 3]
    [--parts FOLDER] [--seconds 90]

With ``--parts`` each cell is stored in FOLDER; with ``--seconds`` no cell begins after that time, and the next run
resumes. Stored cells are of the code that computed them: use an empty folder for a new table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine, described
from einturnip.cost.machine import Machine
from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.interning import EinsumInterner
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
from einturnip.tiling.build import label_classes, lay_out
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.search import successive_tilings
from offload_policies import POLICIES, MemoryBudgets, place, place_trace
from offload_policies.choose_offload import place_default
from offload_policies.trace import peak_nbytes, trace, working_set_nbytes

FOLDER = Path(__file__).parent / "programs"
WORKLOADS = ("gemm_chain", "attention", "mlp_training", "llama", "tensor_network")
SHARES = (0.9, 0.5, 0.25, 0.12)
JITTERS = (0.0, 0.3, 1.0)
# A kernel uses at most this share of the program's peak, so that the smallest budget holds a few.
# a few of them.
WORKING_SET = 0.04
AMPLE = 1 << 46
# The builder is the policy of ``einturnip run`` on a host.
NAMES = ("builder", *POLICIES)


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
    """A program in the coarsest tiling with small enough working sets."""
    graph = rewrite(build_graph(compile_text(text, f"{name}.ein"), {}, {}, {}), None)
    fused = fuse(graph, EinsumInterner(), None)
    together = equivalence_classes(fused, label_classes(fused))
    for cut in successive_tilings(together, Machine(), {}, 5000):
        seen = trace(build_tasks(lay_out(together, cut.tiles, AMPLE), Machine()), machine, MemoryBudgets(AMPLE, AMPLE))
        if working_set_nbytes(seen) <= WORKING_SET * peak_nbytes(seen):
            return Workload(name, together, cut.tiles, peak_nbytes(seen))
    raise SystemExit(f"{name} cannot be cut finely enough")


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


def row(work: Workload, machine: DescribedMachine, share: float, policy: str, seeds: int) -> Row | None:
    """Measure one policy in one budget."""
    graph = placed(work, machine, share, policy)
    if graph is None:
        return None
    percent, first = [], None
    for jitter in JITTERS:
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
        file = None
        if self.folder is not None:
            file = self.folder / f"{work.name}-{machine.name}-{share}-{policy}-{seeds}.json"
            if file.exists():
                found = json.loads(file.read_text())
                return None if found is None else Row(**found | {"percent": tuple(found["percent"])})
        if time.monotonic() > self.until:
            raise OutOfTime
        new = row(work, machine, share, policy, seeds)
        if file is not None:
            file.write_text(json.dumps(None if new is None else asdict(new)))
        return new


def table(work: Workload, machine: DescribedMachine, policies: Sequence[str], seeds: int, parts: Parts) -> None:
    """Print the tables of one program; cells where ours is over 2% off the best go to standard error."""
    tasks = work.tasks(AMPLE)
    rows = {(p, share): parts.row(work, machine, share, p, seeds) for share in SHARES for p in policies}
    print(f"\n### {work.name}\n\n{len(tasks):,} tasks; {work.peak / 2**20:,.0f} MiB are wanted at one time.\n")
    heads = " | ".join(f"{share:.0%}" for share in SHARES)
    print(f"| policy | {heads} |\n|---|{'---|' * len(SHARES)}")
    for p in policies:
        print(f"| {p} | {' | '.join(speed(rows[p, share]) for share in SHARES)} |")
    print(f"\n| bytes; stalls | {heads} |\n|---|{'---|' * len(SHARES)}")
    for p in policies:
        print(f"| {p} | {' | '.join(waits(rows[p, share]) for share in SHARES)} |", flush=True)
    for share in SHARES:
        for at, jitter in enumerate(JITTERS):
            found = {p: r.percent[at] for p in policies if (r := rows[p, share]) is not None}
            first = max(found, key=found.__getitem__)
            if found.get("ours", 100.0) < 0.98 * found[first]:
                print(f"{work.name} {share:.0%} jitter {jitter}: {first} {found}", file=sys.stderr)


def speed(found: Row | None) -> str:
    """Percent of unlimited speed for each jitter."""
    return "-" if found is None else " / ".join(f"{p:.1f}" for p in found.percent)


def waits(found: Row | None) -> str:
    """Bytes over the bound; percent of the lost time by cause."""
    if found is None:
        return "-"
    return f"{found.bytes_over_bound:.2f}; " + " ".join(f"{found.stalls[cause]:.0f}" for cause in CAUSES)


def main() -> None:
    """Run the policies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="p100")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--policies", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    machine = described(options.machine)
    if options.parts is not None:
        options.parts.mkdir(parents=True, exist_ok=True)
    parts = Parts(options.parts, time.monotonic() + options.seconds)
    try:
        for name in options.only:
            table(workload(name, machine), machine, options.policies, options.seeds, parts)
    except OutOfTime:
        sys.exit("not all cells are found: run the same command again")


if __name__ == "__main__":
    main()
