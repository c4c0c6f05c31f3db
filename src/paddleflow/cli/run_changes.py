"""`paddleflow run breakpoint` and `resume`: pausing a run before a step."""

from __future__ import annotations

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session


@click.command(cls=Command)
@click.argument("runid")
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@click.option("--remove", is_flag=True, help="No longer pause before these; before none if none is named.")
@pass_session
def breakpoint(session: Session, runid: str, steps: tuple[str, ...], remove: bool) -> None:
    """Pause a run before STEPs that have not begun, named with dots: prepare.download.

    \b
    Examples:
      paddleflow run breakpoint run-000001 train
      paddleflow run breakpoint run-000001 --remove
    """
    run = session.client.runs.handle(runid)
    if remove:
        run.clear_breakpoints(*steps)
    elif steps:
        run.pause_before(*steps)
    else:
        raise click.UsageError("name the steps to pause before, or give --remove")
    now = run.refresh().record
    message = f"runid[{runid}] breakpoints: {', '.join(now.breakpoints) or 'none'}"
    output.done(session, message, id=runid, breakpoints=list(now.breakpoints), paused=list(now.paused))


@click.command(cls=Command)
@click.argument("runid")
@click.argument("step", required=False)
@pass_session
def resume(session: Session, runid: str, step: str | None) -> None:
    """Let a run go on that is paused before a step: before STEP, or before all that it waits at."""
    session.client.runs.handle(runid).resume(step)
    output.done(session, f"runid[{runid}] resume success", id=runid)
