"""Reading logs: plain reads of the file, with one line where its middle was left out. Called by `job_folders`.

Offsets are positions in the file, so they stay true while the file grows and while its middle is cut out. The job can put
anything in the place of its log: a FIFO, a device, a link to somebody else's file. None of them is read.
"""

from __future__ import annotations

import errno
import os

from paddleflow.base.quantity import format_bytes
from paddleflow.errors import NotFound, Unavailable
from paddleflow.runtimes.local.log_gap import Gap, open_regular, read_gap
from paddleflow.runtimes.local.process import BEGINS
from paddleflow.runtimes.log_store import LogChunk

_MOST_BEGINS = 64 * 2**10  #: bytes of notes about attempts that are read
_LONGEST = 40  #: characters of one of them
MOST = 16 * 2**20  #: bytes of one chunk, however much is asked for


def notice(gap: Gap, offset: int) -> bytes:
    """The line in place of what is left out from `offset` on."""
    left_out = gap.end - max(gap.start, offset)
    return f"\n… {left_out} bytes left out: the log limit is {format_bytes(gap.limit)} …\n".encode()


def _open(path: str) -> int:
    """A descriptor of a regular file; NotFound when there is nothing, Unavailable for anything else."""
    try:
        return open_regular(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise NotFound(f"log {path} is not there", hint="it was never written, or has been deleted") from error
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else (error.strerror or "").lower()
        raise Unavailable(f"log {path} cannot be read: {reason}") from error


def log_size(path: str) -> int:
    """Bytes of the file; 0 when there is none that could be read."""
    try:
        fd = _open(path)
    except (NotFound, Unavailable):
        return 0
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def read_begins(path: str) -> dict[int, int]:
    """Where attempts begin, as the keeper noted; nothing that a job could have written there is believed beyond numbers."""
    try:
        fd = open_regular(path + BEGINS, os.O_RDONLY)
    except OSError:
        return {}
    try:
        lines = os.read(fd, _MOST_BEGINS).decode("ascii", "replace").splitlines()
    finally:
        os.close(fd)
    found: dict[int, int] = {}
    for line in lines:
        number, _, position = line.partition(" ")
        if number.isdecimal() and position.isdecimal() and len(line) < _LONGEST:
            found.setdefault(int(number), int(position))
    return found


def read_chunk(path: str, offset: int, limit: int) -> LogChunk:
    """Up to `limit` bytes of the file from `offset`; the notice comes on top of that."""
    fd = _open(path)
    try:
        gap = read_gap(path)
        size = os.fstat(fd).st_size
        start = max(size + offset, 0) if offset < 0 else min(offset, size)
        data, position = _read(fd, start, min(max(limit, 0), MOST), gap)
        again = read_gap(path)
        if again != gap:  # the middle was cut out while we read: what we have may be the hole
            gap = again
            data, position = _read(fd, start, min(max(limit, 0), MOST), gap)
    finally:
        os.close(fd)
    return LogChunk(data, start, position, max(size, position))


def _read(fd: int, start: int, limit: int, gap: Gap | None) -> tuple[bytes, int]:
    """The bytes, and the position after them."""
    if gap is None or start >= gap.end:
        data = os.pread(fd, limit, start)
        return data, start + len(data)
    before = os.pread(fd, max(min(limit, gap.start - start), 0), start)
    if start + len(before) < gap.start or limit <= len(before):
        return before, start + len(before)
    after = os.pread(fd, limit - len(before), gap.end)
    return before + notice(gap, start) + after, gap.end + len(after)
