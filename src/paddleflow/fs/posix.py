"""A folder of this machine as a tree: `file:///data`, NFS or whatever else the kernel mounts.

Every node that the kernel knows is held by an O_PATH descriptor, so it stays the same file whatever is renamed, replaced or
removed around it, and no path is ever resolved twice. The descriptors end when the kernel forgets the node. Files are made
in the name of the caller: as root the new file is given to them, and permissions are checked by the kernel before it asks
(`default_permissions`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from paddleflow.errors import NotFound, Unavailable
from paddleflow.fs import kernel
from paddleflow.fs.kernel import Attributes
from paddleflow.fs.state import HandleRecord, State
from paddleflow.fs.tree import NOW, Changes, Found, Limits, Listed, OpenFile, Owner, attributes_of

_AT_EMPTY_PATH = 0x1000
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_libc = ctypes.CDLL(None, use_errno=True)
_SUID = stat.S_ISUID | stat.S_ISGID


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Node:
    __slots__ = ("fd", "id", "key", "lookups", "opened_as")

    def __init__(self, number: int, fd: int, key: tuple[int, int]) -> None:
        self.id, self.fd, self.key = number, fd, key
        self.lookups = 0
        self.opened_as: tuple[int, int, int] | None = None  #: size and times when it was last opened

    def path(self) -> str:
        """A path that leads to this very file, for calls that take no O_PATH descriptor."""
        return f"/proc/self/fd/{self.fd}"


class PosixFile:
    """An open file of the folder; the kernel may use its descriptor by itself."""

    def __init__(self, node: _Node, fd: int, *, keep_cache: bool, changed: bool = False) -> None:
        self._node, self._fd, self.keep_cache, self.changed = node, fd, keep_cache, changed
        self.was_cached = True

    @property
    def fd(self) -> int:
        return self._fd

    def backing(self) -> int | None:
        # The kernel would write as root, who keeps set-uid bits: writes to such a file must come to us.
        return None if os.fstat(self._fd).st_mode & _SUID else self._fd

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def write(self, data: memoryview, offset: int, *, kill_suid: bool = False) -> int:
        if kill_suid:
            self.drop_suid()
        return os.pwrite(self._fd, data, offset)

    def drop_suid(self) -> None:
        mode = os.fstat(self._fd).st_mode
        if mode & _SUID:
            os.chmod(self._node.path(), without_suid(mode))

    def flush(self) -> None:
        os.close(os.dup(self._fd))  # network file systems report errors at close

    def fsync(self, *, data_only: bool) -> None:
        (os.fdatasync if data_only else os.fsync)(self._fd)

    def allocate(self, mode: int, offset: int, length: int) -> None:
        _check(_libc.fallocate64(self._fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))

    def seek(self, offset: int, whence: int) -> int:
        return os.lseek(self._fd, offset, whence)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def release(self) -> None:
        os.close(self._fd)


class PosixTree:
    """`Tree` over a folder."""

    quick = False  #: the folder may be anything that the kernel mounts

    def __init__(self, root: Path, state: State, *, seconds: float = 1.0, immutable: bool = False) -> None:
        self.immutable = immutable
        self._table = state.nodes
        self.entry_seconds = self.attr_seconds = 86_400.0 if immutable else seconds
        self._as_root = os.geteuid() == 0
        self._lock = threading.Lock()
        try:
            fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"folder {root} does not exist", hint=f"mkdir -p {root}") from error
        except OSError as error:
            raise Unavailable(f"folder {root} cannot be opened: {error.strerror}") from error
        found = os.fstat(fd)
        top = _Node(kernel.ROOT, fd, (found.st_dev, found.st_ino))
        top.lookups = 1
        self._nodes = {kernel.ROOT: top}
        self._by_key = {top.key: top}
        for record in state.nodes.records():
            about = os.fstat(record.fd)
            node = _Node(record.node, record.fd, (about.st_dev, about.st_ino))
            node.lookups = record.lookups
            self._nodes[node.id] = self._by_key[node.key] = node

    # ---- nodes ----

    def _node(self, number: int) -> _Node:
        try:
            return self._nodes[number]
        except KeyError:
            raise OSError(errno.ESTALE, "stale node") from None

    def _found(self, parent: int, name: bytes) -> Found:
        """Look a name up, and count that."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._node(parent).fd)
        try:
            found = os.fstat(fd)
        except BaseException:
            os.close(fd)
            raise
        key = (found.st_dev, found.st_ino)
        with self._lock:
            node = self._by_key.get(key)
            if node is None:
                node = _Node(self._table.new_number(), fd, key)
                self._table.put(node.id, 1, fd)
                self._nodes[node.id] = self._by_key[key] = node
                node.lookups, fd = 1, -1
            else:
                node.lookups += 1
                self._table.set_lookups(node.id, node.lookups)
        if fd >= 0:
            os.close(fd)
        return Found(node.id, attributes_of(found))

    def lookup(self, parent: int, name: bytes) -> Found:
        return self._found(parent, name)

    def forget(self, node: int, count: int) -> None:
        with self._lock:
            known = self._nodes.get(node)
            if known is None:
                return
            known.lookups -= count
            if known.lookups > 0 or node == kernel.ROOT:
                self._table.set_lookups(node, max(1, known.lookups))
                return
            self._table.remove(node)  # before the descriptor's number can be another file's
            del self._nodes[node]
            del self._by_key[known.key]
        os.close(known.fd)

    def name_of(self, node: int) -> str:
        top = Path(self._nodes[kernel.ROOT].path()).readlink()
        return str(Path(self._node(node).path()).readlink()).removeprefix(str(top)).lstrip("/")

    # ---- attributes ----

    def getattr(self, node: int) -> Attributes:
        return attributes_of(os.fstat(self._node(node).fd))

    def setattr(self, node: int, changes: Changes, file: OpenFile | None) -> Attributes:
        known = self._node(node)
        if changes.size is not None:
            self._truncate(known, changes.size, file)
            if changes.kill_suid:
                self._drop_suid(known)
        if changes.uid is not None or changes.gid is not None:
            uid = -1 if changes.uid is None else changes.uid
            gid = -1 if changes.gid is None else changes.gid
            _check(
                _libc.fchownat(
                    known.fd, b"", ctypes.c_uint(uid & 0xFFFFFFFF), ctypes.c_uint(gid & 0xFFFFFFFF), _AT_EMPTY_PATH
                )
            )
        if changes.mode is not None:
            os.chmod(known.path(), stat.S_IMODE(changes.mode))
        if changes.atime is not None or changes.mtime is not None:
            times = (_Timespec * 2)(_timespec(changes.atime), _timespec(changes.mtime))
            _check(_libc.utimensat(known.fd, b"", times, _AT_EMPTY_PATH))
        return attributes_of(os.fstat(known.fd))

    def _truncate(self, node: _Node, size: int, file: OpenFile | None) -> None:
        if isinstance(file, PosixFile):
            try:
                file.truncate(size)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EBADF):  # opened for reading only
                    raise
        fd = os.open(node.path(), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def _drop_suid(self, node: _Node) -> None:
        mode = os.fstat(node.fd).st_mode
        if mode & _SUID and stat.S_ISREG(mode):
            os.chmod(node.path(), without_suid(mode))

    # ---- names ----

    def readlink(self, node: int) -> bytes:
        return os.readlink(b"", dir_fd=self._node(node).fd)

    def symlink(self, parent: int, name: bytes, target: bytes, owner: Owner) -> Found:
        folder = self._node(parent)
        os.symlink(target, name, dir_fd=folder.fd)
        return self._give(parent, name, owner, None)

    def mknod(self, parent: int, name: bytes, mode: int, rdev: int, owner: Owner) -> Found:
        major, minor = (rdev & 0xFFF00) >> 8, (rdev & 0xFF) | ((rdev >> 12) & 0xFFF00)
        os.mknod(name, mode, os.makedev(major, minor), dir_fd=self._node(parent).fd)
        return self._give(parent, name, owner, mode)

    def mkdir(self, parent: int, name: bytes, mode: int, owner: Owner) -> Found:
        os.mkdir(name, stat.S_IMODE(mode), dir_fd=self._node(parent).fd)
        return self._give(parent, name, owner, mode)

    def _give(self, parent: int, name: bytes, owner: Owner, mode: int | None) -> Found:
        """What was just made, owned by the caller."""
        found = self._found(parent, name)
        node = self._node(found.node)
        made = found.attributes
        above = os.fstat(self._node(parent).fd)
        group = above.st_gid if above.st_mode & stat.S_ISGID else owner.gid
        if self._as_root and (made.uid, made.gid) != (owner.uid, group):
            _check(_libc.fchownat(node.fd, b"", owner.uid, group, _AT_EMPTY_PATH))
        if mode is not None:
            wanted = stat.S_IMODE(mode)
            if stat.S_ISDIR(made.mode):
                wanted |= above.st_mode & stat.S_ISGID
            if wanted != stat.S_IMODE(os.fstat(node.fd).st_mode):  # this process has a umask; a new owner clears bits
                os.chmod(node.path(), wanted)
        return Found(found.node, attributes_of(os.fstat(node.fd)))

    def unlink(self, parent: int, name: bytes) -> None:
        os.unlink(name, dir_fd=self._node(parent).fd)

    def rmdir(self, parent: int, name: bytes) -> None:
        os.rmdir(name, dir_fd=self._node(parent).fd)

    def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, *, repeated: bool = False
    ) -> None:
        old, new = self._node(parent).fd, self._node(new_parent).fd
        if flags:
            _check(_libc.renameat2(old, name, new, new_name, flags))
        else:
            os.rename(name, new_name, src_dir_fd=old, dst_dir_fd=new)

    def link(self, node: int, parent: int, name: bytes) -> Found:
        os.link(self._node(node).path(), name, dst_dir_fd=self._node(parent).fd, follow_symlinks=True)
        return self._found(parent, name)

    # ---- files ----

    def open(self, node: int, flags: int, *, kill_suid: bool = False) -> PosixFile:
        known = self._node(node)
        wanted = flags & ~(os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL | os.O_APPEND) | os.O_CLOEXEC
        if flags & os.O_ACCMODE == os.O_WRONLY:
            wanted = wanted & ~os.O_ACCMODE | os.O_RDWR  # pages of a partial write are read first
        try:
            fd = os.open(known.path(), wanted)
        except PermissionError:
            fd = os.open(known.path(), wanted & ~os.O_ACCMODE | flags & os.O_ACCMODE)
        found = os.fstat(fd)
        now = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        before = known.opened_as
        file = PosixFile(known, fd, keep_cache=before == now, changed=before is not None and before != now)
        known.opened_as = now
        if kill_suid:
            file.drop_suid()
        return file

    def reopen(self, record: HandleRecord) -> PosixFile:
        """An open file of a worker that is gone."""
        return PosixFile(self._node(record.node), record.fd, keep_cache=False)

    def settle(self) -> None:
        """Nothing is open but by a handle."""

    def create(self, parent: int, name: bytes, flags: int, mode: int, owner: Owner) -> tuple[Found, PosixFile]:
        folder = self._node(parent)
        wanted = (flags & ~(os.O_ACCMODE | os.O_APPEND)) | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, wanted | os.O_EXCL, stat.S_IMODE(mode), dir_fd=folder.fd)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            found = self._found(parent, name)  # somebody else made it meanwhile: an open of theirs
            return found, self.open(found.node, flags)
        try:
            found = self._give(parent, name, owner, stat.S_IFREG | mode)
        except BaseException:
            os.close(fd)
            raise
        return found, PosixFile(self._node(found.node), fd, keep_cache=False)

    def listdir(self, node: int, *, look_up: Callable[[], bool]) -> Iterator[Listed]:
        fd = os.open(self._node(node).path(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    name, found = os.fsencode(entry.name), None
                    if look_up():
                        with contextlib.suppress(OSError):  # gone meanwhile, or no descriptors left: the name alone
                            found = self._found(node, name)
                    yield Listed(name, entry.inode(), _kind_of(entry), found)
        finally:
            os.close(fd)

    def kept_listing(self, node: int) -> bool | None:
        return None  # others may change the folder at any time

    def syncdir(self, node: int) -> None:
        fd = os.open(self._node(node).path(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def statfs(self) -> Limits:
        found = os.statvfs(self._nodes[kernel.ROOT].path())
        size = found.f_frsize or found.f_bsize
        return Limits(
            found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree, size, found.f_namemax
        )

    # ---- extended attributes ----

    def getxattr(self, node: int, name: bytes) -> bytes:
        return os.getxattr(self._node(node).path(), name)

    def listxattr(self, node: int) -> list[bytes]:
        return [os.fsencode(name) for name in os.listxattr(self._node(node).path())]

    def setxattr(self, node: int, name: bytes, value: bytes, flags: int) -> None:
        os.setxattr(self._node(node).path(), name, value, flags)

    def removexattr(self, node: int, name: bytes) -> None:
        os.removexattr(self._node(node).path(), name)

    def stats(self) -> dict[str, object]:
        return {"nodes": len(self._nodes)}

    def close(self) -> None:
        with self._lock:
            nodes, self._nodes, self._by_key = list(self._nodes.values()), {}, {}
        for node in nodes:
            os.close(node.fd)


def without_suid(mode: int) -> int:
    """A mode after a write: no set-uid, and no set-gid unless it means mandatory locks."""
    mode = stat.S_IMODE(mode) & ~stat.S_ISUID
    return mode & ~stat.S_ISGID if mode & stat.S_IXGRP else mode


def _kind_of(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK >> 12
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR >> 12
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG >> 12
    return 0  # unknown: whoever wants to know asks for the attributes


def _timespec(moment: int | None) -> _Timespec:
    if moment is None:
        return _Timespec(0, _UTIME_OMIT)
    if moment == NOW:
        return _Timespec(0, _UTIME_NOW)
    return _Timespec(*divmod(moment, 1_000_000_000))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
