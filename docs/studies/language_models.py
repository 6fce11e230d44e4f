"""Seconds of a prefill and of a fine-tuning step of models of the Llama family, by memory and offload policy.

    python docs/studies/language_models.py [--parts FOLDER] [--only "prefill 7B" ...] [--write]

``--parts`` stores each cell in FOLDER, so that the next run resumes. ``--write`` stores the numbers in
language_models.json, the picture in language_models.svg and the tables in language_models.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from charts import Panel, svg
from einturnip.core.errors import CapacityError
from einturnip.cost.described_machines import described
from einturnip.memgraph.check import check
from einturnip.runtime.simulate.dispatch import fixed, free_order
from einturnip.runtime.simulate.simulator import TimingNoise, simulate_on
from offload_policies import POLICIES, MemoryBudgets, place_trace
from offload_policies.choose_offload import place_default
from offload_policies.trace import trace
from pages import Numbers, options_of, stored_cell, with_sizes, write
from policies import FOLDER, Workload, cut_for

PAGE = Path(__file__).with_suffix(".md")
# One of the eight: a device of its own, with all of the host's memory.
MACHINE = replace(described("a100x8"), name="a100", devices=1)
NAMES = ("ours", "turnip", "zero-inference", "flexgen", "zero-infinity", "deepum", "lru")
GIB = 1 << 30
# A kernel uses at most this share of the device.
WORKING_SET = 0.15


@dataclass(frozen=True)
class Study:
    """A program at the shape of a model, for prompts (number, tokens) and memories of the device in GiB.

    ``layers`` are simulated; where they are fewer than the model's, ``factor`` times their seconds are shown.
    """

    program: str
    layers: int
    heads: int
    features: int
    prompts: tuple[tuple[int, int], ...]
    memories: tuple[int, ...]
    factor: int = 1


PROMPTS = ((16, 1024), (4, 4096), (16, 4096))
STUDIES = {
    "prefill 7B": Study("prefill", 8, 32, 11008, (*PROMPTS, (16, 16384)), (2, 4, 8), 4),
    "prefill 65B": Study("prefill", 8, 64, 22016, PROMPTS, (4, 8, 16), 10),
    "LoRA 7B": Study("lora_step", 32, 32, 11008, ((1, 2048), (4, 2048)), (8, 16, 24)),
    "LoRA 65B": Study("lora_step", 80, 64, 22016, ((1, 2048),), (8, 16, 24)),
}


@cache
def work_of(name: str, prompts: tuple[int, int], memory: int) -> Workload:
    """The program of a study, cut for the memory."""
    study = STUDIES[name]
    sizes = {"L": study.layers, "h": study.heads, "f": study.features, "b": prompts[0], "s": prompts[1]}
    text = with_sizes(FOLDER / f"{study.program}.ein", sizes)
    return cut_for(name, text, MACHINE, lambda _: int(WORKING_SET * memory * GIB))


def cell(name: str, prompts: tuple[int, int], memory: int, policy: str) -> dict[str, float] | None:
    """Seconds in free and in fixed order; None if the policy fails."""
    work = work_of(name, prompts, memory)
    seen = trace(work.tasks(memory * GIB), MACHINE, MemoryBudgets(memory * GIB, MACHINE.memory["host"]))
    try:
        graph = place_default(seen) if policy == "ours" else place_trace(seen, POLICIES[policy]())
    except CapacityError:
        return None
    check(graph)
    ways = {"free": free_order, "fixed": fixed}
    runs = {k: simulate_on(graph, MACHINE, way, TimingNoise()).makespan for k, way in ways.items()}
    return {k: float(f"{STUDIES[name].factor * seconds:.3g}") for k, seconds in runs.items()}


def cells(name: str, prompts: tuple[int, int], memory: int, parts: Path | None) -> Numbers:
    """The cells of some prompts in a memory, by policy."""
    of = f"{name}-{prompts[0]}-{prompts[1]}-{memory}"
    return {p: stored_cell(parts, f"{of}-{p}", partial(cell, name, prompts, memory, p)) for p in NAMES}


def numbers_of(name: str, parts: Path | None) -> Numbers:
    """The numbers of a study: seconds by prompts, memory and policy."""
    study = STUDIES[name]
    return {
        f"{b} x {s}": {f"{memory} GiB": cells(name, (b, s), memory, parts) for memory in study.memories}
        for b, s in study.prompts
    }


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the page's tables."""
    for name, found in numbers.items():
        heads = [f"{prompts}, {memory}" for prompts, of in found.items() for memory in of]
        yield from ("", f"### {name}", "", f"| seconds | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}")
        for policy in NAMES:
            cells = (of[policy] for by_memory in found.values() for of in by_memory.values())
            yield f"| {policy} | {' | '.join('{free} / {fixed}'.format(**c) if c else '-' for c in cells)} |"


def picture(numbers: Numbers) -> str:
    """Seconds in the better order by prompts, in the least memory."""
    panels = []
    for name, found in numbers.items():
        least = {prompts: next(iter(of.values())) for prompts, of in found.items()}
        lines = {p: [(prompts, min(of[p].values())) for prompts, of in least.items() if of[p]] for p in NAMES}
        if len(least) == 1:
            lines = {
                p: [(memory, min(of[p].values())) for memory, of in found[next(iter(least))].items() if of[p]]
                for p in NAMES
            }
        panels.append(Panel(name, lines, log=True))
    return svg([panels[:2], panels[2:]], "seconds by prompts x tokens in the smallest memory; LoRA 65B: by memory")


def main() -> None:
    """Simulate, print, store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    options = options_of(parser)
    found: Numbers = {}
    for name in options.only:
        found[name] = numbers_of(name, options.parts)
        print("\n".join(tables({name: found[name]})), flush=True)
    if options.write:
        write(PAGE, found, tables(found), picture(found))


if __name__ == "__main__":
    main()
