"""``--json-log``: what a run logs, a line of JSON for each event."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from einturnip.core.events import log
from einturnip.report.progress import Show, at_most_once_in, line

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import Progress

_SECONDS = 1.0  # between two events of progress


@contextmanager
def json_lines(stream: TextIO) -> Iterator[Show]:
    """Context that writes events as lines of JSON; yields the function that logs progress."""
    logger, handler = logging.getLogger("einturnip"), logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield at_most_once_in(_SECONDS, _log_progress)
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class JsonFormatter(logging.Formatter):
    """Formats a record as a line: time, level, event, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        head = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
        }
        return json.dumps(head | getattr(record, "fields", {}), default=str)


def log_failure(message: str, code: int) -> None:
    """Write how a command ended that did not succeed."""
    with json_lines(sys.stderr):
        log("failed", message, {"exit_code": code}, "ERROR")


def _log_progress(progress: Progress) -> None:
    counts = {
        "done_ops": progress.done_ops,
        "total_ops": progress.total_ops,
        "done_bytes": progress.done_nbytes,
        "total_bytes": progress.total_nbytes,
        "elapsed_seconds": round(progress.elapsed_seconds, 3),
        "statement": progress.statement,
    }
    log("progress", line(progress), counts)
