"""`paddleflow schedule`: registered pipelines that are run by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group, marker_options
from paddleflow.cli.run import LIST_HEADERS, row_of
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.schedules import Schedule

HEADERS = [
    "schedule id", "name", "pipeline id", "pipeline version id", "status", "crontab", "next run time", "username",
    "start time", "end time", "message",
]  # fmt: skip
OPTION_HEADERS = ["catchup", "expire interval", "concurrency", "concurrency policy", "timezone", "desc"]

schedule = group(help="Schedules: registered pipelines that are run by the clock.")


def _row(found: Schedule) -> list[object]:
    return [
        found.id, found.name, found.pipeline_id, found.version_id, found.status, found.crontab, found.next_run_time,
        found.user, found.start_time, found.end_time, found.message,
    ]  # fmt: skip


def _option_row(found: Schedule) -> list[object]:
    keys = ("catchup", "expireInterval", "concurrency", "concurrencyPolicy")
    return [*(found.options.get(key) for key in keys), found.timezone, found.desc]


@schedule.command()
@click.argument("name")
@click.argument("ppl_id")
@click.argument("ppl_ver_id")
@click.argument("crontab")
@click.option("-d", "--desc", help="What it is for.")
@click.option("-s", "--starttime", help='Not before "YYYY-MM-DD HH:MM:SS".')
@click.option("-e", "--endtime", help='Not after "YYYY-MM-DD HH:MM:SS".')
@click.option("-c", "--concurrency", type=int, help="Runs at once; 0: any number.")
@click.option(
    "-cp",
    "--concurrencypolicy",
    type=click.Choice(["suspend", "replace", "skip"]),
    help="When there are that many: wait, stop the oldest, or leave the new one out.",
)
@click.option("-ei", "--expireinterval", type=int, help="Seconds after which a missed time is only recorded; 0: never.")
@click.option("--catchup", type=bool, help="Make up for times that were missed; true if not given.")
@click.option("--timezone", help="Whose clock the crontab is about, such as Asia/Shanghai; the server's if not given.")
@click.option("-u", "--username", help="In whose name; only for root.")
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
    output.done(session, f"schedule[{name}] create success, id[{made.id}]", id=made.id)


@schedule.command("list")
@click.option("-u", "--userfilter", help="Only of these users; for root.")
@click.option("-n", "--namefilter", help="Only with these names.")
@click.option("-p", "--pplfilter", help="Only of these pipelines.")
@click.option("-pv", "--pplversionfilter", help="Only of these versions.")
@click.option("-s", "--statusfilter", help="Only with these statuses.")
@marker_options("maxkeys", 50)
@pass_session
def list_(
    session: Session,
    userfilter: str | None,
    namefilter: str | None,
    pplfilter: str | None,
    pplversionfilter: str | None,
    statusfilter: str | None,
    size: int,
    marker: str | None,
) -> None:
    """List schedules."""
    page = session.client.schedules.page(
        max_keys=size,
        marker=marker,
        user=userfilter,
        pipeline=pplfilter,
        version=pplversionfilter,
        name=namefilter,
        status=statusfilter,
    )
    output.show(session, HEADERS, [_row(found) for found in page])
    output.marker(session, page.next_marker)


@schedule.command()
@click.argument("schedule_id")
@click.option("-r", "--runfilter", help="Only these runs.")
@click.option("-s", "--statusfilter", help="Only runs with these statuses.")
@marker_options("maxkeys", 50)
@pass_session
def show(
    session: Session,
    schedule_id: str,
    runfilter: str | None,
    statusfilter: str | None,
    size: int,
    marker: str | None,
) -> None:
    """Show a schedule and its runs."""
    found, page = session.client.schedules.run_page(
        schedule_id, max_keys=size, marker=marker, run=runfilter, status=statusfilter
    )
    if session.output == "json":
        click.echo(output.as_json({**found.raw, "runs": [run.record.raw for run in page]}))
        return
    output.show(session, HEADERS, [_row(found)])
    output.show(session, OPTION_HEADERS, [_option_row(found)])
    output.show(session, LIST_HEADERS, [row_of(run.record) for run in page])
    output.marker(session, page.next_marker)


@schedule.command("next")
@click.argument("schedule_id")
@click.option("-n", "--count", type=int, default=5, show_default=True, help="How many times.")
@pass_session
def next_(session: Session, schedule_id: str, count: int) -> None:
    """Show the next times at which a schedule will start runs."""
    moments = session.client.schedules.next(schedule_id, count)
    output.show(session, ["next run time"], [[moment] for moment in moments], empty="it will not run any more")


@schedule.command()
@click.argument("schedule_id")
@pass_session
def pause(session: Session, schedule_id: str) -> None:
    """Start no more runs until it is resumed."""
    session.client.schedules.pause(schedule_id)
    output.done(session, f"schedule[{schedule_id}] pause success", id=schedule_id)


@schedule.command()
@click.argument("schedule_id")
@pass_session
def resume(session: Session, schedule_id: str) -> None:
    """Go on with a schedule that is paused."""
    session.client.schedules.resume(schedule_id)
    output.done(session, f"schedule[{schedule_id}] resume success", id=schedule_id)


@schedule.command()
@click.argument("schedule_id")
@pass_session
def stop(session: Session, schedule_id: str) -> None:
    """Stop a schedule for good. Its runs go on."""
    session.client.schedules.stop(schedule_id)
    output.done(session, f"schedule[{schedule_id}] stop success", id=schedule_id)


@schedule.command()
@click.argument("schedule_id")
@pass_session
def delete(session: Session, schedule_id: str) -> None:
    """Delete a schedule that is over or stopped."""
    session.client.schedules.delete(schedule_id)
    output.done(session, f"schedule[{schedule_id}] delete success", id=schedule_id)
