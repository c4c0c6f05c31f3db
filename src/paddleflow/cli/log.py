"""`paddleflow log`: the log commands of the original client. `job logs` and `run logs` do more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.logs import JobLog

log = group(help="Logs of jobs and runs. See also: paddleflow job logs, paddleflow run logs.")
_FOLLOW = ""  #: what -f means without a word behind it


@log.command("job")
@click.option("-j", "--jobid", required=True, help="Job id.")
@click.option(
    "-f",
    "short",
    is_flag=False,
    flag_value=_FOLLOW,
    metavar="[FRAMEWORK]",
    help="Alone: follow until the job has finished. With a value: the framework of the job, as older servers need it.",
)
@click.option("--follow", is_flag=True, help="Keep printing until the job has finished.")
@click.option("--framework", help="Framework of the job.")
@click.option(
    "-r", "--readfromtail", is_flag=False, flag_value="true", metavar="[true]", help="Read from the end of the log."
)
@click.option("-l", "--line_limit", help="Maximum number of lines. [default: 1000]")
@click.option("-s", "--size_limit", help="Maximum size, for example 10M. [default: 100M]")
@pass_session
def job(
    session: Session,
    jobid: str,
    short: str | None,
    follow: bool,
    framework: str | None,
    readfromtail: str | None,
    line_limit: str | None,
    size_limit: str | None,
) -> None:
    """Print the logs of the tasks of a job.

    \b
    Examples:
      paddleflow log job -j job-6afbf4d02ba6c48ef9e95063 -f
      paddleflow log job -j job-6afbf4d02ba6c48ef9e95063 -r -l 20
    """
    if follow or short == _FOLLOW:
        from paddleflow.cli.job_follow import show_log

        show_log(session, session.job(jobid), follow=True, task=None)
        return
    found = session.client.logs.job(
        jobid,
        read_from_tail=(readfromtail or "").lower() not in {"", "false", "0", "no"} or None,
        line_limit=line_limit,
        size_limit=size_limit,
        framework=framework or short,
    )
    if session.machine:
        output.print_data(session, found.raw)
        return
    _show(found)


@log.command("run")
@click.argument("runid")
@click.option("-j", "--jobid", help="Only the log of this job.")
@click.option("-ps", "--pagesize", type=int, help="Lines per page, at most 100. [default: 100]")
@click.option("-pn", "--pageno", type=int, help="Page number. [default: 1]")
@click.option(
    "-fp",
    "--logfileposition",
    type=click.Choice(["begin", "end"]),
    help="Whether page 1 is the beginning or the end of the log. [default: end]",
)
@pass_session
def run(
    session: Session,
    runid: str,
    jobid: str | None,
    pagesize: int | None,
    pageno: int | None,
    logfileposition: str | None,
) -> None:
    """Print a page of the logs of a run's steps. `paddleflow run logs RUNID -f` follows them."""
    found = session.client.logs.run(runid, job=jobid, page_no=pageno, page_size=pagesize, position=logfileposition)
    if session.machine:
        output.print_data(session, found.raw)
        return
    if found.submit_log:
        click.echo(found.submit_log)
    for job_log in found.jobs:
        _show(job_log)


def _show(found: JobLog) -> None:
    """The log of a job's tasks, each below a line of facts."""
    click.echo("eventList:" if found.events else "eventList is None")
    for event in found.events:
        click.echo(output.original_cell(event))
    click.echo("logs:")
    for task in found.tasks:
        facts = {
            "jobid": found.job_id,
            "taskid": task.task_id,
            "has_next_page": task.has_next_page,
            "truncated": task.truncated,
        }
        click.echo("\t".join(f"{key}:{value}" for key, value in facts.items()))
        click.echo(task.content, nl=not task.content.endswith("\n"))
