"""``einturnip lsp``: starts the language server."""

from __future__ import annotations

import click

from einturnip.cli import options


@click.command("lsp")
@options.debug
def command() -> None:
    """Speak the language server protocol on standard input and output; editors start this command."""
    try:
        from einturnip.lsp.server import serve
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in ("pygls", "lsprotocol"):
            raise
        message = f"the language server needs {package}. help: pip install 'einturnip[lsp]'"
        raise click.UsageError(message) from None
    serve()
