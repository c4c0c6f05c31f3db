"""`paddleflow pipeline create`, `list`, `show` …: pipelines that the server keeps, with their versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, marker_options
from paddleflow.cli.refusals import faults_of
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.pipelines import PipelineRecord, PipelineVersion

HEADERS = ["pipeline id", "name", "username", "desc", "create time", "update time"]
VERSION_HEADERS = ["ppl ver id", "fs name", "yaml path", "username", "create time", "update time"]


def _row(record: PipelineRecord) -> list[object]:
    return [record.id, record.name, record.user, record.desc, record.create_time, record.update_time]


def _version_row(version: PipelineVersion) -> list[object]:
    return [version.id, version.fs, version.path, version.user, version.create_time, version.update_time]


def _text(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


_RAW = click.option(
    "-yr",
    "--yamlraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The document in a file here, instead of one on a storage.",
)


@click.command(cls=Command)
@click.argument("fs_name", required=False)
@click.option("-yp", "--yamlpath", help="The document's path on the storage; ./run.yaml if not given.")
@_RAW
@click.option("-d", "--desc", help="What it is for.")
@click.option("-u", "--username", help="In whose name; only for root.")
@pass_session
def create(
    session: Session,
    fs_name: str | None,
    yamlpath: str | None,
    yamlraw: Path | None,
    desc: str | None,
    username: str | None,
) -> None:
    """Register a pipeline: the document on storage FS_NAME, or a file here.

    \b
    Examples:
      paddleflow pipeline create data -yp pipelines/train.yaml
      paddleflow pipeline create -yr run.yaml -d "nightly training"
    """
    with faults_of(yamlraw):
        made = session.client.pipelines.create(yaml=_text(yamlraw), fs=fs_name, path=yamlpath, desc=desc, user=username)
    output.done(
        session,
        f"pipeline[{made.name}] create  success, id[{made.pipeline_id}], versionID[{made.version_id}]",
        id=made.pipeline_id,
        version=made.version_id,
    )


@click.command(cls=Command)
@click.argument("pipeline_id")
@click.argument("fs_name", required=False)
@click.argument("yaml_path", required=False)
@_RAW
@click.option("-d", "--desc", help="What it is for.")
@click.option("-u", "--username", help="In whose name; only for root.")
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
            pipeline_id, yaml=_text(yamlraw), fs=fs_name, path=yaml_path, desc=desc, user=username
        )
    output.done(
        session,
        f"pipeline[{pipeline_id}] update success, new versionID[{made.version_id}]",
        id=pipeline_id,
        version=made.version_id,
    )


@click.command("list", cls=Command)
@click.option("-u", "--userfilter", help="Only of these users; for root.")
@click.option("-n", "--namefilter", help="Only with these names.")
@marker_options("maxkeys", 50)
@pass_session
def list_(session: Session, userfilter: str | None, namefilter: str | None, size: int, marker: str | None) -> None:
    """List registered pipelines."""
    page = session.client.pipelines.page(max_keys=size, marker=marker, user=userfilter, name=namefilter)
    output.show(session, HEADERS, [_row(record) for record in page])
    output.marker(session, page.next_marker)


@click.command(cls=Command)
@click.argument("pipeline_id")
@click.option("-f", "--fsfilter", help="Only versions of these storages.")
@marker_options("maxkeys", 50)
@pass_session
def show(session: Session, pipeline_id: str, fsfilter: str | None, size: int, marker: str | None) -> None:
    """Show a registered pipeline and its versions."""
    record, page = session.client.pipelines.version_page(pipeline_id, max_keys=size, marker=marker, fs=fsfilter)
    if session.output == "json":
        click.echo(output.as_json({**record.raw, "versions": [version.raw for version in page]}))
        return
    output.show(session, HEADERS, [_row(record)])
    output.show(session, VERSION_HEADERS, [_version_row(version) for version in page])
    output.marker(session, page.next_marker)


@click.command(cls=Command)
@click.argument("pipeline_id")
@click.argument("version_id")
@pass_session
def showversion(session: Session, pipeline_id: str, version_id: str) -> None:
    """Show one version of a registered pipeline, with its document."""
    record, version = session.client.pipelines.with_version(pipeline_id, version_id)
    if session.output == "json":
        click.echo(output.as_json({**record.raw, "version": version.raw}))
        return
    output.show(session, HEADERS, [_row(record)])
    output.show(session, VERSION_HEADERS, [_version_row(version)])
    click.echo(version.yaml, nl=not version.yaml.endswith("\n"))


@click.command(cls=Command)
@click.argument("pipeline_id")
@pass_session
def delete(session: Session, pipeline_id: str) -> None:
    """Delete a registered pipeline with all its versions. Its runs stay."""
    session.client.pipelines.delete(pipeline_id)
    output.done(session, f"pipeline[{pipeline_id}] delete success", id=pipeline_id)


@click.command(cls=Command)
@click.argument("pipeline_id")
@click.argument("version_id")
@pass_session
def deleteversion(session: Session, pipeline_id: str, version_id: str) -> None:
    """Delete one version of a registered pipeline; not its last."""
    session.client.pipelines.delete_version(pipeline_id, version_id)
    output.done(session, f"pipeline[{pipeline_id}] version[{version_id}] delete success", id=pipeline_id)
