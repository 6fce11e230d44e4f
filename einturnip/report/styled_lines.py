"""Styled lines of a report: pieces of text with roles, which a terminal may show in colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TypeAlias

# Roles: "" plain, "head", "name" (the user's own words), "note", "warn", "bar".
Span: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Span, ...]

WIDTH = 80


def text_of(lines: Iterable[Line]) -> str:
    """The text without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def truncated(text: str, width: int) -> str:
    """The text on one line, truncated if it is too long."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def wrapped(text: str, indent: int, width: int, role: str = "") -> list[Line]:
    """Wrap text into lines."""
    space = " " * indent
    lines = textwrap.wrap(text, max(20, width - indent), break_long_words=False, break_on_hyphens=False)
    return [((space + line, role),) for line in lines]
