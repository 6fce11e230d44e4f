"""Text to Program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from einturnip.lang.types import Program


def compile_text(text: str, file: str = "<text>") -> Program:
    """The program that a text means. ``file`` is its name in messages.

    Raises:
        SourceError: with every problem of the stage (syntax, then names, labels and dtypes) that found one.
    """
    from einturnip.lang.parse import parse
    from einturnip.lang.resolve import resolve

    return resolve(parse(text, file))
