"""The optimum of a small program as an integer program, solved by HiGHS.

Source: Hildebrand et al., AutoTM (ASPLOS 2020), whose moves overlap kernels; the longer of the two determines the time.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, CapacityError, DeviceError
from offload_policies.ahead_of_time import AheadOfTimePolicy
from offload_policies.types import AccessTrace

MOST_VARIABLES = 20_000
SECONDS = 20.0
GAP = 0.002
# Between two kernels there are two slots without one: bytes freed in the first can be used in the second.
PER_STEP = 3


class AutoTM(AheadOfTimePolicy):
    """All residences on the device, chosen at once for the minimal sum of step times.

    Modelled: asynchronous moves, a slot lasts as long as its kernel or the moves that it overlaps on each link; moves
    may spread over slots; synchronous moves, in slots between the kernels; clean copies. ``seconds`` is the optimum if
    HiGHS ended within ``GAP`` of it. The serial order is kept, nothing is recomputed, bytes freed within a slot are
    available from the next one on. Not modelled: fragmentation.
    """

    name = "autotm"
    free = True

    def choose(self) -> None:
        """Solve, and convert residences into departures and returns."""
        model = _Model(self.trace)
        self.seconds, stays = model.solve()
        for v, slots in stays.items():
            uses = self.trace.uses[v]
            for k in range(0 if self.trace.stored[v] else slot(uses[0]) + 1, slot(uses[-1]) + 1):
                here, before = k in slots, k - 1 in slots
                if here and not before:  # in the slots before a step, or during its kernel
                    self.back.setdefault(k // PER_STEP - (k % PER_STEP < PER_STEP - 1), []).append(v)
                if before and not here:
                    self.out.setdefault(k // PER_STEP, []).append(v)


def slot(step: int) -> int:
    """The slot of a step's kernel."""
    return PER_STEP * step + PER_STEP - 1


@dataclass
class _Rows:
    """Constraints sum(coefficient * variable) <= bound, as triplets."""

    row: list[int]
    column: list[int]
    value: list[float]
    bound: list[float]

    def add(self, terms: list[tuple[int, float]], bound: float) -> None:
        """One constraint."""
        for column, value in terms:
            self.row.append(len(self.bound))
            self.column.append(column)
            self.value.append(value)
        self.bound.append(bound)


class _Model:
    """Variables: T[k] seconds of slot k; stay[v, k]; part[v, k]: shares of v's transfers done in slot k."""

    def __init__(self, trace: AccessTrace) -> None:
        self.trace = trace
        self.n = 0
        self.whole: list[int] = []
        self.low: list[float] = []
        self.rows = _Rows([], [], [], [])
        empty = [0.0] * (PER_STEP - 1)
        self.took = [self._new(s) for seconds in trace.seconds for s in (*empty, seconds)] + [self._new()]
        self.stay: dict[tuple[int, int], int] = {}
        links: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for v, uses in enumerate(trace.uses):
            if uses:
                self._value(v, links)
        for step, task in enumerate(trace.task):  # stores: any step from theirs on
            if trace.seconds[step] == 0.0:
                v = int(trace.tasks.value[task])
                seconds = trace.offload_seconds(int(trace.tasks.value_nbytes[v]), trace.machine.inputs)
                self._stored(trace.reads[step][0], step, seconds, links)
        for (_, k), terms in links.items():
            self.rows.add([*terms, (self.took[k], -1.0)], 0.0)
        held: list[list[tuple[int, float]]] = [[] for _ in self.took]
        for (v, k), i in self.stay.items():
            held[k].append((i, float(trace.size[v])))
        for k, terms in enumerate(held):
            workspace = trace.workspace[k // PER_STEP] if k % PER_STEP == PER_STEP - 1 else 0
            self.rows.add(terms, float(trace.budgets.device - workspace))
        if self.n > MOST_VARIABLES:
            raise BindError(f"the program is too large for an optimum: {self.n} variables, {MOST_VARIABLES} at most")

    def _new(self, low: float = 0.0, whole: bool = False) -> int:
        self.low.append(low)
        if whole:
            self.whole.append(self.n)
        self.n += 1
        return self.n - 1

    def _part(self, links: dict[tuple[str, int], list[tuple[int, float]]], way: str, k: int, seconds: float) -> int:
        part = self._new()
        links.setdefault((way, k), []).append((part, seconds))
        return part

    def _spread(self, parts: list[int]) -> None:
        """The parts sum to the whole."""
        self.rows.add([(p, -1.0) for p in parts], -1.0)

    def _stored(self, v: int, step: int, seconds: float, links: dict[tuple[str, int], list[tuple[int, float]]]) -> None:
        """A value goes to an output in slots from its store on, and is resident until it has gone."""
        slots = range(slot(step), len(self.took))
        parts = [self._part(links, "out", k, seconds) for k in slots]
        self._spread(parts)
        last = slot(self.trace.uses[v][-1])
        for at, k in enumerate(slots):
            if k > last and (v, k) not in self.stay:
                self.stay[v, k] = self._new(whole=True)
            stay = self.stay[v, k]
            self.rows.add([(parts[at], 1.0), (stay, -1.0)], 0.0)
            if k > last:
                self.rows.add([(stay, -1.0), *((p, -1.0) for p in parts[:at])], -1.0)

    def _value(self, v: int, links: dict[tuple[str, int], list[tuple[int, float]]]) -> None:
        """Allow a value to be absent between its uses, and require its return."""
        trace, uses = self.trace, [slot(u) for u in self.trace.uses[v]]
        stored = trace.stored[v]
        tier = trace.machine.inputs if stored else trace.spill
        back = trace.fetch_seconds(trace.size[v], tier)
        first = 0 if stored else uses[0]
        used = set(uses)
        for k in range(first, uses[-1] + 1):
            self.stay[v, k] = self._new(1.0 if k in used else 0.0, whole=k not in used)
        out = []
        if not stored and len(uses) > 1:
            seconds = trace.offload_seconds(trace.size[v], trace.spill)
            out = [self._part(links, "out", k, seconds) for k in range(first + 1, uses[-1])]
            for at, part in enumerate(out):  # it leaves while it is resident
                self.rows.add([(part, 1.0), (self.stay[v, first + 1 + at], -1.0)], 0.0)
        for a, b in pairwise([-1, *uses] if stored else uses):
            if b - a > 1:
                self._gap(v, a, b, back, links, out, first)

    def _gap(
        self,
        v: int,
        a: int,
        b: int,
        back: float,
        links: dict[tuple[str, int], list[tuple[int, float]]],
        out: list[int],
        first: int,
    ) -> None:
        """Within a gap a value leaves at most once; it is back before the gap ends, written before it left."""
        stay = [self.stay[v, k] for k in range(a + 1, b)]
        parts = [self._part(links, "in", k, back) for k in range(a + 1, b)]
        leaves = [self._new(whole=True) for _ in stay]
        for at, (here, part) in enumerate(zip(stay, parts, strict=True)):
            self.rows.add([(part, 1.0), (here, -1.0)], 0.0)
            before = [] if at == 0 else [(stay[at - 1], 1.0)]
            was = 1.0 if at == 0 and a >= 0 else 0.0
            self.rows.add([*before, (here, -1.0), (leaves[at], -1.0)], -was)  # from resident to absent: it leaves
            # Absent in this step: all of it returns in later steps of the gap, and was written before.
            self.rows.add([(here, -1.0), *((p, -1.0) for p in parts[at + 1 :])], -1.0)
            if out:
                self.rows.add([(here, -1.0), *((p, -1.0) for p in out[: a + 1 + at - first - 1])], -1.0)
        self.rows.add([(x, 1.0) for x in leaves], 1.0)
        if a < 0:  # an input is loaded once in any case
            self._spread(parts)

    def solve(self) -> tuple[float, dict[int, set[int]]]:
        """The minimal time, and the steps at which each value is resident."""
        try:
            optimize: Any = importlib.import_module("scipy.optimize")
            sparse: Any = importlib.import_module("scipy.sparse")
        except ImportError:
            raise DeviceError("the policy autotm needs SciPy's HiGHS. help: pip install scipy") from None
        rows = self.rows
        matrix = sparse.csr_matrix((rows.value, (rows.row, rows.column)), shape=(len(rows.bound), self.n))
        cost, high = np.zeros(self.n), np.ones(self.n)
        scale = max(sum(self.trace.seconds), 1e-30)
        cost[self.took] = 1.0
        high[self.took] = np.inf
        integral = np.zeros(self.n)
        integral[self.whole] = 1
        found = optimize.milp(
            cost / scale,
            constraints=optimize.LinearConstraint(matrix, -np.inf, rows.bound),
            bounds=optimize.Bounds(self.low, high),
            integrality=integral,
            options={"time_limit": SECONDS, "mip_rel_gap": GAP},
        )
        if found.x is None:
            raise CapacityError("no plan fits that keeps to the serial order and to whole steps")
        stays: dict[int, set[int]] = {}
        for (v, k), i in self.stay.items():
            if found.x[i] > 0.5:
                stays.setdefault(v, set()).add(k)
        return float(found.fun) * scale, stays
