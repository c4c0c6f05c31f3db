"""`paddleflow artifact`: the inputs and outputs of steps, their content and their lineage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.lazy import Command, Paging, group, paging
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, note, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.artifacts import Artifact, Lineage

ARTIFACT: Kind[Artifact] = Kind(
    "artifacts",
    lambda artifact: artifact.path,
    lambda artifact: artifact.raw,
    (
        Column(lambda artifact: artifact.run_id, "RUN", "run id"),
        Column(lambda artifact: artifact.fs, "STORAGE", "fsname", flexible=True),
        Column(lambda artifact: artifact.user, "USER", "username", wide=True),
        Column(lambda artifact: artifact.path, "", "artifact path"),
        Column(lambda artifact: artifact.type, "TYPE", "type"),
        Column(lambda artifact: artifact.step, "STEP", "step", flexible=True),
        Column(lambda artifact: artifact.name, "NAME", "artifact name", flexible=True),
        Column(lambda artifact: output.size(artifact.size) if artifact.type == "output" else "", "SIZE"),
        Column(lambda artifact: output.age(artifact.create_time), "AGE"),
        Column(lambda artifact: artifact.path, "PATH", wide=True),
        Column(lambda artifact: artifact.meta, "", "meta"),
        Column(lambda artifact: artifact.create_time, "CREATED", "create time", wide=True),
        Column(lambda artifact: artifact.update_time, "UPDATED", "update time", wide=True),
    ),
)

artifact = group(help="List, download and trace artifacts, the inputs and outputs of steps.")


@click.command("list", cls=Command)
@click.option("-u", "--username", help="Only artifacts of this user (root only).")
@click.option("-f", "--fsname", help="Only artifacts on this storage.")
@click.option("-r", "--runid", help="Only artifacts of this run.")
@click.option("-t", "--type", "kind", type=click.Choice(["input", "output"]), help="Only inputs, or only outputs.")
@click.option("-p", "--path", help="Only artifacts at this path.")
@paging("maxsize", 100)
@pass_session
def list_(
    session: Session,
    username: str | None,
    fsname: str | None,
    runid: str | None,
    kind: str | None,
    path: str | None,
    paging: Paging,
) -> None:
    """List the artifacts of runs.

    \b
    Example:
      paddleflow artifact list -r run-000001 -t output -o wide
    """
    found, marker = paging.collect(
        lambda size, marker: session.client.artifacts.page(
            max_keys=size, marker=marker, user=username, fs=fsname, run=runid, type=kind, path=path
        )
    )
    output.show_list(session, ARTIFACT, found, marker)
    output.show_marker(session, marker)


artifact.add_command(list_)


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="Storage of the artifact.")
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), help="File to write. [default: the name of the artifact]"
)
@pass_session
def download(session: Session, path: str, fsname: str, to: Path | None) -> None:
    """Download the artifact at PATH of a storage; a folder is downloaded as a tar file.

    \b
    Example:
      paddleflow artifact download .pipeline/run-000001/train/train-0-037175363b6e/model -f data --to model.bin
    """
    target = session.client.artifacts.handle(fsname, path).download(to or Path(Path(path).name))
    note(f"wrote {target} ({output.size(target.stat().st_size)})")


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="Storage of the artifact.")
@pass_session
def lineage(session: Session, path: str, fsname: str) -> None:
    """Show which run and step produced the artifact at PATH, and from which inputs."""
    found = session.client.artifacts.lineage(fsname, path)
    if session.machine:
        output.print_data(session, found.raw)
        return
    for depth, one in _generations(found, 0):
        made = f"produced by {one.run_id} {one.step}" if one.run_id else "not produced by a run"
        click.echo(printable(f"{'  ' * depth}{one.path}  {made}"))


def _generations(found: Lineage, depth: int) -> Iterator[tuple[int, Lineage]]:
    """An artifact, then its inputs, each with its depth."""
    yield depth, found
    for one in found.inputs:
        yield from _generations(one, depth + 1)


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="Storage of the artifact.")
@click.option("-r", "--runid", required=True, help="Run of the artifact.")
@click.option("-u", "--username", help="Owner of the artifact (root only).")
@pass_session
def delete(session: Session, path: str, fsname: str, runid: str, username: str | None) -> None:
    """Delete the record of the artifact at PATH."""
    session.client.artifacts.delete(fsname, runid, path, user=username)
    output.done(session, f"artifact[{path}] delete success", path, lambda: {"path": path})
