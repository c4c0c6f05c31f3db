"""`paddleflow user`: users and their passwords."""

from __future__ import annotations

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group
from paddleflow.cli.session import Session, pass_session

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
@click.argument("password")
@pass_session
def add(session: Session, username: str, password: str) -> None:
    """Make a user."""
    session.client.users.create(username, password)
    output.done(session, f"user[{username}] add success", name=username)


@user.command("set")
@click.argument("username")
@click.argument("password")
@pass_session
def set_(session: Session, username: str, password: str) -> None:
    """Change a user's password. Ends all tokens of that user."""
    session.client.users.set_password(username, password)
    output.done(session, f"user[{username}] update success", name=username)


@user.command()
@click.argument("username")
@pass_session
def delete(session: Session, username: str) -> None:
    """Delete a user."""
    session.client.users.delete(username)
    output.done(session, f"user[{username}] delete success", name=username)
