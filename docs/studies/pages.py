"""Pages of studies whose tables and picture a script writes, from numbers that it stores as JSON."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Numbers: TypeAlias = dict[str, Any]
BEGIN, END = "<!-- written by the script: tables -->", "<!-- end of tables -->"


def with_tables(page: str, lines: Iterable[str]) -> str:
    """A page with ``lines`` between the marks of its tables."""
    head, _, rest = page.partition(BEGIN)
    return "\n".join([head + BEGIN, *lines, "", END + rest.partition(END)[2]])


def write(page: Path, numbers: Numbers, lines: Iterable[str], picture: str = "") -> None:
    """Store the numbers and the picture, if there is one, next to the page, and the tables in it."""
    page.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
    if picture:
        page.with_suffix(".svg").write_text(picture)
    page.write_text(with_tables(page.read_text(), lines))


def stored(page: Path) -> Numbers:
    """The numbers of a page."""
    found: Numbers = json.loads(page.with_suffix(".json").read_text())
    return found


def stored_cell(parts: Path | None, name: str, compute: Callable[[], Numbers | None]) -> Numbers | None:
    """The numbers of a cell as an earlier run stored them in a folder, else computed and stored."""
    file = parts and parts / f"{name}.json"
    if file and file.exists():
        found: Numbers | None = json.loads(file.read_text())
        return found
    new = compute()
    if file:
        file.write_text(json.dumps(new))
    return new


def with_sizes(program: Path, sizes: Mapping[str, int]) -> str:
    """The text of a program with other sizes of its ``dim`` labels."""
    text = program.read_text()
    for label, size in sizes.items():
        text, found = re.subn(rf"^(dim .*\b{label} = )\d+", rf"\g<1>{size}", text, count=1, flags=re.MULTILINE)
        assert found, f"{program} has no dim {label}"
    return text


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of a script that may continue from the parts of an earlier run, and write its page."""
    parser.add_argument("--parts", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.parts is not None:
        options.parts.mkdir(parents=True, exist_ok=True)
    return options
