"""Objects that installed packages register with einturnip by entry points."""

from __future__ import annotations

from typing import Any

from einturnip.core.errors import EinturnipError


def load(group: str, name: str, users: str, error: type[EinturnipError]) -> Any | None:
    """Return the object that an installed package registers under ``name``; None if there is none.

    ``users``: plural noun of the things that need the object, for the message.

    Raises:
        error: the package's module fails.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except Exception as failure:
            raise error(
                f"{users} need {entry.value}, which an installed package registers but which fails: {failure!r}"
            ) from failure
    return None


def names(group: str) -> tuple[str, ...]:
    """Return the registered names of a group. No module is loaded."""
    from importlib.metadata import entry_points

    return tuple(entry.name for entry in entry_points(group=group))
