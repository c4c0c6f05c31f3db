"""`paddleflow token` and `paddleflow audit`: tokens for scripts, and who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, Paging, group, paging
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.access import AuditEntry, Token

TOKEN: Kind[Token] = Kind(
    "tokens",
    lambda token: token.name,
    lambda token: token.raw,
    (
        Column(lambda token: token.name, "NAME", "name"),
        Column(lambda token: token.scope, "SCOPE", "scope"),
        Column(lambda token: output.age(token.create_time), "AGE"),
        Column(lambda token: output.local_time(token.expires), "EXPIRES", "expires"),
    ),
    "no tokens found ",
)
AUDIT: Kind[AuditEntry] = Kind(
    "entries",
    lambda entry: entry.request_id,
    lambda entry: entry.raw,
    (
        Column(lambda entry: output.local_time(entry.time), "TIME", "time"),
        Column(lambda entry: entry.user or "-", "USER", "user"),
        Column(lambda entry: str(entry.user_id or "-"), "USER ID", "user id"),
        Column(lambda entry: entry.address, "ADDRESS", "address"),
        Column(lambda entry: f"{entry.method} {entry.path}", "REQUEST", "request"),
        Column(lambda entry: str(entry.status), "STATUS", "status"),
        Column(lambda entry: entry.request_id, "REQUEST ID", "request id", wide=True),
    ),
    "no entries found ",
)

token = group(help="Manage access tokens for scripts, each with a name, a scope and an expiry date.")


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "submit", "admin"]),
    default="submit",
    show_default=True,
    help="read: read-only; submit: also jobs, runs, pipelines, schedules and storages; admin: everything that you may do.",
)
@click.option(
    "--days", type=click.FloatRange(0, min_open=True), default=90.0, show_default=True, help="Days until it expires."
)
@pass_session
def create(session: Session, name: str, scope: str, days: float) -> None:
    """Create a token and print it. It cannot be shown again; put it into PADDLEFLOW_TOKEN.

    \b
    Examples:
      paddleflow token create nightly --scope submit --days 30
      export PADDLEFLOW_TOKEN=$(paddleflow token create ci -o name)
    """
    made = session.client.tokens.create(name, scope=scope, hours=days * 24)
    if session.machine:
        output.print_data(session, made.raw)
    else:
        click.echo(made.token)


@token.command("list")
@pass_session
def list_(session: Session) -> None:
    """List your tokens for scripts."""
    output.show_list(session, TOKEN, list(session.client.tokens.list()), None)


@token.command()
@click.argument("name")
@pass_session
def revoke(session: Session, name: str) -> None:
    """Revoke a token. It becomes invalid immediately."""
    session.client.tokens.revoke(name)
    output.done(session, f"token[{name}] revoke success", name, lambda: {"name": name})


@click.command(cls=Command)
@click.option("-u", "--user", help="Only what this user did.")
@paging("maxsize", 100)
@pass_session
def audit(session: Session, user: str | None, paging: Paging) -> None:
    """Show who changed what, newest first (root only).

    \b
    Example:
      paddleflow audit --user alice
    """
    found, marker = paging.collect(
        lambda size, marker: session.client.audit.page(user=user, max_keys=size, marker=marker)
    )
    output.show_list(session, AUDIT, found, marker)
