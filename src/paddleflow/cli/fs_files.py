"""`paddleflow fs ls|cat|put|get|cp|mv|sync|rm|du`: the files of a store by URL, without mounting it.

Content is streamed in pieces, whatever its size; an object and a local file appear whole or not at all. What was interrupted
goes on: files that are there are left out, large ones go on by parts (`objects.transfer`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from paddleflow.base.values import dataclass
from paddleflow.cli import output
from paddleflow.cli.fs_progress import FileProgress
from paddleflow.cli.lazy import Command, pair_each
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Conflict, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from paddleflow.objects.store import Entry, ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_COPY_FOLDER = "copy folders with: paddleflow fs cp -r"
_url = click.argument("url", metavar="URL")


def access_options(function: F) -> F:
    """The options that say where the server of a bucket is, and who asks."""
    for option in (
        click.option(
            "--session-token", "token", envvar="AWS_SESSION_TOKEN", help="S3: session token of temporary keys."
        ),
        click.option(
            "--secret-key",
            envvar="AWS_SECRET_ACCESS_KEY",
            help="S3: secret key; prefer the variable AWS_SECRET_ACCESS_KEY.",
        ),
        click.option("--access-key", envvar="AWS_ACCESS_KEY_ID", help="S3: access key."),
        click.option("--region", envvar="AWS_REGION", default="us-east-1", show_default=True, help="S3: region."),
        click.option("--endpoint", envvar="AWS_ENDPOINT_URL", help="S3: endpoint, for example https://s3.example.com."),
    ):
        function = option(function)
    return function


def store_options(function: F) -> F:
    """The options of commands that take a URL of any store: those of S3, and -o for the properties of the others."""
    help_text = "Property of a store other than S3: name=value or name=@FILE. Repeatable."
    option = click.option("-o", "--o", "properties", multiple=True, callback=pair_each, help=help_text)
    return access_options(option(function))


def take_properties(options: dict[str, Any]) -> dict[str, str]:
    """Take the values of `access_options` out of a command's options, by the names that stores have for them."""
    names = (("access_key", "accessKey"), ("secret_key", "secretKey"), ("token", "sessionToken"))
    given = {name: options.pop(option) for option, name in (("endpoint", "endpoint"), ("region", "region"), *names)}
    return {name: value for name, value in given.items() if value}


def _open(url: str, access: dict[str, Any]) -> tuple[ObjectStore, str]:
    """The store of a URL, and the key that the URL names in it."""
    from paddleflow.objects.urls import open_store, parse_url
    from paddleflow.objects.wrappers import Retrying

    parsed = parse_url(url)
    if parsed.scheme in ("file", "local"):
        return Retrying(open_store("file:///")), parsed.path
    properties = read_properties(parsed.scheme, access)
    return Retrying(open_store(f"{parsed.scheme}://{parsed.authority}/", properties)), parsed.path


def open_url(url: str, access: dict[str, Any]) -> tuple[ObjectStore, dict[str, str]]:
    """The store whose root is the URL, and its properties."""
    from paddleflow.objects.urls import open_store, parse_url
    from paddleflow.objects.wrappers import Retrying

    properties = read_properties(parse_url(url).scheme, access)
    return Retrying(open_store(url, properties)), properties


def read_properties(scheme: str, access: dict[str, Any]) -> dict[str, str]:
    """What the options of a command say of a store of this type."""
    properties = take_properties(dict(access)) if scheme == "s3" else {}
    for name, value in (access.get("properties") or {}).items():
        properties[name] = _read_value(name, value) if value.startswith("@") else value
    return properties


def _read_value(name: str, value: str) -> str:
    """What a file holds: keys do not belong on a command line."""
    try:
        return Path(value[1:]).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"property {name} cannot be read from {value[1:]}: {error}") from error


def _files(store: ObjectStore, key: str) -> list[Entry]:
    """The file itself, or all below a folder."""
    from paddleflow.objects.store import Kind

    found = store.stat(key)
    if found.kind is not Kind.FOLDER:
        return [found]
    return sorted(store.list_entries(key, recursive=True), key=lambda entry: entry.key)


@click.command(cls=Command)
@_url
@store_options
@pass_session
def ls(session: Session, /, url: str, **access: Any) -> None:
    """List the files at a URL, for example s3://bucket/prefix or file:///data/team."""
    from paddleflow.objects.store import Kind

    store, key = _open(url, access)
    found = store.stat(key)
    entries = sorted(store.list_entries(key), key=lambda entry: entry.key) if found.kind is Kind.FOLDER else [found]
    rows = [[entry.kind.value, entry.size, entry.key.rpartition("/")[2]] for entry in entries]
    output.show_rows(session, ["kind", "size", "name"], rows)


@click.command(cls=Command)
@_url
@store_options
def cat(url: str, **access: Any) -> None:
    """Print a file."""
    from paddleflow.objects.store import iterate_content

    store, key = _open(url, access)
    for piece in iterate_content(store, key):
        sys.stdout.buffer.write(piece)


@click.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@_url
@store_options
@pass_session
def put(session: Session, /, file: Path, url: str, **access: Any) -> None:
    """Upload a file. A URL that ends with a slash names the folder to put it into.

    Large files are uploaded in parts. Run again after an interruption, it sends only the parts that S3 does not have yet.
    """
    from paddleflow.objects.transfer import upload

    if file.is_dir():
        raise Conflict(f"{file} is a folder", hint=_COPY_FOLDER)
    store, key = _open(url, access)
    target = "/".join(part for part in (key, file.name) if part) if url.endswith("/") or not key else key
    progress = FileProgress(file.stat().st_size)
    entry = upload(store, file, target, _notes(), progress.add_bytes)
    progress.finish()
    where = _place_of(url, target)
    output.done(session, f"{entry.size} bytes uploaded to {where}", where, lambda: _shown(where, entry.size))


@click.command(cls=Command)
@_url
@click.argument("file", type=click.Path(path_type=Path))
@store_options
@pass_session
def get(session: Session, /, url: str, file: Path, **access: Any) -> None:
    """Download a file, to a file or into a folder. Run again after an interruption, it resumes."""
    from paddleflow.objects.store import Kind
    from paddleflow.objects.transfer import download

    store, key = _open(url, access)
    target = file / key.rpartition("/")[2] if file.is_dir() else file
    found = store.stat(key)
    if found.kind is Kind.FOLDER:
        raise Conflict(f"{url} is a folder", hint=_COPY_FOLDER)
    progress = FileProgress(found.size)
    entry = _to_this_machine(lambda: download(store, key, target, progress.add_bytes), target)
    progress.finish()
    output.done(
        session, f"{entry.size} bytes downloaded to {target}", str(target), lambda: _shown(str(target), entry.size)
    )


def _place_of(url: str, key: str) -> str:
    """A file of the store that a URL names, as people write it: a path of this machine, or a URL."""
    from paddleflow.objects.urls import parse_url

    parsed = parse_url(url)
    return f"/{key}" if parsed.scheme in ("file", "local") else f"{parsed.scheme}://{parsed.authority}/{key}"


def _shown(name: str, size: int) -> dict[str, object]:
    return {"id": name, "bytes": size}


def _notes() -> Path:
    """Where uploads by parts are remembered."""
    return Path.home() / ".cache" / "paddleflow" / "uploads"


def _to_this_machine(call: Callable[[], T], target: Path) -> T:
    try:
        return call()
    except OSError as error:
        raise Unavailable(f"{target} cannot be written: {error.strerror}") from error


_source = click.argument("source", metavar="SOURCE")
_target = click.argument("target", metavar="TARGET")
_threads = click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Number of files transferred in parallel.",
)


@click.command(cls=Command)
@_source
@_target
@click.option("-r", "--recursive", is_flag=True, help="Include folders and all their files.")
@_threads
@store_options
@pass_session
def cp(session: Session, /, source: str, target: str, recursive: bool, threads: int, **access: Any) -> None:
    """Copy a file, or with -r a folder, between stores and this machine. SOURCE and TARGET are URLs or paths.

    Files that the target already has, with the same size and no older, are skipped, so an interrupted copy can be resumed.

    \b
    Examples:
      paddleflow fs cp -r s3://bucket/sets /data/sets
      paddleflow fs cp -r /data/sets sftp://files.example/data/sets -o user=ada -o privateKey=@~/.ssh/id_ed25519
    """
    plan = _plan(source, target, access)
    if plan.folder and not recursive:
        raise Conflict(f"{source} is a folder", hint="copy it with -r")
    copied, size = _execute(plan, threads)
    words = f"{copied} copied, {size} bytes; {plan.left} were there already"
    output.done(session, words, target, lambda: {"copied": copied, "bytes": size, "there": plan.left})


@click.command(cls=Command)
@_source
@_target
@_threads
@store_options
@pass_session
def mv(session: Session, /, source: str, target: str, threads: int, **access: Any) -> None:
    """Move a file or folder within a store or between stores. SOURCE and TARGET are URLs or paths.

    Within a store files are renamed; between stores each file is copied, then removed from SOURCE. An interrupted move can be
    run again.
    """
    plan = _plan(source, target, access, everything=True)
    if plan.same_store and f"{plan.place}/".startswith(f"{plan.key}/"):
        raise Invalid(f"{source} cannot be moved into itself: {target}")
    if not plan.key:
        raise Invalid(f"{source} names no file or folder", hint="a whole bucket or disk is not moved this way")
    if plan.same_store:
        with ThreadPoolExecutor(threads, "move") as pool:
            list(pool.map(lambda pair: plan.store.rename(pair[0].key, pair[1]), plan.pairs))
        moved, size = len(plan.pairs), sum(entry.size for entry, _ in plan.pairs)
    else:
        moved, size = _execute(plan, threads)
        for entry, _ in plan.pairs:
            plan.origin.remove(entry.key)
    if plan.folder:
        if not plan.pairs:
            plan.store.make_folder(plan.place)
        _remove_folder(plan.origin, plan.key)
    output.done(session, f"{moved} moved, {size} bytes", target, lambda: {"moved": moved, "bytes": size})


@click.command(cls=Command)
@_source
@_target
@click.option("--delete", is_flag=True, help="Remove files of TARGET that SOURCE does not have.")
@click.option("--dry-run", is_flag=True, help="Only print what would be copied and removed.")
@_threads
@store_options
@pass_session
def sync(
    session: Session, /, source: str, target: str, delete: bool, dry_run: bool, threads: int, **access: Any
) -> None:
    """Copy files from the folder SOURCE that TARGET lacks, or has in another size or older.

    \b
    Examples:
      paddleflow fs sync /data/sets s3://bucket/sets
      paddleflow fs sync --delete --dry-run s3://bucket/sets /data/sets
    """
    plan = _plan(source, target, access, into=False)
    if not plan.folder:
        raise Conflict(f"{source} is a file", hint="copy it with paddleflow fs cp")
    goals = {goal for _, goal in plan.pairs} | plan.there
    extra = sorted(set(plan.known) - goals) if delete else []
    if dry_run:
        rows = [["copy", entry.size, _place_of(plan.target, goal)] for entry, goal in plan.pairs]
        rows += [["remove", plan.known[key].size, _place_of(plan.target, key)] for key in extra]
        output.show_rows(session, ["action", "size", "name"], rows, empty="nothing to do")
        return
    copied, size = _execute(plan, threads)
    for key in extra:
        plan.store.remove(key)
    words = f"{copied} copied, {size} bytes; {len(extra)} removed; {plan.left} were there already"
    data = {"copied": copied, "bytes": size, "removed": len(extra), "there": plan.left}
    output.done(session, words, target, lambda: data)


@dataclass
class _Plan:
    """What is to be copied: entries of `origin`, each with its key in `store`."""

    target: str  #: as a URL
    origin: ObjectStore
    key: str
    store: ObjectStore
    place: str
    folder: bool
    same_store: bool
    from_disk: bool
    to_disk: bool
    pairs: list[tuple[Entry, str]] = field(default_factory=list)
    there: set[str] = field(default_factory=set)  #: keys that the target has already
    known: dict[str, Entry] = field(default_factory=dict)  #: what the target has, where the source is a folder

    @property
    def left(self) -> int:
        return len(self.there)


def _plan(source: str, target: str, access: dict[str, Any], *, everything: bool = False, into: bool = True) -> _Plan:
    """`everything`: also what is there already. `into`: an existing folder is a place to put a file into."""
    from paddleflow.objects.store import Kind

    source_url, target_url = _as_url(source), _as_url(target)
    (origin, key), (store, place) = _open(source_url, access), _open(target_url, access)
    folder = origin.stat(key).kind is Kind.FOLDER
    if into and not folder and (target.endswith("/") or not place or _is_folder(store, place)):
        place = f"{place}/{key.rpartition('/')[2]}".lstrip("/")
    disk = ("file://", "local://")
    plan = _Plan(
        target_url,
        origin,
        key,
        store,
        place,
        folder,
        origin.name == store.name,
        source_url.startswith(disk),
        target_url.startswith(disk),
    )
    if folder:
        with suppress(NotFound):
            plan.known = {
                each.key: each for each in store.list_entries(place, recursive=True) if each.kind is Kind.FILE
            }
    elif not everything:
        with suppress(NotFound):
            plan.known = {place: store.stat(place)}
    for entry in _files(origin, key):
        if entry.kind is Kind.FILE:
            below = entry.key.removeprefix(key).lstrip("/") if folder else ""
            goal = "/".join(part for part in (place, below) if part)
            if not everything and _is_same(plan.known.get(goal), entry):
                plan.there.add(goal)
            else:
                plan.pairs.append((entry, goal))
    return plan


def _execute(plan: _Plan, threads: int) -> tuple[int, int]:
    """Copy, several files at once; how many, and how many bytes. The first error is raised when the others are done."""
    progress = FileProgress(sum(entry.size for entry, _ in plan.pairs), name_files=True)

    def copy(pair: tuple[Entry, str]) -> int:
        entry, goal = pair
        _copy_file(plan, entry, goal, progress)
        progress.add_file(_place_of(plan.target, goal), entry.size)
        return entry.size

    try:
        with ThreadPoolExecutor(threads, "copy") as pool:
            sizes = list(pool.map(copy, plan.pairs))
    finally:
        progress.finish()
    return len(sizes), sum(sizes)


def _as_url(place: str) -> str:
    return place if "://" in place else f"file://{quote(str(Path(place).absolute()))}"


def _is_folder(store: ObjectStore, key: str) -> bool:
    from paddleflow.objects.store import Kind

    try:
        return store.stat(key).kind is Kind.FOLDER
    except NotFound:
        return False


def _is_same(found: Entry | None, wanted: Entry) -> bool:
    if found is None:
        return False
    return found.kind is wanted.kind and found.size == wanted.size and found.modified_at >= int(wanted.modified_at)


def _copy_file(plan: _Plan, entry: Entry, goal: str, progress: FileProgress) -> None:
    from paddleflow.objects.store import iterate_content
    from paddleflow.objects.transfer import download, upload

    if plan.from_disk and not plan.to_disk:
        upload(plan.store, Path("/", entry.key), goal, _notes(), progress.add_bytes)
    elif plan.to_disk:
        path = Path("/", goal)
        _to_this_machine(lambda: path.parent.mkdir(parents=True, exist_ok=True), path.parent)
        _to_this_machine(lambda: download(plan.origin, entry.key, path, progress.add_bytes), path)
    else:  # through a file of this machine, so that a write can be tried again from its beginning
        with tempfile.TemporaryFile() as staged:
            for piece in iterate_content(plan.origin, entry.key):
                staged.write(piece)
                progress.add_bytes(len(piece))
            staged.seek(0)
            plan.store.write(goal, staged)


@click.command(cls=Command)
@_url
@click.option("-r", "--recursive", is_flag=True, help="Include folders and all their files.")
@store_options
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
@store_options
@pass_session
def du(session: Session, /, url: str, **access: Any) -> None:
    """Show the number and total size of the files below a URL."""
    store, key = _open(url, access)
    found = _files(store, key)
    output.show_rows(session, ["files", "bytes", "url"], [[len(found), sum(entry.size for entry in found), url]])
