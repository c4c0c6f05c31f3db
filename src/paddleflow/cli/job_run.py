"""`paddleflow job run`: a command as a job, as if it ran here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.job_follow import print_log
from paddleflow.cli.lazy import Command, pair_each
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.jobs import Job, JobRecord

INTERRUPTED = 130


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name of the job. [default: the first word of the command]")
@click.option("-q", "--queue", help="Queue. [default: default-queue]")
@click.option("--flavour", help="Flavour: a named size.")
@click.option("--priority", help="very_low, low, normal, high or very_high.")
@click.option("-e", "--env", multiple=True, callback=pair_each, help="Environment variable, NAME=value. Repeatable.")
@click.option("-l", "--label", multiple=True, callback=pair_each, help="Label, name=value. Repeatable.")
@click.option("--fs", help="Storage to mount.")
@click.option("--image", help="Container image, on clusters that run containers.")
@click.option("-d", "--detach", is_flag=True, help="Submit the job, print its id and return.")
@click.option("--quiet", is_flag=True, help="Print nothing but the output of the job.")
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
    """Run COMMAND as a job, print its log and exit with its exit code. Ctrl-C stops the job.

    A COMMAND of several words is executed directly; a single word is passed to the shell.

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
        output.done(session, job.id, job.id, lambda: job.record.raw)
        return
    if not quiet:
        note(f"{job.id} submitted")
        threading.Thread(target=_tell, args=(session.client.jobs.handle(job.id),), daemon=True).start()
    ctx.exit(_followed(session, job, quiet))


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
