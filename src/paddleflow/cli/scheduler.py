"""`paddleflow scheduler`: whether recorded decisions come out again."""

from __future__ import annotations

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group
from paddleflow.cli.session import Session, pass_session

HEADERS = ["begins", "ends", "cycles", "events", "starts", "evictions", "resizes", "difference"]

scheduler = group(help="What the scheduler decided, and whether it would decide so again. For root.")


@scheduler.command()
@click.option("--since", help='Only decisions from "YYYY-MM-DD hh:mm:ss" on.')
@click.option("--until", help='Only decisions up to "YYYY-MM-DD hh:mm:ss".')
@click.pass_context
@pass_session
def replay(session: Session, context: click.Context, since: str | None, until: str | None) -> None:
    """Execute recorded decisions again, with what they saw, up to the first that comes out differently.

    Ends with 1 if there is one. How much is recorded is the server's setting scheduling.log_size.

    \b
    Example:
      paddleflow scheduler replay --since "2026-11-17 09:00:00"
    """
    found = session.client.scheduler.replay(since, until)
    if session.output == "table":
        click.echo(f"{found.cycles} cycles from {found.begins or '-'} to {found.ends or '-'}, {found.events} events")
        click.echo(f"  {found.starts} starts, {found.evictions} evictions, {found.resizes} changes of size")
        click.echo("  all came out the same" if found.difference is None else _words(found.difference))
    else:
        row = [found.begins, found.ends, found.cycles, found.events, found.starts, found.evictions, found.resizes]
        output.show(session, HEADERS, [[*row, found.difference]])
    context.exit(0 if found.difference is None else 1)


def _words(difference: object) -> str:
    told = difference if isinstance(difference, dict) else {}
    return (
        f"  first difference at {told.get('at')}, cycle {told.get('cycle')}, decision {told.get('decision')}:\n"
        f"    then: {told.get('then')}\n    now:  {told.get('now')}"
    )
