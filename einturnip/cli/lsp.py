"""``einturnip lsp``: serve an editor."""

from __future__ import annotations

import click

from einturnip.cli import options


@click.command("lsp")
@options.debug
def command() -> None:
    """Speak the language server protocol on standard input and output; editors start this, not people."""
    try:
        from einturnip.lsp.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        message = f"the language server needs {error.name}. help: pip install 'einturnip[lsp]'"
        raise click.UsageError(message) from None
    serve()
