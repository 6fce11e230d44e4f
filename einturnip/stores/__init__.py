"""Files and arrays, read and written one region at a time."""

from einturnip.stores.open import OutputRequest, open_sink, open_sinks, open_source, planned_offsets
from einturnip.stores.types import Extent, Region, Sink, Source

__all__ = [
    "Extent",
    "OutputRequest",
    "Region",
    "Sink",
    "Source",
    "open_sink",
    "open_sinks",
    "open_source",
    "planned_offsets",
]
