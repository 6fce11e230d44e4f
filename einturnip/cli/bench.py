"""``einturnip bench``: runs the benchmarks of the checkout; they are not part of an installed package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

import einturnip

FOLDER = Path(einturnip.__file__).parents[1] / "docs" / "benchmarks"
ABSENT = (
    "the benchmarks are not installed with einturnip: they are in docs/benchmarks of its source code. "
    "help: run in a checkout of it: pip install -e . && einturnip bench host"
)


def benchmarks(folder: Path) -> click.Command:
    """The commands of the benchmarks in ``folder``, or a command that says where to find them."""
    if not (folder / "harness" / "commands.py").is_file():
        return _absent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found = import_module("harness.commands").command
    assert isinstance(found, click.Command)
    return found


@click.command("bench", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _absent(arguments: tuple[str, ...]) -> None:
    """Measure einturnip and its alternatives. The benchmarks are part of the source code only."""
    raise click.ClickException(ABSENT)


command = benchmarks(FOLDER)
