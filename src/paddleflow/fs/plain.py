"""Stores that keep no metadata (SFTP, HDFS), as a mount needs them: modes, owners and times are those of the mount.

A file or folder is stored without the attributes that it would carry elsewhere. What would be lost altogether is refused instead,
with ENOTSUP: a symbolic link, extended attributes, a later chmod, chown or utime, also of a file that is not sent yet.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import BinaryIO, TypeVar

from paddleflow.fs.kernel import Attributes
from paddleflow.fs.tree import NOW, Changes
from paddleflow.objects.links import capabilities_of
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


def keeps_attributes(store: ObjectStore, key: str) -> bool:
    return capabilities_of(store, key).metadata


def expressible(changes: Changes, shown: Attributes, *, unsent: bool) -> Changes:
    """What is left to do where no attributes are kept: ENOTSUP for what would be dropped.

    A change to what is there already is none. A file that is still to be sent gets the present moment as its time anyway.
    """
    given = changes
    if changes.mode is not None:
        given = replace(given, mode=stat.S_IFMT(shown.mode) | stat.S_IMODE(changes.mode))
    left = {name: getattr(given, name) for name in ("mode", "uid", "gid", "atime", "mtime")}
    left = {name: None if value == getattr(shown, name) else value for name, value in left.items()}
    if any(value is not None and not (value == NOW and unsent) for value in left.values()):
        raise keeps_none()
    return replace(changes, **left)


def keeps_none() -> OSError:
    return OSError(errno.EOPNOTSUPP, "the store keeps no modes, owners, times or extended attributes")
