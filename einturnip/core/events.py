"""Logs what is planned and run, under the name ``einturnip`` of Python's logging.

The package never sets a level or a handler: that is the program's that uses it. ``einturnip run --json-log`` does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def log(event: str, message: str, fields: Mapping[str, object] | None = None, level: Level = "INFO") -> None:
    """Log an event.

    Its name and ``fields`` are attributes of the record: ``record.event``, ``record.fields``.

    A process that has not loaded ``logging`` has nobody to read it.
    """
    if (logging := sys.modules.get("logging")) is not None:
        number = getattr(logging, level)
        logger = logging.getLogger("einturnip")
        if logger.isEnabledFor(number):
            logger.log(number, message, extra={"event": event, "fields": dict(fields or {})})
