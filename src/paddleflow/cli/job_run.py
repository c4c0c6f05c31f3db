"""`paddleflow job run`, `job code` and `job get`: run a command of the caller's folder as a job; download its code and files."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paddleflow.cli import output
from paddleflow.cli.job_follow import print_log
from paddleflow.cli.lazy import Command, pair_each
from paddleflow.cli.session import ARRAY, Session, note, pass_session
from paddleflow.errors import Invalid, PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import Job, JobRecord

T = TypeVar("T")
INTERRUPTED = 130
MOST_ARRAY = 10_000  #: jobs of one --array
GPU = "nvidia.com/gpu"
DURATION = re.compile(r"(?=.*[1-9])\d{1,9}(\.\d{1,9})?[smhd]?", re.ASCII)  #: more than 0


def _indexes(context: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """``1-100`` or ``1-9,12``, as Slurm reads it."""
    if value is None:
        return None
    found: list[int] = []
    for part in value.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
            raise click.BadParameter(f"{value!r} is not of the form 1-100 or 1,5,9")
        found += range(int(first), int(last or first) + 1)
        if len(found) > MOST_ARRAY:
            raise click.BadParameter(f"{value!r} is more than {MOST_ARRAY:,} jobs")
    if not found:
        raise click.BadParameter(f"{value!r} is empty")
    return found


def _duration(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """As timeout(1) reads it, which stops the command where the job runs."""
    if value is not None and not DURATION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not of the form 90s, 30m, 2h or 1d")
    return value


def _variables(context: click.Context, param: click.Parameter, value: Path | None) -> dict[str, str]:
    """The NAME=value lines of a file; empty lines and comments are skipped."""
    found: dict[str, str] = {}
    lines = value.read_text("utf-8").splitlines() if value else []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, content = text.removeprefix("export ").partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"line {number} is not of the form NAME=value: {text[:80]!r}")
        content = content.strip()
        quoted = len(content) > 1 and content[0] == content[-1] and content[0] in "'\""
        found[name.strip()] = content[1:-1] if quoted else content
    return found


def _resource_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--gpu", type=click.IntRange(1), help=f"Number of GPUs ({GPU})."),
        click.option("--mem", help="Memory, for example 4Gi. [default: 1Gi]"),
        click.option("--cpu", help="Cores, for example 2 or 500m. [default: 1]"),
        click.option("--flavour", help="Flavour: a named size, instead of --cpu, --mem and --gpu."),
    ):
        function = option(function)
    return function


def _code_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--requirements",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Requirements file; its packages are installed once and kept on the node.",
        ),
        click.option("--no-code", is_flag=True, help="Run without a code folder."),
        click.option("--workdir", default="", help="Working directory below the code folder."),
        click.option(
            "--code",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Folder with the code. [default: the current folder]",
        ),
    ):
        function = option(function)
    return function


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name of the job. [default: the first word of the command]")
@click.option("-q", "--queue", help="Queue. [default: default-queue]")
@click.option("--cluster", help="Name of the cluster to run on; takes a queue of it that you may use.")
@_resource_options
@click.option("--priority", help="very_low, low, normal, high or very_high.")
@click.option("-e", "--env", multiple=True, callback=pair_each, help="Environment variable, NAME=value. Repeatable.")
@click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_variables,
    help="File of NAME=value lines.",
)
@click.option(
    "--secret",
    multiple=True,
    metavar="NAME[=VAR]",
    help="Secret to pass in the variable VAR (default: NAME), or with NAME=@FILE in the file $PF_SECRETS_DIR/FILE. Repeatable.",
)
@click.option("-l", "--label", multiple=True, callback=pair_each, help="Label, name=value. Repeatable.")
@click.option("--fs", help="Storage to mount; with --no-code the job starts in it.")
@click.option("--image", help="Container image, on clusters that run containers.")
@_code_options
@click.option("--framework", help="Framework of a distributed job, for example pytorch, paddle or mpi.")
@click.option("--workers", "--nodes", type=click.IntRange(1), metavar="N", help="Number of workers; needs --framework.")
@click.option(
    "--timeout",
    callback=_duration,
    help="Stop the command after this time, for example 90s, 30m or 2h, per try; it then exits with 124.",
)
@click.option("--retries", type=click.IntRange(0, 100), help="Restart a failed job up to this many times.")
@click.option(
    "--after",
    metavar="[any:|failed:]JOBID",
    multiple=True,
    help="Start only after this job has succeeded; with any: after it has finished, with failed: after it has failed. "
    "If it ends otherwise, this job is cancelled. Repeatable.",
)
@click.option(
    "--array",
    callback=_indexes,
    help="Submit one job per index, for example 1-100 or 1,5,9; the job finds it in PF_ARRAY_INDEX.",
)
@click.option("-d", "--detach", is_flag=True, help="Submit the job, print its id and return.")
@click.option("--quiet", is_flag=True, help="Print nothing but the output of the job.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_session
@click.pass_context
def run(
    ctx: click.Context,
    session: Session,
    /,
    command: tuple[str, ...],
    detach: bool,
    quiet: bool,
    after: tuple[str, ...],
    array: list[int] | None,
    **given: Any,
) -> None:
    """Run COMMAND as a job, print its log and exit with its exit code. Ctrl-C stops the job.

    The job runs with the code of the current folder: in the folder itself, with your PATH and virtual environment, if you
    are root of a server that runs on this machine under your account; otherwise in a snapshot of it, of which only changed
    files are sent. .gitignore and .paddleflowignore are respected.

    A COMMAND of several words is executed directly; a single word is passed to the shell.

    \b
    Examples:
      paddleflow job run -- python train.py --epochs 3
      paddleflow job run --gpu 1 --mem 16Gi -e SEED=1 'python a.py && python b.py'
      paddleflow job run --framework pytorch --workers 4 -- python train.py
      paddleflow job run --array 1-20 'python train.py --seed $PF_ARRAY_INDEX'
    """
    if len(command) > 1 and any(char.isspace() for char in command[0]):
        raise click.UsageError(
            f"the program {command[0]!r} has spaces in its name: options go before the command, a command for the shell is one word"
        )
    if array and given["framework"]:
        raise click.UsageError("--array and --framework cannot be used together")
    earlier = list(dict.fromkeys(entry for one in after for entry in _after(session, one)))

    def document(elsewhere: bool) -> dict[str, Any]:
        made = _document(session, command, quiet, given, elsewhere)
        return {**made, "after": earlier} if earlier else made

    if array:
        ctx.exit(_run_array(session, document, array, detach, quiet))
    job = _submitted(session.client.jobs.submit, document)
    if detach:
        output.done(session, job.id, job.id, lambda: job.record.raw)
        return
    if not quiet:
        note(f"{job.id} submitted")
        threading.Thread(target=_explain, args=(job.another(),), daemon=True).start()
    ctx.exit(_followed(session, job, quiet))


def _submitted(submit: Callable[[dict[str, Any]], T], document: Callable[[bool], dict[str, Any]]) -> T:
    """Submits with the caller's folder in place; if the server answers that the queue's cluster does not see it, with a snapshot."""
    try:
        return submit(document(False))
    except PaddleFlowError as refusal:
        if not any(fault.where.endswith("code.path") for fault in refusal.details):
            raise
    return submit(document(True))


def _document(
    session: Session, command: tuple[str, ...], quiet: bool, given: dict[str, Any], elsewhere: bool
) -> dict[str, Any]:
    """The job document that the options ask for; `elsewhere` when the nodes do not see this machine's files."""
    words = command[0].split() or [command[0]]
    line: str | list[str] = command[0] if len(command) == 1 else list(command)
    if given["timeout"]:
        line = [
            "timeout",
            "--kill-after=10",
            given["timeout"],
            *([*command] if len(command) > 1 else ["/bin/sh", "-c", command[0]]),
        ]
    env: dict[str, str] = {**given["env_file"], **(given["env"] or {})}
    if given["cluster"]:
        given = {**given, "queue": _queue_of(session, given["cluster"], given["queue"])}
        elsewhere = True
    code = None if given["no_code"] else _code(session, given["code"], given["workdir"], quiet, elsewhere)
    if code and "path" in code:
        from paddleflow.environment import caller_environment

        env = {**caller_environment(), **env}
    if given["retries"] is not None:
        env["PF_JOB_RETRIES"] = str(given["retries"])
    spec: dict[str, Any] = {
        "command": line,
        "env": env,
        "flavour": _flavour(given),
        "image": given["image"],
        "fs": {"name": given["fs"]} if given["fs"] else None,
        "code": code,
        "requirements": given["requirements"].read_text("utf-8") if given["requirements"] else "",
        "secrets": [_secret(text) for text in given["secret"]],
    }
    spec = {key: value for key, value in spec.items() if value}
    head = {"name": given["name"] or words[0].rpartition("/")[2], "labels": given["label"] or {}}
    policy = {key: given[key] for key in ("queue", "priority") if given[key]}
    if policy:
        head["schedulingPolicy"] = policy
    if given["workers"] and not given["framework"]:
        raise click.UsageError("--workers needs --framework, for example --framework pytorch")
    if not given["framework"]:
        return {**head, **spec}
    member = {"role": "worker", "replicas": given["workers"] or 1, **spec}
    return {**head, "framework": given["framework"], "members": [member]}


def _after(session: Session, text: str) -> list[str]:
    """What a job document says as `after`: the ids of the jobs meant, which may be all of an array, each with its condition."""
    ending, colon, id = text.rpartition(":")
    return [f"{ending}{colon}{job.id}" for job in session.jobs(id)]


def _secret(text: str) -> dict[str, str]:
    name, _, place = text.partition("=")
    if place.startswith("@"):
        return {"name": name, "file": place[1:]}
    return {"name": name, "env": place} if place else {"name": name}


def _flavour(given: dict[str, Any]) -> dict[str, Any] | None:
    sizes = [name for name in ("cpu", "mem", "gpu") if given[name]]
    if given["flavour"]:
        if sizes:
            raise click.UsageError(f"--flavour and --{sizes[0]} cannot be used together")
        return {"name": given["flavour"]}
    if not sizes:
        return None
    found: dict[str, Any] = {"cpu": given["cpu"] or "1", "mem": given["mem"] or "1Gi"}
    return {**found, "scalarResources": {GPU: str(given["gpu"])}} if given["gpu"] else found


def _queue_of(session: Session, cluster: str, queue: str | None) -> str:
    """The queue to use on a cluster: the one that was named, or the only one there is for the caller."""
    found = [each.name for each in session.client.queues.list() if each.cluster == cluster]
    if queue and queue in found:
        return queue
    if queue:
        raise Invalid(f"queue[{queue}] is not of cluster[{cluster}]", hint=f"its queues: {', '.join(found) or 'none'}")
    if len(found) != 1:
        hint = f"--queue one of: {', '.join(found)}" if found else "an administrator makes one: paddleflow queue create"
        raise Invalid(f"you may use {len(found) or 'no'} queues of cluster[{cluster}]", hint=hint)
    return found[0]


def _code(session: Session, folder: Path | None, workdir: str, quiet: bool, elsewhere: bool) -> dict[str, Any] | None:
    """The folder or snapshot that the job runs with."""
    where = (folder or Path.cwd()).resolve()
    in_place = not elsewhere and session.client.code.shares_files()
    if folder is None and where in {Path("/"), Path.home().resolve()} and not in_place:
        if not quiet:
            note(f"note: {where} is not sent as code; use --code FOLDER, or run this in the folder of your project")
        return None
    shown = not quiet and sys.stderr.isatty()

    def progress(sent: int, total: int) -> None:
        if shown:
            click.echo(f"\rsending code {output.size(sent)} of {output.size(total)}", err=True, nl=sent >= total)

    found = session.client.code.reference(where, workdir, progress, snapshot=elsewhere)
    if not quiet and "snapshot" in found:
        note(f"code {found['snapshot'][:12]} ({output.count(found['files'], 'file')}, {output.size(found['size'])})")
    return found


def _run_array(
    session: Session, document: Callable[[bool], dict[str, Any]], indexes: Sequence[int], detach: bool, quiet: bool
) -> int:
    """Submits one job per index, all or none; waits for all of them unless detached."""
    from paddleflow.base.ids import new_job_id

    array = ARRAY + new_job_id(time.time()).removeprefix("job-")[:16]

    def submit(one: dict[str, Any]) -> Sequence[Job]:
        each = [
            {
                **one,
                "array": array,
                "name": f"{one['name']}-{index}",
                "env": {**one.get("env", {}), "PF_ARRAY_INDEX": str(index), "PF_ARRAY_SIZE": str(len(indexes))},
            }
            for index in indexes
        ]
        return session.client.jobs.submit_many(each)

    made = _submitted(submit, document)
    if not quiet:
        note(f"{array}: {output.count(len(made), 'job')} submitted")
    if detach:
        if session.machine:
            output.print_data(session, [{"id": job.id} for job in made])
        else:
            click.echo("\n".join(job.id for job in made))
        return 0
    from paddleflow.cli.progress import JOBS, wait_and_show

    try:
        return wait_and_show(session, JOBS, made, None)
    except KeyboardInterrupt:
        note(f"stopping {len(made)} jobs")
        for job in made:
            try:
                job.stop()
            except PaddleFlowError:
                continue  # it has ended
        return INTERRUPTED


def _followed(session: Session, job: Job, quiet: bool) -> int:
    """Prints the log to its end; the exit code."""
    try:
        if session.machine:
            for line in job.logs(follow=True):
                click.echo(line, nl=False, err=True)
        else:
            print_log(job.logs(follow=True))
        record = job.wait().record
    except KeyboardInterrupt:
        note(f"{job.id} stopping")
        job.stop()
        return INTERRUPTED
    code = exit_code(record)
    if session.machine:
        output.print_data(session, record.raw)
    if code and not quiet:
        note(f"{job.id} {record.status}" + (f": {record.message}" if record.message else ""))
    return code


def _explain(job: Job) -> None:
    """Says why the job is pending, until it runs."""
    said: tuple[str, str] | None = None
    try:
        for event in job.events():
            if event.type != "status" or event.status == "running":
                if event.status == "running":
                    return
                continue
            if event.status in {"init", "pending"} and (event.status, event.message) != said:
                said = (event.status, event.message)
                if event.message:
                    note(f"{job.id} {event.status}: {event.message}")
    except (PaddleFlowError, TimeoutError):
        return  # following the log says what is wrong


def exit_code(record: JobRecord) -> int:
    """0 if it succeeded; otherwise the first code of its tasks that is not 0 (128 + signal), or 1."""
    if record.status == "succeeded":
        return 0
    code = next((task.exit_code for task in record.tasks if task.exit_code), 1)
    return min(128 - code if code < 0 else code, 255)


@click.command(cls=Command)
@click.argument("jobid")
@click.option("--to", type=click.Path(path_type=Path), help="New folder to write. [default: the id of the job]")
@pass_session
def code(session: Session, jobid: str, to: Path | None) -> None:
    """Download the code that a job ran with into a new folder.

    \b
    Example:
      paddleflow job code @latest --to what-ran
    """
    job = session.job(jobid)
    target = to or Path(job.id)
    try:
        session.client.code.download(job.id, target)
    except FileExistsError as error:
        raise Invalid(f"{target} exists already", hint="choose a new folder with --to") from error
    output.done(session, f"wrote {target}", str(target), lambda: {"id": job.id, "path": str(target)})


@click.command(cls=Command)
@click.argument("jobid")
@click.argument("path")
@click.option("--to", help="File or folder to write to; - is standard output. [default: the current folder]")
@pass_session
def get(session: Session, jobid: str, path: str, to: str | None) -> None:
    """Download a file that a job wrote. PATH is relative to the folder that the job started in.

    This works on the server's machine, for jobs that ran in your own folder, in a snapshot of it, or without code. Jobs that
    started in a storage left their files there.

    \b
    Examples:
      paddleflow job get @latest out/model.bin
      paddleflow job get @latest metrics.json --to - | jq .loss
    """
    job = session.job(jobid)
    pieces = job.read_file(path)
    if to == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    target = Path(to or ".")
    if target.is_dir():
        target /= Path(path).name or "file"  # the server refuses a PATH without a name
    part = target.with_name(f".{target.name}.part")  # half a file never has the name of a whole one
    try:
        first = next(pieces, b"")
        with part.open("wb") as out:
            out.write(first)
            for piece in pieces:
                out.write(piece)
        part.replace(target)
    except OSError as error:
        raise Invalid(f"{target} cannot be written: {error.strerror}", hint="choose another file with --to") from error
    finally:
        part.unlink(missing_ok=True)
    output.done(session, f"wrote {target}", str(target), lambda: {"id": job.id, "path": str(target)})
