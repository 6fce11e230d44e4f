"""Describes the outputs of ``run``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from einturnip.storage.generated import SummarySink
    from einturnip.storage.types import Sink


def output_lines(sinks: Mapping[str, Sink], targets: Mapping[str, Any]) -> list[str]:
    """One line for each output: dtype and shape, and its file or a summary of its values."""
    from einturnip.storage.generated import SummarySink

    width = max(map(len, sinks), default=0)
    lines = []
    for name, sink in sinks.items():
        shape = ", ".join(map(str, sink.shape))
        kind = f"{name:<{max(width, 7)}}  {sink.dtype}[{shape}]" if shape else f"{name:<{max(width, 7)}}  {sink.dtype}"
        lines.append(f"{kind}  {_tally(sink) if isinstance(sink, SummarySink) else f'written to {targets[name]}'}")
    return lines


def _tally(tally: SummarySink) -> str:
    from einturnip.core.units import element_name
    from einturnip.report.summary import first_text

    place = element_name(tally.name, tally.first_nan) if tally.first_nan else ""
    nan = f", {tally.nan:,} nan{first_text(place, tally.nan_causes)}" if tally.nan else ""
    if tally.low is None:
        return f"no numbers{nan}, checksum {tally.checksum}"
    if tally.low == tally.high:
        return f"value {tally.low:g}{nan}, checksum {tally.checksum}"
    return f"from {tally.low:g} to {tally.high:g}{nan}, checksum {tally.checksum}"
