"""`paddleflow version`."""

from __future__ import annotations

import click

from paddleflow import __version__
from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session


@click.command(cls=Command)
@click.option("--client", "client_only", is_flag=True, help="Print the client version only; do not ask a server.")
@pass_session
def version(session: Session, client_only: bool) -> None:
    """Print the versions of client and server."""
    client = f"PaddleFlow-{__version__}"
    server = None if client_only else session.client.version()
    if session.output == "name":
        click.echo(client)
    elif session.output in {"table", "wide"}:
        words = [server.get(key) for key in ("gitVersion", "compiler", "platform")] if server else []
        click.echo(output.describe({"client": client, "server": ", ".join(word for word in words if word)}))
    else:
        output.print_data(session, {"client": client} if server is None else {"client": client, "server": server})
