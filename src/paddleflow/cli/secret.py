"""`paddleflow secret`: named values that jobs are given. Values are read from a prompt, a file or standard input, never shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.access import Secret

SHORTEST_MASKED = 4  #: characters; shorter values are not hidden in logs

SECRET: Kind[Secret] = Kind(
    "secrets",
    lambda secret: secret.name,
    lambda secret: secret.raw,
    (
        Column(lambda secret: secret.name, "NAME", "name"),
        Column(lambda secret: output.age(secret.create_time), "AGE"),
        Column(lambda secret: output.local_time(secret.update_time), "UPDATED", "update time"),
    ),
    "no secrets found ",
)

secret = group(
    help="Manage secrets: named values that jobs get as variables or files. They are encrypted and never shown."
)


@secret.command("set")
@click.argument("name")
@click.option(
    "-f",
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str),
    help="File with the value; - is standard input. [default: a prompt, or standard input if it is not a terminal]",
)
@pass_session
def set_(session: Session, name: str, from_file: str | None) -> None:
    """Create or replace a secret. Jobs that start from now on get the new value.

    One trailing newline is removed, unless the value comes from a file.

    \b
    Examples:
      paddleflow secret set HF_TOKEN
      pass show hf | paddleflow secret set HF_TOKEN
      paddleflow secret set deploy-key -f ~/.ssh/id_ed25519
    """
    value = _value(name, from_file)
    if not value:
        raise Invalid(f"the value of secret[{name}] is empty", hint="give one at the prompt, by a pipe or with -f FILE")
    session.client.secrets.set(name, value)
    if len(value) < SHORTEST_MASKED:
        note(f"note: values of fewer than {SHORTEST_MASKED} characters are not hidden in logs")
    output.done(session, f"secret[{name}] set success", name, lambda: {"name": name})


def _value(name: str, file: str | None) -> str:
    if file is not None and file != "-":
        data = Path(file).read_bytes()
    elif file is None and sys.stdin.isatty():
        return str(click.prompt(f"value of {name}", hide_input=True))
    else:
        data = sys.stdin.buffer.read().removesuffix(b"\n").removesuffix(b"\r")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the value of secret[{name}] is not UTF-8 text", hint="encode it, for example with base64"
        ) from error


@secret.command("list")
@pass_session
def list_(session: Session) -> None:
    """List your secrets. Values are not shown."""
    output.show_list(session, SECRET, list(session.client.secrets.list()), None)


@secret.command()
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a secret. Running jobs keep their value."""
    session.client.secrets.delete(name)
    output.done(session, f"secret[{name}] delete success", name, lambda: {"name": name})
