"""A folder of this machine (or of anything that the kernel mounts) as a store, safe against what users put into it.

Users own the files inside and may change them at any moment. So every name is resolved by the kernel beneath the folder
(`openat2` with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS: a link that leads out is refused at the moment of opening, not
by a check before it); where the kernel has no openat2, part by part without following links at all. Only regular files are
read, and opening never blocks on a FIFO. A write goes to a hidden temporary file, to the disk, and takes its name in one
step. Conditions on tags are checked under a lock of the folder, which all conditional writers of this class hold.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError, Unavailable
from paddleflow.objects.store import (
    TEMPORARY,
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
    not_empty,
    not_supported,
    shorten,
    stat_file,
)

ATTRIBUTE = "user.paddleflow.metadata"  #: extended attribute that holds an object's metadata as JSON
_COPY = 1 << 20
_SYS_OPENAT2 = 437  #: the same number on every architecture
_RESOLVE = 0x08 | 0x02  #: RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_RENAME_NOREPLACE = 1
_STALE = 200  #: times in a row that a file may be replaced while it is read
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int, mode: int = 0) -> int:
    """A descriptor of `path` below the folder `root`; OSError EXDEV or ELOOP for one that leads out."""
    flags |= os.O_CLOEXEC
    how = _OpenHow(flags, mode, _RESOLVE)
    while True:
        found = _libc.syscall(_SYS_OPENAT2, root, os.fsencode(path or "."), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM) and not _has_openat2(root):
            return _open_by_parts(root, path, flags, mode)
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed while the kernel walked
            raise OSError(number, os.strerror(number), path)


def _has_openat2(root: int) -> bool:
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE)
    found = _libc.syscall(_SYS_OPENAT2, root, b".", ctypes.byref(how), ctypes.sizeof(how))
    if found >= 0:
        os.close(found)
    return bool(found >= 0)


def _open_by_parts(root: int, path: str, flags: int, mode: int = 0) -> int:
    """The same without openat2: no link is followed."""
    parts = path.split("/") if path else ["."]
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = below
        return os.open(parts[-1], flags | os.O_NOFOLLOW, mode, dir_fd=current)
    finally:
        os.close(current)


class LocalStore:
    """`ObjectStore` over the folder `root`, which must exist."""

    def __init__(self, root: Path | str, *, name: str = "") -> None:
        self.name = name or f"file://{root}"
        self.capabilities = Capabilities(metadata=True, copy=True, atomic_rename=True, if_absent=True, if_tag=True)
        try:
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._translated(error, str(root)) from error

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    # ---- looking ----

    def stat(self, key: str) -> Entry:
        folder, key = key.endswith("/"), check_folder_key(key)

        def find() -> Entry:
            opened = open_beneath(self._root, key, os.O_PATH | (os.O_DIRECTORY if folder else 0))
            try:
                found = os.fstat(opened)
                return _entry(key, found, _read_metadata(opened))
            finally:
                os.close(opened)

        try:
            return _not_stale(find)
        except OSError as error:
            raise self._translated(error, key) from error

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        pending = [check_folder_key(folder)]
        while pending:
            current = pending.pop()
            try:
                opened = open_beneath(self._root, current, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                continue  # never was, or went away meanwhile: has no entries
            except OSError as error:
                raise self._translated(error, current) from error
            try:
                with os.scandir(opened) as found:
                    for each in found:
                        if each.name.startswith(TEMPORARY):
                            continue
                        key = f"{current}/{each.name}" if current else each.name
                        entry = self._listed(key, each, opened)
                        if entry is None:
                            continue
                        if recursive and entry.kind is Kind.FOLDER:
                            if not each.is_symlink():
                                pending.append(key)
                        else:
                            yield entry
            except OSError as error:
                raise self._translated(error, current) from error
            finally:
                os.close(opened)

    def _listed(self, key: str, each: os.DirEntry[str], folder: int) -> Entry | None:
        try:
            if not each.is_symlink():
                return _entry(key, os.stat(each.name, dir_fd=folder, follow_symlinks=False))
            opened = open_beneath(self._root, key, os.O_PATH)
        except FileNotFoundError:
            return Entry(key, Kind.OTHER) if each.is_symlink() else None  # a link to nowhere; a file that is gone
        except OSError:
            return Entry(key, Kind.OTHER)  # a link that leads out or round in circles
        try:
            return _entry(key, os.fstat(opened))
        finally:
            os.close(opened)

    # ---- reading ----

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_key(key)
        check_range(offset, size)

        def fetch() -> bytes:
            opened = self._open_file(key)
            try:
                content = _read_all(opened, min(size, max(0, os.fstat(opened).st_size - offset)), offset)
                if tag and _tag(os.fstat(opened)) != tag:  # after reading: a change while reading counts
                    raise changed(key)
                return content
            finally:
                os.close(opened)

        try:
            return _not_stale(fetch)
        except OSError as error:
            raise self._translated(error, key) from error

    def _open_file(self, key: str) -> int:
        """A descriptor for reading; a `Conflict` for everything that is not a regular file, without touching it."""
        looked = open_beneath(self._root, key, os.O_PATH)  # O_PATH opens no device and waits for nobody
        try:
            self._check_regular(key, os.fstat(looked))
        finally:
            os.close(looked)
        opened = open_beneath(self._root, key, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            self._check_regular(key, os.fstat(opened))  # what was really opened: it may have been swapped in between
        except BaseException:
            os.close(opened)
            raise
        return opened

    def _check_regular(self, key: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise Conflict(f"{shorten(key)} in {self.name} is {_kind_in_words(found.st_mode)}, not a file")

    # ---- writing ----

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
        try:
            folder, name = self._open_parent(key, make=True)
            try:
                temporary = self._write_temporary(folder, content, metadata or {})
                try:
                    return self._publish(folder, temporary, name, key, if_absent, if_tag)
                except BaseException:
                    _unlink_quietly(temporary, folder)
                    raise
            finally:
                os.close(folder)
        except OSError as error:
            raise self._translated(error, key) from error

    def _write_temporary(self, folder: int, content: bytes | BinaryIO, metadata: Mapping[str, str]) -> str:
        name = TEMPORARY + secrets.token_hex(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(name, flags, 0o666, dir_fd=folder)
        try:
            with open(opened, "wb", buffering=0) as file:
                if isinstance(content, bytes):
                    _write_all(file.fileno(), content)
                else:
                    while piece := content.read(_COPY):
                        _write_all(file.fileno(), piece)
                if metadata:
                    self._write_metadata(file.fileno(), metadata)
                os.fsync(file.fileno())
        except BaseException:
            _unlink_quietly(name, folder)
            raise
        return name

    def _publish(self, folder: int, temporary: str, name: str, key: str, if_absent: bool, if_tag: str) -> Entry:
        """Give the temporary file its name in one step, if the condition holds."""
        if if_absent:
            _rename_exclusively(folder, temporary, folder, name)
        elif if_tag:
            with _FolderLock(folder):
                self._check_tag(folder, name, key, if_tag)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
        return _entry(key, os.stat(name, dir_fd=folder, follow_symlinks=False))

    def _check_tag(self, folder: int, name: str, key: str, wanted: str) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise changed(key) from None
        if _tag(found) != wanted:
            raise changed(key)

    def remove(self, key: str) -> None:
        check_key(key)
        try:
            folder, name = self._open_parent(key)
        except NotFound:
            return
        try:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        except IsADirectoryError as error:
            raise not_a_file(self.name, key) from error
        except OSError as error:
            raise self._translated(error, key) from error
        finally:
            os.close(folder)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        folder, _ = self._open_parent(check_key(key.removesuffix("/")) + "/x", make=True)
        try:
            if metadata is not None:
                self._write_metadata(folder, metadata)
        finally:
            os.close(folder)

    def remove_folder(self, key: str) -> None:
        key = check_key(key.removesuffix("/"))
        try:
            folder, name = self._open_parent(key)
        except NotFound:
            return
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise not_empty(self.name, key) from error
            raise self._translated(error, key) from error
        finally:
            os.close(folder)

    def copy(self, source: str, target: str) -> Entry:
        check_key(target)
        try:
            opened = self._open_file(check_key(source))
            with open(opened, "rb", buffering=0) as file:
                return self.write(target, file, metadata=_read_metadata(opened))
        except OSError as error:
            raise self._translated(error, source) from error

    def rename(self, source: str, target: str) -> Entry:
        check_key(target)
        stat_file(self, check_key(source))
        old, old_name = self._open_parent(source)
        try:
            new, new_name = self._open_parent(target, make=True)
            try:
                os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)
                os.fsync(new)
                return _entry(target, os.stat(new_name, dir_fd=new, follow_symlinks=False))
            except OSError as error:
                raise self._translated(error, source) from error
            finally:
                os.close(new)
        finally:
            os.close(old)

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        try:
            opened = self._open_file(check_key(key))
            try:
                self._write_metadata(opened, metadata)
                return _entry(key, os.fstat(opened), dict(metadata))
            finally:
                os.close(opened)
        except OSError as error:
            raise self._translated(error, key) from error

    def _write_metadata(self, opened: int, metadata: Mapping[str, str]) -> None:
        try:
            os.setxattr(opened, ATTRIBUTE, json.dumps(dict(metadata)).encode())
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise not_supported(self.name, "keep metadata: its file system has no extended attributes") from error
            if error.errno in (errno.ENOSPC, errno.E2BIG, errno.ERANGE):
                raise Invalid(f"metadata of {len(metadata)} words is more than {self.name} can keep") from error
            raise

    def _open_parent(self, key: str, *, make: bool = False) -> tuple[int, str]:
        """A descriptor of the folder that a key lies in, and the key's last part."""
        above, _, name = key.rpartition("/")
        try:
            try:
                return open_beneath(self._root, above, os.O_RDONLY | os.O_DIRECTORY), name
            except FileNotFoundError:
                if not make:
                    raise
            self._make_folders(above)
            return open_beneath(self._root, above, os.O_RDONLY | os.O_DIRECTORY), name
        except NotADirectoryError as error:
            if make:
                raise Conflict(f"part of {shorten(above)} in {self.name} is a file, not a folder") from error
            raise self._translated(error, key) from error
        except OSError as error:
            raise self._translated(error, key) from error

    def _make_folders(self, key: str) -> None:
        parts = key.split("/")
        for count in range(1, len(parts) + 1):
            folder = open_beneath(self._root, "/".join(parts[: count - 1]), os.O_PATH | os.O_DIRECTORY)
            try:
                os.mkdir(parts[count - 1], dir_fd=folder)
            except FileExistsError:
                pass
            finally:
                os.close(folder)

    def _translated(self, error: OSError, key: str) -> PaddleFlowError:
        """The error in the words of `paddleflow.errors`, with the thing that it is about."""
        what, why = f"{shorten(key)} in {self.name}", (error.strerror or str(error)).lower()
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR:
                return absent(self.name, key)
            case errno.EXDEV | errno.ELOOP:
                return Forbidden(f"{what} leads out of the store through a link", hint="copy the file into the store")
            case errno.EACCES | errno.EPERM | errno.EROFS:
                return Forbidden(f"{what} may not be used by this process: {why}", hint="check its owner and mode")
            case errno.EEXIST:
                return exists_already(self.name, key)
            case errno.EISDIR:
                return not_a_file(self.name, key)
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                return OverQuota(f"{what} cannot be written: {why}", hint="free some space")
            case errno.ENAMETOOLONG | errno.EINVAL | errno.EILSEQ:
                return Invalid(f"{what} cannot be stored: {why}")
            case _:
                return Unavailable(f"{what} could not be used: {why}")


def _not_stale(call: Callable[[], T]) -> T:
    """A network file system says ESTALE of a file that was replaced between two calls: look again, at the new one."""
    for _ in range(_STALE):
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return call()


class _FolderLock:
    """Held by every conditional writer of a folder, in this process and in others."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        fcntl.flock(self._folder, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._folder, fcntl.LOCK_UN)


def _entry(key: str, found: os.stat_result, metadata: Mapping[str, str] | None = None) -> Entry:
    if stat.S_ISDIR(found.st_mode):
        return Entry(key, Kind.FOLDER, modified_at=found.st_mtime, metadata=metadata or {})
    if not stat.S_ISREG(found.st_mode):
        return Entry(key, Kind.OTHER, modified_at=found.st_mtime)
    return Entry(key, Kind.FILE, found.st_size, found.st_mtime, _tag(found), metadata or {})


def _tag(found: os.stat_result) -> str:
    # The change time too: programs such as rsync set the modification time back.
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}"


def _kind_in_words(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    kinds |= {stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device"}
    return kinds.get(stat.S_IFMT(mode), "of an unknown kind")


def _read_metadata(opened: int) -> dict[str, str]:
    try:
        # An O_PATH descriptor has no extended attributes of its own; its name under /proc leads to the very same file.
        words = json.loads(os.getxattr(f"/proc/self/fd/{opened}", ATTRIBUTE))
    except (OSError, ValueError):
        return {}  # none, no such thing on this file system, or written by somebody else
    return {str(word): str(value) for word, value in words.items()} if isinstance(words, dict) else {}


def _read_all(opened: int, size: int, offset: int) -> bytes:
    content = os.pread(opened, size, offset)
    while len(content) < size and (more := os.pread(opened, size - len(content), offset + len(content))):
        content += more
    return content


def _write_all(opened: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(opened, rest) :]


def _rename_exclusively(old: int, old_name: str, new: int, new_name: str) -> None:
    done = _libc.renameat2(old, os.fsencode(old_name), new, os.fsencode(new_name), _RENAME_NOREPLACE)
    if done == 0:
        return
    number = ctypes.get_errno()
    if number != errno.EINVAL:
        raise OSError(number, os.strerror(number), new_name)
    os.link(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)  # a file system without the flag
    os.unlink(old_name, dir_fd=old)


def _unlink_quietly(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return
