"""Formats a verdict as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from einturnip.core.units import format_size
from einturnip.verify.types import Rule, Tier, Verdict


def show(verdict: Verdict, name: str, limit: int) -> Iterator[str]:
    """Yield the summary of the plan in file ``name``, and at most ``limit`` of its faults."""
    total = sum(verdict.counts.values())
    yield f"{name}: valid" if verdict.valid else f"{name}: invalid, {_counted(total, 'fault')}"
    yield f"program       {verdict.program}"
    implied = "" if verdict.implied is None else f" ({verdict.implied:,} implied by others)"
    yield f"ops           {verdict.n_ops:,}"
    yield f"values        {verdict.n_values:,}"
    yield f"dependencies  {verdict.n_dependencies:,}{implied}"
    width = max([12, *(len(use.tier.name) for use in verdict.uses)])
    for use in verdict.uses:
        yield f"{use.tier.name:{width}}  {_used(use.tier, use.nbytes)}"
    for number, fault in enumerate(verdict.faults[:limit], 1):
        yield f"{number}. {fault.rule.value}: {fault.text}"
    shown = min(limit, len(verdict.faults))
    if total > shown:
        yield f"and {total - shown:,} more"
    for rule in Rule:
        if rule in verdict.counts:
            yield f"{verdict.counts[rule]:,} x {rule.value}: {rule.meaning}"
    if Rule.CYCLE in verdict.counts:
        yield "the order is not judged: a cycle leaves none"


def _used(tier: Tier, nbytes: int) -> str:
    if tier.kind == "output":
        return f"{format_size(nbytes)} stored"
    if tier.kind == "input":
        return f"{format_size(nbytes)} read at most"
    return f"{format_size(nbytes)} used" + ("" if tier.capacity is None else f" of {format_size(tier.capacity)}")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
