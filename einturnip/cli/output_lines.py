"""Prints a report's lines on standard output: in colour on a terminal, otherwise as plain text."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from einturnip.report.styled_lines import WIDTH, text_of

if TYPE_CHECKING:
    from einturnip.report.styled_lines import Line

# Maximum width of a line on any terminal; longer lines are hard to read.
MAX_COLUMNS = 120
_STYLES = {"head": "bold", "name": "cyan", "note": "dim", "warn": "yellow", "bar": "blue"}


def columns() -> int:
    """The width of lines: that of the terminal, or of the variable COLUMNS."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return max(60, min(MAX_COLUMNS, shutil.get_terminal_size((WIDTH, 24)).columns))
    return WIDTH


def show_lines(lines: Iterable[Line]) -> None:
    """Print the lines."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        click.echo(text_of(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((text, _STYLES.get(role, "")) for text, role in line)))
