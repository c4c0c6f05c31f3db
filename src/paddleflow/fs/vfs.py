"""Requests of the kernel, given a meaning: one method per operation, between `kernel` (bytes) and a `Tree`.

Holds what belongs to neither: handles of open files, folders that are being listed, and the decision how a file is opened:

- **passthrough**: the kernel reads and writes a local file by itself. For files of `PASSTHROUGH_FROM` bytes and more, and
  for all that are opened for writing. Needs the kernel's consent at INIT and root.
- **kept**: reads come to us once, then from the kernel's page cache, which is kept from one open to the next as long as
  the content is the same.
- **no open**: OPEN is answered ENOSYS once, and the kernel never asks again. Only on immutable read-only mounts, for it
  holds for the whole mount and excludes passthrough.
- **direct**: neither, where the kernel refuses to mix the two on one node.

Called by `session` from several threads at once.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.fs import kernel
from paddleflow.fs.device import Device
from paddleflow.fs.kernel import Answer, Fattr, Fopen, Init, Op, Request
from paddleflow.fs.listings import Listing
from paddleflow.fs.state import State
from paddleflow.fs.trace import Trace
from paddleflow.fs.tree import NOW, Changes, Found, Listed, OpenFile, Owner, Tree, errno_of

log = logging.getLogger(__name__)
PASSTHROUGH_FROM = (
    64 * 1024
)  #: bytes; below, what lending a file to the kernel costs at each open is more than it saves
MOST_IDLE_FILES = 512  #: files kept open on mounts where the kernel neither opens nor closes
MOST_LISTINGS = 16  #: the same of folders that are listed in part
MAX_WRITE = 1 << 20
READ_AHEAD = 4 << 20

#: Operations that fail, or do more, when they are executed twice. A worker writes down that it begins one.
NOT_REPEATABLE = frozenset(
    {
        Op.MKDIR, Op.MKNOD, Op.SYMLINK, Op.LINK, Op.CREATE, Op.OPEN, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.RENAME2, Op.SETXATTR,
        Op.REMOVEXATTR,
    }
)  # fmt: skip
#: Operations that mostly find what they need in memory. Trees release the request lock before they wait in one of them.
QUICK = frozenset(
    {
        Op.LOOKUP, Op.FORGET, Op.BATCH_FORGET, Op.GETATTR, Op.READLINK, Op.OPEN, Op.READ, Op.RELEASE, Op.STATFS, Op.GETXATTR,
        Op.LISTXATTR, Op.IOCTL, Op.OPENDIR, Op.READDIR, Op.READDIRPLUS, Op.RELEASEDIR, Op.INTERRUPT, Op.LSEEK,
    }
)  # fmt: skip
#: What such an operation is refused with when an earlier worker has done it already.
_DONE_BEFORE = {
    Op.MKDIR: errno.EEXIST, Op.MKNOD: errno.EEXIST, Op.SYMLINK: errno.EEXIST, Op.LINK: errno.EEXIST,
    Op.UNLINK: errno.ENOENT, Op.RMDIR: errno.ENOENT, Op.RENAME: errno.ENOENT, Op.RENAME2: errno.ENOENT,
    Op.SETXATTR: errno.EEXIST, Op.REMOVEXATTR: errno.ENODATA,
}  # fmt: skip
#: Where the name begins in the body of those that are answered with an entry.
_NAME_AT = {
    Op.MKDIR: kernel.MKDIR_IN.size, Op.MKNOD: kernel.MKNOD_IN.size, Op.SYMLINK: 0, Op.LINK: kernel.LINK_IN.size,
}  # fmt: skip

#: Ways to open, by the number under which a later worker knows them, with what the kernel is told. Plain integers: flags are slow.
_FLAGS = {
    "passthrough": int(Fopen.PASSTHROUGH),
    "kept": int(Fopen.KEEP_CACHE),
    "fresh": 0,
    "direct": int(Fopen.DIRECT_IO),
}
_NO_FLUSH = int(Fopen.NOFLUSH)
_WAYS = list(_FLAGS)
_WAY_NUMBERS = {way: number for number, way in enumerate(_WAYS)}
_OPENED = {way: f"open {way}" for way in _WAYS}
_NO_HANDLE = (None, 0, "")


class Unanswered(Exception):
    """The request has no answer (FORGET, INTERRUPT)."""


class _Usage:
    """How a node is open now: the kernel refuses to mix ways on one node."""

    __slots__ = ("backing", "count", "way")

    def __init__(self, way: str, backing: int) -> None:
        self.way, self.backing, self.count = way, backing, 0


class _Kept:
    """A file that stays open where the kernel neither opens nor closes; it may go while nobody reads it."""

    __slots__ = ("file", "users")

    def __init__(self, file: OpenFile) -> None:
        self.file, self.users = file, 0


class Vfs:
    """Answers requests. `handle` may be called from many threads."""

    def __init__(self, tree: Tree, device: Device, state: State, *, read_only: bool, passthrough: bool = True) -> None:
        self.tree, self._device, self._state = tree, device, state
        self._want_passthrough = passthrough
        again = state.agreed.minor > 0
        self.no_open = state.agreed.no_open if again else read_only and tree.immutable
        self.passthrough = state.agreed.passthrough  #: agreed at INIT
        self.minor = state.agreed.minor
        self._lasting = kernel.lasting(tree.entry_seconds, tree.attr_seconds)
        self.trace = Trace()
        self.counts: Counter[str] = Counter()  #: requests by operation, opens by way
        self._lock = threading.Lock()
        self._folder_numbers = count(time.monotonic_ns())  #: of this worker alone
        self._files: dict[int, tuple[OpenFile, int, str]] = {}  #: by handle: file, node, way
        self._folders: dict[int, Listing] = {}
        self._listings: dict[tuple[int, int], Listing] = {}  #: by node and position, where the kernel never opens
        self._usage: dict[int, _Usage] = {}
        self._unanswered: dict[int, int] = {}  #: handles whose OPEN or CREATE may not have been answered, by its number
        self._idle: OrderedDict[int, _Kept] = OrderedDict()  #: by node, where the kernel never opens
        self._methods: dict[int, Callable[[Request, memoryview], Answer]] = {
            Op.INIT: self._init,
            Op.DESTROY: self._destroy,
            Op.INTERRUPT: self._interrupt,
            Op.LOOKUP: self._lookup,
            Op.FORGET: self._forget,
            Op.BATCH_FORGET: self._batch_forget,
            Op.GETATTR: self._getattr,
            Op.SETATTR: self._setattr,
            Op.READLINK: self._readlink,
            Op.SYMLINK: self._symlink,
            Op.MKNOD: self._mknod,
            Op.MKDIR: self._mkdir,
            Op.UNLINK: self._unlink,
            Op.RMDIR: self._rmdir,
            Op.RENAME: self._rename,
            Op.RENAME2: self._rename2,
            Op.LINK: self._link,
            Op.OPEN: self._open,
            Op.CREATE: self._create,
            Op.READ: self._read,
            Op.WRITE: self._write,
            Op.FLUSH: self._flush,
            Op.FSYNC: self._fsync,
            Op.RELEASE: self._release,
            Op.FALLOCATE: self._fallocate,
            Op.LSEEK: self._lseek,
            Op.OPENDIR: self._opendir,
            Op.RELEASEDIR: self._releasedir,
            Op.FSYNCDIR: self._fsyncdir,
            Op.READDIR: self._readdir,
            Op.READDIRPLUS: self._readdirplus,
            Op.STATFS: self._statfs,
            Op.IOCTL: self._ioctl,
            Op.GETXATTR: self._getxattr,
            Op.LISTXATTR: self._listxattr,
            Op.SETXATTR: self._setxattr,
            Op.REMOVEXATTR: self._removexattr,
        }
        if again:
            self._restore()

    def handle(self, request: Request, body: memoryview) -> Answer:
        """The answer's body. OSError: an errno for the program; `Unanswered`: no answer at all."""
        method = self._methods.get(request.opcode)
        if method is None:
            raise OSError(errno.ENOSYS, "not known here")
        if request.unique & kernel.UNIQUE_RESEND and self._repeated(request):
            return self._handle_again(request, body)
        return method(request, body)

    def _repeated(self, request: Request) -> bool:
        """Whether a worker that is gone had begun to execute this request, and may have done it."""
        unique = request.unique
        return bool(unique & kernel.UNIQUE_RESEND) and unique & ~kernel.UNIQUE_RESEND in self._state.repeated

    def _handle_again(self, request: Request, body: memoryview) -> Answer:
        """Execute what may have been executed: done before is done."""
        handle = self._unanswered.pop(request.unique & ~kernel.UNIQUE_RESEND, None)
        if handle is not None and handle in self._files:
            node = self._files[handle][1]
            self._close_handle(handle)
            if request.opcode == Op.CREATE:
                self.tree.forget(node, 1)
        if request.opcode == Op.CREATE:
            return self._create_again(request, body)
        try:
            return self._methods[request.opcode](request, body)
        except (OSError, PaddleFlowError) as error:
            number = error.errno if isinstance(error, OSError) else errno_of(error)
            if number != _DONE_BEFORE.get(Op(request.opcode)):
                raise
        if request.opcode not in _NAME_AT:
            return b""
        (name,) = kernel.names(body[_NAME_AT[Op(request.opcode)] :], 1)
        return self._entry(self.tree.lookup(request.node, name))

    def _create_again(self, request: Request, body: memoryview) -> Answer:
        flags, _, _, _ = kernel.CREATE_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.CREATE_IN.size :], 1)
        try:
            found = self.tree.lookup(request.node, name)
        except (FileNotFoundError, NotFound):
            return self._create(request, body)
        file = self.tree.open(found.node, flags & ~(os.O_CREAT | os.O_EXCL))
        return self._entry(found) + self._opened(request, found.node, file, flags)

    def _restore(self) -> None:
        """Take over the open files of a worker that is gone."""
        for number, record in self._state.handles.records().items():
            try:
                file = self.tree.reopen(record)
            except (OSError, PaddleFlowError):
                log.exception("open file %s is lost", record)
                self._state.handles.remove(number)
                continue
            way = _WAYS[record.way]
            self._files[number] = (file, record.node, way)
            if way != "direct":
                ways = "passthrough" if way == "passthrough" else "cached"
                self._usage.setdefault(record.node, _Usage(ways, record.backing)).count += 1
            if record.unique in self._state.repeated:
                self._unanswered[record.unique] = number
        self.tree.settle()

    # ---- the session ----

    def _init(self, request: Request, body: memoryview) -> Answer:
        if len(body) >= kernel.INIT_IN.size:
            major, minor, ahead, low, high = kernel.INIT_IN.unpack_from(body)
        else:
            major, minor, ahead, low = kernel.INIT_IN_OLD.unpack_from(body)
            high = 0
        if major != kernel.MAJOR or minor < kernel.OLDEST_MINOR:
            raise OSError(errno.EPROTO, f"FUSE {major}.{minor}")
        offered = Init(low | (high << 32 if low & Init.INIT_EXT else 0))
        wanted = (
            Init.ASYNC_READ | Init.ATOMIC_O_TRUNC | Init.BIG_WRITES | Init.DO_READDIRPLUS
            | Init.ASYNC_DIO | Init.PARALLEL_DIROPS | Init.MAX_PAGES | Init.CACHE_SYMLINKS | Init.INIT_EXT
            | Init.AUTO_INVAL_DATA | Init.HANDLE_KILLPRIV_V2 | Init.DIRECT_IO_ALLOW_MMAP
            | Init.HAS_RESEND | Init.ALLOW_IDMAP
        )  # fmt: skip
        if not self.tree.quick:  # attributes cost something: the kernel is to ask for those that are wanted
            wanted |= Init.READDIRPLUS_AUTO
        if self.no_open:
            wanted |= Init.NO_OPEN_SUPPORT | Init.NO_OPENDIR_SUPPORT
        elif self._want_passthrough and os.geteuid() == 0:
            wanted |= Init.PASSTHROUGH
        agreed = int(offered & wanted)
        self.no_open = self.no_open and bool(agreed & Init.NO_OPEN_SUPPORT)
        self.passthrough, self.minor = bool(agreed & Init.PASSTHROUGH), minor
        known = self._state.agreed
        known.minor, known.passthrough, known.no_open = minor, self.passthrough, self.no_open
        known.resend = bool(agreed & Init.HAS_RESEND)
        self._state.save_agreed()
        return kernel.INIT_OUT.pack(
            kernel.MAJOR, min(minor, kernel.MINOR), max(ahead, READ_AHEAD), agreed & 0xFFFFFFFF,
            64, 48, MAX_WRITE, 1, MAX_WRITE // 4096, 0, agreed >> 32, 1 if self.passthrough else 0,
        )  # fmt: skip

    def _destroy(self, request: Request, body: memoryview) -> Answer:
        return b""

    def _interrupt(self, request: Request, body: memoryview) -> Answer:
        raise Unanswered

    # ---- names and attributes ----

    def _entry(self, found: Found) -> bytes:
        return kernel.pack_entry(found.node, found.attributes, self._lasting)

    def _lookup(self, request: Request, body: memoryview) -> Answer:
        (name,) = kernel.names(body, 1)
        try:
            return self._entry(self.tree.lookup(request.node, name))
        except FileNotFoundError:
            if self.tree.entry_seconds <= 1.0:
                raise
            return kernel.pack_no_entry(self.tree.entry_seconds)

    def _forget(self, request: Request, body: memoryview) -> Answer:
        self.tree.forget(request.node, kernel.FORGET_IN.unpack_from(body)[0])
        raise Unanswered

    def _batch_forget(self, request: Request, body: memoryview) -> Answer:
        number, _ = kernel.BATCH_FORGET_IN.unpack_from(body)
        ones = body[kernel.BATCH_FORGET_IN.size :][: number * kernel.FORGET_ONE.size]
        for node, times in kernel.FORGET_ONE.iter_unpack(ones):
            self.tree.forget(node, times)
        raise Unanswered

    def _getattr(self, request: Request, body: memoryview) -> Answer:
        return kernel.pack_attr_answer(self.tree.getattr(request.node), self.tree.attr_seconds)

    def _setattr(self, request: Request, body: memoryview) -> Answer:
        (valid, _, fh, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _) = (
            kernel.SETATTR_IN.unpack_from(body)
        )
        when = {"atime": None, "mtime": None}
        for name, seconds, rest in (("atime", atime, atime_ns), ("mtime", mtime, mtime_ns)):
            if valid & Fattr[f"{name.upper()}_NOW"]:
                when[name] = NOW  # type: ignore[assignment]  # mypy takes the values for None only
            elif valid & Fattr[name.upper()]:
                when[name] = kernel.signed_time(seconds, rest)  # type: ignore[assignment]  # the same
        changes = Changes(
            mode=mode if valid & Fattr.MODE else None,
            uid=uid if valid & Fattr.UID else None,
            gid=gid if valid & Fattr.GID else None,
            size=size if valid & Fattr.SIZE else None,
            atime=when["atime"],
            mtime=when["mtime"],
            kill_suid=bool(valid & Fattr.KILL_SUIDGID),
        )
        file = self._files[fh][0] if valid & Fattr.FH and fh in self._files else None
        return kernel.pack_attr_answer(self.tree.setattr(request.node, changes, file), self.tree.attr_seconds)

    def _readlink(self, request: Request, body: memoryview) -> Answer:
        return self.tree.readlink(request.node)

    def _symlink(self, request: Request, body: memoryview) -> Answer:
        name, target = kernel.names(body, 2)
        return self._entry(self.tree.symlink(request.node, name, target, Owner(request.uid, request.gid)))

    def _mknod(self, request: Request, body: memoryview) -> Answer:
        mode, rdev, _, _ = kernel.MKNOD_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.MKNOD_IN.size :], 1)
        return self._entry(self.tree.mknod(request.node, name, mode, rdev, Owner(request.uid, request.gid)))

    def _mkdir(self, request: Request, body: memoryview) -> Answer:
        mode, _ = kernel.MKDIR_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.MKDIR_IN.size :], 1)
        return self._entry(self.tree.mkdir(request.node, name, mode, Owner(request.uid, request.gid)))

    def _unlink(self, request: Request, body: memoryview) -> Answer:
        self.tree.unlink(request.node, kernel.names(body, 1)[0])
        return b""

    def _rmdir(self, request: Request, body: memoryview) -> Answer:
        self.tree.rmdir(request.node, kernel.names(body, 1)[0])
        return b""

    def _rename(self, request: Request, body: memoryview) -> Answer:
        (folder,) = kernel.RENAME_IN.unpack_from(body)
        name, new_name = kernel.names(body[kernel.RENAME_IN.size :], 2)
        self.tree.rename(request.node, name, folder, new_name, 0, repeated=self._repeated(request))
        return b""

    def _rename2(self, request: Request, body: memoryview) -> Answer:
        folder, flags, _ = kernel.RENAME2_IN.unpack_from(body)
        name, new_name = kernel.names(body[kernel.RENAME2_IN.size :], 2)
        self.tree.rename(request.node, name, folder, new_name, flags, repeated=self._repeated(request))
        return b""

    def _link(self, request: Request, body: memoryview) -> Answer:
        (node,) = kernel.LINK_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.LINK_IN.size :], 1)
        return self._entry(self.tree.link(node, request.node, name))

    # ---- files ----

    def _open(self, request: Request, body: memoryview) -> Answer:
        if self.no_open:
            raise OSError(errno.ENOSYS, "the kernel need not ask")
        flags, open_flags = kernel.OPEN_IN.unpack_from(body)
        file = self.tree.open(request.node, flags, kill_suid=bool(open_flags & kernel.OPEN_KILL_SUIDGID))
        if self.trace.wanted:
            self.trace.note(self.tree.name_of(request.node), file.was_cached)
        if file.changed:
            self._device.expire_attributes(request.node)
        return self._opened(request, request.node, file, flags)

    def _create(self, request: Request, body: memoryview) -> Answer:
        flags, mode, _, _ = kernel.CREATE_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.CREATE_IN.size :], 1)
        found, file = self.tree.create(request.node, name, flags, mode, Owner(request.uid, request.gid))
        return self._entry(found) + self._opened(request, found.node, file, flags)

    def _opened(self, request: Request, node: int, file: OpenFile, flags: int) -> bytes:
        """The handle, and the way in which the kernel treats it."""
        number = self._state.handles.new_number()
        with self._lock:
            way, backing = self._way(node, file, flags)
            self._files[number] = (file, node, way)
        unique = request.unique & ~kernel.UNIQUE_RESEND
        self._state.handles.put(number, unique, node, file.fd, flags, backing, _WAY_NUMBERS[way])
        self.counts[_OPENED[way]] += 1
        answer = _FLAGS[way]
        if flags & os.O_ACCMODE == os.O_RDONLY:
            answer |= _NO_FLUSH  # nothing was written: close need not ask
        return kernel.OPEN_OUT.pack(number, answer, backing)

    def _way(self, node: int, file: OpenFile, flags: int) -> tuple[str, int]:
        usage = self._usage.get(node)
        if self.passthrough and (usage is None or usage.way == "passthrough"):
            backing = self._backing(usage, file, flags)
            if backing:
                usage = self._usage.setdefault(node, _Usage("passthrough", backing))
                usage.count += 1
                return "passthrough", usage.backing
        if usage is not None and usage.way == "passthrough":
            return "direct", 0
        usage = self._usage.setdefault(node, _Usage("cached", 0))
        usage.count += 1
        return ("kept" if file.keep_cache else "fresh"), 0

    def _backing(self, usage: _Usage | None, file: OpenFile, flags: int) -> int:
        if usage is not None:
            return usage.backing
        fd = file.backing()
        if fd is None or (flags & os.O_ACCMODE == os.O_RDONLY and os.fstat(fd).st_size < PASSTHROUGH_FROM):
            return 0
        try:
            return self._device.open_backing(fd)
        except OSError:
            self.counts["passthrough refused"] += 1  # a backing file system that is itself stacked, for one
            return 0

    def _file(self, request: Request, fh: int) -> OpenFile:
        known = self._files.get(fh)
        if known is None:
            raise OSError(errno.EBADF, "no such handle")
        return known[0]

    @contextmanager
    def _borrowed(self, request: Request, fh: int) -> Iterator[OpenFile]:
        """The file of a handle; where the kernel never opens, one of the node that is opened here and kept for a while."""
        if not self.no_open:
            yield self._file(request, fh)
            return
        node = request.node
        kept = self._borrow(node)
        if kept is None:
            file = self.tree.open(node, os.O_RDONLY)  # may have to wait for the store, and others must not
            if self.trace.wanted:
                self.trace.note(self.tree.name_of(node), file.was_cached)
            kept = self._keep(node, file)
        try:
            yield kept.file
        finally:
            with self._lock:
                kept.users -= 1

    def _borrow(self, node: int) -> _Kept | None:
        with self._lock:
            kept = self._idle.get(node)
            if kept is not None:
                kept.users += 1
                self._idle.move_to_end(node)
            return kept

    def _keep(self, node: int, file: OpenFile) -> _Kept:
        """Keep a file that was just opened, in place of one that nobody reads now."""
        with self._lock:
            kept = self._idle.setdefault(node, _Kept(file))
            kept.users += 1
            spare = [] if kept.file is file else [file]  # another thread was faster
            if len(self._idle) > MOST_IDLE_FILES:
                oldest = next((each for each, other in self._idle.items() if not other.users), None)
                if oldest is not None:
                    spare.append(self._idle.pop(oldest).file)
        for each in spare:
            each.release()
        return kept

    def _read(self, request: Request, body: memoryview) -> Answer:
        fh, offset, size, *_ = kernel.READ_IN.unpack_from(body)
        if not self.no_open:
            return self._file(request, fh).read(size, offset)
        with self._borrowed(request, fh) as file:
            return file.read(size, offset)

    def _write(self, request: Request, body: memoryview) -> Answer:
        fh, offset, size, flags, *_ = kernel.WRITE_IN.unpack_from(body)
        data = body[kernel.WRITE_IN.size :][:size]
        kill = bool(flags & kernel.WRITE_KILL_SUIDGID)
        return kernel.WRITE_OUT.pack(self._file(request, fh).write(data, offset, kill_suid=kill), 0)

    def _flush(self, request: Request, body: memoryview) -> Answer:
        if self.no_open:
            raise OSError(errno.ENOSYS, "nothing is ever written")
        self._file(request, kernel.RELEASE_IN.unpack_from(body)[0]).flush()
        return b""

    def _fsync(self, request: Request, body: memoryview) -> Answer:
        fh, flags, _ = kernel.FSYNC_IN.unpack_from(body)
        if self.no_open:
            return b""  # nothing is ever written
        self._file(request, fh).fsync(data_only=bool(flags & kernel.FSYNC_DATA))
        return b""

    def _release(self, request: Request, body: memoryview) -> Answer:
        fh = kernel.RELEASE_IN.unpack_from(body)[0]
        self._close_handle(fh)
        return b""

    def _close_handle(self, fh: int) -> None:
        with self._lock:
            file, node, way = self._files.pop(fh, _NO_HANDLE)
            usage = self._usage.get(node) if way and way != "direct" else None
            backing = 0
            if usage is not None:
                usage.count -= 1
                if not usage.count:
                    del self._usage[node]
                    backing = usage.backing
        if file is not None:
            self._state.handles.remove(fh)  # before the descriptor's number can be another file's
        if backing:
            self._device.close_backing(backing)
        if file is not None:
            file.release()

    def _fallocate(self, request: Request, body: memoryview) -> Answer:
        fh, offset, length, mode, _ = kernel.FALLOCATE_IN.unpack_from(body)
        self._file(request, fh).allocate(mode, offset, length)
        return b""

    def _lseek(self, request: Request, body: memoryview) -> Answer:
        fh, offset, whence, _ = kernel.LSEEK_IN.unpack_from(body)
        with self._borrowed(request, fh) as file:
            return kernel.LSEEK_OUT.pack(file.seek(offset, whence))

    # ---- folders ----

    def _opendir(self, request: Request, body: memoryview) -> Answer:
        if self.no_open:
            raise OSError(errno.ENOSYS, "the kernel need not ask")
        number = next(self._folder_numbers)
        kept = self.tree.kept_listing(request.node)
        self._folders[number] = Listing(self.tree, request.node)
        flags = Fopen(0) if kept is None else Fopen.CACHE_DIR | Fopen.KEEP_CACHE if kept else Fopen.CACHE_DIR
        return kernel.OPEN_OUT.pack(number, flags, 0)

    def _releasedir(self, request: Request, body: memoryview) -> Answer:
        folder = self._folders.pop(kernel.RELEASE_IN.unpack_from(body)[0], None)
        if folder is not None:
            folder.close()
        return b""

    def _fsyncdir(self, request: Request, body: memoryview) -> Answer:
        self.tree.syncdir(request.node)
        return b""

    def _readdir(self, request: Request, body: memoryview) -> Answer:
        return self._list(
            request, body, False, lambda entry, after: kernel.pack_dirent(entry.ino, after, entry.kind, entry.name)
        )

    def _readdirplus(self, request: Request, body: memoryview) -> Answer:
        nothing = kernel.pack_no_entry(0)

        def pack(entry: Listed, after: int) -> bytes:
            head = nothing if entry.found is None else self._entry(entry.found)
            return head + kernel.pack_dirent(entry.ino, after, entry.kind, entry.name)

        return self._list(request, body, True, pack)

    def _list(self, request: Request, body: memoryview, look_up: bool, pack: Callable[[Listed, int], bytes]) -> bytes:
        fh, offset, size, *_ = kernel.READ_IN.unpack_from(body)
        if self.no_open:
            return self._list_on(request.node, offset, size, look_up, pack)
        known = self._folders.get(fh)
        if known is None:  # opened by a worker that is gone
            known = self._folders[fh] = Listing(self.tree, request.node)
        return known.read(offset, size, look_up, pack)

    def _list_on(self, node: int, offset: int, size: int, look_up: bool, pack: Callable[[Listed, int], bytes]) -> bytes:
        """Without OPENDIR nothing says which requests belong together: a listing goes on where one of the folder stands."""
        with self._lock:
            folder = self._listings.pop((node, offset), None)
        if folder is None:
            folder = Listing(self.tree, node)
        answer = folder.read(offset, size, look_up, pack)
        spare: Listing | None = folder
        if answer:
            with self._lock:
                spare = self._listings.pop((node, folder.position), None)
                self._listings[node, folder.position] = folder
                if len(self._listings) > MOST_LISTINGS:
                    spare = self._listings.pop(next(iter(self._listings)))
        if spare is not None:
            spare.close()
        return answer

    # ---- the rest ----

    def _statfs(self, request: Request, body: memoryview) -> Answer:
        found = self.tree.statfs()
        return kernel.STATFS_OUT.pack(
            found.blocks, found.free, found.available, found.files, found.files_free,
            found.block_size, found.name_length, found.block_size, 0,
        )  # fmt: skip

    def _ioctl(self, request: Request, body: memoryview) -> Answer:
        raise OSError(errno.ENOTTY, "not a terminal")  # which Python asks of every file that it opens

    def _getxattr(self, request: Request, body: memoryview) -> Answer:
        size, _ = kernel.GETXATTR_IN.unpack_from(body)
        (name,) = kernel.names(body[kernel.GETXATTR_IN.size :], 1)
        return _sized(self.tree.getxattr(request.node, name), size)

    def _listxattr(self, request: Request, body: memoryview) -> Answer:
        size, _ = kernel.GETXATTR_IN.unpack_from(body)
        return _sized(b"".join(name + b"\0" for name in self.tree.listxattr(request.node)), size)

    def _setxattr(self, request: Request, body: memoryview) -> Answer:
        size, flags = kernel.SETXATTR_IN.unpack_from(body)
        rest = body[kernel.SETXATTR_IN.size :]
        (name,) = kernel.names(rest, 1)
        value = bytes(rest[len(name) + 1 :][:size])
        self.tree.setxattr(request.node, name, value, flags)
        return b""

    def _removexattr(self, request: Request, body: memoryview) -> Answer:
        self.tree.removexattr(request.node, kernel.names(body, 1)[0])
        return b""

    def close(self) -> None:
        """Let go of everything that is open; the mount is gone."""
        with self._lock:
            files = [file for file, _, _ in self._files.values()] + [kept.file for kept in self._idle.values()]
            self._files.clear()
            self._idle.clear()
        for file in files:
            file.release()


def _sized(value: bytes, size: int) -> bytes:
    """The kernel first asks how long the value is, with size 0."""
    if size == 0:
        return kernel.WRITE_OUT.pack(len(value), 0)
    if len(value) > size:
        raise OSError(errno.ERANGE, "value is longer than the buffer")
    return value
