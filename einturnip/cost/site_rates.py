"""Rates of sites: of their kernels, if they differ, and of the links between their memories."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from einturnip.core.errors import BindError
from einturnip.core.units import parse_size

_LINK = re.compile(
    r"\s*(?P<rate>[\d.]+\s*[A-Za-z]+)/s\s*,\s*(?P<latency>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>ns|us|µs|ms|s)\s*"
)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BITS = re.compile(r"(?P<size>[\d.]+\s*[kKMGT]?)bit")


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
        raise BindError(f"{text!r} are not rates of sites. help: write a positive number for each, such as 2,1")
    return rates


def relative(rates: Sequence[float]) -> tuple[float, ...]:
    """Return rates relative to the fastest; () if all are equal."""
    return tuple(rate / max(rates) for rate in rates) if len(set(rates)) > 1 else ()


class MachineLink(NamedTuple):
    """One direction between two memories. Units: bytes per second, seconds per transfer."""

    bandwidth: float
    latency: float

    def __str__(self) -> str:
        """Return the text that ``parse_link`` reads."""
        unit, size = next((u for u in (("GB", 1e9), ("MB", 1e6)) if self.bandwidth >= u[1] / 10), ("kB", 1e3))
        return f"{_plain(self.bandwidth / size)}{unit}/s,{_plain(self.latency * 1e6)}us"

    def seconds(self, nbytes: float) -> float:
        """Return the seconds of a transfer."""
        return self.latency + nbytes / self.bandwidth


def _plain(number: float) -> str:
    """Return nine significant digits without an exponent."""
    return f"{Decimal(f'{number:.9g}'):f}"


def parse_link(text: str) -> MachineLink:
    """Convert a rate and a latency, such as ``1.25GB/s,50us`` or ``10Gbit/s,50us``.

    Raises:
        BindError: it is not of this form.
    """
    parts = _LINK.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise BindError(f"{text!r} is not a link. help: write its rate and its latency, such as 1.25GB/s,50us")
    if not re.search("[1-9]", parts["rate"]):
        raise BindError(f"{text!r} is not a link: its rate must be more than 0 bytes per second")
    bits = _BITS.fullmatch(parts["rate"])
    rate = parse_size(parts["rate"]) if bits is None else parse_size(f"{bits['size']}B") / 8
    return MachineLink(float(rate), float(parts["latency"]) * _UNITS[parts["unit"]])
