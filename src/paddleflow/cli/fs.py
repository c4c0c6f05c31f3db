"""`paddleflow fs`: storages, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.account import show_grants
from paddleflow.cli.lazy import LazyCommand, Paging, group, paging, pair_each
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import NotFound

if TYPE_CHECKING:
    from paddleflow.sdk.storages import Link, Storage

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

LINK: Kind[Link] = Kind(
    "links",
    lambda link: link.path,
    lambda link: link.raw,
    (
        Column(lambda link: link.storage, "NAME", "name"),
        Column(lambda link: link.path, "FSPATH", "fs path"),
        Column(lambda link: link.user, "OWNER", "owner"),
        Column(lambda link: link.type, "TYPE", "type"),
        Column(lambda link: link.server_address, "SERVER", "server address", flexible=True),
        Column(lambda link: link.sub_path, "PATH", "sub path", flexible=True),
        Column(lambda link: dict(link.properties), "PROPERTIES", "properties", wide=True),
    ),
    "no link found ",
)

LAZY = {
    "cat": LazyCommand("fs_files:cat", "Print a file."),
    "cp": LazyCommand("fs_files:cp", "Copy files between stores and this machine."),
    "du": LazyCommand("fs_files:du", "Show the number and total size of the files below a URL."),
    "get": LazyCommand("fs_files:get", "Download a file."),
    "cache": LazyCommand("fs_cache:cache", "List, clear and pin the cached content of a mount."),
    "check": LazyCommand("fs_cache:check", "Check the cache and journal of a mount against the store."),
    "bench": LazyCommand("fs_bench:bench", "Measure the read and write speed of a folder."),
    "profile": LazyCommand("fs_profile:profile", "Record which files programs open on a mount."),
    "mv": LazyCommand("fs_files:mv", "Move files within a store or between stores."),
    "sync": LazyCommand("fs_files:sync", "Copy what is new or changed from one folder to another."),
    "ls": LazyCommand("fs_files:ls", "List the files at a URL."),
    "put": LazyCommand("fs_files:put", "Upload a file."),
    "rm": LazyCommand("fs_files:rm", "Remove a file or folder."),
    "mount": LazyCommand("fs_mount:mount", "Mount a storage or a URL on a folder of this machine."),
    "reload": LazyCommand("fs_mount:reload", "Upgrade a mount to the installed version while it is in use."),
    "stats": LazyCommand("fs_mount:stats", "Show statistics of a mount: requests, latencies, opened files."),
    "umount": LazyCommand("fs_mount:umount", "Unmount a folder."),
    "warmup": LazyCommand("fs_warmup:warmup", "Read files and folders of a mount into its cache."),
}
fs = group(
    help="Manage storages (fs), the named places where jobs keep files, and mount and copy their files.", lazy=LAZY
)
_owner = click.option("-u", "--username", help="Owner of the storage (root only). [default: yourself]")

_properties = click.option(
    "-o", "--o", "properties", multiple=True, callback=pair_each, help="Property, name=value. Repeatable."
)


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
@_properties
@pass_session
def create(session: Session, fsname: str, url: str, username: str | None, properties: dict[str, str] | None) -> None:
    """Create a storage, after checking that it can be reached. Secrets are encrypted and never shown again.

    \b
    Examples:
      paddleflow fs create team local:///data/team
      paddleflow fs create sets s3://bucket/sets -o endpoint=https://s3.example.com -o accessKey=… -o secretKey=…
    """
    storages = session.client.storages
    storages.create(fsname, url, properties=properties, user=username)
    output.done(session, f"fs[{fsname}] create success", fsname, lambda: storages.get(fsname, user=username).raw)


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def show(session: Session, fsname: str, username: str | None) -> None:
    """Show a storage: its location, its mounts, and how much of it each node has cached."""
    storages = session.client.storages
    found = storages.get(fsname, user=username)
    facts = {column.table.capitalize(): column.value(found) for column in STORAGE.columns}
    mounts, caches = storages.mounts(fsname, user=username) if session.output in {"table", "wide"} else ((), ())
    if mounts:
        facts["Mounted by"] = [f"{each.user} on {each.node}:{each.folder}" for each in mounts]
    if caches:
        facts["Cached on"] = [f"{each.node} {output.size(each.cached_bytes)}" for each in caches]
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
@click.argument("fsname")
@click.option("--url", help="New URL; refused while the storage is in use.")
@_owner
@_properties
@pass_session
def update(
    session: Session, fsname: str, url: str | None, username: str | None, properties: dict[str, str] | None
) -> None:
    """Change a storage. Properties that are not given keep their value; an empty value removes one.

    \b
    Example:
      paddleflow fs update sets -o accessKey=… -o secretKey=…
    """
    storages = session.client.storages
    merged = None
    if properties is not None:
        known = dict(storages.get(fsname, user=username).properties)
        merged = {name: value for name, value in {**known, **properties}.items() if value}
    storages.update(fsname, url=url, properties=merged, user=username)
    output.done(session, f"fs[{fsname}] update success", fsname, lambda: storages.get(fsname, user=username).raw)


@fs.command()
@click.argument("fsname")
@click.argument("fspath")
@click.argument("url")
@_owner
@_properties
@pass_session
def link(
    session: Session, fsname: str, fspath: str, url: str, username: str | None, properties: dict[str, str] | None
) -> None:
    """Make another store visible at a path inside a storage.

    \b
    Example:
      paddleflow fs link team /sets s3://bucket/sets -o endpoint=https://s3.example.com -o accessKey=… -o secretKey=…
    """
    session.client.storages.link(fsname, fspath, url, properties=properties, user=username)
    output.done(session, f"fs[{fsname}] link[{fspath}] create success", fspath)


@fs.command()
@click.argument("fsname")
@click.argument("fspath")
@_owner
@pass_session
def unlink(session: Session, fsname: str, fspath: str, username: str | None) -> None:
    """Remove a link. The files of both stores are kept."""
    session.client.storages.unlink(fsname, fspath, user=username)
    output.done(session, f"fs[{fsname}] link[{fspath}] delete success", fspath)


@fs.command()
@click.argument("fsname")
@click.argument("fspath")
@_owner
@pass_session
def showlink(session: Session, fsname: str, fspath: str, username: str | None) -> None:
    """Show a link."""
    found = list(session.client.storages.link_page(fsname, path=fspath, user=username))
    if not found:
        raise NotFound(
            f"fs[{fsname}] has no link at {fspath}", code="LinkNotExist", hint=f"paddleflow fs listlink {fsname}"
        )
    facts = {column.table.capitalize(): column.value(found[0]) for column in LINK.columns}
    output.show_one(session, LINK, found[0], facts, ("", {}))


@fs.command()
@click.argument("fsname")
@_owner
@paging("maxsize", 100, marker=False)
@pass_session
def listlink(session: Session, fsname: str, username: str | None, paging: Paging) -> None:
    """List the links of a storage."""
    storages = session.client.storages
    found, marker = paging.collect(
        lambda size, marker: storages.link_page(fsname, max_keys=size, marker=marker, user=username)
    )
    output.show_list(session, LINK, found, marker)


@fs.command()
@click.argument("fsname")
@_owner
@click.option("-o", "--o", "options", multiple=True, callback=pair_each, help="Option, name=value. Repeatable.")
@pass_session
def createfscache(session: Session, fsname: str, username: str | None, options: dict[str, str] | None) -> None:
    """Set the cache options of a storage: cacheDir, quota, metaDriver (mem or disk), cleanCache.

    \b
    Example:
      paddleflow fs createfscache sets -o cacheDir=/nvme/cache -o quota=200Gi
    """
    storages = session.client.storages
    storages.create_cache(fsname, options or {}, user=username)
    output.done(
        session, f"fs[{fsname}] create cache success", fsname, lambda: storages.get_cache(fsname, user=username).raw
    )


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def getfscache(session: Session, fsname: str, username: str | None) -> None:
    """Show the cache options of a storage."""
    found = session.client.storages.get_cache(fsname, user=username)
    if session.output in output.MACHINE:
        output.print_data(session, found.raw)
    else:
        output.show_rows(session, ["setting", "value"], [[name, value] for name, value in found.raw.items()])


@fs.command()
@click.argument("fsname")
@_owner
@pass_session
def deletefscache(session: Session, fsname: str, username: str | None) -> None:
    """Delete the cache options of a storage, so that its mounts use the defaults."""
    session.client.storages.delete_cache(fsname, user=username)
    output.done(session, f"fs[{fsname}] delete cache success", fsname)


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
