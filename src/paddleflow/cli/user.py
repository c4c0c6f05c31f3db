"""`paddleflow user`: users and their passwords."""

from __future__ import annotations

import click

from paddleflow.cli import output
from paddleflow.cli.account import asked_password
from paddleflow.cli.lazy import group
from paddleflow.cli.session import Session, pass_session

_password = click.argument("password", required=False)
_from_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")

user = group(help="Users and their passwords. All but the own password is for root.")


@user.command("list")
@click.option("-m", "--maxsize", type=int, default=100, show_default=True, help="How many to show at most.")
@pass_session
def list_(session: Session, maxsize: int) -> None:
    """List users."""
    page = session.client.users.page(max_keys=maxsize)
    rows = [[user.name, user.create_time] for user in page]
    output.show(session, ["name", "create time"], rows, empty="no users found ")
    output.more(page.next_marker, "-m")


@user.command()
@click.argument("username")
@_password
@_from_stdin
@pass_session
def add(session: Session, username: str, password: str | None, password_stdin: bool) -> None:
    """Make a user. The password is asked for if not given: others on this machine can see it in the command.

    \b
    Examples:
      paddleflow user add alice
      paddleflow user add alice --password-stdin < password.txt
    """
    session.client.users.create(username, asked_password(password, password_stdin, twice=True))
    output.done(session, f"user[{username}] add success", name=username)


@user.command("set")
@click.argument("username")
@_password
@_from_stdin
@pass_session
def set_(session: Session, username: str, password: str | None, password_stdin: bool) -> None:
    """Change a user's password, which is asked for if not given. Ends all tokens of that user.

    \b
    Example:
      paddleflow user set alice
    """
    session.client.users.set_password(username, asked_password(password, password_stdin, twice=True))
    output.done(session, f"user[{username}] update success", name=username)


@user.command()
@click.argument("username")
@pass_session
def delete(session: Session, username: str) -> None:
    """Delete a user."""
    session.client.users.delete(username)
    output.done(session, f"user[{username}] delete success", name=username)
