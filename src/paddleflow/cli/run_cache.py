"""`paddleflow run listcache`, `showcache`, `deletecache`: results of steps that later runs may use again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, marker_options
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.artifacts import RunCache

HEADERS = ["cache id", "run id", "job id", "fsname", "username", "expired time", "create time", "update time"]


def _row(cache: RunCache) -> list[object]:
    return [
        cache.id, cache.run_id, cache.job_id, cache.fs, cache.user,
        cache.expired_time, cache.create_time, cache.update_time,
    ]  # fmt: skip


@click.command(cls=Command)
@click.option("-u", "--username", help="Only of this user; for root.")
@click.option("-f", "--fsname", help="Only on this storage.")
@click.option("-r", "--runid", help="Only of this run.")
@marker_options("maxsize", 100)
@pass_session
def listcache(
    session: Session, username: str | None, fsname: str | None, runid: str | None, size: int, marker: str | None
) -> None:
    """List cached results."""
    page = session.client.caches.page(max_keys=size, marker=marker, user=username, fs=fsname, run=runid)
    output.show(session, HEADERS, [_row(cache) for cache in page])
    output.marker(session, page.next_marker)


@click.command(cls=Command)
@click.argument("cacheid")
@pass_session
def showcache(session: Session, cacheid: str) -> None:
    """Show a cached result with its two fingerprints."""
    found = session.client.caches.get(cacheid)
    rest = {
        "first fingerprint": found.first_fingerprint,
        "second fingerprint": found.second_fingerprint,
        "source": found.source,
        "strategy": found.strategy,
    }
    output.show_one(session, HEADERS, _row(found), "cache info: ", dict(rest))


@click.command(cls=Command)
@click.argument("cacheid")
@pass_session
def deletecache(session: Session, cacheid: str) -> None:
    """Delete a cached result: the step will run again."""
    session.client.caches.delete(cacheid)
    output.done(session, f"cache id[{cacheid}] delete success", id=cacheid)
