"""The default policy compared with the optimum of an integer program, on random small programs.

    python docs/studies/optimum.py [--graphs 200] [--machine p100]

Prints a summary.
"""

from __future__ import annotations

import argparse

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import DescribedMachine, described
from einturnip.cost.machine import Machine
from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.lang import compile_text
from einturnip.runtime.simulate.dispatch import fixed, free_order
from einturnip.runtime.simulate.simulator import simulate_on
from einturnip.taskgraph.build import build as build_tasks
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.build import lay_out
from einturnip.tiling.equivalence import equivalence_classes
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.search import successive_tilings
from offload_policies import MemoryBudgets, place_trace
from offload_policies.autotm import AutoTM
from offload_policies.choose_offload import place_default
from offload_policies.trace import peak_nbytes, trace, working_set_nbytes

SIZES = {"a": 1024, "b": 2048, "c": 4096, "d": 3072}
AMPLE = 1 << 46


def drawn(seed: int) -> TaskGraph:
    """A program of 6 to 14 products and sums of matrices of four sizes, each tensor in one tile."""
    rng = np.random.default_rng(seed)
    shapes: list[str] = ["".join(rng.choice(list(SIZES), 2, replace=False)) for _ in range(rng.integers(3, 7))]
    text = "dim " + ", ".join(f"{k} = {n}" for k, n in SIZES.items()) + "\n"
    text += "".join(f"input T{i} : f32[{s[0]}, {s[1]}]\n" for i, s in enumerate(shapes))
    used: set[int] = set()
    for _ in range(rng.integers(6, 15)):
        x = int(rng.integers(len(shapes)))
        p, q = shapes[x]
        joined = [(y, s) for y, s in enumerate(shapes) if s[0] == q and s[1] != p]
        i = len(shapes)
        if joined and rng.random() < 0.7:
            y, s = joined[rng.integers(len(joined))]
            text += f"T{i}[i,k] = sum[j] T{x}[i,j] * T{y}[j,k]\n"
            shapes.append(p + s[1])
        else:
            y = int(rng.choice([y for y, s in enumerate(shapes) if s == shapes[x]]))
            text += f"T{i}[i,j] = {i} * tanh(T{x}[i,j]) + T{y}[i,j]\n"
            shapes.append(p + q)
        used |= {x, y}
    inputs = text.count("input")
    return whole(text + "output " + ", ".join(f"T{i}" for i in range(inputs, len(shapes)) if i not in used) + "\n")


def whole(text: str) -> TaskGraph:
    """The tasks of a program whose tensors are not tiled."""
    graph = rewrite(build_graph(compile_text(text, "drawn.ein"), {}, {}, {}), None)
    together = equivalence_classes(graph, label_classes(graph))
    return build_tasks(
        lay_out(together, next(successive_tilings(together, Machine(), {}, 1000)).tiles, AMPLE), Machine()
    )


def compared(seed: int, machine: DescribedMachine) -> tuple[float, float, float] | None:
    """Seconds of the optimum, of its simulated plan, and of ours; None if nothing must leave.

    Ours runs in free order and as streams in program order; the better of the two counts, as in the table.
    """
    tasks = drawn(seed)
    ample = trace(tasks, machine, MemoryBudgets(AMPLE, AMPLE))
    least, most = working_set_nbytes(ample), peak_nbytes(ample)
    share = np.random.default_rng([seed, 1]).choice([0.1, 0.3, 0.6])
    seen = trace(tasks, machine, MemoryBudgets(int(least + share * (most - least)), AMPLE))
    if most <= least:
        return None
    best = AutoTM()
    try:
        planned = simulate_on(place_trace(seen, best), machine).makespan
    except CapacityError:
        return None
    graph = place_default(seen)
    return best.seconds, planned, min(simulate_on(graph, machine, way).makespan for way in (free_order, fixed))


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--machine", default="p100")
    options = parser.parse_args()
    machine = described(options.machine)
    found: list[tuple[float, int, float, float, float]] = []
    seed = 0
    while len(found) < options.graphs:
        times = compared(seed, machine)
        if times is not None:
            found.append((times[2] / times[0], seed, *times))
        seed += 1
    ratios = np.array([f[0] for f in found])
    print(f"{len(found)} graphs of {seed} drawn; ours over the optimum's predicted time:")
    print(f"median {np.median(ratios):.3f}, within 5% on {np.mean(ratios <= 1.05):.1%}, worst {ratios.max():.3f}")
    print(
        f"the optimum's plan, simulated, over its own prediction: median {np.median([f[3] / f[2] for f in found]):.3f}"
    )
    better = np.mean([f[4] <= 1.05 * f[3] for f in found])
    print(f"ours within 5% of the optimum's plan, both simulated, on {better:.1%}")
    for ratio, number, optimum, planned, ours in sorted(found, reverse=True)[:8]:
        print(f"seed {number}: {ratio:.3f} (optimum {optimum:.4f} s, its plan {planned:.4f}, ours {ours:.4f})")


if __name__ == "__main__":
    main()
