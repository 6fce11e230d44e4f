"""``einturnip fmt``: writes programs in canonical form."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from einturnip.cli import options
from einturnip.core.errors import EinturnipError
from einturnip.core.regular_files import create_file


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Write nothing; name the files that would change, and exit 1 if any would.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Write to standard output instead of into the files.")
@options.debug
def command(files: tuple[str, ...], check: bool, to_stdout: bool) -> None:
    """Write each FILE in canonical form: same program, same comments.

    '-' reads standard input and writes standard output.
    A file that is not a program stays unchanged, and its errors are shown.
    """
    from einturnip.lang.source_text import program_name, program_text
    from einturnip.lang.syntax.formatter import format_text

    failed, changed = [], []
    for name in files:
        try:
            before = program_text(Path(name))
            after = format_text(before, program_name(Path(name)))
        except EinturnipError as error:
            failed.append(error)
            continue
        if check:
            changed += [name] if before != after else []
        elif to_stdout or name == "-":
            click.echo(after, nl=False)
        elif before != after:
            write_atomically(Path(name), after)
            click.echo(f"formatted {name}", err=True)
    for name in changed:
        click.echo(f"would change {'<stdin>' if name == '-' else name}")
    if failed:
        messages = (str(error) for error in failed)
        click.echo("\n\n".join(text if text.startswith("error") else f"error: {text}" for text in messages), err=True)
        raise click.exceptions.Exit(2)
    if changed:
        raise click.exceptions.Exit(1)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's text atomically; a symbolic link and the file's mode are kept."""
    path = path.resolve()
    handle, temporary = create_file(os.fspath(path), 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
