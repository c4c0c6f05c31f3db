"""Files of runs on their stores: read, made, measured, removed. Blocks on the store; called by `engine.run_io` and the API in a
`FilePool`, never in a transaction.

*Absent* and *could not be read* are different answers everywhere: a `Measurement` of kind ``missing`` says that nothing is at a
path; `Invalid`, with the path and the reason, that nobody knows. So a store that is away never makes two fingerprints equal.

What may take long is a generator that yields how many bytes it has read so far (`storage.file_pool`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping
from itertools import islice

from paddleflow.errors import Conflict, Invalid, NotFound, PaddleFlowError, TooLarge
from paddleflow.objects.store import Entry, Kind, ObjectStore, iterate_content, read_whole
from paddleflow.runs.facts import Measurement
from paddleflow.runs.names import ARTIFACTS
from paddleflow.storage.file_pool import SlicedWork
from paddleflow.storage.stores import key_of

MISSING = "missing"
MOST_FILES = 1_000_000  #: in one folder that is measured
AT_ONCE = 1_000  #: entries of a folder that are in memory while it is removed
_CHUNK = 2**20
_NOT_CONTENT = "other"  #: stands for the hash of what is neither file nor folder


def read_texts(store: ObjectStore, paths: Mapping[str, str], most: int) -> dict[str, str]:
    """The contents of artifacts by name; `Invalid` names the first that cannot be used."""
    return {name: _read_text(store, name, path, most) for name, path in paths.items()}


def _read_text(store: ObjectStore, name: str, path: str, most: int) -> str:
    if "," in path or not path:
        raise Invalid(f"artifact[{name}] is not one file: {path[:200] or 'nothing'}")
    try:
        data = read_whole(store, key_of(path), most=most - 1)
    except TooLarge as error:
        raise Invalid(f"artifact[{name}] at {path} is too large: less than {most} bytes are possible here") from error
    except NotFound as error:
        raise Invalid(f"artifact[{name}] at {path} does not exist") from error
    except PaddleFlowError as error:
        raise Invalid(f"artifact[{name}] at {path} cannot be read: {error.message}") from error
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Invalid(f"artifact[{name}] at {path} is not text in UTF-8") from error


def make_folder(store: ObjectStore, path: str) -> None:
    """The part of a storage that steps see. `Invalid` when something else is there."""
    try:
        if key := key_of(path):
            store.make_folder(key)
    except PaddleFlowError as error:
        raise Invalid(f"folder {path} of the main storage cannot be made: {error.message}") from error


def make_places(store: ObjectStore, paths: Iterable[str]) -> SlicedWork[None]:
    """The parent folders of outputs; what an earlier try left there is removed. `Invalid` when that cannot be."""
    for path in paths:
        try:
            key = key_of(path)
            store.make_folder(key.rpartition("/")[0])
            yield from remove_tree(store, key)
        except PaddleFlowError as error:
            raise Invalid(f"output artifact {path} cannot be made: {error.message}") from error


def remove_tree(store: ObjectStore, key: str, at_once: int = AT_ONCE) -> SlicedWork[None]:
    """Whatever is at a key, with all that is below it; nothing may be there. A link is removed, never followed."""
    pending = [(key, False)]
    while pending:
        current, emptied = pending.pop()
        if emptied:
            store.remove_folder(current)
        else:
            try:
                store.remove(current)
            except Conflict:  # a folder
                some = [(entry.key, False) for entry in islice(store.list_entries(current), at_once)]
                pending += [(current, len(some) < at_once), *some]
        yield 0


def remove_run(store: ObjectStore, sub_path: str, run: str) -> SlicedWork[None]:
    """All artifacts of a run; it may have none."""
    return remove_tree(store, key_of(f"{sub_path}/{ARTIFACTS}/{run}"))


def measure(store: ObjectStore, path: str) -> SlicedWork[Measurement]:
    """Kind, hash and size of what a step made. A folder's hash is that of its listing with the hash of every file."""
    try:
        key = key_of(path)
        entry = store.stat(key)
        if entry.kind is Kind.FOLDER:
            return (yield from _measure_folder(store, key))
        if entry.kind is Kind.OTHER:
            raise Invalid(f"{path[:200]} is neither a file nor a folder")
        return Measurement("file", (yield from _hash(store, key, 0)), entry.size)
    except NotFound:
        return Measurement(MISSING)
    except Invalid:
        raise
    except PaddleFlowError as error:
        raise Invalid(f"{path[:200]} could not be read: {error.message}", hint=error.hint) from error


def _measure_folder(store: ObjectStore, folder: str) -> SlicedWork[Measurement]:
    digest, size = hashlib.sha256(), 0
    for entry in (yield from _files_below(store, folder)):
        inner = _NOT_CONTENT
        if entry.kind is Kind.FILE:
            inner = yield from _hash(store, entry.key, size)
        size += entry.size
        digest.update(f"{_inside(entry.key, folder)}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return Measurement("folder", digest.hexdigest(), size)


def signature(store: ObjectStore, path: str) -> SlicedWork[str]:
    """Changes when something at or below a path changes: names and content tags of all files, not those of folders."""
    try:
        key = key_of(path)
        entry = store.stat(key)
        if entry.kind is not Kind.FOLDER:
            return entry.tag or entry.kind.value
        digest = hashlib.sha256()
        for each in (yield from _files_below(store, key)):
            relative = _inside(each.key, key)
            if not relative.startswith(f"{ARTIFACTS}/"):  # what runs write is not what they read
                digest.update(f"{relative}\0{each.tag}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()
    except NotFound:
        return MISSING
    except Invalid:
        raise
    except PaddleFlowError as error:
        raise Invalid(f"{path[:200]} could not be read: {error.message}", hint=error.hint) from error


def _files_below(store: ObjectStore, folder: str) -> SlicedWork[list[Entry]]:
    """All files of a folder, in one order."""
    found: list[Entry] = []
    for entry in store.list_entries(folder, recursive=True):
        found.append(entry)
        if len(found) > MOST_FILES:
            raise Invalid(f"folder {folder[:200]} has more than {MOST_FILES:,} files")
        yield 0
    found.sort(key=lambda entry: entry.key)
    return found


def _inside(key: str, folder: str) -> str:
    return key.removeprefix(f"{folder}/") if folder else key


def _hash(store: ObjectStore, key: str, before: int) -> SlicedWork[str]:
    digest = hashlib.sha256()
    for chunk in iterate_content(store, key, chunk=_CHUNK):
        digest.update(chunk)
        before += len(chunk)
        yield before
    return digest.hexdigest()


def existing(store: ObjectStore, path: str) -> Entry:
    """The entry of an artifact; `NotFound` when there is none any more, `Invalid` for what cannot be downloaded."""
    try:
        entry = store.stat(key_of(path))
    except NotFound as error:
        raise NotFound(f"artifact[{path[:200]}] no longer exists", code="ArtifactEventNotFound") from error
    if entry.kind is Kind.OTHER:
        raise Invalid(f"artifact[{path[:200]}] is neither a file nor a folder", code="InvalidArguments")
    return entry


def content(store: ObjectStore, key: str) -> Generator[bytes, None, None]:
    """A file's bytes; the store is closed behind them."""
    try:
        yield from iterate_content(store, key, chunk=_CHUNK)
    finally:
        store.close()
