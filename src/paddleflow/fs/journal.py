"""Small files that were acknowledged with write-back, so that each costs one short wait for the disk instead of three long ones.

A record holds the note of a staged file and its content. Records follow each other in a file that was filled with zeros before, so
syncing them writes data only and no metadata of the file system; those who close files at the same time wait for one sync together. File
and note themselves are not synced. After a crash of the machine they may be old, torn or missing: then, and only then, they are written
again from the records. The file starts over when everything in it has arrived in the store; when it is full, `append` refuses.

Called by `writer.Staging`.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NAME = "journal"
MOST_CONTENT = 64 * 1024  #: bytes of a file that goes in here
MOST_BYTES = 256 * 2**20
_STEP = 4 * 2**20  #: bytes that are filled with zeros at once
_MAGIC = b"PFJ1"
_HEAD = struct.Struct("<4s8s36s")  #: magic, epoch, id of the machine's boot
_HEAD_ROOM = 4096
_RECORD = struct.Struct("<8sBIII")  #: epoch, state, length of the note, length of the content, CRC-32 of both
_LIVE, _DONE = 1, 2
_STATE_AT = 8  #: where the state is in a record


class Record(NamedTuple):
    """An acknowledged version of a staged file."""

    at: int
    live: bool
    name: str
    note: str
    content: bytes


class Journal:
    """The records of one staging folder. The file is made when something is appended first. May be called from many threads."""

    def __init__(self, folder: Path, *, most: int = MOST_BYTES) -> None:
        self._path, self._most = folder / NAME, most
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._fd = -1
        self._live: dict[str, int] = {}  #: where the latest record of a staged file is
        self._end = _HEAD_ROOM  #: of the last record
        self._room = 0  #: bytes that the file has
        self._epoch = b""
        self._appended = self._synced = 0  #: how many records
        self.is_of_this_boot = True
        with suppress(FileNotFoundError):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._read()

    def _read(self) -> None:
        magic, self._epoch, boot = _HEAD.unpack(os.pread(self._fd, _HEAD.size, 0).ljust(_HEAD.size, b"\0"))
        self._room = os.fstat(self._fd).st_size
        self.is_of_this_boot = boot == _boot()
        if magic != _MAGIC:
            self._epoch = b""
            return
        for record in self._records():
            self._live.pop(record.name, None)
            if record.live:
                self._live[record.name] = record.at

    def _records(self) -> Iterator[Record]:
        """Up to the first that is none: that one was never acknowledged. Moves the end."""
        self._end = _HEAD_ROOM
        while True:
            head = os.pread(self._fd, _RECORD.size, self._end)
            if len(head) < _RECORD.size:
                return
            epoch, state, note_length, length, crc = _RECORD.unpack(head)
            if epoch != self._epoch or note_length + length > MOST_BYTES:
                return
            body = os.pread(self._fd, note_length + length, self._end + _RECORD.size)
            if len(body) < note_length + length or zlib.crc32(body) != crc:
                return
            name, note = json.loads(body[:note_length])
            at, self._end = self._end, self._end + _RECORD.size + len(body)
            yield Record(at, state == _LIVE, name, note, body[note_length:])

    def append(self, name: str, note: str, content: bytes) -> bool:
        """Make a version of a staged file durable. False: it does not go in here."""
        words = json.dumps([name, note]).encode()
        body = words + content
        try:
            with self._lock:
                if not self._live or self._was_removed():
                    self._start_over()
                at, end = self._end, self._end + _RECORD.size + len(body)
                if not self._make_room(end):
                    return False
                head = _RECORD.pack(self._epoch, _LIVE, len(words), len(content), zlib.crc32(body))
                os.pwrite(self._fd, head + body, at)
                self._end = end
                self._forget(name)
                self._live[name] = at
                self._appended += 1
                mine = self._appended
            self._sync(mine)
        except OSError:  # a disk that takes nothing
            return False
        return True

    def _was_removed(self) -> bool:
        """By somebody who cleared the folder under us, staged files included: a record in such a file would not outlast this process."""
        if self._fd < 0 or os.fstat(self._fd).st_nlink:
            return False
        os.close(self._fd)
        self._fd, self._room = -1, 0
        self._live.clear()
        return True

    def _start_over(self) -> None:
        """With the lock held and nothing in the file that is still wanted."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._room = os.fstat(self._fd).st_size
        self._epoch, self._end, self.is_of_this_boot = secrets.token_bytes(8), _HEAD_ROOM, True
        os.pwrite(self._fd, _HEAD.pack(_MAGIC, self._epoch, _boot()), 0)

    def _make_room(self, end: int) -> bool:
        if end > self._most:
            return False
        while self._room < end:
            at = max(self._room, _HEAD_ROOM)
            os.pwrite(self._fd, bytes(_STEP), at)
            os.fsync(self._fd)
            self._room = at + _STEP
        return True

    def _sync(self, wanted: int) -> None:
        with self._syncing:
            if self._synced >= wanted:
                return  # somebody else's sync had this record in it
            with self._lock:
                reached = self._appended
            os.fdatasync(self._fd)
            self._synced = reached

    def forget(self, name: str, *, sync: bool = False) -> None:
        """A staged file has arrived in the store, or is made durable in another way, which needs a `sync`."""
        with self._lock:
            if self._forget(name) and sync:
                os.fdatasync(self._fd)

    def _forget(self, name: str) -> bool:
        at = self._live.pop(name, None)
        if at is not None:
            os.pwrite(self._fd, bytes([_DONE]), at + _STATE_AT)
        return at is not None

    def records(self) -> list[Record]:
        """What was acknowledged and has not arrived."""
        with self._lock:
            if self._fd < 0 or not self._epoch:
                return []
            return [record for record in self._records() if self._live.get(record.name) == record.at]

    def content(self, name: str) -> bytes | None:
        """Of the file as it was acknowledged; None for one that is not in here."""
        with self._lock:
            at = self._live.get(name)
            if at is None:
                return None
            _, _, note_length, length, _ = _RECORD.unpack(os.pread(self._fd, _RECORD.size, at))
            return os.pread(self._fd, length, at + _RECORD.size + note_length)

    def adopt(self) -> None:
        """What an earlier boot of the machine left is restored: from now on files and notes may be newer."""
        with self._lock:
            os.pwrite(self._fd, _HEAD.pack(_MAGIC, self._epoch, _boot()), 0)
            os.fdatasync(self._fd)
            self.is_of_this_boot = True

    def names(self) -> list[str]:
        with self._lock:
            return list(self._live)

    def remove(self) -> None:
        """Nothing in it is wanted any more."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._room, self._epoch = -1, 0, b""
            self._live.clear()
            self._path.unlink(missing_ok=True)


def _boot() -> bytes:
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip().ljust(36, b"\0")[:36]
