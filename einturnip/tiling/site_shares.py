"""Shares of the work of sites with different speeds.

EinDecomp makes calls of equal size. With more calls than sites, a faster site takes several: the calls of a statement
are divided into equal *shares*, and a site has as many of them as its rate deserves.

Source: Balinski, Young, Fair Representation (1982): D'Hondt's method minimises the maximum of shares over rate.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from einturnip.core.errors import BindError
from einturnip.tuning.sites import MAX_SHARES, MAX_SHARES_OF_SITE, MAX_UNEVEN, NUMBERS_OF_SHARES, SHARES_UNEVEN


def numbers_of_shares(rates: Sequence[float]) -> list[list[tuple[int, ...]]]:
    """Return divisions of the work among sites with these rates, each as the number of shares by site.

    No site takes more than SHARES_UNEVEN times the mean; if that needs too many shares, the most even division is the
    only one. The first list has few shares. The second one, for programs whose labels these do not divide, has
    more, whose totals have no prime factors but 2, 3 and 5.

    Raises:
        BindError: a site is too slow for one share.
    """
    if len(set(rates)) == 1:
        return [[(1,) * len(rates)]]
    n, total = len(rates), sum(rates)
    largest = max(n, min(MAX_SHARES, n * MAX_SHARES_OF_SITE))
    counts = [1] * n
    queue = [(2 / rate, s) for s, rate in enumerate(rates)]
    heapq.heapify(queue)
    slowest = max(1 / rate for rate in rates)
    even: list[tuple[int, ...]] = []
    best = slowest * total / n, tuple(counts)
    for number in range(n + 1, largest + 1):
        seconds, s = heapq.heappop(queue)
        counts[s] += 1
        heapq.heappush(queue, ((counts[s] + 1) / rates[s], s))
        slowest = max(slowest, seconds)
        uneven = slowest * total / number
        if uneven < best[0]:
            best = uneven, tuple(counts)
        if uneven <= SHARES_UNEVEN and (not even or number <= 2 * sum(even[0]) or _is_smooth(number)):
            even.append(tuple(counts))
    if not even:
        if best[0] > MAX_UNEVEN:
            s = max(range(n), key=lambda k: best[1][k] / rates[k])
            raise BindError(
                f"site {s} has {rates[s] / total:.2g} of the rate of the {n} sites together, which is less than one of "
                f"{largest} shares of the work. help: plan without it"
            )
        return [[best[1]]]
    near = [found for found in even[1:] if sum(found) <= 2 * sum(even[0])]
    near.sort(key=lambda found: (-_divisors(sum(found)), sum(found)))
    further = [found for found in even[1:] if _is_smooth(sum(found)) and found not in near[: NUMBERS_OF_SHARES - 1]]
    return [[even[0], *near[: NUMBERS_OF_SHARES - 1]], further[:NUMBERS_OF_SHARES]]


def sites_of_shares(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the site of each share; the shares of a site are neighbours."""
    return tuple(s for s, n in enumerate(counts) for _ in range(n))


def _is_smooth(n: int) -> bool:
    """Return whether a number has no prime factors but 2, 3 and 5."""
    for factor in (2, 3, 5):
        while n % factor == 0:
            n //= factor
    return n == 1


def _divisors(n: int) -> int:
    return sum(n % k == 0 for k in range(1, n + 1))
