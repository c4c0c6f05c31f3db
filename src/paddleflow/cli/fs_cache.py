"""`paddleflow fs cache ls|clear|pin|unpin` and `fs check`: what lies in the cache of a mount, and whether it is right.

They read the cache folders themselves (`fs.inventory`), so they work on a mount that lives and on one that does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from paddleflow.cli import output
from paddleflow.cli.fs_files import open_url, store_options
from paddleflow.cli.fs_mount import absolute
from paddleflow.cli.lazy import Command, group
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid, NotFound, PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.fs.inventory import CachedObject, StagedFile
    from paddleflow.objects.store import ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
_BATCH = 256  #: objects that are asked for at once


def _place(function: F) -> F:
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    help_text = "Cache folder of a mount, instead of its mount point. Repeatable."
    function = click.option("--cache-dir", "folders", multiple=True, type=folder, help=help_text)(function)
    return click.argument("mount", required=False, type=click.Path(path_type=Path), metavar="[DIR]")(function)


def _folders(mount: Path | None, folders: tuple[Path, ...]) -> list[Path]:
    """The cache folders that are meant, one per disk."""
    from paddleflow.fs.control import ask_stats

    if bool(mount) == bool(folders):
        raise click.UsageError("name the folder of a mount, or its cache folders by --cache-dir")
    if mount is None:
        return list(folders)
    tree = ask_stats(absolute(mount))["tree"]
    found = tree.get("cache") if isinstance(tree, dict) else None
    if not found:
        raise Invalid(f"{mount} is a mount of a folder of this machine, which needs no cache")
    return [Path(each) for each in str(found).split(":")]


def _data(folders: list[Path]) -> list[Path]:
    return [folder / "data" for folder in folders]


cache = group(help="List, clear and pin the cached content of a mount.")


@cache.command("ls")
@_place
@pass_session
def ls(session: Session, mount: Path | None, folders: tuple[Path, ...]) -> None:
    """List what is cached and what is pinned. DIR is the mount point."""
    from paddleflow.fs.inventory import cached_objects, is_below, read_pins

    data = _data(_folders(mount, folders))
    pins = read_pins(data[0])
    found = sorted(cached_objects(data), key=lambda each: each.key)
    rows = [[each.key, each.size, "yes" if any(is_below(each.key, pin) for pin in pins) else "no"] for each in found]
    output.show_rows(session, ["name", "size", "pinned"], rows, empty="nothing is cached")


@cache.command("clear")
@_place
@click.option("--path", "paths", multiple=True, help="Only content at or below this path of the store. Repeatable.")
@pass_session
def clear(session: Session, mount: Path | None, folders: tuple[Path, ...], paths: tuple[str, ...]) -> None:
    """Remove content from the cache, pinned or not. Open files, and files that are not in the store yet, are kept."""
    from paddleflow.fs.inventory import cached_objects, is_below

    wanted = [path.strip("/") for path in paths]
    count = size = 0
    for each in cached_objects(_data(_folders(mount, folders))):
        if not wanted or any(is_below(each.key, path) for path in wanted):
            each.path.unlink(missing_ok=True)
            count, size = count + 1, size + each.size
    words = f"{count} files removed, {output.size(size)}"
    output.done(session, words, str(count), lambda: {"files": count, "bytes": size})


@cache.command("pin")
@_place
@click.option("--path", "paths", multiple=True, required=True, help="Path in the store. Repeatable.")
@pass_session
def pin(session: Session, mount: Path | None, folders: tuple[Path, ...], paths: tuple[str, ...]) -> None:
    """Pin a path: content at or below it is not evicted from the cache. `fs warmup` fetches it."""
    _change_pins(session, _folders(mount, folders), add={path.strip("/") for path in paths})


@cache.command("unpin")
@_place
@click.option("--path", "paths", multiple=True, required=True, help="Pinned path. Repeatable.")
@pass_session
def unpin(session: Session, mount: Path | None, folders: tuple[Path, ...], paths: tuple[str, ...]) -> None:
    """Unpin a path: content at or below it may be evicted again."""
    _change_pins(session, _folders(mount, folders), remove={path.strip("/") for path in paths})


def _change_pins(
    session: Session, folders: list[Path], add: set[str] | None = None, remove: set[str] | None = None
) -> None:
    from paddleflow.fs.inventory import read_pins, write_pins

    first = folders[0] / "data"
    before = set(read_pins(first))
    unknown = sorted((remove or set()) - before)
    if unknown:
        raise NotFound(f"{unknown[0]!r} is not pinned", hint=f"pinned: {', '.join(sorted(before)) or 'nothing'}")
    pins = sorted((before | (add or set())) - (remove or set()))
    write_pins(first, pins)
    output.done(session, f"pinned: {', '.join(pins) or 'nothing'}", str(len(pins)), lambda: {"pinned": pins})


class _Finding(NamedTuple):
    """Something that is not as it should be, or waits."""

    state: str
    key: str
    what: str
    path: Path
    harmless: bool  #: it is as it may be while a mount lives or after it was killed


@click.command(cls=Command)
@click.argument("url", metavar="URL")
@click.option(
    "--cache-dir",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Cache folder. Repeatable. [default: the one that mounts of this URL use]",
)
@click.option("--repair", is_flag=True, help="Remove cached files that are damaged, old or gone from the store.")
@store_options
@pass_session
def check(session: Session, /, url: str, folders: tuple[Path, ...], repair: bool, **access: Any) -> None:
    """Check the cache and journal of the mounts of URL against the store. Exits with 1 if something is damaged.

    Cached content is compared with its checksum, and its version with that in the store. Files that were acknowledged but
    are not in the store yet are listed; the next mount uploads them.
    """
    from paddleflow.fs.inventory import cached_objects, staged_files
    from paddleflow.fs.mount import default_cache

    store, properties = open_url(url, access)
    places = list(folders) or [default_cache(url, properties)]
    findings: list[_Finding] = []
    counted = 0
    with ThreadPoolExecutor(16, "check") as pool:
        for batch in _batches(cached_objects(_data(places))):
            counted += len(batch)
            findings += [found for found in pool.map(lambda each: _check_object(store, each), batch) if found]
    for staged in staged_files([place / "staging" for place in places]):
        findings.append(_check_staged(store, staged))
    if repair:
        for found in findings:
            if found.state in ("damaged", "old", "gone") and found.path.parent.name != "staging":
                found.path.unlink(missing_ok=True)
    rows = [[found.state, found.key, found.what] for found in findings]
    output.show_rows(session, ["state", "name", "what"], rows, empty=f"{counted} cached files are as in the store")
    if any(not found.harmless for found in findings) and not repair:
        sys.exit(1)


def _batches(objects: Iterator[CachedObject]) -> Iterator[list[CachedObject]]:
    batch: list[CachedObject] = []
    for each in objects:
        batch.append(each)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _check_object(store: ObjectStore, cached: CachedObject) -> _Finding | None:
    if not cached.is_intact():
        return _Finding("damaged", cached.key, "content and checksum differ; it is fetched again", cached.path, False)
    if not cached.key:
        return None
    try:
        found = store.stat(cached.key)
    except NotFound:
        return _Finding("gone", cached.key, "the store has it no more", cached.path, True)
    except PaddleFlowError as error:
        return _Finding("unknown", cached.key, error.message, cached.path, False)
    if found.tag != cached.tag:
        return _Finding("old", cached.key, "the store has another version", cached.path, True)
    if found.size != cached.size:
        words = f"{cached.size} bytes, the store has {found.size}"
        return _Finding("damaged", cached.key, words, cached.path, False)
    return None


def _check_staged(store: ObjectStore, staged: StagedFile) -> _Finding:
    def say(state: str, what: str, harmless: bool) -> _Finding:
        return _Finding(state, staged.key or staged.path.name, what, staged.path, harmless)

    if staged.fault:
        return say("damaged", staged.fault, False)
    if not staged.key:
        return say("unsaved", f"{staged.size} bytes were written and never acknowledged", True)
    if staged.size < 0:
        return say("uploaded", "only its note is left; the next mount removes it", True)
    try:
        tag = store.stat(staged.key).tag
    except NotFound:
        tag = ""
    except PaddleFlowError as error:
        return say("unknown", error.message, False)
    if tag not in ("", staged.replaces):
        words = f"{staged.size} bytes wait, and the store has another version: the next mount keeps both unless they are the same"
        return say("conflict", words, True)
    return say("waiting", f"{staged.size} bytes were acknowledged and are not in the store yet", True)
