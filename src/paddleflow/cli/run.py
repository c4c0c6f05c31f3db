"""`paddleflow run`: start runs of pipelines, look at them, stop and try again. What follows one is in `run_watch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Late, group, marker_options, pair_each
from paddleflow.cli.refusals import faults_of
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.runs import RunRecord

LIST_HEADERS = [
    "run id", "fs name", "username", "status", "name", "description", "run msg", "source", "schedule id",
    "scheduled time", "create time", "activate time", "update time",
]  # fmt: skip
ACTIVE = "initiating,pending,running,terminating"
FINAL = "succeeded,failed,terminated,skipped"

run = group(
    help="Runs of pipelines: start, watch, stop, try again, compare.",
    late={
        "breakpoint": Late("run_changes:breakpoint", "Pause a run before a step, or no longer."),
        "deletecache": Late("run_cache:deletecache", "Delete a cached result."),
        "diff": Late("run_compare:diff", "How two runs differ: parameters, documents, fingerprints, durations."),
        "events": Late("run_watch:events", "What happened to a run and its steps."),
        "graph": Late("run_compare:graph", "The graph of a run: Mermaid text, SVG or JSON."),
        "listartifact": Late("artifact:list_", "List artifacts of runs."),
        "listcache": Late("run_cache:listcache", "List cached results."),
        "logs": Late("run_watch:logs", "Print or follow the logs of a run's steps."),
        "resume": Late("run_changes:resume", "Let a paused run go on."),
        "showcache": Late("run_cache:showcache", "Show a cached result."),
        "wait": Late("run_watch:wait", "Wait until a run is over."),
        "watch": Late("run_watch:watch", "Watch a run: one line a step."),
    },
)


def row_of(record: RunRecord) -> list[object]:
    """A run as a row of a list."""
    return [
        record.id, record.fs, record.user, record.status, record.name, record.description, record.message,
        record.source, record.schedule_id, record.scheduled_time, record.create_time, record.activate_time,
        record.update_time,
    ]  # fmt: skip


@run.command()
@click.option("-f", "--fsname", help="The storage that the run works on.")
@click.option("-n", "--name", help="Name of the run; the document's if not given.")
@click.option("-d", "--desc", help="What it is for.")
@click.option("-u", "--username", help="In whose name; only for root.")
@click.option("-p", "--param", multiple=True, callback=pair_each, help="A parameter: name=value. Repeatable.")
@click.option("-yp", "--runyamlpath", help="The document's path on the storage; ./run.yaml if nothing else is given.")
@click.option(
    "-yr",
    "--runyamlraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The document in a file here.",
)
@click.option("-pplid", "--pipelineid", help="A registered pipeline.")
@click.option("-pplver", "--pipelineversionid", help="Its version; the newest if not given.")
@click.option("--disabled", multiple=True, help="A step that is left out, by dotted name. Repeatable.")
@click.option("-de", "--dockerenv", help="Image of all steps that name none.")
@click.option(
    "--strategy", type=click.Choice(["fail_fast", "continue"]), help="What a failed step means for the others."
)
@click.option("--pause-before", multiple=True, metavar="STEP", help="Pause before this step. Repeatable.")
@click.option("--watch", is_flag=True, help="Watch it to its end; the exit code says whether it succeeded.")
@pass_session
@click.pass_context
def create(
    ctx: click.Context,
    session: Session,
    fsname: str | None,
    name: str | None,
    desc: str | None,
    username: str | None,
    param: dict[str, str] | None,
    runyamlpath: str | None,
    runyamlraw: Path | None,
    pipelineid: str | None,
    pipelineversionid: str | None,
    disabled: tuple[str, ...],
    dockerenv: str | None,
    strategy: str | None,
    pause_before: tuple[str, ...],
    watch: bool,
) -> None:
    """Start a run of a document, of a registered pipeline, or of a file on a storage.

    \b
    Examples:
      paddleflow run create -yr run.yaml --watch
      paddleflow run create -yr run.yaml -p epochs=5 -p train.lr=0.1
      paddleflow run create -pplid ppl-000001 -f data
    """
    with faults_of(runyamlraw):
        made = session.client.runs.create(
            yaml=runyamlraw.read_bytes() if runyamlraw else None,
            path=runyamlpath,
            pipeline=pipelineid,
            version=pipelineversionid,
            name=name,
            desc=desc,
            fs=fsname,
            user=username,
            parameters=param,
            disabled=disabled,
            docker_env=dockerenv,
            strategy=strategy,
            breakpoints=pause_before,
        )
    shown = name or (made.record.name if session.output != "json" else "")
    output.done(session, f"run[{shown}] create success with run id[{made.id}]", id=made.id)
    if watch:
        from paddleflow.cli.run_watch import watched

        ctx.exit(watched(made))


@run.command("list")
@click.option("-f", "--fsname", help="Only on this storage.")
@click.option("-u", "--username", help="Only of this user; for root.")
@click.option("-r", "--runid", help="Only these: ids with commas.")
@click.option("-n", "--name", help="Only with this name.")
@click.option("-s", "--status", help="Only with this status: active, final, or words with commas.")
@marker_options("maxsize", 100)
@pass_session
def list_(
    session: Session,
    fsname: str | None,
    username: str | None,
    runid: str | None,
    name: str | None,
    status: str | None,
    size: int,
    marker: str | None,
) -> None:
    """List runs.

    \b
    Examples:
      paddleflow run list -s active
      paddleflow run list -n train -s failed,terminated
    """
    wanted = {"active": ACTIVE, "final": FINAL}.get(status or "", status)
    page = session.client.runs.page(
        max_keys=size, marker=marker, user=username, fs=fsname, run=runid, name=name, status=wanted
    )
    rows = [row_of(found.record) for found in page]
    if session.output != "json":
        click.echo(f"{len(rows)} runs shown under:")
    output.show(session, LIST_HEADERS, rows)
    output.marker(session, page.next_marker)


@run.command()
@click.argument("runid")
@click.option("--yaml", is_flag=True, help="Only the document, as it was given.")
@pass_session
def show(session: Session, runid: str, yaml: bool) -> None:
    """Show a run as a tree: each step with its state, how long it took, and whether it ran or was reused.

    \b
    Examples:
      paddleflow run show run-000001
      paddleflow run show run-000001 --yaml > again.yaml
    """
    found = session.client.runs.get(runid)
    if yaml:
        click.echo(found.record.yaml, nl=not found.record.yaml.endswith("\n"))
        return
    if session.output == "json":
        click.echo(output.as_json(found.record.raw))
        return
    if session.output == "text":
        output.show(session, LIST_HEADERS, [row_of(found.record)])
        return
    from paddleflow.cli.run_tree import tree

    click.echo("\n".join(tree(found.record)))


@run.command()
@click.argument("runid")
@click.option("-f", "--force", is_flag=True, help="Also leave out the step that comes after all.")
@pass_session
def stop(session: Session, runid: str, force: bool) -> None:
    """Stop a run. Its post_process step still runs, unless forced."""
    session.client.runs.handle(runid).stop(force)
    output.done(session, f"runid[{runid}] stop success", id=runid)


@run.command()
@click.argument("runid")
@click.option("--from", "from_step", metavar="STEP", help="Run this step and all that come after it again.")
@click.option("--watch", is_flag=True, help="Watch the new run to its end.")
@pass_session
@click.pass_context
def retry(ctx: click.Context, session: Session, runid: str, from_step: str | None, watch: bool) -> None:
    """Try a run again that failed or was stopped: a new run that takes over what succeeded.

    \b
    Examples:
      paddleflow run retry run-000001
      paddleflow run retry run-000001 --from train --watch
    """
    made = session.client.runs.handle(runid).retry(from_step)
    output.done(session, f"run id[{runid}] retry success, new run id is [{made.id}]", id=made.id)
    if watch:
        from paddleflow.cli.run_watch import watched

        ctx.exit(watched(made))


@run.command()
@click.argument("runid")
@click.option("-not-cc", "--notcheckcache", is_flag=True, help="Also if other runs were served from its results.")
@pass_session
def delete(session: Session, runid: str, notcheckcache: bool) -> None:
    """Delete a run that is over, with its jobs, logs and artifacts."""
    session.client.runs.handle(runid).delete(check_cache=not notcheckcache)
    output.done(session, f"runid[{runid}] delete success", id=runid)
