"""Rates of the kernels of sites that are unlike each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.core.errors import BindError


def parse_rates(text: str | Sequence[float]) -> tuple[float, ...]:
    """Convert the rates of sites, such as ``2,1``: the first site computes twice as fast as the second.

    Raises:
        BindError: they are not positive numbers.
    """
    try:
        rates = tuple(float(rate) for rate in (text.split(",") if isinstance(text, str) else text))
    except (TypeError, ValueError):
        rates = ()
    if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise BindError(f"'{text}' are not rates of sites. help: write a positive number for each, such as 2,1")
    return rates


def relative(rates: Sequence[float]) -> tuple[float, ...]:
    """Return rates relative to the fastest; () if all are equal."""
    return tuple(rate / max(rates) for rate in rates) if len(set(rates)) > 1 else ()
