"""`paddleflow job run`: a command as a job, as if it ran here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, pair_each
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.cli.watch import print_log
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import Job, JobRecord

INTERRUPTED = 130


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name of the job; the command's first word if not given.")
@click.option("-q", "--queue", help="Queue; the server's default if not given.")
@click.option("--flavour", help="Flavour: how much of cores and memory.")
@click.option("--priority", help="very_low, low, normal, high or very_high.")
@click.option("-e", "--env", multiple=True, callback=pair_each, help="A variable: NAME=value. Repeatable.")
@click.option("-l", "--label", multiple=True, callback=pair_each, help="A label: name=value. Repeatable.")
@click.option("--fs", help="A storage that the job sees.")
@click.option("--image", help="Image, where the cluster runs containers.")
@click.option("-d", "--detach", is_flag=True, help="Only submit, and print the id.")
@click.option("--quiet", is_flag=True, help="Nothing but the job's own output.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_session
@click.pass_context
def run(
    ctx: click.Context,
    session: Session,
    command: tuple[str, ...],
    name: str | None,
    detach: bool,
    quiet: bool,
    queue: str | None,
    flavour: str | None,
    priority: str | None,
    env: dict[str, str] | None,
    label: dict[str, str] | None,
    fs: str | None,
    image: str | None,
) -> None:
    """Run COMMAND as a single job: see its log here, end with its exit code. Ctrl-C stops the job.

    A COMMAND of several words is run as it is; one word is read by the shell.

    \b
    Examples:
      paddleflow job run -- python train.py --epochs 3
      paddleflow job run --flavour flavour1 -e SEED=1 'python a.py && python b.py'
    """
    words = command[0].split() or [command[0]]
    job = session.client.jobs.submit(
        name=name or words[0].rpartition("/")[2],
        queue=queue,
        flavour=flavour,
        priority=priority,
        env=env,
        labels=label,
        fs=fs,
        image=image,
        command=command[0] if len(command) == 1 else list(command),
    )
    if detach:
        click.echo(output.as_json({"job id": job.id}) if session.output == "json" else job.id)
        return
    if not quiet:
        note(f"{job.id} submitted")
        threading.Thread(target=_tell, args=(session.client.jobs.handle(job.id),), daemon=True).start()
    ctx.exit(_followed(session, job, quiet))


def _followed(session: Session, job: Job, quiet: bool) -> int:
    """Prints the log to its end; the exit code."""
    try:
        if session.output == "json":
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
    if session.output == "json":
        click.echo(output.as_json({"job id": job.id, "status": record.status, "exit code": code}))
    if code and not quiet:
        note(f"{job.id} {record.status}" + (f": {record.message}" if record.message else ""))
    return code


def _tell(job: Job) -> None:
    """Says how the job gets to run, and why it waits."""
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
        return  # the log tells what is wrong


def exit_code(record: JobRecord) -> int:
    """0 if it succeeded; otherwise the first code of its tasks that is not 0 (128 + signal), or 1."""
    if record.status == "succeeded":
        return 0
    code = next((task.exit_code for task in record.tasks if task.exit_code), 1)
    return min(128 - code if code < 0 else code, 255)
