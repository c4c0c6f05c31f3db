"""What the file system shows, as `vfs` sees it: nodes with names, and open files. Two trees implement it.

`posix.PosixTree` is a folder of this machine; `remote.RemoteTree` a store with two cache levels. A tree knows nothing of
the kernel's wire format. Nodes are numbers that the tree gives out; each answer that names a node counts as one lookup of
it, and `forget` gives lookups back. Errors are OSError with the errno that the program gets. All calls may come from
several threads at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError, TooLarge
from paddleflow.fs.kernel import Attributes
from paddleflow.fs.state import HandleRecord
from paddleflow.objects.links import CROSS_STORE
from paddleflow.objects.store import CHANGED, NO_SUCH_BUCKET, NOT_SUPPORTED, TOO_LONG

NOW = -(1 << 70)  #: a time in `Changes` that means the moment of the call; no real time is that far away


class Found(NamedTuple):
    """A node that was looked up, made or renamed."""

    node: int
    attributes: Attributes


class Owner(NamedTuple):
    """Who asks, for what is made."""

    uid: int
    gid: int


class Listed(NamedTuple):
    """An entry of a folder. `found` only where the lister was asked for it, and is counted as a lookup."""

    name: bytes
    ino: int
    kind: int  #: as in dirent's d_type
    found: Found | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What SETATTR changes; None stays. Times are nanoseconds, or `NOW`."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime: int | None = None
    mtime: int | None = None
    kill_suid: bool = False


class Limits(NamedTuple):
    """What `statfs` answers."""

    blocks: int
    free: int
    available: int
    files: int
    files_free: int
    block_size: int
    name_length: int


class OpenFile(Protocol):
    """One open file. `release` is called once, when the last descriptor is closed."""

    keep_cache: bool  #: the content is the one that the kernel may have cached
    was_cached: bool  #: the whole content was on this machine before it was opened
    changed: bool  #: somebody else changed it since it was last opened: the kernel's attributes are old

    @property
    def fd(self) -> int:
        """The descriptor of this open alone, which a later worker continues to use; -1: none."""

    def backing(self) -> int | None:
        """A descriptor that holds the whole content, for the kernel to use by itself; None if there is none (yet)."""

    def read(self, size: int, offset: int) -> bytes | bytearray: ...

    def write(self, data: memoryview, offset: int, *, kill_suid: bool = False) -> int: ...

    def flush(self) -> None:
        """A descriptor is closed: what close() should report is raised here."""

    def fsync(self, *, data_only: bool) -> None: ...

    def allocate(self, mode: int, offset: int, length: int) -> None: ...

    def seek(self, offset: int, whence: int) -> int: ...

    def release(self) -> None: ...


class Tree(Protocol):
    """The operations of a file system; the names are those of the system calls."""

    quick: bool  #: operations that only read release the request lock before they wait; otherwise any may wait
    immutable: bool  #: nothing in it changes while it is mounted
    entry_seconds: float  #: how long the kernel may remember a name
    attr_seconds: float  #: how long the kernel may remember attributes

    def lookup(self, parent: int, name: bytes) -> Found: ...

    def forget(self, node: int, count: int) -> None: ...

    def name_of(self, node: int) -> str:
        """A path for people, from the root of the file system."""

    def getattr(self, node: int) -> Attributes: ...

    def setattr(self, node: int, changes: Changes, file: OpenFile | None) -> Attributes: ...

    def readlink(self, node: int) -> bytes: ...

    def symlink(self, parent: int, name: bytes, target: bytes, owner: Owner) -> Found: ...

    def mknod(self, parent: int, name: bytes, mode: int, rdev: int, owner: Owner) -> Found: ...

    def mkdir(self, parent: int, name: bytes, mode: int, owner: Owner) -> Found: ...

    def unlink(self, parent: int, name: bytes) -> None: ...

    def rmdir(self, parent: int, name: bytes) -> None: ...

    def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, *, repeated: bool = False
    ) -> None:
        """`repeated`: an earlier worker may have begun or done it."""

    def link(self, node: int, parent: int, name: bytes) -> Found: ...

    def open(self, node: int, flags: int, *, kill_suid: bool = False) -> OpenFile: ...

    def create(self, parent: int, name: bytes, flags: int, mode: int, owner: Owner) -> tuple[Found, OpenFile]: ...

    def reopen(self, record: HandleRecord) -> OpenFile:
        """An open file of a worker that is gone."""

    def settle(self) -> None:
        """All open files of a worker that is gone are reopened: let go of what nobody has open."""

    def listdir(self, node: int, *, look_up: Callable[[], bool]) -> Iterator[Listed]:
        """The entries without '.' and '..', each with its node if `look_up` says so then. Lazily, in a stable order."""

    def kept_listing(self, node: int) -> bool | None:
        """Whether the names that the kernel may have cached of a folder still hold; None: it must not cache them."""

    def syncdir(self, node: int) -> None: ...

    def statfs(self) -> Limits: ...

    def getxattr(self, node: int, name: bytes) -> bytes: ...

    def listxattr(self, node: int) -> list[bytes]: ...

    def setxattr(self, node: int, name: bytes, value: bytes, flags: int) -> None: ...

    def removexattr(self, node: int, name: bytes) -> None: ...

    def stats(self) -> dict[str, object]:
        """Figures for `fs stats`."""

    def close(self) -> None: ...


def errno_of(error: PaddleFlowError) -> int:
    """The error that a program gets when a store refuses."""
    match error:
        case NotFound():
            return errno.ENOENT
        case Forbidden():
            return errno.EACCES
        case OverQuota():
            return errno.ENOSPC
        case TooLarge():
            return errno.EFBIG
        case Conflict():
            codes = {CHANGED: errno.ESTALE, "FolderNotEmpty": errno.ENOTEMPTY, "AlreadyExists": errno.EEXIST}
            return codes.get(error.code, errno.EIO)
        case Invalid():
            codes = {
                NOT_SUPPORTED: errno.EOPNOTSUPP, CROSS_STORE: errno.EXDEV, NO_SUCH_BUCKET: errno.EIO, TOO_LONG: errno.ENAMETOOLONG,
            }  # fmt: skip
            return codes.get(error.code, errno.EINVAL)
        case _:
            return errno.EIO


def attributes_of(found: os.stat_result) -> Attributes:
    return Attributes(
        found.st_ino,
        found.st_size,
        found.st_blocks,
        found.st_atime_ns,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        _device_number(found.st_rdev),
        found.st_blksize,
    )


def _device_number(device: int) -> int:
    """The kernel's own 32 bits for a device's numbers."""
    major, minor = os.major(device), os.minor(device)
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)
