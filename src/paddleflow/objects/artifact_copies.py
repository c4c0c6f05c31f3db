"""Artifacts of a step copied between a store and a folder of this machine: for jobs where nothing can be mounted.

Before the step its inputs are brought into the folder that stands for the storage, and after it its outputs into the store. Both may
be repeated after a kill at any line: an object is written whole, and the same again. A folder is copied file by file.
Called in threads by `engine.job_storages`, and by `fs.sidecar` in pods.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paddleflow.errors import Invalid, NotFound
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import CHUNK, Entry, Kind, ObjectStore

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_FILES = 100_000  #: of one artifact that is copied


def fetch(store: ObjectStore, folder: Path, prefix: str, paths: Iterable[str]) -> None:
    """Bring inputs into a folder; one that is not in the store is left out, as it would be on a mount."""
    local = LocalStore(folder, name=str(folder))
    try:
        for path in paths:
            copy_tree(store, _joined(prefix, path), local, path)
    finally:
        local.close()


def make_places(folder: Path, paths: Iterable[str]) -> None:
    """The folders that outputs are written to."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)


def send(store: ObjectStore, folder: Path, prefix: str, paths: Iterable[str]) -> None:
    """Bring outputs into the store; what was not made is left out, and found missing when outputs are recorded."""
    local = LocalStore(folder, name="the step's folder")
    try:
        for path in paths:
            copy_tree(local, path, store, _joined(prefix, path))
    finally:
        local.close()


def copy_tree(source: ObjectStore, key: str, target: ObjectStore, target_key: str) -> None:
    """A file, or a folder with everything in it. Links inside it are followed, those that lead out are an error."""
    try:
        entry = source.stat(key)
    except NotFound:
        return
    if entry.kind is not Kind.FOLDER:
        _copy_file(source, entry, target, target_key)
        return
    target.make_folder(target_key)
    for number, each in enumerate(source.list_entries(key, recursive=True), 1):
        if number > MOST_FILES:
            raise Invalid(f"artifact {key[:200]} has more than {MOST_FILES:,} files, which is the most that is copied")
        _copy_file(source, each, target, target_key + each.key[len(key) :])


def _copy_file(source: ObjectStore, entry: Entry, target: ObjectStore, key: str) -> None:
    if entry.kind is not Kind.FILE:
        raise Invalid(f"{entry.key[:200]} is neither a file nor a folder, and cannot be copied")
    with io.BufferedReader(_Reader(source, entry), CHUNK) as content:
        target.write(key, content)


class _Reader(io.RawIOBase):
    """The content of one version of a file, as a stream that can be read again."""

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        self._store, self._entry, self._at = store, entry, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._at >= self._entry.size or not view:
            return 0
        piece = self._store.read(self._entry.key, offset=self._at, size=len(view), tag=self._entry.tag)
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path
