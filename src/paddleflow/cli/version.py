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
    """Print the versions of client and server as JSON."""
    found: dict[str, object] = {"client": f"PaddleFlow-{__version__}"}
    if not client_only:
        found["server"] = session.client.version()
    output.print_data(session, found)
