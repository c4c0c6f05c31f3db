"""`paddleflow fs ls|cat|put|get|rm|du`: the files of a store by URL, without mounting it.

Content is streamed in pieces, whatever its size; an object and a local file appear whole or not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Conflict, Invalid

if TYPE_CHECKING:
    from paddleflow.objects.store import Entry, ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
_url = click.argument("url", metavar="URL")


def access_options(function: F) -> F:
    """The options that say where the server of a bucket is, and who asks; the names are those of `Access`."""
    for option in (
        click.option("--session-token", "token", envvar="AWS_SESSION_TOKEN", help="S3: of temporary keys."),
        click.option("--secret-key", envvar="AWS_SECRET_ACCESS_KEY", help="S3: better by AWS_SECRET_ACCESS_KEY."),
        click.option("--access-key", envvar="AWS_ACCESS_KEY_ID", help="S3: the access key."),
        click.option("--region", envvar="AWS_REGION", default="us-east-1", show_default=True, help="S3: the region."),
        click.option("--endpoint", envvar="AWS_ENDPOINT_URL", help="S3: the server, such as https://s3.example.com."),
    ):
        function = option(function)
    return function


def _open(url: str, access: dict[str, Any]) -> tuple[ObjectStore, str]:
    """The store of a URL, and the key that the URL names in it."""
    from paddleflow.objects.urls import Access, open_store
    from paddleflow.objects.wrappers import Retrying

    scheme, separator, rest = url.partition("://")
    head, _, key = rest.partition("/")
    if separator and scheme in ("file", "local"):
        head, key = "/", rest.lstrip("/")
    elif not separator or scheme != "s3":
        raise Invalid(f"{url!r} is no URL of a store", hint="write it as file:///data/team or s3://bucket/prefix")
    given: dict[str, Any] = {name: value or "" for name, value in access.items()}
    return Retrying(open_store(f"{scheme}://{head}", Access(**given))), key.rstrip("/")


def _files(store: ObjectStore, key: str) -> list[Entry]:
    """The file itself, or all below a folder."""
    from paddleflow.objects.store import Kind

    found = store.stat(key)
    if found.kind is not Kind.FOLDER:
        return [found]
    return sorted(store.list_entries(key, recursive=True), key=lambda entry: entry.key)


@click.command(cls=Command)
@_url
@access_options
@pass_session
def ls(session: Session, /, url: str, **access: Any) -> None:
    """List what lies at a URL, such as s3://bucket/prefix or file:///data/team."""
    from paddleflow.objects.store import Kind

    store, key = _open(url, access)
    found = store.stat(key)
    entries = sorted(store.list_entries(key), key=lambda entry: entry.key) if found.kind is Kind.FOLDER else [found]
    rows = [[entry.kind.value, entry.size, entry.key.rpartition("/")[2]] for entry in entries]
    output.show_rows(session, ["kind", "size", "name"], rows)


@click.command(cls=Command)
@_url
@access_options
def cat(url: str, **access: Any) -> None:
    """Print a file."""
    from paddleflow.objects.store import iterate_content

    store, key = _open(url, access)
    for piece in iterate_content(store, key):
        sys.stdout.buffer.write(piece)


@click.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_url
@access_options
@pass_session
def put(session: Session, /, file: Path, url: str, **access: Any) -> None:
    """Upload a file. A URL that ends with a slash is a folder to put it into."""
    store, key = _open(url, access)
    target = "/".join(part for part in (key, file.name) if part) if url.endswith("/") or not key else key
    with file.open("rb") as content:
        entry = store.write(target, content)
    output.done(session, f"{entry.size} bytes uploaded to {target}", target)


@click.command(cls=Command)
@_url
@click.argument("file", type=click.Path(path_type=Path))
@access_options
@pass_session
def get(session: Session, /, url: str, file: Path, **access: Any) -> None:
    """Download a file, to a file or into a folder."""
    from paddleflow.objects.store import iterate_content

    store, key = _open(url, access)
    target = file / key.rpartition("/")[2] if file.is_dir() else file
    partial = target.with_name(f".{target.name}.part")
    size = 0
    try:
        with partial.open("wb") as opened:
            for piece in iterate_content(store, key):
                size += opened.write(piece)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    output.done(session, f"{size} bytes downloaded to {target}", str(target))


@click.command(cls=Command)
@_url
@click.option("-r", "--recursive", is_flag=True, help="A folder with everything in it.")
@access_options
@pass_session
def rm(session: Session, /, url: str, recursive: bool, **access: Any) -> None:
    """Remove a file, or with -r a folder."""
    from paddleflow.objects.store import Kind

    store, key = _open(url, access)
    if not key:
        raise Invalid(f"{url} names no file", hint="a whole bucket or disk is not removed this way")
    if store.stat(key).kind is not Kind.FOLDER:
        store.remove(key)
        count = 1
    elif recursive:
        count = _remove_folder(store, key)
    else:
        raise Conflict(f"{url} is a folder", hint="remove it with -r")
    output.done(session, f"{count} removed", key)


def _remove_folder(store: ObjectStore, key: str) -> int:
    """Files first, then the folder; how many files there were."""
    from paddleflow.objects.store import Kind

    count = 0
    for entry in list(store.list_entries(key)):
        if entry.kind is Kind.FOLDER:
            count += _remove_folder(store, entry.key)
        else:
            store.remove(entry.key)
            count += 1
    store.remove_folder(key)
    return count


@click.command(cls=Command)
@_url
@access_options
@pass_session
def du(session: Session, /, url: str, **access: Any) -> None:
    """Show how many files and bytes lie below a URL."""
    store, key = _open(url, access)
    found = _files(store, key)
    output.show_rows(session, ["files", "bytes", "url"], [[len(found), sum(entry.size for entry in found), url]])
