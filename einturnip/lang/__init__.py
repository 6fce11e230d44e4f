"""The language: text to TypedProgram."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from einturnip.lang.program import TypedProgram


def compile_text(text: str, file: str = "<text>") -> TypedProgram:
    """Compile a program text. ``file`` is its name in messages.

    Raises:
        SourceError: with every problem of the stage (syntax, then names, labels and dtypes) that found one.
    """
    from einturnip.lang.elaborate.resolve import resolve
    from einturnip.lang.syntax.parser import parse

    return resolve(parse(text, file))
