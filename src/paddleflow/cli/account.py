"""`paddleflow login`, `logout`, `whoami`."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session


def asked_password(given: str | None, from_stdin: bool, *, twice: bool = False) -> str:
    """The password that was given, stands in the input, or is asked for."""
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    return given or str(click.prompt("password", hide_input=True, confirmation_prompt=twice, err=True))


@click.command(cls=Command)
@click.argument("server", required=False, metavar="[URL]")
@click.option("-u", "--username", help="Who you are; asked for if not given.")
@click.option("--password", help="Your password; asked for if not given. Others on this machine can see it here.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--name", help="Name of the context; the server's host if not given.")
@pass_session
def login(
    session: Session,
    server: str | None,
    username: str | None,
    password: str | None,
    password_stdin: bool,
    name: str | None,
) -> None:
    """Log in to a server and make it the current context.

    \b
    Examples:
      paddleflow login http://train.example:8999
      paddleflow login train.example -u alice --password-stdin < password.txt
    """
    from paddleflow.sdk import address, contexts
    from paddleflow.sdk.client import connect

    known = contexts.resolve(server=server or session.server, context=session.context, config=session.config)
    where = address.parse(server or known.server)
    username = username or click.prompt("username", default=known.user or None, err=True)
    password = asked_password(password, password_stdin)
    with connect(str(where), token="", retries=1) as client:
        token = client.login(username, password)
    name = name or _usual_name(where, username)
    file = contexts.save(name, contexts.Context(str(where), username, token), current=True)
    output.done(session, f"context[{name}] login success, server[{where}], user[{username}]", name=name, file=str(file))


def _usual_name(where: object, username: str) -> str:
    """The name that this server and user have already, or one made of the host."""
    from paddleflow.sdk import address, contexts

    known = contexts.load().by_name
    for name, item in known.items():
        if address.parse(item.server) == where and item.user == username:
            return name
    host = getattr(where, "host", "")
    return host if host not in known else f"{username}@{host}"


@click.command(cls=Command)
@pass_session
def logout(session: Session) -> None:
    """End the token of the context in use."""
    from paddleflow.errors import Unauthenticated
    from paddleflow.sdk import contexts

    used = contexts.resolve(server=session.server, context=session.context, config=session.config)
    known = contexts.load()
    try:
        session.client.logout()
    except Unauthenticated:
        if not used.token:
            raise
    rest = {name: replace(item, token="") if item.token == used.token else item for name, item in known.by_name.items()}
    contexts.store(replace(known, by_name=rest))
    output.done(session, f"logout success, server[{used.server}]", server=used.server)


@click.command(cls=Command)
@pass_session
def whoami(session: Session) -> None:
    """Who you are to the server, and until when your token counts."""
    found = session.client.whoami()
    row = [found.name, "yes" if found.root else "no", found.expires, session.client.server]
    output.show(session, ["name", "root", "expires", "server"], [row])
