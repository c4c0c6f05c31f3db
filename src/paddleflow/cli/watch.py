"""`paddleflow job logs`, `wait`, `events` and `why`: what follows a job."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.follow import Event
    from paddleflow.sdk.jobs import Job

WHY_HEADERS = ["job id", "status", "code", "text"]
EVENT_HEADERS = ["seq", "time", "event", "status", "task", "message"]


def print_log(lines: Iterable[str]) -> None:
    """Lines as they come, without holding them back."""
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()


def show_log(session: Session, job: Job, *, follow: bool, task: str | None) -> None:
    lines = job.logs(follow, task=task)
    if session.output == "json":
        click.echo(output.as_json({"job id": job.id, "log": "".join(lines)}))
    else:
        print_log(lines)


@click.command(cls=Command)
@click.argument("jobid")
@click.option("-f", "--follow", is_flag=True, help="Go on to the end of the job.")
@click.option("--task", help="Only this task, such as worker-0.")
@pass_session
def logs(session: Session, jobid: str, follow: bool, task: str | None) -> None:
    """Print a job's log. Lines of a job with several tasks begin with theirs: [worker-0].

    \b
    Examples:
      paddleflow job logs job-6afbf4d02ba6c48ef9e95063 -f
      paddleflow job logs job-6afbf4d02ba6c48ef9e95063 --task worker-1
    """
    show_log(session, session.client.jobs.handle(jobid), follow=follow, task=task)


@click.command(cls=Command)
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@click.option("--timeout", type=float, help="Seconds after which to give up.")
@click.pass_context
def wait(ctx: click.Context, jobids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until jobs are over, showing their state and the reason while they wait.

    Ends with 0 if all succeeded, with 1 if one did not or the time was up.

    \b
    Example:
      paddleflow job wait job-6afbf4d02ba6c48ef9e95063 --timeout 600
    """
    from paddleflow.cli.progress import wait_for

    session = ctx.find_object(Session)
    assert session is not None
    over = wait_for([session.client.jobs.handle(id) for id in jobids], timeout)
    rows = [[one.work.id, one.work.record.name, one.status, one.reason] for one in over]
    output.show(session, ["job id", "job name", "status", "message"], rows)
    ctx.exit(0 if all(one.work.succeeded for one in over) else 1)


def _event_row(event: Event) -> list[object]:
    from paddleflow.base.clock import rfc3339

    return [event.seq, rfc3339(event.at), event.type, event.status, event.task, event.message]


@click.command(cls=Command)
@click.argument("jobid")
@click.option("-f", "--follow", is_flag=True, help="Go on to the end of the job.")
@click.option("--after", type=int, default=0, help="Only events behind this number.")
@pass_session
def events(session: Session, jobid: str, follow: bool, after: int) -> None:
    """Show what happened to a job, and why it waits.

    With -f each event is printed as it comes: a line of text, or of JSON.
    """
    found = (_event_row(event) for event in session.client.jobs.handle(jobid).events(after, follow=follow))
    if not follow:
        output.show(session, EVENT_HEADERS, list(found))
        return
    print_log(output.line(session, EVENT_HEADERS, row) + "\n" for row in found)


@click.command(cls=Command)
@click.argument("jobid")
@pass_session
def eta(session: Session, jobid: str) -> None:
    """When a waiting job will probably start, by how long jobs like those before it ran.

    \b
    Example:
      paddleflow job eta job-6afbf4d02ba6c48ef9e95063
    """
    found = session.client.jobs.handle(jobid).eta()
    if session.output == "json":
        click.echo(output.as_json(found.raw))
        return
    click.echo(f"{found.id}: {found.text}")
    if found.seconds is not None:
        between = f"between {found.early:.0f} and {found.late:.0f}"
        click.echo(f"  in {found.seconds:.0f} s ({between}), learnt from {found.learnt_from} ended jobs")


@click.command(cls=Command)
@click.argument("jobid")
@pass_session
def why(session: Session, jobid: str) -> None:
    """Why a job is where it is. While it waits: all that is in its way, and the smallest changes that start it now.

    \b
    Example:
      paddleflow job why job-6afbf4d02ba6c48ef9e95063
    """
    found = session.client.jobs.handle(jobid).why()
    if session.output == "json":
        click.echo(output.as_json(found.raw))
        return
    if session.output == "text":
        click.echo(output.line(session, WHY_HEADERS, [found.id, found.status, found.code, found.text]))
        return
    click.echo(f"{found.id} is {found.status} in queue {found.queue}")
    click.echo(f"  {found.code}: {found.text}")
    causes = [cause for cause in found.causes if cause.text != found.text]
    if causes:
        click.echo("also in its way:")
    for cause in causes:
        click.echo(f"  {cause.code}: {cause.text}")
    if found.suggestions:
        click.echo("what would start it now:")
    for suggestion in found.suggestions:
        click.echo(f"  {suggestion.text}")
