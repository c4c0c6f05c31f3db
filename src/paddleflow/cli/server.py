"""`paddleflow server`: starts the server. The server's package is imported here and nowhere else in the command line."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Group
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Unavailable

if TYPE_CHECKING:
    from paddleflow.settings import Settings


@click.group(cls=Group, invoke_without_command=True)
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
    if ctx.invoked_subcommand:
        given_here = [f"--{key.replace('_', '-')}" for key, value in given.items() if value is not None]
        if config is not None or given_here:
            raise click.UsageError(f"options come after {ctx.invoked_subcommand}")
        return
    gc.disable()  # nothing of what is imported goes away again: `run` turns it on
    try:
        from paddleflow.server.main import run
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    ctx.exit(run(_settings(config, given)))


@server.command("rotate-key")
@click.option("--data", type=click.Path(file_okay=False), help="Data folder of the server.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings file (TOML).")
@pass_session
def rotate_key(session: Session, data: str | None, config: Path | None) -> None:
    """Encrypt all secrets in the database with a new key; the old key is dropped. The server must be stopped.

    \b
    Example:
      paddleflow server rotate-key --data /srv/paddleflow
    """
    try:
        from paddleflow.server import key_rotation
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    key, count = key_rotation.rotate_key(_settings(config, {"data": data}))
    output.done(
        session, f"values encrypted with the new key {key}: {count}", key, lambda: {"key": key, "secrets": count}
    )


def _settings(config: Path | None, given: Mapping[str, Any]) -> Settings:
    from paddleflow import settings

    found = settings.load(config)
    changes = {key: value for key, value in given.items() if value is not None}
    return dataclasses.replace(found, server=dataclasses.replace(found.server, **changes))


def _not_installed(error: ModuleNotFoundError) -> Exception:
    if (error.name or "").startswith("paddleflow"):
        return error
    return Unavailable(
        f"the server needs {error.name}, which is not installed", hint="pip install 'paddleflow[server]'"
    )
