"""`paddleflow schedule`: registered pipelines that run at the times of a crontab."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Paging, group, paging
from paddleflow.cli.output import Column, Kind, with_id
from paddleflow.cli.run import RUN
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.records import Page
    from paddleflow.sdk.runs import Run
    from paddleflow.sdk.schedules import Schedule

SCHEDULE: Kind[Schedule] = Kind(
    "schedules",
    lambda schedule: schedule.id,
    lambda schedule: with_id(schedule.raw, "scheduleID"),
    (
        Column(lambda schedule: schedule.id, "ID", "schedule id"),
        Column(lambda schedule: schedule.name, "NAME", "name", flexible=True),
        Column(lambda schedule: schedule.pipeline_id, "PIPELINE", "pipeline id"),
        Column(lambda schedule: schedule.version_id, "VERSION", "pipeline version id", wide=True),
        Column(lambda schedule: schedule.status, "STATUS", "status"),
        Column(lambda schedule: schedule.crontab, "CRONTAB", "crontab"),
        Column(lambda schedule: schedule.next_run_time, "NEXT RUN", "next run time", flexible=True),
        Column(lambda schedule: schedule.user, "USER", "username", wide=True),
        Column(lambda schedule: schedule.start_time, "START", "start time", wide=True),
        Column(lambda schedule: schedule.end_time, "END", "end time", wide=True),
        Column(lambda schedule: schedule.message, "MESSAGE", "message", wide=True),
    ),
)
OPTION_HEADERS = ["catchup", "expire interval", "concurrency", "concurrency policy", "timezone", "desc"]

schedule = group(help="Run registered pipelines at the times of a crontab.")


def _options(found: Schedule) -> list[object]:
    keys = ("catchup", "expireInterval", "concurrency", "concurrencyPolicy")
    return [*(found.options.get(key) for key in keys), found.timezone, found.desc]


@schedule.command()
@click.argument("name")
@click.argument("ppl_id")
@click.argument("ppl_ver_id")
@click.argument("crontab")
@click.option("-d", "--desc", help="Description.")
@click.option("-s", "--starttime", help='First time, "YYYY-MM-DD HH:MM:SS".')
@click.option("-e", "--endtime", help='Last time, "YYYY-MM-DD HH:MM:SS".')
@click.option("-c", "--concurrency", type=int, help="Maximum number of concurrent runs; 0 means no limit.")
@click.option(
    "-cp",
    "--concurrencypolicy",
    type=click.Choice(["suspend", "replace", "skip"]),
    help="At the limit: wait, stop the oldest run, or skip the new one.",
)
@click.option("-ei", "--expireinterval", type=int, help="Skip a missed time after this many seconds; 0 means never.")
@click.option("--catchup", type=bool, help="Run for times that were missed. [default: true]")
@click.option("--timezone", help="Time zone of the crontab, for example Asia/Shanghai. [default: the server's]")
@click.option("-u", "--username", help="Owner of the schedule (root only).")
@pass_session
def create(
    session: Session,
    name: str,
    ppl_id: str,
    ppl_ver_id: str,
    crontab: str,
    desc: str | None,
    starttime: str | None,
    endtime: str | None,
    concurrency: int | None,
    concurrencypolicy: str | None,
    expireinterval: int | None,
    catchup: bool | None,
    timezone: str | None,
    username: str | None,
) -> None:
    """Run version PPL_VER_ID of pipeline PPL_ID at the times of CRONTAB.

    \b
    Examples:
      paddleflow schedule create nightly ppl-000001 1 "30 2 * * *" --timezone Asia/Shanghai
      paddleflow schedule create often ppl-000001 1 "*/5 * * * *" -c 1 -cp skip
    """
    made = session.client.schedules.create(
        name,
        ppl_id,
        ppl_ver_id,
        crontab,
        desc=desc,
        start_time=starttime,
        end_time=endtime,
        concurrency=concurrency,
        concurrency_policy=concurrencypolicy,
        expire_interval=expireinterval,
        catchup=catchup,
        timezone=timezone,
        user=username,
    )
    output.done(session, f"schedule[{name}] create success, id[{made.id}]", made.id, lambda: _data(session, made.id))


@schedule.command("list")
@click.option("-u", "--userfilter", help="Only schedules of these users (root only).")
@click.option("-n", "--namefilter", help="Only schedules with these names.")
@click.option("-p", "--pplfilter", help="Only schedules of these pipelines.")
@click.option("-pv", "--pplversionfilter", help="Only schedules of these versions.")
@click.option("-s", "--statusfilter", help="Only schedules in these states.")
@paging("maxkeys", 50)
@pass_session
def list_(
    session: Session,
    userfilter: str | None,
    namefilter: str | None,
    pplfilter: str | None,
    pplversionfilter: str | None,
    statusfilter: str | None,
    paging: Paging,
) -> None:
    """List schedules."""
    found, marker = paging.collect(
        lambda size, marker: session.client.schedules.page(
            max_keys=size,
            marker=marker,
            user=userfilter,
            pipeline=pplfilter,
            version=pplversionfilter,
            name=namefilter,
            status=statusfilter,
        )
    )
    output.show_list(session, SCHEDULE, found, marker)
    output.show_marker(session, marker)


@schedule.command()
@click.argument("schedule_id")
@click.option("-r", "--runfilter", help="Only these runs.")
@click.option("-s", "--statusfilter", help="Only runs in these states.")
@paging("maxkeys", 50)
@pass_session
def show(session: Session, schedule_id: str, runfilter: str | None, statusfilter: str | None, paging: Paging) -> None:
    """Show a schedule and its runs."""
    schedules: list[Schedule] = []

    def fetch(size: int, marker: str | None) -> Page[Run]:
        found, page = session.client.schedules.run_page(
            schedule_id, max_keys=size, marker=marker, run=runfilter, status=statusfilter
        )
        schedules.append(found)
        return page

    runs, marker = paging.collect(fetch)
    found = schedules[0]
    if session.machine:
        data = {**with_id(found.raw, "scheduleID"), "runs": [RUN.data(run.record) for run in runs]}
        output.print_data(session, data)
        return
    output.show_list(session, SCHEDULE, [found])
    output.show_rows(session, OPTION_HEADERS, [_options(found)])
    output.show_list(session, RUN, [run.record for run in runs], marker)
    output.show_marker(session, marker)


def _data(session: Session, schedule_id: str) -> object:
    return SCHEDULE.data(session.client.schedules.run_page(schedule_id, max_keys=1)[0])


@schedule.command("next")
@click.argument("schedule_id")
@click.option("-n", "--count", type=int, default=5, show_default=True, help="Number of times.")
@pass_session
def next_(session: Session, schedule_id: str, count: int) -> None:
    """Show the next times of a schedule."""
    moments = session.client.schedules.next(schedule_id, count)
    output.show_rows(session, ["next run time"], [[moment] for moment in moments], empty="No further times.")


@schedule.command()
@click.argument("schedule_id")
@pass_session
def pause(session: Session, schedule_id: str) -> None:
    """Pause a schedule until it is resumed."""
    session.client.schedules.pause(schedule_id)
    output.done(session, f"schedule[{schedule_id}] pause success", schedule_id, lambda: _data(session, schedule_id))


@schedule.command()
@click.argument("schedule_id")
@pass_session
def resume(session: Session, schedule_id: str) -> None:
    """Resume a paused schedule."""
    session.client.schedules.resume(schedule_id)
    output.done(session, f"schedule[{schedule_id}] resume success", schedule_id, lambda: _data(session, schedule_id))


@schedule.command()
@click.argument("schedule_id")
@pass_session
def stop(session: Session, schedule_id: str) -> None:
    """Stop a schedule permanently. Its runs continue."""
    session.client.schedules.stop(schedule_id)
    output.done(session, f"schedule[{schedule_id}] stop success", schedule_id, lambda: _data(session, schedule_id))


@schedule.command()
@click.argument("schedule_id")
@pass_session
def delete(session: Session, schedule_id: str) -> None:
    """Delete a finished or stopped schedule."""
    session.client.schedules.delete(schedule_id)
    output.done(session, f"schedule[{schedule_id}] delete success", schedule_id)
