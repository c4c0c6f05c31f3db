"""`paddleflow server`: starts the server. The server's package is imported here and nowhere else in the command line."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import click

from paddleflow.cli.lazy import Command
from paddleflow.errors import Unavailable


@click.command(cls=Command)
@click.option("--host", help="Address to listen on; an address other than loopback is reachable from other machines.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 chooses a free one.")
@click.option("--data", type=click.Path(file_okay=False), help="Folder for the database, logs and job files.")
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="Certificate chain (PEM): serve HTTPS.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Private key of the certificate (PEM).")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings file (TOML).")
@click.pass_context
def server(ctx: click.Context, /, config: Path | None, **given: str | int | None) -> None:
    """Start a server on this machine; Ctrl-C stops it. Running jobs continue.

    Options take precedence over environment variables (PADDLEFLOW_SERVER_PORT and so on), these over the settings file.

    \b
    Examples:
      paddleflow server
      paddleflow server --data /srv/paddleflow --port 8999
      paddleflow server --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    from paddleflow import settings

    found = settings.load(config)
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    found = dataclasses.replace(found, server=dataclasses.replace(found.server, **changes))
    gc.disable()  # nothing of what is imported goes away again: `run` turns it on
    try:
        from paddleflow.server.main import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("paddleflow"):
            raise
        raise Unavailable(
            f"the server needs {error.name}, which is not installed", hint="pip install 'paddleflow[server]'"
        ) from error
    ctx.exit(run(found))
