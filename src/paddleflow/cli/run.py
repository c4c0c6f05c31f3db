"""`paddleflow run`: start, list, show, stop, retry and delete runs; breakpoints; cached results. `run_watch` follows runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.errors import faults_of
from paddleflow.cli.lazy import LazyCommand, Paging, group, paging, pair_each
from paddleflow.cli.output import Column, Kind, with_id
from paddleflow.cli.session import Session, note, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.artifacts import RunCache
    from paddleflow.sdk.runs import RunRecord

ACTIVE = "initiating,pending,running,terminating"
FINAL = "succeeded,failed,terminated,skipped"
EXPLAINED = 5  #: pending steps of `run show` whose reason is asked for

RUN: Kind[RunRecord] = Kind(
    "runs",
    lambda run: run.id,
    lambda run: with_id(run.raw, "runID"),
    (
        Column(lambda run: run.id, "ID", "run id"),
        Column(lambda run: run.fs, "STORAGE", "fs name", wide=True),
        Column(lambda run: run.name, "NAME", flexible=True),
        Column(lambda run: run.user, "USER", "username", flexible=True),
        Column(lambda run: run.status, "STATUS", "status"),
        Column(lambda run: output.age(run.create_time), "AGE"),
        Column(lambda run: _run_time(run), "TIME"),
        Column(lambda run: run.name, "", "name"),
        Column(lambda run: run.description, "DESCRIPTION", "description", wide=True),
        Column(lambda run: run.message, "MESSAGE", "run msg", flexible=True),
        Column(lambda run: run.source, "SOURCE", "source", wide=True),
        Column(lambda run: run.schedule_id, "SCHEDULE", "schedule id", wide=True),
        Column(lambda run: run.scheduled_time, "", "scheduled time"),
        Column(lambda run: run.create_time, "CREATED", "create time", wide=True),
        Column(lambda run: run.activate_time, "STARTED", "activate time", wide=True),
        Column(lambda run: run.update_time, "UPDATED", "update time", wide=True),
    ),
)

run = group(
    help="Start, watch, stop, retry and compare runs of pipelines.",
    lazy={
        "diff": LazyCommand("run_compare:diff", "Compare two runs: parameters, documents, fingerprints, durations."),
        "events": LazyCommand("run_watch:events", "Show the events of a run and its steps."),
        "graph": LazyCommand("run_compare:graph", "Print the graph of a run as Mermaid, SVG or JSON."),
        "listartifact": LazyCommand("artifact:list_", "List the artifacts of runs."),
        "logs": LazyCommand("run_watch:logs", "Print or follow the logs of a run's steps."),
        "wait": LazyCommand("run_watch:wait", "Wait until runs have finished."),
        "watch": LazyCommand("run_watch:watch", "Watch the steps of a run until it has finished."),
    },
)


def _run_time(run: RunRecord) -> str:
    end = run.update_time if run.status in FINAL.split(",") else ""
    return output.elapsed(run.activate_time, end)


@run.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-f", "--fsname", help="Storage that the run works on.")
@click.option("-n", "--name", help="Name of the run. [default: the name in the document]")
@click.option("-d", "--desc", help="Description.")
@click.option("-u", "--username", help="User that the run belongs to (root only).")
@click.option("-p", "--param", multiple=True, callback=pair_each, help="Parameter, name=value. Repeatable.")
@click.option("-yp", "--runyamlpath", help="Path of the document on the storage. [default: ./run.yaml]")
@click.option(
    "-yr",
    "--runyamlraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Local pipeline document; the same as FILE.",
)
@click.option("-pplid", "--pipelineid", help="Registered pipeline to run.")
@click.option("-pplver", "--pipelineversionid", help="Version of the registered pipeline. [default: the newest]")
@click.option("--disabled", multiple=True, help="Step to skip, by its full name. Repeatable.")
@click.option("-de", "--dockerenv", help="Image of steps that name none.")
@click.option(
    "--strategy", type=click.Choice(["fail_fast", "continue"]), help="What to do with other steps when one fails."
)
@click.option("--pause-before", multiple=True, metavar="STEP", help="Pause before this step. Repeatable.")
@click.option("--watch", is_flag=True, help="Watch the run until it has finished; exit with 1 if it fails.")
@pass_session
@click.pass_context
def create(
    ctx: click.Context,
    session: Session,
    file: Path | None,
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
    """Start a run of the pipeline document FILE, of a registered pipeline, or of a document on a storage.

    \b
    Examples:
      paddleflow run create run.yaml --watch
      paddleflow run create run.yaml -p epochs=5 -p train.lr=0.1
      paddleflow run create -pplid ppl-000001 -f data
    """
    local = _local_document(file, runyamlraw, needed=not (pipelineid or fsname))
    with faults_of(local):
        made = session.client.runs.create(
            yaml=local.read_bytes() if local else None,
            folder=local.resolve().parent if local else None,
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
    if not session.machine:
        _note_ignored_image(session, made.record)
    shown = name or (made.record.name if not session.machine else "")
    message = f"run[{shown}] create success with run id[{made.id}]"
    if not (watch and session.machine):
        output.done(session, message, made.id, lambda: RUN.data(made.record))
    if watch:
        from paddleflow.cli.run_watch import watched

        code = watched(made, quiet=session.machine, client=session.client)
        if session.machine:
            output.print_data(session, RUN.data(made.refresh().record))
        ctx.exit(code)


def _local_document(file: Path | None, raw: Path | None, *, needed: bool) -> Path | None:
    if file and raw:
        raise click.UsageError(f"two documents: {file} and -yr {raw}")
    if needed and not (file or raw):
        raise click.UsageError(
            "name a pipeline document, a registered pipeline (-pplid), or a storage with a document (-f, -yp)"
        )
    return file or raw


def _note_ignored_image(session: Session, record: RunRecord) -> None:
    """Says once per run that images are not used where no cluster runs containers."""
    if record.docker_env and all(cluster.type == "Local" for cluster in session.client.clusters.list()):
        note(
            f"note: docker_env {record.docker_env} is recorded but not used: steps run as processes of the server's machine"
        )


@run.command("list")
@click.option("-f", "--fsname", help="Only runs on this storage.")
@click.option("-u", "--username", help="Only runs of this user (root only).")
@click.option("-r", "--runid", help="Only these runs, separated by commas.")
@click.option("-n", "--name", help="Only runs with this name.")
@click.option("-s", "--status", help="Only runs in these states; active and final stand for several.")
@paging("maxsize", 100)
@pass_session
def list_(
    session: Session,
    fsname: str | None,
    username: str | None,
    runid: str | None,
    name: str | None,
    status: str | None,
    paging: Paging,
) -> None:
    """List runs, newest first.

    \b
    Examples:
      paddleflow run list -s active
      paddleflow run list -n train -s failed,terminated
    """
    wanted = {"active": ACTIVE, "final": FINAL}.get(status or "", status)
    found, marker = paging.collect(
        lambda size, marker: session.client.runs.page(
            max_keys=size, marker=marker, user=username, fs=fsname, run=runid, name=name, status=wanted
        )
    )
    if session.output in {"compat", "text"}:
        click.echo(f"{len(found)} runs shown under:")
    output.show_list(session, RUN, [run.record for run in found], marker)
    output.show_marker(session, marker)


@run.command()
@click.argument("runid")
@click.option("--yaml", is_flag=True, help="Print the pipeline document as it was submitted.")
@pass_session
def show(session: Session, runid: str, yaml: bool) -> None:
    """Show a run as a tree: each step with its state, duration, job, and whether it ran or was reused from a cache.

    RUNID may be a number (7 for run-000007); @latest (or -) is the newest run.

    \b
    Examples:
      paddleflow run show @latest
      paddleflow run show run-000001 --yaml > again.yaml
    """
    found = session.run(runid).refresh()
    if yaml:
        click.echo(found.record.yaml, nl=not found.record.yaml.endswith("\n"))
    elif session.output in {"table", "wide", "compat"}:
        from paddleflow.cli.run_tree import tree

        reasons = _reasons(session, found.record)
        click.echo(printable("\n".join(tree(found.record, lambda step: reasons.get(step.job_id, "")))))
    else:
        output.show_one(session, RUN, found.record, {}, ("", {}))


def _reasons(session: Session, record: RunRecord) -> dict[str, str]:
    """Why the first pending steps are pending, by job."""
    from paddleflow.errors import PaddleFlowError
    from paddleflow.sdk.runs import steps

    found: dict[str, str] = {}
    for _, step in steps(record.runtime):
        if step.status == "pending" and step.job_id and len(found) < EXPLAINED:
            try:
                found[step.job_id] = session.client.jobs.handle(step.job_id).why().text
            except PaddleFlowError:
                break  # the tree is shown all the same
    return found


@run.command()
@click.argument("runid")
@click.option("-f", "--force", is_flag=True, help="Skip the post_process step, too.")
@pass_session
def stop(session: Session, runid: str, force: bool) -> None:
    """Stop a run. Its post_process step still runs, unless --force is given."""
    stopped = session.run(runid)
    stopped.stop(force)
    output.done(session, f"runid[{stopped.id}] stop success", stopped.id, lambda: RUN.data(stopped.record))


@run.command()
@click.argument("runid")
@click.option("--from", "from_step", metavar="STEP", help="Rerun this step and all that depend on it.")
@click.option(
    "--with",
    "document",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run this changed document; unchanged steps are not rerun.",
)
@click.option("--watch", is_flag=True, help="Watch the new run until it has finished.")
@pass_session
@click.pass_context
def retry(
    ctx: click.Context, session: Session, runid: str, from_step: str | None, document: Path | None, watch: bool
) -> None:
    """Retry a failed or stopped run: starts a new run that keeps the steps that succeeded.

    \b
    Examples:
      paddleflow run retry @latest
      paddleflow run retry run-000001 --from train --watch
      paddleflow run retry run-000001 --with run.yaml
    """
    old = session.run(runid)
    folder = document.resolve().parent if document else None
    made = old.retry(from_step, yaml=document.read_bytes() if document else None, folder=folder)
    message = f"run id[{old.id}] retry success, new run id is [{made.id}]"
    output.done(session, message, made.id, lambda: RUN.data(made.record))
    if watch:
        from paddleflow.cli.run_watch import watched

        ctx.exit(watched(made, client=session.client))


@run.command()
@click.argument("runid")
@click.option("-not-cc", "--notcheckcache", is_flag=True, help="Delete it even if other runs reuse its results.")
@pass_session
def delete(session: Session, runid: str, notcheckcache: bool) -> None:
    """Delete a finished run with its jobs, logs and artifacts."""
    gone = session.run(runid)
    gone.delete(check_cache=not notcheckcache)
    output.done(session, f"runid[{gone.id}] delete success", gone.id)


@run.command()
@click.argument("runid")
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@click.option("--remove", is_flag=True, help="Remove these breakpoints; all of them if no step is named.")
@pass_session
def breakpoint(session: Session, runid: str, steps: tuple[str, ...], remove: bool) -> None:
    """Pause a run before STEPs that have not started. Steps inside a dag have full names: prepare.download.

    \b
    Examples:
      paddleflow run breakpoint run-000001 train
      paddleflow run breakpoint run-000001 --remove
    """
    run = session.run(runid)
    if remove:
        run.clear_breakpoints(*steps)
    elif steps:
        run.pause_before(*steps)
    else:
        raise click.UsageError("name the steps to pause before, or use --remove")
    now = run.refresh().record
    message = f"runid[{run.id}] breakpoints: {', '.join(now.breakpoints) or 'none'}"
    output.done(session, message, run.id, lambda: RUN.data(now))


@run.command()
@click.argument("runid")
@click.argument("step", required=False)
@pass_session
def resume(session: Session, runid: str, step: str | None) -> None:
    """Resume a paused run: at STEP, or at every step that it is paused before."""
    run = session.run(runid)
    run.resume(step)
    output.done(session, f"runid[{run.id}] resume success", run.id, lambda: RUN.data(run.record))


# ---- cached results -------------------------------------------------------------------------------------------------

CACHE: Kind[RunCache] = Kind(
    "cached results",
    lambda cache: cache.id,
    lambda cache: with_id(cache.raw, "cacheID"),
    (
        Column(lambda cache: cache.id, "ID", "cache id"),
        Column(lambda cache: cache.run_id, "RUN", "run id"),
        Column(lambda cache: cache.job_id, "JOB", "job id", wide=True),
        Column(lambda cache: cache.fs, "STORAGE", "fsname", flexible=True),
        Column(lambda cache: cache.user, "USER", "username", flexible=True),
        Column(lambda cache: "never" if cache.expired_time in {"", "-1"} else cache.expired_time, "EXPIRES"),
        Column(lambda cache: cache.expired_time, "", "expired time"),
        Column(lambda cache: output.age(cache.create_time), "AGE"),
        Column(lambda cache: cache.create_time, "CREATED", "create time", wide=True),
        Column(lambda cache: cache.update_time, "UPDATED", "update time", wide=True),
    ),
)


@run.command()
@click.option("-u", "--username", help="Only results of this user (root only).")
@click.option("-f", "--fsname", help="Only results on this storage.")
@click.option("-r", "--runid", help="Only results of this run.")
@paging("maxsize", 100)
@pass_session
def listcache(session: Session, username: str | None, fsname: str | None, runid: str | None, paging: Paging) -> None:
    """List cached results of steps."""
    found, marker = paging.collect(
        lambda size, marker: session.client.caches.page(
            max_keys=size, marker=marker, user=username, fs=fsname, run=runid
        )
    )
    output.show_list(session, CACHE, found, marker)
    output.show_marker(session, marker)


@run.command()
@click.argument("cacheid")
@pass_session
def showcache(session: Session, cacheid: str) -> None:
    """Show a cached result and its fingerprints."""
    found = session.client.caches.get(cacheid)
    rest: dict[str, object] = {
        "first fingerprint": found.first_fingerprint,
        "second fingerprint": found.second_fingerprint,
        "source": found.source,
        "strategy": found.strategy,
    }
    facts = {column.table.capitalize(): column.value(found) for column in CACHE.columns if column.table}
    more = {key.capitalize(): value for key, value in rest.items()}
    output.show_one(session, CACHE, found, {**facts, **more}, ("cache info: ", rest))


@run.command()
@click.argument("cacheid")
@pass_session
def deletecache(session: Session, cacheid: str) -> None:
    """Delete a cached result; the step runs again next time."""
    session.client.caches.delete(cacheid)
    output.done(session, f"cache id[{cacheid}] delete success", cacheid)
