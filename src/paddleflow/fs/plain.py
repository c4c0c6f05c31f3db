"""Stores that keep no metadata (SFTP, HDFS), as a mount needs them: modes, owners and times are those of the mount.

A file or folder is stored without the attributes that it would carry elsewhere. What would be lost altogether is refused instead,
by the store's own words (`OperationNotSupported`): a symbolic link, extended attributes, a later chmod, chown or utime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO, TypeVar

from paddleflow.objects.store import Entry, ObjectStore
from paddleflow.objects.wrappers import Wrapper

T = TypeVar("T")
_DROPPED = frozenset({"pf-mode", "pf-uid", "pf-gid", "pf-mtime", "pf-atime"})


def mountable(store: ObjectStore) -> ObjectStore:
    """The store itself, or one that does without metadata."""
    return store if store.capabilities.metadata else PlainStore(store)


class PlainStore(Wrapper):
    """Hands everything on, and the attributes of files only where they say more than every file has."""

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        return call()

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        return self.inner.write(key, content, metadata=_kept(metadata), if_absent=if_absent, if_tag=if_tag)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        self.inner.make_folder(key, metadata=_kept(metadata))


def _kept(metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return None if metadata is None or metadata.keys() <= _DROPPED else metadata
