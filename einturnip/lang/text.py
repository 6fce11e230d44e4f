"""The lines of a text, however they end."""

from __future__ import annotations


def unified(text: str) -> str:
    """A text without byte order mark, its lines ended by newlines alone."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
