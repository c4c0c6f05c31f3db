"""`paddleflow statistics`: resource usage of jobs, and accelerator hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group, listed
from paddleflow.cli.session import Session, note, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.statistics import JobDetail

CARD_HEADERS = ["queue name", "card time", "device type", "user name", "job count", "total card time"]

statistics = group(help="Show resource usage of jobs and accelerator hours.")


@statistics.command()
@click.argument("jobid")
@click.option("-d", "--detail", is_flag=True, help="Usage over time instead of the current values.")
@click.option("-s", "--start", type=int, help="With -d: since this Unix time.")
@click.option("-e", "--end", type=int, help="With -d: until this Unix time.")
@click.option("-st", "--step", type=int, help="With -d: seconds between two points. [default: 60]")
@pass_session
def job(session: Session, jobid: str, detail: bool, start: int | None, end: int | None, step: int | None) -> None:
    """Show the CPU, memory, disk and network usage of a job."""
    if not detail and (start or end or step):
        raise click.UsageError("--start, --end and --step need --detail")
    if detail:
        found = session.client.statistics.detail(session.job(jobid).id, start=start, end=end, step=step)
        headers, rows = table(found)
        output.show_rows(session, headers, rows, empty="no data")
        if found.truncated:
            note("the result was truncated by the server")
        return
    metrics = session.client.statistics.job(session.job(jobid).id)
    headers = [name.replace("_", " ") for name in metrics]
    if metrics and session.output in {"table", "wide"}:  # too many columns for a table
        click.echo(
            output.describe({_title(name): value or "-" for name, value in zip(headers, metrics.values(), strict=True)})
        )
        return
    output.show_rows(session, headers, [list(metrics.values())] if metrics else [], empty="no data")


def table(detail: JobDetail) -> tuple[list[str], list[list[object]]]:
    """One row per moment and task, one column per measure; N/A where a measure has no point."""
    metrics = list(dict.fromkeys(series.metric for task in detail.tasks for series in task.series))
    rows: list[list[object]] = []
    for task in detail.tasks:
        by_moment: dict[object, dict[str, object]] = {}
        for series in task.series:
            for moment, value, *_ in series.values:
                by_moment.setdefault(moment, {})[series.metric] = value
        rows += [
            [moment, *(values.get(metric, "N/A") for metric in metrics), task.task]
            for moment, values in sorted(by_moment.items(), key=lambda item: float(str(item[0])))
        ]
    return ["timestamp", *(metric.replace("_", " ") for metric in metrics), "task name"], rows


def _title(name: str) -> str:
    """The name of a metric for people: CPU usage rate."""
    first, _, rest = name.partition(" ")
    return f"{first.upper() if first in {'cpu', 'gpu'} else first.capitalize()} {rest}".rstrip()


@statistics.command("card-time")
@click.option("-q", "--queuenames", required=True, callback=listed, help="Queues: a,b.")
@click.option("-s", "--start", required=True, help='Since "YYYY-MM-DD HH:MM:SS".')
@click.option("-e", "--end", required=True, help='Until "YYYY-MM-DD HH:MM:SS".')
@pass_session
def card_time(session: Session, queuenames: list[str], start: str, end: str) -> None:
    """Show accelerator hours per queue and user.

    \b
    Example:
      paddleflow statistics card-time -q team-a,team-b -s "2026-11-01 00:00:00" -e "2026-12-01 00:00:00"
    """
    found = session.client.statistics.card_time(queuenames, start, end)
    rows: list[list[object]] = []
    for queue in found:
        head: list[object] = [queue.queue, queue.hours, queue.device_type]
        rows += [[*head, user.user, user.job_count, user.hours] for user in queue.users] or [[*head, None, None, None]]
    output.show_rows(session, CARD_HEADERS, rows, empty="no data")
