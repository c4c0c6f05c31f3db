"""`paddleflow context`: the servers that a person works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HEADERS = ["current", "name", "server", "user", "logged in"]

context = group(
    help="Manage contexts, the servers you work with, each with a user and a token. `paddleflow login` adds one."
)


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from paddleflow.sdk import contexts

    known = contexts.load().by_name
    return [CompletionItem(name, help=known[name].server) for name in sorted(known) if name.startswith(incomplete)]


@context.command("list")
@pass_session
def list_(session: Session) -> None:
    """List contexts; a star marks the current one."""
    from paddleflow.sdk import contexts

    known = contexts.load()
    rows = [
        ["*" if name == known.current else "", name, item.server, item.user, "yes" if item.token else "no"]
        for name, item in sorted(known.by_name.items())
    ]
    output.show_rows(session, HEADERS, rows, empty="no context found; create one with: paddleflow login")


@context.command()
@click.argument("name", shell_complete=_names)
@pass_session
def use(session: Session, name: str) -> None:
    """Switch to a context."""
    from paddleflow.sdk import contexts

    contexts.use(name)
    output.done(session, f"context[{name}] is current", name, lambda: {"name": name})


@context.command()
@click.argument("name", required=False, shell_complete=_names)
@pass_session
def show(session: Session, name: str | None) -> None:
    """Show the current context, or the one called NAME. The token is not shown."""
    from paddleflow.sdk import contexts

    known = contexts.load()
    found = contexts.resolve(server=session.server, context=name or session.context, config=session.config)
    shown = name or session.context or next((key for key, item in known.by_name.items() if item == found), "")
    ready = "yes" if found.token or found.password else "no"
    current = "*" if shown and shown == known.current else ""
    output.show_rows(session, HEADERS, [[current, shown, found.server, found.user, ready]])


@context.command()
@click.argument("name", shell_complete=_names)
@pass_session
def delete(session: Session, name: str) -> None:
    """Remove a context. Its token stays valid; `paddleflow logout` revokes it."""
    from paddleflow.sdk import contexts

    contexts.delete(name)
    output.done(session, f"context[{name}] delete success", name, lambda: {"name": name})
