"""A serial order of the ops that the dependencies allow, or the cycles that prevent one."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

import numpy as np

from einturnip.verify.types import KINDS, Faults, Ints, JudgedPlan, Rule


def serial_order(plan: JudgedPlan, faults: Faults) -> Ints | None:
    """Return positions in an allowed order, as close as possible to the listed one; None if there is none."""
    n = len(plan)
    op = np.repeat(np.arange(n), np.diff(plan.after_ptr))
    if (plan.after < op).all():
        return np.arange(n)
    waiters = _waiters(plan)
    left = np.diff(plan.after_ptr).tolist()
    ready = [x for x in range(n) if not left[x]]
    heapify(ready)
    order = []
    while ready:
        x = heappop(ready)
        order.append(x)
        for y in waiters[x]:
            left[y] -= 1
            if not left[y]:
                heappush(ready, y)
    if len(order) == n:
        return np.array(order, np.int64)
    _report_cycles(plan, waiters, [x for x in range(n) if left[x]], faults)
    return None


def _waiters(plan: JudgedPlan) -> list[list[int]]:
    waiters: list[list[int]] = [[] for _ in range(len(plan))]
    starts, after = plan.after_ptr.tolist(), plan.after.tolist()
    for x in range(len(plan)):
        for p in after[starts[x] : starts[x + 1]]:
            waiters[p].append(x)
    return waiters


def _report_cycles(plan: JudgedPlan, waiters: list[list[int]], stuck: list[int], faults: Faults) -> None:
    """Report one shortest cycle for each strongly connected component."""
    for component in _components(waiters, stuck):
        x = component[0]
        if len(component) == 1 and x not in waiters[x]:
            continue
        if not faults.count(Rule.CYCLE):
            continue
        cycle = _shortest_cycle(waiters, x, set(component))
        ids = [int(plan.ids[y]) for y in cycle]
        if len(cycle) == 1:
            text = f"op {ids[0]} waits for itself"
        else:
            # Each op is in the ``after`` of the next.
            text = "; ".join(
                f"op {b} ({KINDS[plan.kind[y]]}) waits for op {a}"
                for a, b, y in zip(ids, [*ids[1:], ids[0]], [*cycle[1:], cycle[0]], strict=True)
            )
        faults.add(Rule.CYCLE, tuple(cycle), None, text)


def _shortest_cycle(waiters: list[list[int]], x: int, inside: set[int]) -> list[int]:
    """Return a shortest path from ``x`` to itself."""
    parent: dict[int, int] = {}
    work = deque([x])
    while work:
        y = work.popleft()
        for z in waiters[y]:
            if z == x:
                cycle = [y]
                while cycle[-1] != x:
                    cycle.append(parent[cycle[-1]])
                return cycle[::-1]
            if z in inside and z not in parent:
                parent[z] = y
                work.append(z)
    raise AssertionError("no path back within a strongly connected component")


def _components(waiters: list[list[int]], nodes: list[int]) -> list[list[int]]:
    """Return the strongly connected components, each in order of position.

    Source: Tarjan (1972), with an explicit stack.
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    place: dict[int, int] = {}  # of ops on the path
    found = []
    for root in nodes:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        place[root] = 0
        path.append(root)
        work = [(root, iter(waiters[root]))]
        while work:
            x, rest = work[-1]
            y = next(rest, None)
            if y is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[x])
                if low[x] == number[x]:
                    component = path[place[x] :]
                    del path[place[x] :]
                    for z in component:
                        del place[z]
                    found.append(sorted(component))
            elif y not in number:
                number[y] = low[y] = len(number)
                place[y] = len(path)
                path.append(y)
                work.append((y, iter(waiters[y])))
            elif y in place:
                low[x] = min(low[x], number[y])
    return sorted(found)
