"""`paddleflow top` and `paddleflow job top`: what a cluster does at this moment, on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Forbidden, PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import JobRecord

MEASURED = 50  #: running jobs whose usage is asked for
SHOWN = 10  #: jobs of each part of the screen
_watch = click.option("-w", "--watch", is_flag=True, help="Redraw every two seconds until Ctrl-C.")


@click.command(cls=Command)
@_watch
@pass_session
def top(session: Session, watch: bool) -> None:
    """Show nodes (root only), queues with their usage, running jobs, and pending jobs with their reason."""
    output.repeat(lambda: _show(session)) if watch else _show(session)


def _show(session: Session) -> None:
    client = session.client
    try:
        clusters = {name: found.raw for name, found in client.clusters.resources().items()}
    except Forbidden:
        clusters = {}  # nodes are for root; queues and jobs are for everybody
    queues = list(client.queues.list(usage=True))
    running = [job.record for job in client.jobs.page(status="running", max_keys=SHOWN)]
    pending = [job.record for job in client.jobs.page(status="pending", max_keys=SHOWN)]
    if session.machine:
        data = {
            "clusters": clusters,
            "queues": [queue.raw for queue in queues],
            "running": [job.raw for job in running],
            "pending": [job.raw for job in pending],
        }
        output.print_data(session, data)
        return
    nodes: list[list[object]] = [
        [
            node.get("nodeName", ""),
            name,
            output.amounts(node.get("total") or {}),
            output.amounts(node.get("idle") or {}),
        ]
        for name, found in clusters.items()
        for node in found.get("nodeList") or []
    ]
    _part(session, "Nodes", ["node", "cluster", "total", "free"], nodes, first=True)
    used: list[list[object]] = [
        [q.name, q.status, *(output.amounts(each) or "-" for each in (q.minimum, q.used, q.maximum))] for q in queues
    ]
    _part(session, "Queues", ["queue", "status", "guarantee", "used", "maximum"], used, first=not nodes)
    _part(
        session,
        "Running",
        ["id", "name", "user", "queue", "time"],
        [[job.id, job.name, job.user, job.queue, output.elapsed(job.start_time, "")] for job in running],
    )
    _part(
        session,
        "Pending",
        ["id", "name", "user", "age", "reason"],
        [[job.id, job.name, job.user, output.age(job.accept_time), job.message] for job in pending],
    )


def _part(session: Session, title: str, headers: list[str], rows: list[list[object]], *, first: bool = False) -> None:
    if rows:
        click.echo(title if first else f"\n{title}")
        output.show_rows(session, headers, rows)


@click.command(cls=Command)
@click.argument("jobids", nargs=-1, metavar="[JOBID]...")
@_watch
@pass_session
def job_top(session: Session, jobids: tuple[str, ...], watch: bool) -> None:
    """Show the last measured CPU and memory usage of running jobs, or of the given jobs.

    \b
    Examples:
      paddleflow job top -w
      paddleflow job top @latest
    """
    output.repeat(lambda: _show_usage(session, jobids)) if watch else _show_usage(session, jobids)


def _show_usage(session: Session, jobids: tuple[str, ...]) -> None:
    if jobids:
        running = [job.record for id in jobids for job in session.jobs(id)[:MEASURED]]
    else:
        running = [job.record for job in session.client.jobs.page(status="running", max_keys=MEASURED)]
    found = [(job, _usage(session, job)) for job in running]
    if session.machine:
        output.print_data(session, [{"id": job.id, "name": job.name, **usage} for job, usage in found])
        return
    rows = [
        [
            job.id,
            job.name,
            job.user,
            usage.get("cpu_usage_rate") or "-",
            _memory(usage),
            output.elapsed(job.start_time, job.finish_time),
        ]
        for job, usage in found
    ]
    output.show_rows(session, ["id", "name", "user", "cpu", "memory", "time"], rows, empty="No jobs are running.")


def _usage(session: Session, job: JobRecord) -> Mapping[str, Any]:
    try:
        return session.client.statistics.job(job.id)
    except PaddleFlowError:
        return {}  # it has ended, or was not measured yet


def _memory(usage: Mapping[str, Any]) -> str:
    amount = str(usage.get("memory_usage", "")).removesuffix("(Bytes)")
    return output.size(amount) if amount.isdecimal() else "-"
