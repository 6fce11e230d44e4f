"""Makespan of each dispatch policy on this host, with random delays of transfers, as an SVG.

    python docs/studies/dispatch_host.py docs/studies/dispatch_host.svg --parts FOLDER [--seeds 8] [--seconds 50]

Kernels run as usual, on one thread per core. A transfer does its work, and then its thread sleeps until the transfer
has lasted as long as on a link of RATE bytes per second, times a log-normal factor of mean one, the same under every
policy. The plans are those of ``einturnip run``. Each run's seconds are stored in FOLDER; no run begins after
``--seconds``, and the next call resumes. Prints Markdown when all runs are complete.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from dispatch import WAYS, svg
from einturnip.cost.described_machines import described
from einturnip.cost.machine import Machine
from einturnip.devices.host import blas_threads
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.build import build
from einturnip.memgraph.check import check
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.host.event_loop import run_ops
from einturnip.runtime.host.executor import OpExecutor
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.scheduler.policies import critical_path
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.simulate.dispatch import DISPATCHERS, DispatchPlan
from einturnip.storage.arrays import ArraySource, array_sink
from policies import FOLDER, cut_finely

# The programs of the table with smaller sizes: the text to replace, and its replacement.
PROGRAMS = {
    "mlp_training": (("n = 16384, d = 4096", "n = 2048, d = 512"),),
    "llama": (("s = 8192", "s = 1024"), ("c = 256, f = 5632", "c = 64, f = 1408")),
}
SHARES = (0.5, 0.25)
JITTERS = (0.0, 0.5, 1.0, 1.5)
WORKERS = 2
RATE = 500e6
LANES = {Lane.COMPUTE: WORKERS, Lane.IN: 1, Lane.OUT: 1}
AT_ONCE = np.array([LANES[kind.lane] for kind in OpKind])
IS_TRANSFER = np.array([kind.lane != Lane.COMPUTE for kind in OpKind])


@dataclass(eq=False)
class Ready:
    """A plan and everything that its runs need; ``graph`` has the measured seconds of its ops."""

    graph: MemGraph
    standing: RunResources
    sources: list[ArraySource | None]
    ways: dict[str, DispatchPlan]
    least: float

    def run(self, way: DispatchPlan, delays: list[float] | None) -> tuple[float, np.ndarray]:
        """Seconds of a run, and of each op."""
        outputs = self.graph.taskgraph.decomposition.graph
        sinks = [
            array_sink(np.empty(outputs.nodes[i].shape, outputs.nodes[i].dtype.numpy), name, outputs.nodes[i].shape,
                       outputs.nodes[i].dtype)
            for name, i in outputs.outputs
        ]  # fmt: skip
        executor = OpExecutor(way.graph, self.standing.arena, self.sources, sinks, self.standing.spill)
        state = SchedulerState(way.graph, way.ranks, LANES, None, way.in_order)
        execute = executor.run if delays is None else delayed(executor.run, delays)
        with blas_threads(1):
            trace = run_ops(way.graph, state, execute, executor.describe, LANES, pool=self.standing.pool)
        return trace.seconds, trace.timeline.end - trace.timeline.begin


def delayed(execute: Callable[[int], None], delays: list[float]) -> Callable[[int], None]:
    """Each op takes at least its delay."""

    def run(op: int) -> None:
        until = time.perf_counter() + delays[op]
        execute(op)
        if (left := until - time.perf_counter()) > 0:
            time.sleep(left)

    return run


def ready(name: str, share: float) -> Ready:
    """Plan the program; compile and time its kernels by runs without delays."""
    text = (FOLDER / f"{name}.ein").read_text()
    for there, here in PROGRAMS[name]:
        assert there in text
        text = text.replace(there, here)
    work = cut_finely(name, text, described("host"))
    budget = int(work.peak * share)
    tasks = work.tasks(budget)
    graph = build(tasks, budget, Machine(workers=WORKERS), frozenset(range(len(tasks.decomposition.graph.outputs))))
    check(graph)
    rng = np.random.default_rng(0)
    sources = [
        ArraySource(n.name, rng.standard_normal(n.shape, np.float32) / n.shape[-1] ** 0.5, n.dtype)
        if isinstance(n, InputNode)
        else None
        for n in tasks.decomposition.graph.nodes
    ]
    made = Ready(graph, RunResources(graph, LANES, critical_path), sources, {}, 0.0)
    free = DispatchPlan(graph, critical_path(graph), False)
    runs = [made.run(free, None) for _ in range(6)][1:]
    took = np.median([ops for _, ops in runs], axis=0)
    transfers = IS_TRANSFER[graph.kind]
    moved = graph.read[np.minimum(graph.read_ptr[:-1], len(graph.read) - 1), 2]
    made.graph = graph = replace(graph, seconds=np.where(transfers, moved / RATE, took))
    lanes = np.array([int(kind.lane) for kind in OpKind])[graph.kind].tolist()
    made.ways = {way: DISPATCHERS[way](graph, lanes, {int(k): n for k, n in LANES.items()}, 0) for way in WAYS}
    made.least = float(took[~transfers].sum()) / WORKERS
    print(
        f"{name} {share}: {len(graph)} ops, kernels {made.least:.3f} s on {WORKERS} threads, links "
        f"{[round(float(graph.seconds[np.array(lanes) == k].sum()), 3) for k in (1, 2)]} s",
        file=sys.stderr,
    )
    return made


def delays(graph: MemGraph, jitter: float, seed: int) -> list[float]:
    """Minimum seconds of each transfer."""
    noise = np.exp(jitter * np.random.default_rng(seed).standard_normal(len(graph)) - jitter**2 / 2)
    drawn: list[float] = np.where(IS_TRANSFER[graph.kind], graph.seconds * noise, 0.0).tolist()
    return drawn


def runs(seeds: int) -> Iterator[tuple[str, float, float, int]]:
    """Program, budget, noise and seed of the runs; the policies alternate within each."""
    return product(PROGRAMS, SHARES, JITTERS, range(seeds))


def measure(folder: Path, seeds: int, seconds: float) -> bool:
    """Do the missing runs; False if time ended first."""
    folder.mkdir(parents=True, exist_ok=True)
    until, made = time.monotonic() + seconds, dict[tuple[str, float], Ready]()
    for name, share, jitter, seed in runs(seeds):
        file = folder / f"{name}-{share}-{jitter}-{seed}.json"
        if file.exists():
            continue
        if time.monotonic() > until:
            return False
        at = made.get((name, share)) or made.setdefault((name, share), ready(name, share))
        drawn = delays(at.graph, jitter, seed)
        order = np.random.default_rng([seed, 1]).permutation([*WAYS]).tolist()
        found = {way: at.run(at.ways[way], drawn)[0] for way in order}
        file.write_text(json.dumps({"kernels": at.least, "seconds": found}))
    return True


def main() -> None:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    if not measure(options.parts, options.seeds, options.seconds):
        sys.exit("not all runs are done: run the same command again")
    charts = []
    others = [way for way in WAYS if way != "free"]
    heads = [*WAYS, *(f"{way}, longer than free" for way in others)]
    print("| program | budget | jitter | " + " | ".join(heads) + " |\n|---|---|---|" + "---|" * len(heads))
    for name in PROGRAMS:
        line = []
        for share in SHARES:
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for jitter in JITTERS:
                files = [options.parts / f"{name}-{share}-{jitter}-{seed}.json" for seed in range(options.seeds)]
                seen = [json.loads(file.read_text()) for file in files]
                kernels = float(np.median([s["kernels"] for s in seen]))
                for way in WAYS:
                    spans = np.array([s["seconds"][way] for s in seen]) / kernels
                    half = 1.96 * float(spans.std(ddof=1)) / len(spans) ** 0.5
                    found[way].append((float(spans.mean()), half))
                cells = [f"{found[way][-1][0]:.3f} ± {found[way][-1][1]:.3f}" for way in WAYS]
                for way in others:  # by seed, because the speed of the machine varies between seeds
                    over = np.array([100 * (s["seconds"][way] / s["seconds"]["free"] - 1) for s in seen])
                    cells.append(f"{over.mean():.1f} ± {1.96 * over.std(ddof=1) / len(over) ** 0.5:.1f}%")
                print(f"| {name} | {share:.0%} | {jitter:g} | {' | '.join(cells)} |", flush=True)
            line.append((f"{name}, {share:.0%}", found))
        charts.append(line)
    options.file.write_text(svg(charts, JITTERS))


if __name__ == "__main__":
    main()
