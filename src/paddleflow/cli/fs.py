"""`paddleflow fs`: storages, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.account import show_grants
from paddleflow.cli.lazy import Late, Paging, group, paging, pair_each
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.storages import Storage

STORAGE: Kind[Storage] = Kind(
    "storages",
    lambda storage: storage.name,
    lambda storage: storage.raw,
    (
        Column(lambda storage: storage.name, "NAME", "name"),
        Column(lambda storage: storage.user, "OWNER", "owner"),
        Column(lambda storage: storage.type, "TYPE", "type"),
        Column(lambda storage: storage.server_address, "SERVER", "server address", flexible=True),
        Column(lambda storage: storage.sub_path, "PATH", "sub path", flexible=True),
        Column(lambda storage: dict(storage.properties), "PROPERTIES", "properties", wide=True),
    ),
    "no fs found ",
)

LATE = {
    "cat": Late("fs_files:cat", "Print a file of a store, by URL."),
    "du": Late("fs_files:du", "Show how many files and bytes lie below a URL."),
    "get": Late("fs_files:get", "Download a file of a store, by URL."),
    "ls": Late("fs_files:ls", "List what lies at a URL of a store."),
    "put": Late("fs_files:put", "Upload a file to a store, by URL."),
    "rm": Late("fs_files:rm", "Remove a file or folder of a store, by URL."),
    "mount": Late("fs_mount:mount", "Mount a storage or a URL on a folder of this machine."),
    "stats": Late("fs_mount:stats", "Show what a mount did: requests, times, how files were opened."),
    "umount": Late("fs_mount:umount", "Unmount a folder."),
    "warmup": Late("fs_warmup:warmup", "Read files and folders of a mount, so that their content is in its cache."),
}
fs = group(help="Storages (fs): named places for files that jobs see at a path.", late=LATE)
_owner = click.option("-u", "--username", help="Owner of the storage (root only). [default: yourself]")


@fs.command("list")
@_owner
@paging("maxsize", 100, marker=False)
@pass_session
def list_(session: Session, username: str | None, paging: Paging) -> None:
    """List storages."""
    found, marker = paging.collect(
        lambda size, marker: session.client.storages.page(user=username, max_keys=size, marker=marker)
    )
    output.show_list(session, STORAGE, found, marker)


@fs.command()
@click.argument("fsname")
@click.argument("url")
@_owner
@click.option("-o", "--o", "properties", multiple=True, callback=pair_each, help="Property, name=value. Repeatable.")
@pass_session
def create(session: Session, fsname: str, url: str, username: str | None, properties: dict[str, str] | None) -> None:
    """Create a storage. The URL of a folder on the server's machine is local:///data/team.

    \b
    Example:
      paddleflow fs create team local:///data/team
    """
    storages = session.client.storages
    storages.create(fsname, url, properties=properties, user=username)
    output.done(session, f"fs[{fsname}] create success", fsname, lambda: storages.get(fsname, user=username).raw)


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def show(session: Session, fsname: str, username: str | None) -> None:
    """Show a storage."""
    found = session.client.storages.get(fsname, user=username)
    facts = {column.table.capitalize(): column.value(found) for column in STORAGE.columns}
    output.show_one(session, STORAGE, found, facts, ("", {}))


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def delete(session: Session, fsname: str, username: str | None) -> None:
    """Delete a storage. Its files are kept."""
    session.client.storages.delete(fsname, user=username)
    output.done(session, f"fs[{fsname}] delete success", fsname, lambda: {"name": fsname})


@fs.command()
@click.argument("username")
@click.argument("fsname")
@click.option("--owner", help="Owner of the storage. [default: yourself]")
@pass_session
def grant(session: Session, username: str, fsname: str, owner: str | None) -> None:
    """Allow a user to read and write a storage in jobs and runs (root only).

    \b
    Example:
      paddleflow fs grant alice team
    """
    storage = session.client.storages.get(fsname, user=owner)
    session.client.grants.create(username, storage.id, resource_type="fs")
    output.done(session, f"fs[{fsname}] add username[{username}] success", fsname)


@fs.command()
@click.argument("username")
@click.argument("fsname")
@click.option("--owner", help="Owner of the storage. [default: yourself]")
@pass_session
def ungrant(session: Session, username: str, fsname: str, owner: str | None) -> None:
    """Revoke the right of a user to use a storage (root only)."""
    storage = session.client.storages.get(fsname, user=owner)
    session.client.grants.delete(username, storage.id, resource_type="fs")
    output.done(session, f"fs[{fsname}] delete username[{username}] success", fsname)


@fs.command()
@click.option("-u", "--username", help="Only grants of this user.")
@paging("maxsize", 100, marker=False)
@pass_session
def grantlist(session: Session, username: str | None, paging: Paging) -> None:
    """List which users may use which storages (root only)."""
    show_grants(session, "fs", "fs id", username, paging)
