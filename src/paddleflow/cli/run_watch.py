"""`paddleflow run watch`, `logs`, `wait` and `events`: what follows a run.

Watching draws one line a step with its state, how long it takes and the last line of its log; on a terminal in place (by
rich, imported only then), elsewhere one line for each change. The run's events say when to look again.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.run_tree import branches, duration, how
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.cli.watch import EVENT_HEADERS, print_log
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.runs import Run, StepView

LOOK_EVERY = 0.5  #: seconds between two drawings, so that durations go on


class LastLines:
    """The last line that each step wrote, kept up by a thread that follows the run's logs."""

    def __init__(self, run: Run) -> None:
        self._lines: dict[str, str] = {}
        self._run = run
        threading.Thread(target=self._follow, daemon=True).start()

    def of(self, step: StepView) -> str:
        """While it runs; afterwards the result says more."""
        return self._lines.get(step.full_name or step.step_name, "") if step.status == "running" else ""

    def _follow(self) -> None:
        try:
            for line in self._run.logs(follow=True):
                name, _, rest = line.removeprefix("[").partition("] ")
                if rest.strip():
                    self._lines[name] = rest.strip()
        except PaddleFlowError:
            return  # the states are told all the same


def watched(run: Run) -> int:
    """Show a run to its end; the exit code. Ctrl-C ends the watching, not the run."""
    try:
        if sys.stdout.isatty():
            _drawn(run)
        else:
            _told(run)
    except KeyboardInterrupt:
        note(f"{run.id} goes on; paddleflow run watch {run.id} looks at it again")
        return 130
    run.refresh()
    note(f"{run.id} {run.status}" + (f": {run.record.message}" if run.record.message else ""))
    if failed := next((step for step in run.steps if step.status == "failed" and step.job_id), None):
        note(f"hint: paddleflow run logs {run.id} {failed.full_name} shows what it wrote")
    return 0 if run.succeeded else 1


def _drawn(run: Run) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    lines = LastLines(run.another())
    changed = threading.Event()
    threading.Thread(target=_signal, args=(run.another(), changed), daemon=True).start()
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            record = run.refresh().record
            drawn = [f"{run.id} {record.name} {record.status}", *branches(record, lines.of)]
            live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in drawn)), refresh=True)
            if run.finished:
                return
            changed.wait(LOOK_EVERY)
            changed.clear()


def _signal(run: Run, changed: threading.Event) -> None:
    try:
        for _ in run.events():
            changed.set()
    except PaddleFlowError:
        return  # then it is looked at every now and then
    finally:
        changed.set()


def _told(run: Run) -> None:
    """A line for each change of a step."""
    said: dict[str, str] = {}

    def tell() -> None:
        for one in run.refresh().steps:
            if one.status in {"", "init", "pending"} or said.get(one.name) == one.status:
                continue
            said[one.name] = one.status
            words = [one.full_name or one.step_name, one.status]
            if one.end_time and one.seconds:
                words.append(duration(one.seconds))
            words += dict.fromkeys([how(one), one.message])  # a reused step says so itself
            click.echo(" ".join(word for word in words if word))

    for event in run.events():
        if event.type == "step" or event.status in {"running", "succeeded", "failed", "terminated"}:
            tell()
    tell()


@click.command(cls=Command)
@click.argument("runid")
@pass_session
@click.pass_context
def watch(ctx: click.Context, session: Session, runid: str) -> None:
    """Watch a run to its end: one line a step with its state, how long it takes and the last line of its log.

    Ends with 0 if the run succeeded, with 1 if not. Ctrl-C ends the watching, not the run.
    """
    ctx.exit(watched(session.client.runs.get(runid)))


@click.command(cls=Command)
@click.argument("runid")
@click.argument("step", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on to the end of the run, or of the step.")
@pass_session
def logs(session: Session, runid: str, step: str | None, follow: bool) -> None:
    """Print the logs of a run's steps, or of one STEP by its dotted name.

    Lines of several steps begin with theirs: [train].

    \b
    Examples:
      paddleflow run logs run-000001 -f
      paddleflow run logs run-000001 prepare.download
    """
    lines = session.client.runs.handle(runid).logs(step, follow=follow)
    if session.output == "json":
        click.echo(output.as_json({"run id": runid, "step": step or "", "log": "".join(lines)}))
    else:
        print_log(lines)


@click.command(cls=Command)
@click.argument("runids", nargs=-1, required=True, metavar="RUNID...")
@click.option("--timeout", type=float, help="Seconds after which to give up.")
@pass_session
@click.pass_context
def wait(ctx: click.Context, session: Session, runids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until runs are over, showing their state. `paddleflow run watch` shows every step.

    Ends with 0 if all succeeded, with 1 if one did not or the time was up.
    """
    from paddleflow.cli.progress import wait_for

    over = wait_for([session.client.runs.handle(id) for id in runids], timeout)
    rows = [[one.work.id, one.work.record.name, one.status, one.reason] for one in over]
    output.show(session, ["run id", "name", "status", "run msg"], rows)
    ctx.exit(0 if all(one.work.succeeded for one in over) else 1)


@click.command(cls=Command)
@click.argument("runid")
@click.option("-f", "--follow", is_flag=True, help="Go on to the end of the run.")
@click.option("--after", type=int, default=0, help="Only events behind this number.")
@pass_session
def events(session: Session, runid: str, follow: bool, after: int) -> None:
    """Show what happened to a run and its steps, in order."""
    from paddleflow.base.clock import rfc3339

    found = (
        [event.seq, rfc3339(event.at), event.type, event.status, event.step, event.message]
        for event in session.client.runs.handle(runid).events(after, follow=follow)
    )
    headers = [header if header != "task" else "step" for header in EVENT_HEADERS]
    if not follow:
        output.show(session, headers, list(found))
        return
    print_log(output.line(session, headers, row) + "\n" for row in found)
