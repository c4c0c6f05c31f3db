"""`paddleflow job`: submit, list, show, change, stop and delete jobs. `job_run` runs a command, `job_follow` follows jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.errors import each
from paddleflow.cli.lazy import LazyCommand, Paging, group, paging, pairs
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import Job, JobRecord

KINDS = ("single", "distributed", "workflow")

#: What `-fl` can name: field → (header of the original client, value).
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

#: Of a group of jobs: the first of these that one of them has is what the group is.
PRECEDENCE = (
    "running", "preempting", "terminating", "pending", "init", "failed", "preempted", "terminated", "cancelled", "skipped", "succeeded",
)  # fmt: skip
ENDED = frozenset(PRECEDENCE[5:])


def _status(job: JobRecord) -> str:
    """Of a group also how many of its jobs have finished."""
    counts = job.group.get("jobs")
    if not counts:
        return job.status
    done = sum(number for status, number in counts.items() if status in ENDED)
    return f"{next(status for status in PRECEDENCE if counts.get(status))} {done}/{sum(counts.values())}"


def _times(job: JobRecord) -> tuple[str, str, str]:
    """When it was submitted, started and finished; of a group its first job and its last."""
    found: Any = job.group or {
        "acceptTime": job.accept_time,
        "startTime": job.start_time,
        "finishTime": job.finish_time,
    }
    return found.get("acceptTime", ""), found.get("startTime", ""), found.get("finishTime", "")


def _name(job: JobRecord) -> str:
    """Of an array the name without the index."""
    return job.name.rpartition("-")[0] if job.array and job.group else job.name


JOB: Kind[JobRecord] = Kind(
    "jobs",
    lambda job: job.id,
    lambda job: job.raw,
    (
        Column(lambda job: job.group.get("id") or job.id, "ID", "job id"),
        Column(lambda job: _name(job), "NAME", "job name", flexible=True),
        Column(lambda job: job.user, "USER", flexible=True),
        Column(lambda job: job.queue, "QUEUE", "queue", flexible=True),
        Column(lambda job: job.priority.lower(), "PRIORITY", wide=True),
        Column(lambda job: _status(job), "STATUS", "status"),
        Column(lambda job: output.age(_times(job)[0]), "AGE"),
        Column(lambda job: output.elapsed(*_times(job)[1:]), "TIME"),
        Column(lambda job: _times(job)[0], "SUBMITTED", "accept time", wide=True),
        Column(lambda job: _times(job)[1], "STARTED", "start time", wide=True),
        Column(lambda job: _times(job)[2], "FINISHED", "finish time", wide=True),
        Column(lambda job: job.message, "MESSAGE", wide=True),
    ),
)

job = group(
    help="Submit, list, follow and stop jobs.",
    lazy={
        "code": LazyCommand("job_run:code", "Download the code that a job ran with."),
        "eta": LazyCommand("job_follow:eta", "Estimate when a pending job will start."),
        "events": LazyCommand("job_follow:events", "Show the events of a job."),
        "exec": LazyCommand("job_exec:exec_", "Run a command inside a running job."),
        "shell": LazyCommand("job_exec:shell", "Open a shell inside a running job."),
        "get": LazyCommand("job_run:get", "Download a file that a job wrote."),
        "logs": LazyCommand("job_follow:logs", "Print or follow the log of a job."),
        "top": LazyCommand("top:job_top", "Show the CPU and memory usage of running jobs."),
        "run": LazyCommand("job_run:run", "Run a command as a job, print its log and exit with its exit code."),
        "wait": LazyCommand("job_follow:wait", "Wait until jobs have finished."),
        "why": LazyCommand("job_follow:why", "Explain why a job is pending, and what would start it now."),
    },
)


def _fields(context: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    chosen = [word.strip() for word in value.split(",") if word.strip()] if value else []
    for name in chosen:
        if name not in FIELDS:
            from paddleflow.base.names import nearest

            raise click.BadParameter(f"{name} is not a field of a job, {nearest(name, FIELDS)}")
    return chosen


def _chosen(names: list[str]) -> Kind[JobRecord]:
    """Jobs with the fields of -fl only."""
    if not names:
        return JOB
    columns = [Column(FIELDS[name][1], name.upper(), FIELDS[name][0], flexible=name != "id") for name in names]
    return JOB._replace(columns=columns, data=lambda job: {name: FIELDS[name][1](job) for name in names})


def read_document(file: IO[str]) -> Any:
    """A job document: YAML, and JSON, which is YAML."""
    import yaml

    from paddleflow.spec.pipeline.nodes import MOST_BYTES

    text = file.read(MOST_BYTES + 1)
    if not text.strip():
        raise Invalid(
            f"{file.name} is empty, expected a job document", hint="docs/reference/job-document.md has examples"
        )
    if len(text) > MOST_BYTES:
        raise Invalid(f"{file.name} is larger than {MOST_BYTES:,} bytes")
    try:
        if text.lstrip()[:1] in {"{", "["}:
            import json

            return json.loads(text)
        from paddleflow.spec.pipeline.faults import DocumentFaults
        from paddleflow.spec.pipeline.nodes import from_text

        return from_text(text, DocumentFaults(file.name)).plain()
    except (ValueError, yaml.YAMLError) as error:
        raise Invalid(f"{file.name} is not a JSON or YAML document: {error}", code="MalformedJSON") from error


def _read_job(file: IO[str]) -> Any:
    """A document, or a list of them; folders of code are meant from the file's own."""
    found = read_document(file)
    above = Path(file.name).parent if Path(file.name).exists() else Path()
    for document in found if isinstance(found, list) else [found]:
        if isinstance(document, dict) and isinstance(document.get("code"), str):
            document["code"] = str(above / document["code"])
    return found


def _object(file: IO[str]) -> dict[str, Any]:
    found = _read_job(file)
    if not isinstance(found, dict):
        raise Invalid(f"{file.name} does not contain a job document", code="InappropriateJSON")
    return found


@job.command()
@click.argument("jobtype", type=click.Choice(KINDS))
@click.argument("jsonpath", type=click.File("r", encoding="utf-8"))
@pass_session
def create(session: Session, jobtype: str, jsonpath: IO[str]) -> None:
    """Submit the job document in the JSON file JSONPATH, or "-" for standard input.

    \b
    Example:
      paddleflow job create single job.json
    """
    made = session.client.jobs.submit(_object(jsonpath), kind=jobtype)
    output.done(session, f"job create success, id[{made.id}]", made.id, lambda: made.record.raw)


@job.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--kind", type=click.Choice(KINDS), help="Job type. [default: distributed with members, else single]")
@pass_session
def submit(session: Session, file: IO[str], kind: str | None) -> None:
    """Submit the job document in FILE and print the job's id.

    FILE is YAML or JSON; "-" reads standard input. A list of documents submits several single jobs in one request: all of
    them, or none.

    \b
    Examples:
      paddleflow job submit train.yaml
      ID=$(paddleflow job submit train.yaml) && paddleflow job wait $ID
    """
    found = _read_job(file)
    if isinstance(found, list):
        made = list(session.client.jobs.submit_many(found))
    elif isinstance(found, dict):
        made = [session.client.jobs.submit(found, kind=kind)]
    else:
        raise Invalid(f"{file.name} contains neither a job document nor a list of them", code="InappropriateJSON")
    if session.machine:
        # A list may hold thousands: they are not fetched one by one.
        data = [{"id": one.id} for one in made] if isinstance(found, list) else made[0].record.raw
        output.print_data(session, data)
    else:
        click.echo("\n".join(one.id for one in made))


@job.command("list")
@click.option("-s", "--status", help="Only jobs in these states, for example running,pending.")
@click.option("-t", "--timestamp", type=int, help="Only jobs changed since this Unix time.")
@click.option("-st", "--starttime", help='Only jobs started since "YYYY-MM-DD HH:MM:SS".')
@click.option("-q", "--queue", help="Only jobs in this queue.")
@click.option("-l", "--labels", callback=pairs, help="Only jobs with these labels: a=b,c=d.")
@click.option("-u", "--user", help="Only jobs of this user (root only; others see their own jobs).")
@click.option("--array", help="Only jobs of this array.")
@click.option("--run", "run_id", metavar="RUNID", help="Only jobs of the steps of this run.")
@click.option("-A", "--all-jobs", is_flag=True, help="List the jobs of runs and arrays one by one instead of folded.")
@click.option("-w", "--watch", is_flag=True, help="Redraw the list every two seconds until Ctrl-C.")
@click.option("-fl", "--fieldlist", callback=_fields, help="Fields to show, for example id,status,message.")
@paging("maxkeys", 50)
@pass_session
def list_(
    session: Session,
    status: str | None,
    timestamp: int | None,
    starttime: str | None,
    queue: str | None,
    labels: dict[str, str] | None,
    user: str | None,
    array: str | None,
    run_id: str | None,
    all_jobs: bool,
    watch: bool,
    fieldlist: list[str],
    paging: Paging,
) -> None:
    """List jobs, newest first. AGE is the time since submission, TIME the time it has run.

    The jobs of a run, and those of an array, are one line, with the id of the run or array and how many of them have finished. -A
    lists them one by one, and so do -fl and -o json, yaml and name.

    \b
    Examples:
      paddleflow job list -s running,pending
      paddleflow job list -q default-queue -fl id,status,message
      paddleflow job list -w -u alice
      paddleflow job list --all -o json
    """

    folded = not (all_jobs or array or run_id or fieldlist) and session.output in {"table", "wide"}

    def show() -> None:
        found, marker = paging.collect(
            lambda size, marker: session.client.jobs.page(
                status=status,
                timestamp=timestamp,
                start_time=starttime,
                queue=queue,
                labels=labels,
                user=user,
                array=array,
                run=session.run(run_id).id if run_id else None,
                fold=folded,
                max_keys=size,
                marker=marker,
            )
        )
        records = [job.record for job in found]
        if queue and not records and session.output not in {"compat", "text"}:  # the queue may not exist: then say so
            for name in queue.split(","):
                session.client.queues.get(name)
        output.show_list(session, _chosen(fieldlist), _with_run_names(session, records) if folded else records, marker)
        output.show_marker(session, marker)

    output.repeat(show) if watch else show()


def _with_run_names(session: Session, records: list[JobRecord]) -> list[JobRecord]:
    """A folded run is called by its own name, not by that of its newest step."""
    ids = list(dict.fromkeys(job.run_id for job in records if job.run_id and job.group))
    if not ids:
        return records
    names = {run.id: run.record.name for run in session.client.runs.page(run=",".join(ids), max_keys=len(ids))}
    return [replace(job, name=names.get(job.run_id, job.name)) for job in records]


def _facts(job: JobRecord) -> dict[str, object]:
    members = [
        f"{member.replicas} x {member.role}: {output.amounts(member.flavour)}" for member in job.members if member.role
    ]
    tasks = [
        f"{task.label}  {task.status}"
        + (f"  on {task.node}" if task.node else "")
        + (f"  exit code {task.exit_code}" if task.exit_code is not None else "")
        for task in job.tasks
    ]
    command = job.command if isinstance(job.command, str) else shell_words(job.command)
    return {
        "ID": job.id,
        "Name": job.name,
        "User": job.user,
        "Queue": job.queue,
        "Priority": job.priority.lower(),
        "Status": job.status,
        "Message": job.message,
        "After": list(job.after),
        "Array": job.array,
        "Run": job.run_id,
        "Submitted": _when(job.accept_time),
        "Started": _when(job.start_time),
        "Finished": _when(job.finish_time),
        "Run time": output.elapsed(job.start_time, job.finish_time),
        "Framework": "" if job.framework == "standalone" else job.framework,
        "Members": "\n".join(members),
        "Image": job.image,
        "Command": command,
        "Code": _code(job.raw.get("code") or next((m.get("code") for m in job.raw.get("members") or []), None)),
        "Environment": job.env,
        "Storage": job.fs,
        "More storages": list(job.extra_fs),
        "Labels": job.labels,
        "Annotations": job.annotations,
        "Port": job.port or "",
        "Tasks": "\n".join(tasks),
    }


def _code(code: dict[str, Any] | None) -> str:
    if not code:
        return ""
    size = (
        f" ({output.count(code.get('files', 0), 'file')}, {output.size(code.get('size', 0))})"
        if code.get("snapshot")
        else ""
    )
    words = f"snapshot {code['snapshot'][:12]}{size}" if code.get("snapshot") else f"folder {code.get('path', '')}"
    words += f", in {code['workdir']}" if code.get("workdir") else ""
    git = code.get("git")
    return words + (f", git {git['commit'][:12]}{' (dirty)' if git.get('dirty') else ''}" if git else "")


def shell_words(words: Any) -> str:
    import shlex

    return shlex.join(str(word) for word in words)


def _when(text: str) -> str:
    age = output.age(text)
    return f"{text} ({age} ago)" if age else text


@job.command()
@click.argument("jobid")
@pass_session
def show(session: Session, jobid: str) -> None:
    """Show a job: its request, its state and its tasks.

    JOBID may be shortened to a unique prefix; @latest (or -) is the newest job.
    """
    found = session.job(jobid).record
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
    output.show_one(session, JOB, found, _facts(found), ("job config and runtime info: ", given))


@job.command()
@click.argument("jobid")
@click.option("-p", "--priority", help="very_low, low, normal, high or very_high; pending jobs only.")
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
    """Change the priority, labels or annotations of a job."""
    if not (priority or labels or annotations):
        raise click.UsageError("nothing to change: use -p, -l or -a")
    changed = session.job(jobid)
    changed.update(priority=priority, labels=labels, annotations=annotations)
    output.done(session, f"jobid[{changed.id}] update success", changed.id, lambda: changed.record.raw)


def _raw(job: Job) -> object:
    return job.record.raw


@job.command()
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@pass_session
def stop(session: Session, jobids: tuple[str, ...]) -> None:
    """Stop pending or running jobs. The id of an array stops all of its jobs that have not finished.

    \b
    Example:
      paddleflow job stop $(paddleflow job list -s running,pending --all -o name)
    """

    def one(jobid: str) -> None:
        found = session.jobs(jobid)
        for stopped in found:
            if len(found) == 1 or not stopped.finished:
                stopped.stop()
                output.done(session, f"jobid[{stopped.id}] stop success", stopped.id, partial(_raw, stopped))

    each(jobids, one)


@job.command()
@click.argument("jobids", nargs=-1, required=True, metavar="JOBID...")
@pass_session
def delete(session: Session, jobids: tuple[str, ...]) -> None:
    """Delete finished jobs and their logs. The id of an array deletes all of its jobs."""

    def one(jobid: str) -> None:
        for gone in session.jobs(jobid):
            gone.delete()
            output.done(session, f"job[{gone.id}] delete success", gone.id)

    each(jobids, one)
