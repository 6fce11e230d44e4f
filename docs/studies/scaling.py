"""Strong and weak scaling of plans for P machines, simulated, and the ideal.

    python docs/studies/scaling.py [--parts FOLDER] [--write]

``--parts`` stores each cell in FOLDER, so that the next run resumes. ``--write`` stores the numbers in scaling.json,
the picture in scaling.svg and the tables in scaling.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import einturnip as et
from charts import Panel, svg
from einturnip.cost.described_machines import described
from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.lang import compile_text
from einturnip.runtime.simulate.dispatch import free_order
from einturnip.runtime.simulate.machine_prices import priced
from einturnip.runtime.simulate.simulator import lanes_of, slots_of
from einturnip.runtime.simulate.virtual_clock import run
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved
from pages import Numbers, options_of, write

PAGE = Path(__file__).with_suffix(".md")
PROGRAMS = Path(__file__).parent / "programs"
MACHINE = described("ethernet100")
ARENA = 16 << 30
SITES = (1, 4, 16, 64, 256, 1024)
WEAK = {1: 12288, 4: 19456, 16: 30976, 64: 49152, 256: 78080, 1024: 122880}
"""Sizes of the matrices for which each of P machines has about as much work: 12288 times the cube root of P."""
STUDIES = {
    "product, strong": ("product", {p: {"n": 65536} for p in SITES}),
    "product, weak": ("product", {p: {"n": n} for p, n in WEAK.items()}),
    "CCSD ladder, strong": ("ladder", {p: {"o": 40, "v": 200} for p in SITES}),
}


def simulated(program: str, dims: dict[str, int], sites: int) -> float:
    """Seconds of the plan for P machines, in free order."""
    device = "sim:" + ",".join(map(str, range(sites))) if sites > 1 else "cpu"
    plan = et.compile(PROGRAMS / f"{program}.ein").plan(dims=dims, arena=ARENA, workers=1, device=device, force=True)
    graph = priced(plan._job.planned.memgraph, MACHINE)
    plan.close()
    names, lanes = lanes_of(graph, MACHINE)
    of, slots = lanes.tolist(), slots_of(names, MACHINE)
    dispatch = free_order(graph, of, slots, 0)
    return run(dispatch.graph, dispatch.ranks, slots, graph.seconds.tolist(), of).makespan


def graph_of(program: str, dims: dict[str, int]) -> EinGraph:
    """The graph of a program."""
    path = PROGRAMS / f"{program}.ein"
    return rewrite(build(compile_text(path.read_text(), path.name), {}, dims, {}), None)


def arithmetic(program: str, dims: dict[str, int], sites: int) -> float:
    """Seconds of the operations, divided among P machines."""
    kernels = MACHINE.kernels
    assert kernels is not None
    graph = graph_of(program, dims)
    flops = sum(2.0 * node.einsum.points for node in graph.nodes if isinstance(node, EinsumNode))
    return flops / kernels.product_flops / sites


def ideal(program: str, dims: dict[str, int], sites: int) -> float:
    """Seconds if everything overlaps: the longest of operations, first reads, EinDecomp's other bytes, and outputs."""
    graph = graph_of(program, dims)
    nbytes = [math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes]
    first = sum(n for n, node in zip(nbytes, graph.nodes, strict=True) if isinstance(node, InputNode))
    written = sum(nbytes[i] for _, i in graph.outputs)
    received = max(0, moved(eindecomp(graph, sites)).total - first) if sites > 1 else 0
    links = (("disk", "device", first), ("device", "device", received), ("device", "disk", written))
    moving = max(n / MACHINE.link(a, b).bandwidth for a, b, n in links) / sites
    return max(arithmetic(program, dims, sites), moving)


def cell(name: str, sites: int, parts: Path | None) -> Numbers:
    """Seconds of one plan, simulated and ideal."""
    file = parts and parts / f"{name}-{sites}.json"
    if file and file.exists():
        found: Numbers = json.loads(file.read_text())
        return found
    program, dims = STUDIES[name]
    found = {"ideal": ideal(program, dims[sites], sites), "simulated": simulated(program, dims[sites], sites)}
    if file:
        file.write_text(json.dumps(found))
    return found


def efficiency(name: str, sites: str, seconds: float) -> float:
    """Share of the machines' arithmetic speed."""
    program, dims = STUDIES[name]
    return arithmetic(program, dims[int(sites)], int(sites)) / seconds


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the page's tables."""
    for name, by_sites in numbers.items():
        yield from ("", f"### {name}", "", f"| P | {' | '.join(by_sites)} |", f"|---|{'---|' * len(by_sites)}")
        for kind in ("simulated", "ideal"):
            yield f"| seconds, {kind} | {' | '.join(f'{found[kind]:.3g}' for found in by_sites.values())} |"
        for kind in ("simulated", "ideal"):
            shares = (f"{efficiency(name, p, found[kind]):.2f}" for p, found in by_sites.items())
            yield f"| efficiency, {kind} | {' | '.join(shares)} |"


def picture(numbers: Numbers) -> str:
    """Efficiency by P, simulated and ideal."""

    def line(name: str, kind: str) -> list[tuple[str, float]]:
        return [(p, efficiency(name, p, found[kind])) for p, found in numbers[name].items()]

    panels = [Panel(name, {kind: line(name, kind) for kind in ("simulated", "ideal")}) for name in numbers]
    return svg([panels], "share of the machines' arithmetic speed, by P")


def main() -> None:
    """Simulate, print, store."""
    options = options_of(argparse.ArgumentParser())
    found: Numbers = {name: {} for name in STUDIES}
    for sites in SITES:
        for name in STUDIES:
            found[name][str(sites)] = cell(name, sites, options.parts)
            print(name, sites, found[name][str(sites)], flush=True)
    print("\n".join(tables(found)))
    if options.write:
        write(PAGE, found, tables(found), picture(found))


if __name__ == "__main__":
    main()
