"""Counts the bytes that evicting slices of values saves, compared with whole values; prints the tables of slices.md.

    python docs/studies/slices.py [--only gemm_chain ...] [--parts FOLDER] [--write]

``--write`` stores the numbers in slices.json and the tables in slices.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from einturnip.cost.described_machines import described
from einturnip.taskgraph.types import TaskKind
from offload_policies import MemoryBudgets
from offload_policies.trace import granule, trace
from offload_policies.types import NEVER, AccessTrace
from pages import Numbers, options_of, stored_cell, write
from policies import SHARES, WORKLOADS, Workload, workload

PAGE = Path(__file__).with_suffix(".md")
MACHINE = "p100"
SLICES = (1, 2, 4, 16, 1 << 20)
"""Numbers of slices of a value; a slice has at least the bytes of the arena's unit."""


@dataclass
class DeviceMemory:
    """A device's memory without addresses, where a part of a value can be held: its first bytes.

    ``held``: bytes of each value on the device. ``copied``: its last bytes that another memory holds too. ``moved``:
    bytes in and out so far. ``slices``: a value leaves in at most as many pieces.
    """

    seen: AccessTrace
    slices: int
    held: dict[int, int] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)
    used: int = 0
    moved: int = 0

    def hold(self, v: int) -> None:
        """Bring the bytes of a value that the device does not hold; those that no memory holds are allocated only."""
        size, held = self.seen.size[v], self.held.get(v, 0)
        if self.seen.stored[v]:
            self.copied.setdefault(v, size)
        self.moved += min(self.copied.get(v, 0), size - held)
        self.used += size - held
        self.held[v] = size

    def missing(self, values: Sequence[int]) -> int:
        """Bytes of these values that the device does not hold."""
        return sum(self.seen.size[v] - self.held.get(v, 0) for v in values)

    def evict(self, v: int, nbytes: int, unit: int) -> None:
        """Free at least ``nbytes`` of a value, or all of it: bytes without a copy are written first."""
        size, held = self.seen.size[v], self.held[v]
        piece = max(unit, -(-size // self.slices // unit) * unit)
        kept = max(0, held - -(-nbytes // piece) * piece)
        copied = max(self.copied.get(v, 0), size - kept)
        self.moved += copied - self.copied.get(v, 0)
        self.copied[v], self.used, self.held[v] = copied, self.used - (held - kept), kept
        if not kept:
            del self.held[v]

    def free(self, v: int) -> None:
        """Drop a value that is not used any more."""
        self.used -= self.held.pop(v, 0)


def moved_nbytes(seen: AccessTrace, capacity: int, unit: int, slices: int) -> int:
    """Bytes in and out of the device if the value with the latest use per byte that moves leaves, without addresses."""
    memory = DeviceMemory(seen, slices)
    uses = [iter(steps) for steps in seen.uses]
    following = [next(steps, NEVER) for steps in uses]
    kinds, values, sizes = seen.tasks.kind, seen.tasks.value, seen.tasks.value_nbytes
    for step, needs in enumerate(seen.needs):
        task = seen.task[step]
        wanted = memory.missing(needs) + seen.workspace[step]
        while (over := memory.used + wanted - capacity) > 0:
            others = [v for v in memory.held if v not in needs]

            def worth(v: int, step: int = step) -> float:
                is_copied = memory.copied.get(v, 0) >= seen.size[v]
                return (following[v] - step) / (1 if is_copied else 2)

            memory.evict(max(others, key=worth), over, unit)
        for v in needs:
            memory.hold(v)
        if kinds[task] == TaskKind.STORE:
            memory.moved += int(sizes[values[task]])
            if sizes[values[task]] == sizes[needs[0]]:
                memory.copied[needs[0]] = seen.size[needs[0]]
        else:
            memory.copied[int(values[task])] = 0
        for v in needs:
            while following[v] <= step:
                following[v] = next(uses[v], NEVER)
            if following[v] >= NEVER:
                memory.free(v)
    return memory.moved


def cell(work: Workload, share: float) -> Numbers:
    """The bytes of a program in a budget, in MiB by the number of slices."""
    budget = int(work.peak * share)
    seen = trace(work.tasks(budget), described(MACHINE), MemoryBudgets(budget, described(MACHINE).memory["host"]))
    found = {str(n): moved_nbytes(seen, budget, granule(budget), n) for n in SLICES}
    return {"bound": work.bound(budget), "moved": found}


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the table of slices.md."""
    heads = (f"{share:.0%}" for share in SHARES)
    yield from ("", f"| program | {' | '.join(heads)} |", f"|---|{'---|' * len(SHARES)}")
    for name, budgets in numbers.items():
        yield f"| {name} | {' | '.join(_shown(found) for found in budgets.values())} |"


def _shown(found: Numbers) -> str:
    """Bytes of whole values over the bound; percent that each number of slices saves."""
    moved = found["moved"]
    saved = [100 * (1 - moved[str(n)] / moved["1"]) for n in SLICES[1:]]
    return f"{moved['1'] / found['bound']:.2f}; {' '.join(f'{x:.1f}' for x in saved)}"


def main() -> None:
    """Count, print, store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    options = options_of(parser)
    found: Numbers = {}
    for name in options.only:
        work = workload(name, described(MACHINE))
        found[name] = {}
        for share in SHARES:
            found[name][f"{share:.0%}"] = stored_cell(options.parts, f"{name}-{share}", partial(cell, work, share))
        print("\n".join(tables({name: found[name]})), flush=True)
    if options.write:
        write(PAGE, found, tables(found))


if __name__ == "__main__":
    main()
