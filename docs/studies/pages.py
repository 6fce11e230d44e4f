"""Pages of studies whose tables and picture a script writes, from numbers that it stores as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Numbers: TypeAlias = dict[str, Any]
BEGIN, END = "<!-- written by the script: tables -->", "<!-- end of tables -->"


def with_tables(page: str, lines: Iterable[str]) -> str:
    """A page with ``lines`` between the marks of its tables."""
    head, _, rest = page.partition(BEGIN)
    return "\n".join([head + BEGIN, *lines, "", END + rest.partition(END)[2]])


def write(page: Path, numbers: Numbers, lines: Iterable[str], picture: str) -> None:
    """Store the numbers and the picture next to the page, and the tables in it."""
    page.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
    page.with_suffix(".svg").write_text(picture)
    page.write_text(with_tables(page.read_text(), lines))


def stored(page: Path) -> Numbers:
    """The numbers of a page."""
    found: Numbers = json.loads(page.with_suffix(".json").read_text())
    return found


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of a script that may continue from the parts of an earlier run, and write its page."""
    parser.add_argument("--parts", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.parts is not None:
        options.parts.mkdir(parents=True, exist_ok=True)
    return options
