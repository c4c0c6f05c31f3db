"""`paddleflow pipeline`: check and export documents without a server; registered pipelines and their versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.errors import faults_of
from paddleflow.cli.lazy import Paging, group, paging, pair_each
from paddleflow.cli.output import Column, Kind, with_id
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.pipelines import PipelineRecord, PipelineVersion
    from paddleflow.sdk.records import Page
    from paddleflow.spec.pipeline.model import Pipeline

PIPELINE: Kind[PipelineRecord] = Kind(
    "pipelines",
    lambda pipeline: pipeline.id,
    lambda pipeline: with_id(pipeline.raw, "pipelineID"),
    (
        Column(lambda pipeline: pipeline.id, "ID", "pipeline id"),
        Column(lambda pipeline: pipeline.name, "NAME", "name", flexible=True),
        Column(lambda pipeline: pipeline.user, "USER", "username", flexible=True),
        Column(lambda pipeline: pipeline.desc, "DESCRIPTION", "desc", flexible=True),
        Column(lambda pipeline: output.age(pipeline.create_time), "AGE"),
        Column(lambda pipeline: pipeline.create_time, "CREATED", "create time", wide=True),
        Column(lambda pipeline: pipeline.update_time, "UPDATED", "update time", wide=True),
    ),
)
VERSION: Kind[PipelineVersion] = Kind(
    "versions",
    lambda version: version.id,
    lambda version: with_id(version.raw, "pipelineVersionID"),
    (
        Column(lambda version: version.id, "VERSION", "ppl ver id"),
        Column(lambda version: version.fs, "STORAGE", "fs name", flexible=True),
        Column(lambda version: version.path, "PATH", "yaml path", flexible=True),
        Column(lambda version: version.user, "USER", "username", flexible=True),
        Column(lambda version: output.age(version.create_time), "AGE"),
        Column(lambda version: version.create_time, "CREATED", "create time", wide=True),
        Column(lambda version: version.update_time, "UPDATED", "update time", wide=True),
    ),
)

pipeline = group(help="Check, register, version and export pipelines.")

MOST_SHOWN = 160  #: characters of a source line


@pipeline.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("-p", "--param", multiple=True, callback=pair_each, help="Parameter of the run, name=value. Repeatable.")
@click.option("-f", "--fs-name", default="", help="Storage of the run, if the document names none.")
@pass_session
@click.pass_context
def check(ctx: click.Context, session: Session, file: str, param: dict[str, str] | None, fs_name: str) -> None:
    """Check the pipeline document FILE without a server and print every error with its line and a hint.

    "-" reads standard input. Exits with 1 if there is an error.

    \b
    Examples:
      paddleflow pipeline check run.yaml
      paddleflow pipeline check run.yaml -p epochs=5 -p train.lr=0.1 --json
    """
    found, name = _bound(ctx, session, file, param, fs_name)
    facts = _facts(found)
    if session.machine:
        output.print_data(session, {"file": name, "ok": True, **facts})
    else:
        words = [f"pipeline {facts['pipeline']}", output.count(facts["steps"], "step")]
        words += [output.count(facts["dags"], "dag")] if facts["dags"] else []
        words += [f"post_process {facts['post_process']}"] if found.post_process else []
        click.echo(f"{name}: ok: {', '.join(words)}")


@pipeline.command()
def schema() -> None:
    """Print the JSON Schema of pipeline documents for editors.

    \b
    Example:
      paddleflow pipeline schema > pipeline.schema.json
      # first line of run.yaml:  # yaml-language-server: $schema=pipeline.schema.json
    """
    from paddleflow.spec.pipeline.schema import json_schema

    click.echo(output.as_json(json_schema()))


@pipeline.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--to", "target", required=True, type=click.Choice(["argo", "airflow"]), help="Target engine.")
@click.option(
    "-o",
    "--out",
    default="-",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="File to write. [default: standard output]",
)
@click.option("-p", "--param", multiple=True, callback=pair_each, help="Parameter of the run, name=value. Repeatable.")
@click.option("-f", "--fs-name", default="", help="Storage of the run, if the document names none.")
@pass_session
@click.pass_context
def export(
    ctx: click.Context, session: Session, file: str, target: str, out: str, param: dict[str, str] | None, fs_name: str
) -> None:
    """Convert the pipeline document FILE into an Argo Workflow or an Airflow 3 DAG, without a server.

    Everything that the target cannot express is reported at once.

    \b
    Examples:
      paddleflow pipeline export run.yaml --to argo -o workflow.yaml
      paddleflow pipeline export run.yaml --to airflow -p epochs=5 -o dags/run.py
    """
    from paddleflow.exporters import airflow, argo

    found, _ = _bound(ctx, session, file, param, fs_name)
    if target == "argo":
        manifest, notes = argo.export(found)
        text = argo.to_yaml(manifest)
    else:
        text, notes = airflow.export(found)
    for note in notes:
        click.echo(printable(f"note: {note}"), err=True)
    with click.open_file(out, "w", encoding="utf-8") as stream:
        stream.write(text)


def _bound(
    ctx: click.Context, session: Session, file: str, param: dict[str, str] | None, fs_name: str
) -> tuple[Pipeline, str]:
    """The pipeline that a run would run, and the name of its file; prints the errors and exits with 1 if there are any."""
    from paddleflow.spec.pipeline.document import read
    from paddleflow.spec.pipeline.run_request import RunRequest, bind

    content = _content(file)
    name = "<stdin>" if file == "-" else file
    try:
        return bind(read(content, name), RunRequest(parameters=param or {}, fs_name=fs_name), name), name
    except Invalid as error:
        _show_faults(session, error, name, content)
        ctx.exit(1)


def _content(file: str) -> bytes:
    """The bytes of the file; one that is too large is not read."""
    from paddleflow.spec.pipeline.nodes import MOST_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        path = Path(file)
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise Invalid(f"{file} has {size:,} bytes, the maximum is {MOST_BYTES:,}", code="MalformedYaml")
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}", code="ReadYamlFileFailed") from error


def _facts(found: Pipeline) -> dict[str, Any]:
    """What shows a person that the right document was read."""
    from paddleflow.spec.pipeline.model import Step
    from paddleflow.spec.pipeline.validation import walk

    components = [component for _, component, _ in walk(found.entry_points)]
    steps = sum(isinstance(component, Step) for component in components)
    facts: dict[str, Any] = {"pipeline": found.name, "steps": steps, "dags": len(components) - steps}
    if found.post_process:
        facts["post_process"] = found.post_process.name
    return facts


def _show_faults(session: Session, error: Invalid, name: str, content: bytes) -> None:
    from paddleflow.spec.pipeline.faults import LINE_BREAK, PipelineFault

    faults = [fault for fault in error.details if isinstance(fault, PipelineFault)]
    if session.machine:
        rows = [
            {
                "line": fault.line,
                "column": fault.column,
                "path": fault.path,
                "message": fault.message,
                "hint": fault.hint,
            }
            for fault in faults
        ]
        output.print_data(session, {"file": name, "ok": False, "code": error.code, "faults": rows})
        return
    lines = LINE_BREAK.split(content.decode("utf-8-sig", "replace"))
    for fault in faults:
        place = f"{name}:{fault.line}:{fault.column}" if fault.line else name
        click.echo(printable(f"{place}: {f'{fault.path}: ' if fault.path else ''}{fault.message}"))
        if 0 < fault.line <= len(lines):
            _show_line(lines[fault.line - 1], fault.line, fault.column)
        if fault.hint:
            click.echo(printable(f"  hint: {fault.hint}"))
    count = len(faults)
    click.echo(f"{count} {'error' if count == 1 else 'errors'}", err=True)


def _show_line(line: str, number: int, column: int) -> None:
    """The source line with a caret below it; a long one is cut around the column."""
    skip = max(0, column - MOST_SHOWN // 2) if len(line) > MOST_SHOWN else 0
    part = line[skip : skip + MOST_SHOWN].replace("\t", " ")
    before = output.width(part[: column - 1 - skip])
    margin = " " * len(str(number))
    click.echo(printable(f"  {number} | {part}"))
    click.echo(f"  {margin} | {' ' * before}^")


# ---- registered pipelines ---------------------------------------------------------------------------------------------


def _text(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


def _folder(path: Path | None) -> Path | None:
    """What folders of code in a document are relative to."""
    return path.resolve().parent if path else None


_RAW = click.option(
    "-yr",
    "--yamlraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Local document, instead of one on a storage.",
)


@pipeline.command()
@click.argument("fs_name", required=False)
@click.option("-yp", "--yamlpath", help="Path of the document on the storage. [default: ./run.yaml]")
@_RAW
@click.option("-d", "--desc", help="Description.")
@click.option("-u", "--username", help="Owner of the pipeline (root only).")
@pass_session
def create(
    session: Session,
    fs_name: str | None,
    yamlpath: str | None,
    yamlraw: Path | None,
    desc: str | None,
    username: str | None,
) -> None:
    """Register a pipeline: the document on storage FS_NAME, or a local one with -yr.

    \b
    Examples:
      paddleflow pipeline create data -yp pipelines/train.yaml
      paddleflow pipeline create -yr run.yaml -d "nightly training"
    """
    with faults_of(yamlraw):
        made = session.client.pipelines.create(
            yaml=_text(yamlraw), fs=fs_name, path=yamlpath, desc=desc, user=username, folder=_folder(yamlraw)
        )
    message = f"pipeline[{made.name}] create  success, id[{made.pipeline_id}], versionID[{made.version_id}]"
    output.done(session, message, made.pipeline_id, lambda: _data(session, made.pipeline_id, made.version_id))


@pipeline.command()
@click.argument("pipeline_id")
@click.argument("fs_name", required=False)
@click.argument("yaml_path", required=False)
@_RAW
@click.option("-d", "--desc", help="Description.")
@click.option("-u", "--username", help="Owner of the pipeline (root only).")
@pass_session
def update(
    session: Session,
    pipeline_id: str,
    fs_name: str | None,
    yaml_path: str | None,
    yamlraw: Path | None,
    desc: str | None,
    username: str | None,
) -> None:
    """Add a version to a registered pipeline."""
    with faults_of(yamlraw):
        made = session.client.pipelines.update(
            pipeline_id,
            yaml=_text(yamlraw),
            fs=fs_name,
            path=yaml_path,
            desc=desc,
            user=username,
            folder=_folder(yamlraw),
        )
    message = f"pipeline[{pipeline_id}] update success, new versionID[{made.version_id}]"
    output.done(session, message, pipeline_id, lambda: _data(session, pipeline_id, made.version_id))


@pipeline.command("list")
@click.option("-u", "--userfilter", help="Only pipelines of these users (root only).")
@click.option("-n", "--namefilter", help="Only pipelines with these names.")
@paging("maxkeys", 50)
@pass_session
def list_(session: Session, userfilter: str | None, namefilter: str | None, paging: Paging) -> None:
    """List registered pipelines."""
    found, marker = paging.collect(
        lambda size, marker: session.client.pipelines.page(
            max_keys=size, marker=marker, user=userfilter, name=namefilter
        )
    )
    output.show_list(session, PIPELINE, found, marker)
    output.show_marker(session, marker)


@pipeline.command()
@click.argument("pipeline_id")
@click.option("-f", "--fsfilter", help="Only versions on these storages.")
@paging("maxkeys", 50)
@pass_session
def show(session: Session, pipeline_id: str, fsfilter: str | None, paging: Paging) -> None:
    """Show a registered pipeline and its versions."""
    records: list[PipelineRecord] = []

    def fetch(size: int, marker: str | None) -> Page[PipelineVersion]:
        record, page = session.client.pipelines.version_page(pipeline_id, max_keys=size, marker=marker, fs=fsfilter)
        records.append(record)
        return page

    versions, marker = paging.collect(fetch)
    if session.machine:
        data = {**with_id(records[0].raw, "pipelineID"), "versions": [VERSION.data(version) for version in versions]}
        output.print_data(session, data)
        return
    output.show_list(session, PIPELINE, records[:1])
    output.show_list(session, VERSION, versions, marker)
    output.show_marker(session, marker)


@pipeline.command()
@click.argument("pipeline_id")
@click.argument("version_id")
@pass_session
def showversion(session: Session, pipeline_id: str, version_id: str) -> None:
    """Show one version of a registered pipeline with its document."""
    if session.machine:
        output.print_data(session, _data(session, pipeline_id, version_id))
        return
    record, version = session.client.pipelines.with_version(pipeline_id, version_id)
    output.show_list(session, PIPELINE, [record])
    output.show_list(session, VERSION, [version])
    click.echo(version.yaml, nl=not version.yaml.endswith("\n"))


def _data(session: Session, pipeline_id: str, version_id: str) -> object:
    """A pipeline with one version of it."""
    record, version = session.client.pipelines.with_version(pipeline_id, version_id)
    return {**with_id(record.raw, "pipelineID"), "versions": [VERSION.data(version)]}


@pipeline.command()
@click.argument("pipeline_id")
@pass_session
def delete(session: Session, pipeline_id: str) -> None:
    """Delete a registered pipeline with all its versions. Its runs are kept."""
    session.client.pipelines.delete(pipeline_id)
    output.done(session, f"pipeline[{pipeline_id}] delete success", pipeline_id)


@pipeline.command()
@click.argument("pipeline_id")
@click.argument("version_id")
@pass_session
def deleteversion(session: Session, pipeline_id: str, version_id: str) -> None:
    """Delete one version of a registered pipeline. The last version cannot be deleted."""
    session.client.pipelines.delete_version(pipeline_id, version_id)
    output.done(session, f"pipeline[{pipeline_id}] version[{version_id}] delete success", pipeline_id)
