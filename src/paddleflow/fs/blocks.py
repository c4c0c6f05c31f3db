"""The data cache: objects as plain sparse files on a local disk, filled by blocks, one fetch per block.

A cached object is one file, so that a whole one can be lent to the kernel (passthrough). A small object is fetched when it is opened, and
written in one go. A large one is filled as it is read: until then it lies under a temporary name and its blocks are known in memory only; when
the last block has arrived it gets its final name, made of key and tag. Either has a checksum beside it (an extended attribute), which a later
process verifies when it first opens the file: one that a crash cut short is fetched again. The least recently used files go when the cache is over
its size or a disk under its floor of free space; those of pinned paths stay (`inventory`). A cache may lie on several disks: an object is on the
one that its name chooses, or where it was written. A disk that takes nothing (full, over quota, broken) costs speed, not reads: blocks are then
served from memory, of which a few are kept. Small files stay open for a while after their last use. All may be called from many threads.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import resource
import shutil
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from paddleflow.errors import PaddleFlowError
from paddleflow.fs.inventory import FILLING, Label, Pins, read_label
from paddleflow.fs.options import FREE_FLOOR
from paddleflow.fs.request_lock import RequestLock

log = logging.getLogger(__name__)
BLOCK = 4 * 2**20
SMALL = 256 * 1024  #: bytes; objects up to this size are fetched when they are opened, and stay open for a while
MOST_PATHS = 8192  #: of files that were used lately, which are known without computing them
MOST_IDLE = 1024  #: small files that stay open although nobody uses them
USED_SECONDS = 3600.0  #: how exactly the order of use is known to a later process
SPACE_STEP = 0.001  #: part of the smallest disk that is stored before its free space is looked at again
FINISHERS = 2  #: files whose checksums are computed at once
MOST_IN_MEMORY = 16  #: blocks that the disk did not take, of all files together

#: Fetches a range of the object, all of one version: offset, size.
Fetch = Callable[[int, int], bytes]


class Name(NamedTuple):
    """A version of an object."""

    key: str
    tag: str


class BlockFile:
    """The local file of one version of an object; blocks come when they are asked for."""

    def __init__(
        self,
        cache: DataCache,
        path: Path,
        name: Name,
        fd: int,
        size: int,
        fetch: Fetch,
        *,
        whole: bool,
        on_disk: bool = True,
    ) -> None:
        self.path, self.name, self.fd, self.size = path, name, fd, size
        self.whole = whole
        self.on_disk = on_disk  #: False: not even an empty file could be made; every block is served from memory
        self.users = 1
        self.fetched_at_open = False  #: the open that comes next had to wait for all of it
        self._cache, self._fetch = cache, fetch
        self._lock = threading.Lock()
        self._have = bytearray((size + BLOCK - 1) // BLOCK) if not whole else bytearray()
        self._missing = len(self._have)
        self._coming: dict[int, Future[bytes | None]] = {}
        self._finished: Future[None] | None = None  #: the file has its name and checksum; after the last block

    def read(self, size: int, offset: int) -> bytes | bytearray:
        if self.whole:
            return self._read_stored(size, offset)
        end = min(offset + size, self.size)
        blocks = range(offset // BLOCK, (end + BLOCK - 1) // BLOCK)
        unstored = self._wait(blocks)
        if not unstored:
            return os.pread(self.fd, size, offset)
        pieces = []
        for block in blocks:
            first, last = max(offset, block * BLOCK), min(end, (block + 1) * BLOCK)
            content = unstored.get(block)
            if content is None:
                pieces.append(os.pread(self.fd, last - first, first))
            else:
                pieces.append(content[first - block * BLOCK : last - block * BLOCK])
        return b"".join(pieces)

    def _read_stored(self, size: int, offset: int) -> bytes | bytearray:
        """From memory if all of it is there, which does not wait."""
        buffer = bytearray(max(0, min(size, self.size - offset)))
        try:
            if os.preadv(self.fd, [buffer], offset, os.RWF_NOWAIT) == len(buffer):
                return buffer
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
        self._cache.request_lock.release()
        return os.pread(self.fd, size, offset)

    def prefetch(self, first: int, count: int) -> None:
        """Start fetching blocks without waiting for them."""
        if not self.whole:
            for block in range(first, min(first + count, len(self._have))):
                self._start(block)

    def make_whole(self) -> None:
        """Fetch what is missing; afterwards the file has all of the content. ENOSPC when the disk does not take it."""
        if not self.on_disk or (not self.whole and self._wait(range(len(self._have)))):
            raise OSError(errno.ENOSPC, "the cache disk takes no more")
        if self._finished is not None:
            self._finished.result()

    def _wait(self, blocks: range) -> dict[int, bytes]:
        """Wait until the blocks have arrived; the content of those that the disk did not take."""
        self._cache.request_lock.release()
        coming = {block: future for block in blocks if (future := self._start(block)) is not None}
        found = {block: future.result() for block, future in coming.items()}
        return {block: content for block, content in found.items() if content is not None}

    def _start(self, block: int) -> Future[bytes | None] | None:
        """The fetch of a block that is on its way, started if need be; None when the block is there."""
        with self._lock:
            if self.whole or self._have[block]:
                return None
            if block not in self._coming:
                kept = self._cache.recall(self.path, block)
                if kept is not None:
                    done: Future[bytes | None] = Future()
                    done.set_result(kept)
                    return done
                self._cache.hold(self)  # the descriptor stays open until the block has arrived
                self._coming[block] = self._cache.pool.submit(self._fill, block)
            return self._coming[block]

    def _fill(self, block: int) -> bytes | None:
        """Fetch a block. None: it is in the file; otherwise the content, which the disk did not take."""
        try:
            wanted = min(BLOCK, self.size - block * BLOCK)
            content = self._cache.fetched(self._fetch, block * BLOCK, wanted)
            if not (self.on_disk and self._cache.write_block(self.fd, content, block * BLOCK)):
                self._cache.remember(self.path, block, content)
                return content
            if len(self._have) == 1:
                self._cache.finish(self)
            with self._lock:
                self._have[block] = 1
                self._missing -= 1
                if (
                    not self._missing and not self.whole
                ):  # whoever waits for the last block must not wait for the checksum of all of them
                    self._finished = self._cache.finish_later(self)
            return None
        finally:
            with self._lock:
                self._coming.pop(block, None)
            self._cache.close_file(self)


class DataCache:
    """Folders of cached objects, one per disk, at most `limit` bytes of them in all."""

    def __init__(
        self,
        folders: Sequence[Path],
        limit: int,
        *,
        free_floor: float = FREE_FLOOR,
        threads: int = 32,
        request_lock: RequestLock | None = None,
    ) -> None:
        self.request_lock = request_lock or RequestLock()  #: released before anything that waits
        self.pool = ThreadPoolExecutor(threads, "fetch")
        self._finishers = ThreadPoolExecutor(FINISHERS, "checksum")
        counted = ("hits", "misses", "blocks fetched", "bytes fetched", "blocks not stored", "evicted")
        self.figures: dict[str, int] = dict.fromkeys(counted, 0)
        self._folders, self._limit, self._free_floor = tuple(folders), limit, free_floor
        self._elsewhere: dict[str, Path] = {}  #: folders of files that lie on another disk than their name says
        self._pins = Pins(self._folders)
        self._lock = self.request_lock.guard(threading.Lock())
        self._paths: dict[tuple[str, str], Path] = {}  #: a memory of `path`
        self._most_idle = 0  #: known when the limit of descriptors is: with the first file that is closed
        self._shelves = {folder: [folder / f"{number:02x}" for number in range(256)] for folder in self._folders}
        self._open: dict[Path, BlockFile] = {}
        self._idle: OrderedDict[Path, BlockFile] = OrderedDict()  #: those of `_open` that nobody uses
        self._arriving: dict[Path, threading.Event] = {}  #: small objects that are being fetched
        self._stored: OrderedDict[Path, int] = OrderedDict()  #: whole files, least recently used first, with their size
        self._used = 0
        self._trusted: set[Path] = set()  #: verified, or written by this process
        self._unstored: OrderedDict[tuple[Path, int], bytes] = OrderedDict()  #: blocks that the disk did not take
        self._refused = False  #: the disk did not take the last block
        self._step = 0  #: bytes that may be stored before the free space is looked at again
        self._unchecked = 0  #: bytes that were stored since
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._scan()

    def _scan(self) -> None:
        found: list[tuple[float, Path, int]] = []
        for file in (file for folder in self._folders for file in folder.glob("??/*")):
            if file.name.endswith(FILLING):
                file.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                about = file.stat()
                found.append((about.st_mtime, file, about.st_size))
        for _, file, size in sorted(found):
            self._stored[file] = size
            self._used += size
            self._note_place(file)

    def count(self, name: str, number: int) -> None:
        self.figures[name] += number  # a lost update costs a figure, no more

    def path(self, key: str, tag: str) -> Path:
        found = self._paths.get((key, tag))
        if found is None:
            if len(self._paths) >= MOST_PATHS:
                self._paths.clear()
            found = self._paths[key, tag] = self._find_path(key, tag)
        return found

    def _find_path(self, key: str, tag: str) -> Path:
        word = hashlib.blake2b(f"{key}\0{tag}".encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()
        return self._shelves[self._elsewhere.get(word) or self._usual(word)][int(word[:2], 16)] / word

    def _usual(self, word: str) -> Path:
        return self._folders[int(word[-8:], 16) % len(self._folders)]

    def _note_place(self, path: Path) -> None:
        """Remember where a file is, if its name does not say so."""
        folder = path.parents[1]
        if folder != self._usual(path.name):
            self._elsewhere[path.name] = folder
            self._paths.clear()

    def _beside(self, path: Path, disk: Path) -> Path:
        """The same file on the disk that `disk`, a file of the cache or of staging, is on."""
        for folder in self._folders:
            if disk.is_relative_to(folder.parent):
                return folder / path.parent.name / path.name
        return path

    def open(self, key: str, tag: str, size: int, fetch: Fetch, *, at_once: bool = True) -> BlockFile:
        """The local file of an object; whole if it is in the cache, otherwise filled as it is read, or `at_once` if it is small."""
        path, name = self.path(key, tag), Name(key, tag)
        while True:
            with self._lock:
                found = self._open_known(path, size) or self._open_stored(path, name, size, fetch)
                if found is not None:
                    self.figures["hits"] += 1
                    self._open[path] = found
                    return found
                arriving = self._arriving.get(path)
                if arriving is None:
                    self.figures["misses"] += 1
                    if size == 0 or size > SMALL or not at_once:
                        found = self._open[path] = self._open_new(path, name, size, fetch)
                        return found
                    self._arriving[path] = threading.Event()
                    break
            self.request_lock.release()
            arriving.wait()
        try:
            return self._fetch_whole(path, name, size, fetch)
        finally:
            with self._lock:
                self._arriving.pop(path).set()

    def bring(self, key: str, tag: str, size: int, fetch: Fetch) -> bool:
        """Begin to bring a small object to where its next reader need not wait for it; False: it is in memory already."""
        path = self.path(key, tag)
        if path in self._stored:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _is_in_memory(fd, size):
                    return False
                os.posix_fadvise(fd, 0, size, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)
        elif path in self._open or path in self._arriving:
            return False
        else:
            self.pool.submit(self._fetch_ahead, key, tag, size, fetch)
        return True

    def _fetch_ahead(self, key: str, tag: str, size: int, fetch: Fetch) -> None:
        with suppress(OSError, PaddleFlowError):  # who opens it is told
            self.close_file(self.open(key, tag, size, fetch))

    def _open_known(self, path: Path, size: int) -> BlockFile | None:
        """A file that is open already, unless it was removed under us while nobody used it."""
        known = self._open.get(path)
        if known is None:
            return None
        known.fetched_at_open = False
        if not known.users:
            about = os.fstat(known.fd)
            if not about.st_nlink or about.st_size != size:
                self._close_idle(path)
                return None
            self._idle.pop(path, None)
            self._note_use(path, known.fd, about.st_mtime)
        known.users += 1
        return known

    def _close_idle(self, path: Path) -> None:
        """With the lock held."""
        file = self._idle.pop(path, None)
        if file is not None:
            self._open.pop(path, None)
            os.close(file.fd)

    def _note_use(self, path: Path, fd: int, noted_at: float) -> None:
        if path in self._stored:
            self._stored.move_to_end(path)
        if time.time() - noted_at > USED_SECONDS:
            with suppress(OSError):
                os.utime(fd)  # the order of use, for a later process

    def _fetch_whole(self, path: Path, name: Name, size: int, fetch: Fetch) -> BlockFile:
        """A small object, which is not here yet."""
        self.request_lock.release()
        content = self.fetched(fetch, 0, size)
        crc = zlib.crc32(content)
        try:
            fd = _make_whole(path, content)
        except OSError as error:
            self._note_refusal(error)
            with self._lock:
                found = self._open[path] = self._open_new(path, name, size, fetch)
            self.remember(path, 0, content)
            return found
        with self._lock:
            known = self._open.get(path)
            if known is None or not known.whole:
                known = BlockFile(self, path, name, fd, size, fetch, whole=True)
                known.fetched_at_open = True
                self._open[path] = known
                self._store(path, name, fd, size, crc)
            else:
                known.users += 1
                os.close(fd)
        self.evict()
        return known

    def fetched(self, fetch: Fetch, offset: int, wanted: int) -> bytes:
        content = fetch(offset, wanted)
        if len(content) != wanted:
            raise OSError(errno.EIO, f"{len(content)} of {wanted} bytes came")
        self.count("blocks fetched", 1)
        self.count("bytes fetched", wanted)
        return content

    def reopen(self, key: str, tag: str, size: int, fetch: Fetch, whole: int, old: int) -> BlockFile:
        """The file of an object that a worker before this one had open as `old`; `whole` is the same, or -1 if parts lacked."""
        if whole < 0:
            os.close(old)  # which parts it had is not known any more
            return self.open(key, tag, size, fetch, at_once=False)  # the store may be away, and a worker must start
        path = self.path(key, tag)
        with self._lock:
            found = self._open[path] = BlockFile(self, path, Name(key, tag), whole, size, fetch, whole=True)
            if path in self._stored:
                self._trusted.add(path)
            return found

    def _open_stored(self, path: Path, name: Name, size: int, fetch: Fetch) -> BlockFile | None:
        if path not in self._stored:
            return None
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # the folder was cleared under us
            self._drop(path)
            return None
        about = os.fstat(fd)
        if about.st_size != size or not self._verify(path, fd, size):
            os.close(fd)
            self._drop(path)
            path.unlink(missing_ok=True)
            return None
        self._note_use(path, fd, about.st_mtime)
        return BlockFile(self, path, name, fd, size, fetch, whole=True)

    def _verify(self, path: Path, fd: int, size: int) -> bool:
        if path in self._trusted:
            return True
        self.request_lock.release()
        label = read_label(fd)
        if label is None or checksum(fd, size) != label.crc:
            log.warning("cached file %s is damaged; it is fetched again", path)
            return False
        self._trusted.add(path)
        return True

    def _open_new(self, path: Path, name: Name, size: int, fetch: Fetch) -> BlockFile:
        try:
            fd = _make_sparse(path, size)
        except OSError as error:
            self._note_refusal(error)
            self._evict(BLOCK)
            try:
                fd = _make_sparse(path, size)
            except OSError:
                fd = os.memfd_create("unstored")  # an empty file for those who want a descriptor
                return BlockFile(self, path, name, fd, size, fetch, whole=size == 0, on_disk=False)
        made = BlockFile(self, path, name, fd, size, fetch, whole=False)
        if size == 0:
            made.whole = True
            _filling(path).rename(path)
            self._store(path, name, fd, 0, 0)
        return made

    def finish_later(self, file: BlockFile) -> Future[None]:
        """The same in the background: of a large file it takes a while."""

        def work() -> None:
            try:
                self.finish(file)
            finally:
                self.close_file(file)

        self.hold(file)  # the descriptor stays open until then
        return self._finishers.submit(work)

    def finish(self, file: BlockFile) -> None:
        """Give a file that has all of its content its name and checksum."""
        crc = checksum(file.fd, file.size)
        with self._lock:
            with suppress(OSError):  # cleared under us, or the disk takes no name; the descriptor still works
                _filling(file.path).rename(file.path)
                self._store(file.path, file.name, file.fd, file.size, crc)
            file.whole = True
        self.evict()

    def write_block(self, fd: int, content: bytes, offset: int) -> bool:
        """Write a block to the disk, if need be in place of files that were not used for long; whether it went."""
        try:
            try:
                _write_all(fd, content, offset)
            except OSError as error:
                self._note_refusal(error)
                self.evict(len(content))
                _write_all(fd, content, offset)
        except OSError:
            self.count("blocks not stored", 1)
            return False
        self._refused = False
        return True

    def _note_refusal(self, error: OSError) -> None:
        if not self._refused:
            log.warning("a cache disk takes nothing (%s); reads may go past it", error)
        self._refused = True

    def remember(self, path: Path, block: int, content: bytes) -> None:
        """Keep a block that the disk did not take for the next reads of it."""
        with self._lock:
            self._unstored[path, block] = content
            if len(self._unstored) > MOST_IN_MEMORY:
                self._unstored.popitem(last=False)

    def recall(self, path: Path, block: int) -> bytes | None:
        with self._lock:
            return self._unstored.get((path, block))

    def _store(self, path: Path, name: Name, fd: int, size: int, crc: int) -> None:
        with suppress(OSError):  # without extended attributes the file is good for this process only
            Label(crc, name.tag, name.key).write(fd)
        self._note_place(path)
        self._trusted.add(path)
        self._unchecked += size
        self._used += size - self._stored.pop(path, 0)
        self._stored[path] = size

    def hold(self, file: BlockFile) -> None:
        with self._lock:
            file.users += 1

    def close_file(self, file: BlockFile) -> None:
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if self._open.get(file.path) is file:
                if file.whole and file.size <= SMALL and file.path in self._stored:
                    self._idle[file.path] = file
                    if not self._most_idle:
                        self._most_idle = min(MOST_IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
                    if len(self._idle) > self._most_idle:
                        self._close_idle(next(iter(self._idle)))
                    return
                del self._open[file.path]
                if self._used > self._limit and file.path in self._stored and not self._pins.hold(file.path):
                    self._remove(file.path)  # it could not go while it was open
        if not file.whole:
            self.request_lock.release()  # a large file takes a while to go
            with suppress(OSError):
                _filling(file.path).unlink()
        os.close(file.fd)

    def take(self, file: BlockFile, target: Path) -> None:
        """Move a whole file out of the cache, to be written to; its descriptor stays valid."""
        with self._lock:
            file.path.rename(target)
            self._drop(file.path)
            if self._open.get(file.path) is file:
                del self._open[file.path]

    def put(self, source: Path, key: str, tag: str, fd: int) -> None:
        """Take a file in as the content of an object; it goes if the disk has no place for its name."""
        path, size = self._beside(self.path(key, tag), source), os.fstat(fd).st_size
        crc = checksum(fd, size)
        with self._lock:
            try:
                try:
                    source.rename(path)
                except FileNotFoundError:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(path)
                self._store(path, Name(key, tag), fd, size, crc)
            except OSError as error:
                self._note_refusal(error)
                source.unlink(missing_ok=True)
        self.evict()

    def rename(self, key: str, tag: str, new_key: str, new_tag: str) -> None:
        """An object has another key or tag and the same content: so has its file."""
        old = self.path(key, tag)
        new = self._beside(self.path(new_key, new_tag), old)
        with self._lock:
            self._close_idle(old)
            if old not in self._stored or old in self._open or old == new:
                return
            trusted, size = old in self._trusted, self._stored[old]
            with suppress(OSError):
                new.parent.mkdir(parents=True, exist_ok=True)
                old.rename(new)
                self._close_idle(new)
                label = read_label(new)
                if label is not None:
                    Label(label.crc, new_tag, new_key).write(new)
                self._drop(old)
                self._note_place(new)
                self._used += size - self._stored.pop(new, 0)
                self._stored[new] = size
                if trusted:
                    self._trusted.add(new)

    def evict(self, wanted: int = 0) -> None:
        """Remove the least recently used files until cache and disk are within their limits, and `wanted` bytes free."""
        with self._lock:
            self._evict(wanted)

    def _evict(self, wanted: int) -> None:
        over = self._used - self._limit
        if over <= 0 and not wanted and self._unchecked < self._step:
            return
        short = {folder: self._missing_space(folder) + wanted for folder in self._folders}
        if over <= 0 and all(space <= 0 for space in short.values()):
            return
        for path in [path for path in self._stored if path not in self._open or path in self._idle]:
            folder = path.parents[1]
            if (over <= 0 and short[folder] <= 0) or self._pins.hold(path):
                continue
            size = self._remove(path)
            over, short[folder] = over - size, short[folder] - size
            if over <= 0 and all(space <= 0 for space in short.values()):
                return

    def _remove(self, path: Path) -> int:
        """Remove a stored file that nobody uses; how many bytes it had. With the lock held."""
        size = self._stored[path]
        self._close_idle(path)
        self._drop(path)
        path.unlink(missing_ok=True)
        self.figures["evicted"] += 1
        return size

    def _missing_space(self, folder: Path) -> int:
        """Bytes that a disk lacks to its floor of free space."""
        try:
            disk = shutil.disk_usage(folder)
        except OSError:  # the folder was removed under us
            return 0
        step = int(disk.total * SPACE_STEP)
        self._step, self._unchecked = min(self._step or step, step), 0
        return int(disk.total * self._free_floor) - disk.free

    def _drop(self, path: Path) -> None:
        self._used -= self._stored.pop(path, 0)
        self._trusted.discard(path)
        if self._elsewhere.pop(path.name, None) is not None:
            self._paths.clear()

    def stats(self) -> dict[str, object]:
        folders = ":".join(str(folder.parent) for folder in self._folders)
        return {**self.figures, "bytes cached": self._used, "files cached": len(self._stored), "cache": folders}

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        self._finishers.shutdown(wait=True)
        with self._lock:
            for path in list(self._idle):
                self._close_idle(path)


def _is_in_memory(fd: int, size: int) -> bool:
    """Whether the last byte, and so probably all, can be read without waiting for the disk."""
    try:
        return bool(os.preadv(fd, [bytearray(1)], max(0, size - 1), os.RWF_NOWAIT))
    except OSError as error:
        return error.errno != errno.EAGAIN  # not known on all file systems


def _filling(path: Path) -> Path:
    return path.with_name(path.name + FILLING)


def _make_sparse(path: Path, size: int) -> int:
    """The file of an object that is to be filled, with its size and no content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(_filling(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_whole(path: Path, content: bytes) -> int:
    """A file with its content. Nobody reads it yet; what a crash leaves of it has no checksum, or not the right one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o600)
    try:
        _write_all(fd, content, 0)
    except BaseException:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    return fd


def _write_all(fd: int, content: bytes, offset: int) -> None:
    """A disk that fills up takes a part first, and says so only when it is asked again."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest, offset = rest[written:], offset + written


def checksum(fd: int, size: int) -> int:
    crc, at = 0, 0
    while at < size and (piece := os.pread(fd, BLOCK, at)):
        crc = zlib.crc32(piece, crc)
        at += len(piece)
    return crc
