"""`paddleflow login`, `logout`, `whoami` and `user`: accounts, and the grants that `queue` and `fs` list."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.lazy import Command, Paging, group, paging
from paddleflow.cli.output import Column, Kind, with_id
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.access import Grant, User

_password = click.argument("password", required=False)
_from_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


def asked_password(given: str | None, from_stdin: bool, *, twice: bool = False) -> str:
    """The password that was given, read from standard input, or prompted for where there is a terminal."""
    if not given and (from_stdin or not _has_terminal()):
        given = sys.stdin.readline().rstrip("\r\n")
        if not given:
            raise Invalid("standard input holds no password", hint="give it in its first line: --password-stdin < FILE")
    return given or str(click.prompt("password", hide_input=True, confirmation_prompt=twice, err=True))


def _has_terminal() -> bool:
    if sys.stdin.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@click.command(cls=Command)
@click.argument("server", required=False, metavar="[URL]")
@click.option("-u", "--username", help="User name. [default: prompt]")
@click.option("--password", help="Password; visible to other users of this machine. [default: prompt]")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--name", help="Name of the context. [default: host name of the server]")
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
    data = {"name": name, "server": str(where), "user": username, "file": str(file)}
    output.done(session, f"context[{name}] login success, server[{where}], user[{username}]", name, lambda: data)


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
    """Revoke the token of the current context."""
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
    output.done(session, f"logout success, server[{used.server}]", used.server, lambda: {"server": used.server})


@click.command(cls=Command)
@pass_session
def whoami(session: Session) -> None:
    """Show the current user, and when its token expires."""
    found = session.client.whoami()
    if session.machine:
        output.print_data(session, {**found.raw, "server": session.client.server})
    elif session.output == "name":
        click.echo(printable(found.name))
    else:
        original = session.output in {"compat", "text"}
        expires = found.expires if original else output.local_time(found.expires)
        row = [found.name, "yes" if found.root else "no", expires, session.client.server]
        output.show_rows(session, ["name", "root", "expires", "server"], [row])


# ---- users ----------------------------------------------------------------------------------------------------------

USER: Kind[User] = Kind(
    "users",
    lambda user: user.name,
    lambda user: user.raw,
    (
        Column(lambda user: user.name, "NAME", "name"),
        Column(lambda user: output.age(user.create_time), "AGE"),
        Column(lambda user: user.create_time, "CREATED", "create time", wide=True),
    ),
    "no users found ",
)

user = group(help="Manage users (root only). Everybody may change their own password.")


@user.command("list")
@paging("maxsize", 100, marker=False)
@pass_session
def list_(session: Session, paging: Paging) -> None:
    """List users."""
    found, marker = paging.collect(lambda size, marker: session.client.users.page(max_keys=size, marker=marker))
    output.show_list(session, USER, found, marker)


@user.command()
@click.argument("username")
@_password
@_from_stdin
@pass_session
def add(session: Session, username: str, password: str | None, password_stdin: bool) -> None:
    """Add a user. Without PASSWORD you are prompted for it; on the command line it is visible to other users of this machine.

    \b
    Examples:
      paddleflow user add alice
      paddleflow user add alice --password-stdin < password.txt
    """
    session.client.users.create(username, asked_password(password, password_stdin, twice=True))
    output.done(session, f"user[{username}] add success", username, lambda: {"name": username})


@user.command("set")
@click.argument("username")
@_password
@_from_stdin
@pass_session
def set_(session: Session, username: str, password: str | None, password_stdin: bool) -> None:
    """Change the password of a user and revoke all their tokens. Without PASSWORD you are prompted for it.

    \b
    Example:
      paddleflow user set alice
    """
    session.client.users.set_password(username, asked_password(password, password_stdin, twice=True))
    output.done(session, f"user[{username}] update success", username, lambda: {"name": username})


@user.command()
@click.argument("username")
@pass_session
def delete(session: Session, username: str) -> None:
    """Delete a user."""
    session.client.users.delete(username)
    output.done(session, f"user[{username}] delete success", username, lambda: {"name": username})


# ---- grants ---------------------------------------------------------------------------------------------------------


def show_grants(session: Session, resource: str, header: str, username: str | None, paging: Paging) -> None:
    """The grants on queues or on storages, of all users or of one."""
    kind: Kind[Grant] = Kind(
        "grants",
        lambda grant: grant.resource,
        lambda grant: with_id(grant.raw, "grantID"),
        (
            Column(lambda grant: grant.user, "USER", "user name"),
            Column(lambda grant: grant.resource, header.upper(), header),
        ),
        "no grantlist found ",
    )
    found, marker = paging.collect(
        lambda size, marker: session.client.grants.page(user=username, max_keys=size, marker=marker)
    )
    output.show_list(session, kind, [grant for grant in found if grant.resource_type == resource], marker)
