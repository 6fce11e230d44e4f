"""Makespan of each dispatch policy against transfer noise and budget, with 95% intervals, as an SVG.

    python docs/studies/dispatch.py docs/studies/dispatch.svg [--machine p100] [--seeds 30]

Also prints the figures as a Markdown table. The graphs are those of the default policy; only transfers have noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from einturnip.cost.described_machines import DescribedMachine, described
from einturnip.memgraph.types import Lane
from einturnip.runtime.simulate.dispatch import DISPATCHERS
from einturnip.runtime.simulate.simulator import TimingNoise, lanes_of, slots_of
from einturnip.runtime.simulate.virtual_clock import run
from offload_policies import DefaultPolicy, MemoryBudgets, place
from policies import Workload, workload

PROGRAMS = ("mlp_training", "llama")
SHARES = (0.5, 0.25, 0.12)
JITTERS = (0.0, 0.2, 0.4, 0.7, 1.0, 1.5)
WAYS = {"free": "#1a6", "list": "#26c", "fixed": "#c62", "double-buffering": "#a3a"}
WIDTH, HEIGHT, LEFT, TOP = 250, 190, 46, 34


def measured(
    work: Workload, machine: DescribedMachine, share: float, seeds: int
) -> dict[str, list[tuple[float, float]]]:
    """Mean makespan relative to the kernels' sum by policy and jitter, with half its 95% interval."""
    budget = int(work.peak * share)
    graph = place(work.tasks(budget), machine, MemoryBudgets(budget, machine.memory["host"]), DefaultPolicy())
    names, lanes = lanes_of(graph, machine)
    slots = slots_of(names, machine)
    of = lanes.tolist()
    ways = {name: DISPATCHERS[name](graph, of, slots, 0) for name in WAYS}
    kernels = float(graph.seconds[lanes == Lane.COMPUTE].sum()) / machine.workers
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for jitter in JITTERS:
        drawn = [TimingNoise(jitter, 0.0, seed).applied(graph).tolist() for seed in range(1 if jitter == 0 else seeds)]
        for name, way in ways.items():
            spans = [run(way.graph, way.ranks, slots, s, of, way.in_order).makespan / kernels for s in drawn]
            half = 1.96 * float(np.std(spans, ddof=1)) / len(spans) ** 0.5 if len(spans) > 1 else 0.0
            found[name].append((float(np.mean(spans)), half))
    return found


def panel(
    found: dict[str, list[tuple[float, float]]],
    title: str,
    x0: int,
    y0: int,
    top: float,
    jitters: Sequence[float] = JITTERS,
) -> list[str]:
    """One chart: a line and its band for each dispatch policy."""
    high, low = max(top, 1.1), 1.0

    def x(jitter: float) -> float:
        return x0 + LEFT + (WIDTH - LEFT - 14) * jitter / jitters[-1]

    def y(value: float) -> float:
        return y0 + TOP + (HEIGHT - TOP - 30) * (high - value) / (high - low)

    out = [f'<text x="{x0 + LEFT}" y="{y0 + 20}" class="t">{title}</text>']
    for k in range(5):
        value = low + (high - low) * k / 4
        out.append(f'<path d="M{x(0):.1f} {y(value):.1f}H{x(jitters[-1]):.1f}" class="g"/>')
        out.append(f'<text x="{x(0) - 5:.1f}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for jitter in (0.0, 0.5, 1.0, 1.5):
        out.append(f'<text x="{x(jitter):.1f}" y="{y(low) + 15:.1f}" text-anchor="middle">{jitter:g}</text>')
    for name, colour in WAYS.items():
        points = [(x(j), *p) for j, p in zip(jitters, found[name], strict=True)]
        band = [f"{a:.1f},{y(m + h):.1f}" for a, m, h in points] + [
            f"{a:.1f},{y(m - h):.1f}" for a, m, h in points[::-1]
        ]
        out.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.18"/>')
        line = " ".join(f"{a:.1f},{y(m):.1f}" for a, m, _ in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    return out


def svg(
    charts: Sequence[Sequence[tuple[str, dict[str, list[tuple[float, float]]]]]], jitters: Sequence[float] = JITTERS
) -> str:
    """All charts in rows, with a legend below."""
    columns = len(charts[0])
    width, height = WIDTH * columns, HEIGHT * len(charts) + 34
    style = "text{font:11px sans-serif;fill:#444}.t{font-weight:bold}.g{stroke:#ddd;fill:none}"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">']
    out += [f"<style>{style}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for r, charted in enumerate(charts):
        top = max(m + h for _, found in charted for values in found.values() for m, h in values)
        for c, (title, found) in enumerate(charted):
            out += panel(found, title, c * WIDTH, r * HEIGHT, top, jitters)
    for n, (name, colour) in enumerate(WAYS.items()):
        x, y = 20 + 150 * n, height - 14
        out.append(f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{x + 28}" y="{y}">{name}</text>')
    return "\n".join([*out, "</svg>\n"])


def main() -> None:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--machine", default="p100")
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    machine = described(options.machine)
    charts = []
    print("| program | budget | jitter | " + " | ".join(WAYS) + " |\n|---|---|---|" + "---|" * len(WAYS))
    for name in PROGRAMS:
        line = []
        for share in SHARES:
            found = measured(workload(name, machine), machine, share, options.seeds)
            line.append((f"{name}, {share:.0%}", found))
            for at, jitter in enumerate(JITTERS):
                cells = " | ".join(f"{found[way][at][0]:.3f} ± {found[way][at][1]:.3f}" for way in WAYS)
                print(f"| {name} | {share:.0%} | {jitter:g} | {cells} |", flush=True)
        charts.append(line)
    options.file.write_text(svg(charts))


if __name__ == "__main__":
    main()
