"""`paddleflow fs`: storages that jobs see at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import grants, output
from paddleflow.cli.lazy import Late, group, pair_each
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.storages import Storage

HEADERS = ["name", "owner", "type", "server address", "sub path", "properties"]

LATE = {
    "mount": Late("fs_mount:mount", "Mount a storage or a URL on a folder of this machine."),
    "stats": Late("fs_mount:stats", "Show what a mount did: requests, times, how files were opened."),
    "umount": Late("fs_mount:umount", "Unmount a folder."),
}
fs = group(help="Storages (fs): named places for files, which jobs see at a path.", late=LATE)
_owner = click.option("-u", "--username", help="Of this user instead of yourself; for root.")


def _row(storage: Storage) -> list[object]:
    return [
        storage.name,
        storage.user,
        storage.type,
        storage.server_address,
        storage.sub_path,
        dict(storage.properties),
    ]


@fs.command("list")
@_owner
@click.option("-m", "--maxsize", type=int, default=100, show_default=True, help="How many to show at most.")
@pass_session
def list_(session: Session, username: str | None, maxsize: int) -> None:
    """List storages."""
    page = session.client.storages.page(user=username, max_keys=maxsize)
    output.show(session, HEADERS, [_row(storage) for storage in page], empty="no fs found ")
    output.more(page.next_marker, "-m")


@fs.command()
@click.argument("fsname")
@click.argument("url")
@_owner
@click.option("-o", "--o", "properties", multiple=True, callback=pair_each, help="A property: name=value.")
@pass_session
def create(session: Session, fsname: str, url: str, username: str | None, properties: dict[str, str] | None) -> None:
    """Make a storage. URL of a folder on this machine: local:///data/team.

    \b
    Example:
      paddleflow fs create team local:///data/team
    """
    made = session.client.storages.create(fsname, url, properties=properties, user=username)
    output.done(session, f"fs[{fsname}] create success", name=fsname, id=made)


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def show(session: Session, fsname: str, username: str | None) -> None:
    """Show a storage."""
    output.show(session, HEADERS, [_row(session.client.storages.get(fsname, user=username))])


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def delete(session: Session, fsname: str, username: str | None) -> None:
    """Delete a storage. Its files stay where they are."""
    session.client.storages.delete(fsname, user=username)
    output.done(session, f"fs[{fsname}] delete success", name=fsname)


@fs.command()
@click.argument("username")
@click.argument("fsname")
@click.option("--owner", help="Whose storage it is; yours if not given.")
@pass_session
def grant(session: Session, username: str, fsname: str, owner: str | None) -> None:
    """Let a user use a storage: read and write its files in jobs and runs. For root.

    \b
    Example:
      paddleflow fs grant alice team
    """
    storage = session.client.storages.get(fsname, user=owner)
    session.client.grants.create(username, storage.id, resource_type="fs")
    output.done(session, f"fs[{fsname}] add username[{username}] success", name=fsname, user=username)


@fs.command()
@click.argument("username")
@click.argument("fsname")
@click.option("--owner", help="Whose storage it is; yours if not given.")
@pass_session
def ungrant(session: Session, username: str, fsname: str, owner: str | None) -> None:
    """Let a user no longer use a storage. For root."""
    storage = session.client.storages.get(fsname, user=owner)
    session.client.grants.delete(username, storage.id, resource_type="fs")
    output.done(session, f"fs[{fsname}] delete username[{username}] success", name=fsname, user=username)


@fs.command()
@click.option("-m", "--maxsize", type=int, default=100, show_default=True, help="How many to show at most.")
@click.option("-u", "--username", help="Only of this user.")
@pass_session
def grantlist(session: Session, maxsize: int, username: str | None) -> None:
    """List who may use whose storage. For root."""
    grants.show(session, "fs", "fs id", username, maxsize)
