"""Tensors outside compute memory, read and written by region: files, arrays of the caller, spill.

In: a name that a user wrote, or an array. Out: ``types.Source`` or ``types.Sink``. Read ``open`` first.
``file_format`` has the table of ``formats``; ``io`` moves bytes and limits the page cache; ``chunks`` decodes
compressed chunks in bounded memory; ``outputs`` publishes results atomically; ``file_versions`` detects inputs that
change during a run; ``device_arrays`` describes arrays that are on a GPU.
"""

from einturnip.storage.open import OutputRequest, open_sink, open_sinks, open_source, planned_offsets
from einturnip.storage.types import Extent, Region, Sink, Source

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
