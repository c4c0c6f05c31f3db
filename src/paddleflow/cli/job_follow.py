"""`paddleflow job logs`, `wait`, `events`, `eta` and `why`: what follows or explains a job."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.follow import Event
    from paddleflow.sdk.jobs import Job, Why


def print_log(lines: Iterable[str]) -> None:
    """Lines as they come, without buffering."""
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()


def show_log(
    session: Session,
    job: Job,
    *,
    follow: bool,
    task: str | None,
    tail: int | None = None,
    since: float | None = None,
    attempt: int = 0,
) -> None:
    lines = job.logs(follow, task=task, tail=tail, since=since, attempt=attempt)
    if session.machine:
        output.print_data(session, {"id": job.id, "log": "".join(lines)})
        return
    if follow:
        threading.Thread(target=_explain, args=(job.another(),), daemon=True).start()
    print_log(lines)


def _explain(job: Job) -> None:
    """Says why a job that is followed has no log yet. In a thread: the log does not wait for it."""
    try:
        if job.status in {"init", "pending"}:
            note(f"{job.id} is {job.status}: {job.why().text}")
    except PaddleFlowError:
        return  # following says what is wrong


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _ago(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """``10m`` as seconds."""
    if value is None:
        return None
    number, unit = (value[:-1], value[-1]) if value[-1:] in UNITS else (value, "s")
    if not number.isascii() or not number.replace(".", "", 1).isdecimal() or len(number) > 12:
        raise click.BadParameter(f"{value!r} is not of the form 90s, 10m, 2h or 1d")
    return float(number) * UNITS[unit]


@click.command(cls=Command)
@click.argument("jobid")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job has finished.")
@click.option("--task", "--member", "task", help="Only this member, for example worker-0.")
@click.option("--tail", type=click.IntRange(0, 1_000_000), help="Only the last lines, of each member.")
@click.option("--since", callback=_ago, help="Only what was written within this time, for example 90s, 10m or 2h.")
@click.option("--try", "attempt", type=click.IntRange(1), help="Only this try of a restarted job; 1 is the first.")
@pass_session
def logs(
    session: Session,
    jobid: str,
    follow: bool,
    task: str | None,
    tail: int | None,
    since: float | None,
    attempt: int | None,
) -> None:
    """Print the log of a job. With several members each line begins with its member: [worker-0].

    The log of a restarted job holds all tries, one after the other. When lines were written is known to about five
    seconds, so --since may print a few more.

    \b
    Examples:
      paddleflow job logs @latest -f --tail 20
      paddleflow job logs job-6afbf4d02ba6c48ef9e95063 --member worker-1 --try 2
    """
    show_log(session, session.job(jobid), follow=follow, task=task, tail=tail, since=since, attempt=attempt or 0)


@click.command(cls=Command)
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@click.option("--timeout", type=float, help="Give up after this many seconds.")
@click.pass_context
def wait(ctx: click.Context, jobids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until jobs have finished, showing their state and the reason while they are pending.

    JOBID may be the id of an array: all of its jobs. Exits with 0 if all of them succeeded, with 1 if one did not or the timeout was
    reached.

    \b
    Example:
      paddleflow job wait job-6afbf4d02ba6c48ef9e95063 --timeout 600
    """
    from paddleflow.cli.progress import JOBS, wait_and_show

    session = ctx.find_object(Session)
    assert session is not None
    ctx.exit(wait_and_show(session, JOBS, [job for id in jobids for job in session.jobs(id)], timeout))


def event_kind(part: str) -> Kind[Event]:
    """Events of a job or of a run; `part` is what an event may be about: a task, a step."""
    from paddleflow.base.clock import rfc3339

    return Kind(
        "events",
        lambda event: str(event.seq),
        lambda event: {"seq": event.seq, "type": event.type, **event.raw},
        (
            Column(lambda event: event.seq, "SEQ", "seq"),
            Column(lambda event: output.local_time(rfc3339(event.at)), "TIME"),
            Column(lambda event: rfc3339(event.at), compat="time"),
            Column(lambda event: event.type, "EVENT", "event", wide=True),
            Column(lambda event: event.status, "STATUS", "status"),
            Column(lambda event: getattr(event, part), part.upper(), part),
            Column(lambda event: event.message, "MESSAGE", "message"),
        ),
    )


def show_events(session: Session, events: Iterable[Event], part: str, *, follow: bool) -> None:
    """All of them as a table, or each as it comes: a line of text, or of JSON."""
    kind = event_kind(part)
    if not follow:
        output.show_list(session, kind, events)
        return
    columns = [column for column in kind.columns if column.compat]
    headers = [column.compat for column in columns]
    rows = ((event, [column.value(event) for column in columns]) for event in events)
    print_log(output.line(session, headers, row, kind.data(event)) + "\n" for event, row in rows)


@click.command(cls=Command)
@click.argument("jobid")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job has finished.")
@click.option("--after", type=int, default=0, help="Only events after this sequence number.")
@pass_session
def events(session: Session, jobid: str, follow: bool, after: int) -> None:
    """Show the events of a job. With -f each event is printed as it happens."""
    show_events(session, session.job(jobid).events(after, follow=follow), "task", follow=follow)


@click.command(cls=Command)
@click.argument("jobid")
@pass_session
def eta(session: Session, jobid: str) -> None:
    """Estimate when a pending job will start, from the run times of similar jobs.

    \b
    Example:
      paddleflow job eta @latest
    """
    found = session.job(jobid).eta()
    if session.machine:
        output.print_data(session, found.raw)
        return
    click.echo(printable(f"{found.id}: {found.text}"))
    if found.seconds is not None:
        between = f"between {found.early:.0f} and {found.late:.0f}"
        click.echo(f"  in {found.seconds:.0f} s ({between}), based on {found.learnt_from} finished jobs")
    for other in found.other_clusters:
        click.echo(printable(f"  cluster {other.cluster}: {other.text}"))


@click.command(cls=Command)
@click.argument("jobid")
@pass_session
def why(session: Session, jobid: str) -> None:
    """Explain the state of a job. For a pending job: everything that keeps it pending, and what would start it now.

    \b
    Example:
      paddleflow job why @latest
    """
    found = session.job(jobid).why()
    if session.machine:
        output.print_data(session, found.raw)
        return
    if session.output == "text":
        click.echo(printable(f"{found.id}\t{found.status}\t{found.code}\t{found.text}"))
        return
    click.echo(printable("\n".join(_explained(found))))


def _explained(found: Why) -> Iterator[str]:
    if found.code == "ended":
        yield f"{found.id} in queue {found.queue} {found.text}"
        return
    yield f"{found.id} is {found.status} in queue {found.queue}"
    yield f"  {found.code}: {found.text}"
    causes = [cause for cause in found.causes if cause.text != found.text]
    if causes:
        yield "also blocked by:" if found.status in ("init", "pending") else "also:"
    yield from (f"  {cause.code}: {cause.text}" for cause in causes)
    if found.suggestions:
        yield "suggestions:"
    yield from (f"  {suggestion.text}" for suggestion in found.suggestions)
