"""Offload policies on the same kernels and the same simulated machine. Prints the table of docs/policies.md.

python docs/benchmarks/policies.py [--machine p100] [--only gemm_chain ...] [--policies ours ...] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from einturnip.core.described import Described, described
from einturnip.core.errors import CapacityError
from einturnip.core.machine import Machine
from einturnip.decomp.alike import Grouped, grouped
from einturnip.decomp.build import label_classes, lay_out
from einturnip.decomp.search import cuts
from einturnip.eingraph.build import build as build_graph
from einturnip.eingraph.forms import Forms
from einturnip.eingraph.fusion import fuse
from einturnip.eingraph.rewrite import rewrite
from einturnip.lang import compile_text
from einturnip.memgraph.check import check
from einturnip.memgraph.policies import POLICIES, Budgets, Policy, place
from einturnip.memgraph.policies.trace import peak_nbytes, trace, working_set_nbytes
from einturnip.memgraph.types import MemGraph
from einturnip.planner.bound import link_bound
from einturnip.runtime.dispatch import fixed, free_order
from einturnip.runtime.virtual import Noise, Simulation, simulate_on
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.types import TaskGraph

FOLDER = Path(__file__).parent / "policies"
WORKLOADS = ("gemm_chain", "attention", "mlp_training", "llama", "tensor_network")
SHARES = (0.9, 0.5, 0.25, 0.12)
JITTERS = (0.0, 0.3, 1.0)
# A kernel holds at most this share of the bytes that the program wants at one time, so that the smallest budget holds
# a few of them.
WORKING_SET = 0.04
AMPLE = 1 << 46


@dataclass(frozen=True, eq=False)
class Workload:
    """A program, how it is cut, and the most bytes that it wants at one time."""

    name: str
    together: Grouped
    tiles: tuple[int, ...]
    peak: int

    def tasks(self, capacity: int) -> TaskGraph:
        """The tile tasks, in the order that the planner chooses for ``capacity``."""
        return tasks_of(self, capacity)

    def bound(self, capacity: int) -> int:
        """Bytes that any schedule must move."""
        return sum(link_bound(self.together.graph, capacity).values())


@cache
def tasks_of(work: Workload, capacity: int) -> TaskGraph:
    """See ``Workload.tasks``."""
    return build_tasks(lay_out(work.together, work.tiles, capacity), Machine())


@cache
def workload(name: str, machine: Described) -> Workload:
    """The program of that name in the coarsest cut whose working sets are small enough."""
    text = (FOLDER / f"{name}.ein").read_text()
    graph = rewrite(build_graph(compile_text(text, f"{name}.ein"), {}, {}, {}), None)
    together = grouped(fuse(graph, Forms(), None), label_classes(graph))
    together = grouped(together.graph, label_classes(together.graph))
    for cut in cuts(together, Machine(), {}, 5000):
        seen = trace(build_tasks(lay_out(together, cut.tiles, AMPLE), Machine()), machine, Budgets(AMPLE, AMPLE))
        if working_set_nbytes(seen) <= WORKING_SET * peak_nbytes(seen):
            return Workload(name, together, cut.tiles, peak_nbytes(seen))
    raise SystemExit(f"{name} cannot be cut finely enough")


@cache
def unlimited(work: Workload, machine: Described, jitter: float, seed: int) -> float:
    """Least makespan where the device holds everything: inputs come once, outputs leave once, in any of the orders."""
    capacities = (AMPLE, *(int(work.peak * share) for share in SHARES))
    noise = Noise(jitter, jitter, seed)
    return min(simulated(all_held(work, machine, c), machine, noise).makespan for c in capacities)


@cache
def all_held(work: Workload, machine: Described, capacity: int) -> MemGraph:
    """The tasks in the order for ``capacity``, on a device that holds everything."""
    return place(work.tasks(capacity), machine, Budgets(AMPLE, AMPLE), POLICIES["ours"]())


def placed(work: Workload, machine: Described, share: float, policy: Policy) -> MemGraph | None:
    """The memory graph within ``share`` of the peak, proved; None where the policy cannot."""
    budget = int(work.peak * share)
    try:
        graph = place(work.tasks(budget), machine, Budgets(budget, machine.memory["host"]), policy)
    except CapacityError:
        return None
    check(graph)
    return graph


def simulated(graph: MemGraph, machine: Described, noise: Noise) -> Simulation:
    """The better of free order and streams in the program's order."""
    runs = (simulate_on(graph, machine, way, noise) for way in (free_order, fixed))
    return min(runs, key=lambda s: s.makespan)


def main() -> None:
    """Run the policies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="p100")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    machine = described(options.machine)
    for name in options.only:
        work = workload(name, machine)
        print(f"\n## {name}: {len(work.tasks(AMPLE))} tasks, {work.peak / 2**20:.0f} MiB wanted at one time\n")
        rows(work, machine, options.policies, options.seeds)


def rows(work: Workload, machine: Described, policies: Sequence[str], seeds: int) -> None:
    for share in SHARES:
        bound = work.bound(int(work.peak * share))
        for policy in policies:
            t0 = time.time()
            graph = placed(work, machine, share, POLICIES[policy]())
            t1 = time.time()
            if graph is None:
                print(f"{share:4} {policy:14} does not fit")
                continue
            cells = []
            for jitter in JITTERS:
                drawn = range(1 if jitter == 0 else seeds)
                got = [simulated(graph, machine, Noise(jitter, jitter, s)) for s in drawn]
                best = [unlimited(work, machine, jitter, s) for s in drawn]
                cells.append(sum(b / g.makespan for b, g in zip(best, got, strict=True)) / len(got))
                if jitter == 0:
                    st = got[0]
            moved = sum(n for n, _ in st.links.values())
            stall = " ".join(f"{k} {v / st.makespan:.0%}" for k, v in st.stalls.items())
            print(
                f"{share:4} {policy:14} "
                + " ".join(f"{c:6.1%}" for c in cells)
                + f"  bytes {moved / bound:5.2f}  {stall} ops {len(graph)} place {t1 - t0:.1f}s",
                flush=True,
            )


if __name__ == "__main__":
    main()
