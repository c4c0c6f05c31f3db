"""`paddleflow artifact`: what steps took in and left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, group, marker_options
from paddleflow.cli.session import Session, note, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.artifacts import Lineage

HEADERS = [
    "run id", "fsname", "username", "artifact path", "type", "step", "artifact name", "meta",
    "create time", "update time",
]  # fmt: skip

artifact = group(help="Artifacts: what steps took in and left behind, their bytes and where they came from.")


@click.command("list", cls=Command)
@click.option("-u", "--username", help="Only of this user; for root.")
@click.option("-f", "--fsname", help="Only on this storage.")
@click.option("-r", "--runid", help="Only of this run.")
@click.option("-t", "--type", "kind", type=click.Choice(["input", "output"]), help="Only what was taken in, or left.")
@click.option("-p", "--path", help="Only at this path.")
@marker_options("maxsize", 100)
@pass_session
def list_(
    session: Session,
    username: str | None,
    fsname: str | None,
    runid: str | None,
    kind: str | None,
    path: str | None,
    size: int,
    marker: str | None,
) -> None:
    """List artifacts of runs.

    \b
    Example:
      paddleflow artifact list -r run-000001 -t output
    """
    page = session.client.artifacts.page(
        max_keys=size, marker=marker, user=username, fs=fsname, run=runid, type=kind, path=path
    )
    rows = [
        [
            one.run_id,
            one.fs,
            one.user,
            one.path,
            one.type,
            one.step,
            one.name,
            one.meta,
            one.create_time,
            one.update_time,
        ]
        for one in page
    ]
    output.show(session, HEADERS, rows)
    output.marker(session, page.next_marker)


artifact.add_command(list_)


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="The storage that it lies on.")
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; its own name if not given."
)
@pass_session
def download(session: Session, path: str, fsname: str, to: Path | None) -> None:
    """Download the artifact at PATH of a storage; a folder comes as a tar file.

    \b
    Example:
      paddleflow artifact download .pipeline/run-000001/train/train-0-037175363b6e/model -f data --to model.bin
    """
    target = session.client.artifacts.handle(fsname, path).download(to or Path(Path(path).name))
    note(f"{target} written, {target.stat().st_size} bytes")


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="The storage that it lies on.")
@pass_session
def lineage(session: Session, path: str, fsname: str) -> None:
    """Show which run and step made the artifact at PATH, and of which inputs."""
    found = session.client.artifacts.lineage(fsname, path)
    if session.output == "json":
        click.echo(output.as_json(found.raw))
        return
    for depth, one in _generations(found, 0):
        made = f"made by {one.run_id} {one.step}" if one.run_id else "from outside"
        click.echo(f"{'  ' * depth}{one.path}  {made}")


def _generations(found: Lineage, depth: int) -> Iterator[tuple[int, Lineage]]:
    """An artifact, then what it was made of, each with how far back it lies."""
    yield depth, found
    for one in found.inputs:
        yield from _generations(one, depth + 1)


@artifact.command()
@click.argument("path")
@click.option("-f", "--fsname", required=True, help="The storage that it lies on.")
@click.option("-r", "--runid", required=True, help="The run that it belongs to.")
@click.option("-u", "--username", help="In whose name; only for root.")
@pass_session
def delete(session: Session, path: str, fsname: str, runid: str, username: str | None) -> None:
    """Delete the record of the artifact at PATH."""
    session.client.artifacts.delete(fsname, runid, path, user=username)
    output.done(session, f"artifact[{path}] delete success", path=path)
