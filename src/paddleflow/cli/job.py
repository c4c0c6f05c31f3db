"""`paddleflow job`: submit, list, show, change, stop, delete. What waits or follows is in `watch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Late, group, marker_options, pairs
from paddleflow.cli.refusals import each
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import JobRecord

KINDS = ("single", "distributed", "workflow")
SHOW_HEADERS = ["job id", "job name", "queue", "priority", "status", "accept time", "start time", "finish time"]

#: What `-fl` can name: field → (header, value).
FIELDS: dict[str, tuple[str, Callable[[JobRecord], object]]] = {
    "id": ("job id", lambda job: job.id),
    "name": ("job name", lambda job: job.name),
    "queue": ("queue", lambda job: job.queue),
    "status": ("status", lambda job: job.status),
    "acceptTime": ("accept time", lambda job: job.accept_time),
    "startTime": ("start time", lambda job: job.start_time),
    "finishTime": ("finish time", lambda job: job.finish_time),
    "user": ("user", lambda job: job.user),
    "runtime": ("runtime", lambda job: job.raw.get("runtime")),
    "distributedRuntime": ("distributed runtime", lambda job: job.raw.get("distributedRuntime")),
    "workflowRuntime": ("workflow runtime", lambda job: job.raw.get("workflowRuntime")),
    "message": ("message", lambda job: job.message),
    "labels": ("labels", lambda job: job.labels),
    "annotations": ("annotations", lambda job: job.annotations),
    "priority": ("priority", lambda job: job.priority),
    "flavour": ("flavour", lambda job: job.flavour),
    "fs": ("file system", lambda job: job.fs),
    "extraFS": ("extra file systems", lambda job: job.extra_fs),
    "image": ("image", lambda job: job.image),
    "env": ("env", lambda job: job.env),
    "command": ("command", lambda job: job.command),
    "args": ("args", lambda job: job.args),
    "port": ("port", lambda job: job.port),
    "extensionTemplate": ("extension template", lambda job: job.raw.get("extensionTemplate")),
    "framework": ("framework", lambda job: job.framework),
    "members": ("members", lambda job: job.raw.get("members")),
}
LISTED = ("id", "name", "queue", "status", "acceptTime", "startTime", "finishTime")

job = group(
    help="Submit jobs, look at them, follow and stop them.",
    late={
        "eta": Late("watch:eta", "When a waiting job will probably start."),
        "events": Late("watch:events", "What happened to a job, and why it waits."),
        "logs": Late("watch:logs", "Print or follow a job's log."),
        "run": Late("job_run:run", "Run a command as a job: see its log, end with its exit code."),
        "wait": Late("watch:wait", "Wait until jobs are over."),
        "why": Late("watch:why", "Why a job waits, and what would start it now."),
    },
)


def _fields(context: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    chosen = [word.strip() for word in value.split(",") if word.strip()] if value else list(LISTED)
    for name in chosen:
        if name not in FIELDS:
            from paddleflow.base.names import nearest

            raise click.BadParameter(f"{name} is not a field of a job, {nearest(name, FIELDS)}")
    return chosen


def _document(file: IO[str]) -> Any:
    try:
        return json.load(file)
    except ValueError as error:
        raise Invalid(f"{file.name} is not JSON: {error}", code="MalformedJSON") from error


def _object(file: IO[str]) -> dict[str, Any]:
    found = _document(file)
    if not isinstance(found, dict):
        raise Invalid(f"{file.name} holds no JSON object", code="InappropriateJSON")
    return found


@job.command()
@click.argument("jobtype", type=click.Choice(KINDS))
@click.argument("jsonpath", type=click.File("r", encoding="utf-8"))
@pass_session
def create(session: Session, jobtype: str, jsonpath: IO[str]) -> None:
    """Submit the job in the JSON file JSONPATH (- for standard input).

    \b
    Example:
      paddleflow job create single job.json
    """
    made = session.client.jobs.submit(_object(jsonpath), kind=jobtype)
    output.done(session, f"job create success, id[{made.id}]", id=made.id)


@job.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--kind", type=click.Choice(KINDS), help="Distributed if it has members, single otherwise.")
@pass_session
def submit(session: Session, file: IO[str], kind: str | None) -> None:
    """Submit the job in a JSON FILE (- for standard input) and print its id.

    A file that holds a list of single jobs submits them all at once: all are accepted, or none.

    \b
    Examples:
      paddleflow job submit train.json
      ID=$(paddleflow job submit train.json) && paddleflow job wait $ID
    """
    found = _document(file)
    if isinstance(found, list):
        ids = [made.id for made in session.client.jobs.submit_many(found)]
    elif isinstance(found, dict):
        ids = [session.client.jobs.submit(found, kind=kind).id]
    else:
        raise Invalid(f"{file.name} holds neither a JSON object nor a list of them", code="InappropriateJSON")
    if session.output == "json":
        click.echo(output.as_json([{"job id": id} for id in ids]))
    else:
        click.echo("\n".join(ids))


@job.command("list")
@click.option("-s", "--status", help="Only with this status, or one of several: running,pending.")
@click.option("-t", "--timestamp", type=int, help="Only changed since this second of the epoch.")
@click.option("-st", "--starttime", help='Only started since "YYYY-MM-DD HH:MM:SS".')
@click.option("-q", "--queue", help="Only of this queue.")
@click.option("-l", "--labels", callback=pairs, help="Only with these labels: a=b,c=d.")
@marker_options("maxkeys", 50)
@click.option("-fl", "--fieldlist", callback=_fields, help="Which fields to show: id,status,message.")
@pass_session
def list_(
    session: Session,
    status: str | None,
    timestamp: int | None,
    starttime: str | None,
    queue: str | None,
    labels: dict[str, str] | None,
    size: int,
    marker: str | None,
    fieldlist: list[str],
) -> None:
    """List jobs.

    \b
    Examples:
      paddleflow job list -s running,pending
      paddleflow job list -q default-queue -fl id,status,message
    """
    page = session.client.jobs.page(
        status=status,
        timestamp=timestamp,
        start_time=starttime,
        queue=queue,
        labels=labels,
        max_keys=size,
        marker=marker,
    )
    rows = [[FIELDS[name][1](job.record) for name in fieldlist] for job in page]
    output.show(session, [FIELDS[name][0] for name in fieldlist], rows)
    output.marker(session, page.next_marker)


@job.command()
@click.argument("jobid")
@pass_session
def show(session: Session, jobid: str) -> None:
    """Show a job: what it was asked to do, how it is and why."""
    found = session.client.jobs.get(jobid).record
    row = [
        found.id, found.name, found.queue, found.priority, found.status,
        found.accept_time, found.start_time, found.finish_time,
    ]  # fmt: skip
    rest: dict[str, object] = {
        "flavour": found.flavour,
        "fs": found.fs,
        "extraFS": found.extra_fs,
        "labels": found.labels,
        "annotations": found.annotations,
        "image": found.image,
        "env": found.env,
        "command": found.command,
        "args": found.args,
        "port": found.port,
        "framework": found.framework,
        "members": found.raw.get("members"),
        "message": found.message,
        "runtime": found.raw.get("runtime"),
        "distributed runtime": found.raw.get("distributedRuntime"),
        "workflow runtime": found.raw.get("workflowRuntime"),
    }
    given = {key: value for key, value in rest.items() if value or key == "message"}
    output.show_one(session, SHOW_HEADERS, row, "job config and runtime info: ", given)


@job.command()
@click.argument("jobid")
@click.option("-p", "--priority", help="very_low, low, normal, high or very_high; only while the job waits.")
@click.option("-l", "--labels", callback=pairs, help="Labels to set: a=b,c=d.")
@click.option("-a", "--annotations", callback=pairs, help="Annotations to set: a=b,c=d.")
@pass_session
def update(
    session: Session,
    jobid: str,
    priority: str | None,
    labels: dict[str, str] | None,
    annotations: dict[str, str] | None,
) -> None:
    """Change a job's priority, labels or annotations."""
    if not (priority or labels or annotations):
        raise click.UsageError("nothing to change: give -p, -l or -a")
    session.client.jobs.handle(jobid).update(priority=priority, labels=labels, annotations=annotations)
    output.done(session, f"jobid[{jobid}] update success", id=jobid)


@job.command()
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@pass_session
def stop(session: Session, jobids: tuple[str, ...]) -> None:
    """Stop jobs that wait or run.

    \b
    Example:
      paddleflow job stop $(paddleflow job list -s running,pending -fl id -o text | grep -v ^marker)
    """

    def one(jobid: str) -> None:
        session.client.jobs.handle(jobid).stop()
        output.done(session, f"jobid[{jobid}] stop success", id=jobid)

    each(jobids, one)


@job.command()
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@pass_session
def delete(session: Session, jobids: tuple[str, ...]) -> None:
    """Delete jobs that are over, and their logs."""

    def one(jobid: str) -> None:
        session.client.jobs.handle(jobid).delete()
        output.done(session, f"job[{jobid}] delete success ", id=jobid)

    each(jobids, one)
