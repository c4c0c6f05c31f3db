"""The part of a log that was left out because the log grew beyond its limit.

The middle of the file is punched out (the file keeps its size, so positions stay true; the disk space is free), and a
small file beside it, ``<log>.gap``, says which bytes. It is written before the hole is made, so a reader never sees
zeros that nobody explained. The keeper cuts, the server reads.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH104, PTH108

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import stat
from typing import NamedTuple

BLOCK = 4096  #: holes begin and end at whole blocks, otherwise nothing is freed
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", None) or _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Gap(NamedTuple):
    """Bytes `start` up to `end` are left out."""

    start: int
    end: int
    limit: int


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. The job can put a FIFO, a device or a link there: none is opened, nothing blocks."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def create_anew(path: str, mode: int = 0o600) -> int:
    """A new file that nobody else has open; whatever was there goes, a link included."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def gap_path(log: str) -> str:
    return log + ".gap"


def read_gap(log: str) -> Gap | None:
    try:
        fd = open_regular(gap_path(log), os.O_RDONLY)
        try:
            start, end, limit = json.loads(os.read(fd, 256))
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError):
        return None
    return Gap(start, end, limit) if 0 <= start < end else None


def wanted(size: int, limit: int) -> Gap | None:
    """What to leave out of a log of `size` so that its first and last half of `limit` stay; None: nothing."""
    if limit <= 0 or size <= limit:
        return None
    half = limit // 2
    start = max(half // BLOCK, 1) * BLOCK
    end = -(-(size - half) // BLOCK) * BLOCK
    return Gap(start, end, limit) if end > start else None


def cut(log: str, gap: Gap) -> None:
    """Leave it out; OSError when this file system cannot, and then nothing has changed."""
    before = read_gap(log)
    _write_gap(log, gap)
    fd = open_regular(log, os.O_WRONLY)
    try:
        if _fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, gap.start, gap.end - gap.start) != 0:
            code = ctypes.get_errno()
            _write_gap(log, before)
            raise OSError(code, os.strerror(code), log)
    finally:
        os.close(fd)


def _write_gap(log: str, gap: Gap | None) -> None:
    if gap is None:
        os.unlink(gap_path(log))
        return
    fresh = gap_path(log) + ".new"
    fd = create_anew(fresh)
    try:
        os.write(fd, json.dumps(list(gap)).encode("ascii"))
    finally:
        os.close(fd)
    os.rename(fresh, gap_path(log))
