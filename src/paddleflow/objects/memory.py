"""A store in memory: for tests, and for trying things (`mock://`). Forgotten when it is closed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO

from paddleflow.errors import Conflict
from paddleflow.objects.store import (
    Capabilities,
    Entry,
    Kind,
    absent,
    changed,
    check_folder_key,
    check_key,
    check_range,
    exists_already,
    not_a_file,
    not_a_folder,
    not_empty,
    shorten,
)


class MemoryStore:
    """All of `ObjectStore`, exactly; the reference that other stores are compared with."""

    def __init__(self, name: str = "mock://memory") -> None:
        self.name = name
        self.capabilities = Capabilities(metadata=True, copy=True, atomic_rename=True, if_absent=True, if_tag=True)
        self._lock = threading.Lock()
        self._tags = itertools.count(1)
        self._files: dict[str, tuple[Entry, bytes]] = {}
        self._folders: dict[str, dict[str, str]] = {}  #: explicit ones, with their metadata

    def stat(self, key: str) -> Entry:
        folder, key = key.endswith("/"), check_folder_key(key)
        with self._lock:
            if key in self._files and not folder:
                return self._files[key][0]
            if not key or self._is_folder(key):
                return Entry(key, Kind.FOLDER, metadata=self._folders.get(key, {}))
        raise absent(self.name, key)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        folder = check_folder_key(folder)
        prefix = folder + "/" if folder else ""
        with self._lock:
            files = [entry for key, (entry, _) in self._files.items() if key.startswith(prefix)]
            folders = {each for each in self._folders if each.startswith(prefix)}
        if recursive:
            yield from (replace(entry, metadata={}) for entry in files)
            return
        inside = {prefix + key.removeprefix(prefix).split("/")[0] for key in folders}
        for entry in files:
            name, deeper, _ = entry.key.removeprefix(prefix).partition("/")
            if deeper:
                inside.add(prefix + name)
            else:
                yield replace(entry, metadata={})
        yield from (Entry(key, Kind.FOLDER) for key in inside)

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_range(offset, size)
        with self._lock:
            entry, content = self._file(check_key(key))
            if tag and entry.tag != tag:
                raise changed(key)
        return content[offset : offset + size]

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        check_key(key)
        data = content if isinstance(content, bytes) else content.read()
        with self._lock:
            self._check_free(key)
            found = self._files.get(key)
            if if_absent and found:
                raise exists_already(self.name, key)
            if if_tag and (found is None or found[0].tag != if_tag):
                raise changed(key)
            return self._put(key, data, metadata or {})

    def remove(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if key not in self._files and self._is_folder(key):
                raise not_a_file(self.name, key)
            self._files.pop(key, None)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        check_key(key.removesuffix("/"))
        key = key.removesuffix("/")
        with self._lock:
            if key in self._files:
                raise not_a_folder(self.name, key)
            self._check_free(key + "/x")
            parts = key.split("/")
            for count in range(1, len(parts) + 1):
                self._folders.setdefault("/".join(parts[:count]), {})
            if metadata is not None:
                self._folders[key] = dict(metadata)

    def remove_folder(self, key: str) -> None:
        key = check_key(key.removesuffix("/"))
        with self._lock:
            if key in self._files:
                raise not_a_folder(self.name, key)
            if any(each.startswith(key + "/") for each in (*self._files, *self._folders)):
                raise not_empty(self.name, key)
            self._folders.pop(key, None)

    def copy(self, source: str, target: str) -> Entry:
        with self._lock:
            entry, content = self._file(check_key(source))
            self._check_free(check_key(target))
            return self._put(target, content, entry.metadata)

    def rename(self, source: str, target: str) -> Entry:
        with self._lock:
            entry, content = self._file(check_key(source))
            self._check_free(check_key(target))
            del self._files[source]
            return self._put(target, content, entry.metadata)

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        with self._lock:
            _, content = self._file(check_key(key))
            return self._put(key, content, metadata)

    def close(self) -> None:
        with self._lock:
            self._files.clear()
            self._folders.clear()

    # All below: with the lock held.

    def _file(self, key: str) -> tuple[Entry, bytes]:
        if key in self._files:
            return self._files[key]
        if self._is_folder(key):
            raise not_a_file(self.name, key)
        raise absent(self.name, key)

    def _is_folder(self, key: str) -> bool:
        return key in self._folders or any(each.startswith(key + "/") for each in self._files)

    def _check_free(self, key: str) -> None:
        """A file where a folder is, or below a file: what no file system holds, no store here holds."""
        if self._is_folder(key):
            raise not_a_file(self.name, key)
        parts = key.split("/")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in self._files:
                raise Conflict(f"{shorten('/'.join(parts[:count]))} in {self.name} is a file, not a folder")

    def _put(self, key: str, content: bytes, metadata: Mapping[str, str]) -> Entry:
        entry = Entry(key, Kind.FILE, len(content), time.time(), str(next(self._tags)), dict(metadata))
        self._files[key] = (entry, content)
        return entry
