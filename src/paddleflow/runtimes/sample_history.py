"""What an attempt used from start to end, in a file of bounded size next to its log (``<log>.stats``).

At most `MOST` records of 72 bytes. When they are full, neighbours are merged in pairs: the whole time stays covered,
at half the resolution. Counters keep the later value of a pair and memory the higher one. The first and the last sample
are kept as they were. One writer (the server); a reader may come at any time.

Pure: `step`, `halve`, `encode`, `decode`. I/O: `append`, `read`.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.runtimes.log_store import Sample

MOST = 1024
_HEADER = struct.Struct("<4sIII")
_RECORD = struct.Struct("<dd7q")
_MAGIC = b"PFS2"
_SAFE = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  #: the job can change what is in its folder
_TOP = _HEADER.size + _RECORD.size  #: header and last sample; the records follow


@dataclass(frozen=True, slots=True)
class Header:
    """How many records there are, and how many samples each stands for. The first record is one sample, always."""

    count: int
    stride: int
    filled: int  #: samples in the last record so far
    last: Sample


def step(header: Header | None, tail: Sample | None, sample: Sample) -> tuple[Header, int, Sample]:
    """Take in one sample: the new header, and which record becomes what. Make room with `halve` when `is_full`."""
    if header is None:
        return Header(1, 1, 1, sample), 0, sample
    if tail is not None and header.count > 1 and header.filled < header.stride:
        merged = merge(tail, sample)
        return replace(header, filled=header.filled + 1, last=sample), header.count - 1, merged
    return replace(header, count=header.count + 1, filled=1, last=sample), header.count, sample


def is_full(header: Header, most: int = MOST) -> bool:
    return header.count >= most and header.filled >= header.stride


def halve(header: Header, records: Sequence[Sample]) -> tuple[Header, list[Sample]]:
    """The same time in half as many records."""
    rest = records[1:]
    merged = [merge(*rest[i : i + 2]) if i + 1 < len(rest) else rest[i] for i in range(0, len(rest), 2)]
    filled = header.stride + header.filled if len(rest) % 2 == 0 else header.filled
    return replace(header, count=1 + len(merged), stride=2 * header.stride, filled=filled), [records[0], *merged]


def merge(earlier: Sample, later: Sample) -> Sample:
    """One sample in place of two."""
    return Sample(
        at=later.at,
        cpu_seconds=later.cpu_seconds,
        memory=max(earlier.memory, later.memory),
        disk_read=_later(earlier.disk_read, later.disk_read),
        disk_write=_later(earlier.disk_write, later.disk_write),
        net_received=_later(earlier.net_received, later.net_received),
        net_sent=_later(earlier.net_sent, later.net_sent),
        disk_usage=_later(earlier.disk_usage, later.disk_usage),
        log_size=_later(earlier.log_size, later.log_size),
    )


def _later(earlier: int | None, later: int | None) -> int | None:
    return earlier if later is None else later


def encode(header: Header, records: Sequence[Sample]) -> bytes:
    return _encode_top(header) + b"".join(map(_encode_record, records))


def decode(data: bytes) -> tuple[Header, list[Sample]] | None:
    """None when this is no such file, or one that has just been begun."""
    if len(data) < _TOP or data[:4] != _MAGIC:
        return None
    _, count, stride, filled = _HEADER.unpack_from(data)
    header = Header(count, stride, filled, _decode_record(data[_HEADER.size : _TOP]))
    whole = min(count, (len(data) - _TOP) // _RECORD.size)
    starts = range(_TOP, _TOP + whole * _RECORD.size, _RECORD.size)
    return header, [_decode_record(data[start : start + _RECORD.size]) for start in starts]


def _encode_top(header: Header) -> bytes:
    return _HEADER.pack(_MAGIC, header.count, header.stride, header.filled) + _encode_record(header.last)


def _encode_record(sample: Sample) -> bytes:
    optional = (
        sample.disk_read, sample.disk_write, sample.net_received, sample.net_sent, sample.disk_usage, sample.log_size,
    )  # fmt: skip
    values = [-1 if value is None else value for value in optional]
    return _RECORD.pack(sample.at, sample.cpu_seconds, sample.memory, *values)


def _decode_record(data: bytes) -> Sample:
    at, cpu_seconds, memory, *values = _RECORD.unpack(data)
    return Sample(at, cpu_seconds, memory, *(None if value < 0 else value for value in values))


def append(path: str, sample: Sample, most: int = MOST) -> None:
    """Add a sample to the file, which is made when it is not there."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return  # the job put something else there: it has no history
        top = decode(os.pread(fd, _TOP, 0))
        before = top[0] if top else None
        if before is not None and is_full(before, most):
            _rewrite(path, fd, sample)
            return
        tail = _tail(fd, before.count - 1) if before is not None else None
        after, index, record = step(before, tail, sample)
        os.pwrite(fd, _encode_record(record), _TOP + index * _RECORD.size)
        os.pwrite(fd, _encode_top(after), 0)
    finally:
        os.close(fd)


def _tail(fd: int, index: int) -> Sample | None:
    data = os.pread(fd, _RECORD.size, _TOP + index * _RECORD.size)
    return _decode_record(data) if len(data) == _RECORD.size else None


def _rewrite(path: str, fd: int, sample: Sample) -> None:
    found = decode(os.pread(fd, _TOP + MOST * _RECORD.size, 0))
    assert found is not None
    header, records = halve(*found)
    header, index, record = step(header, records[-1], sample)
    records[index:] = [record]
    fresh = Path(path + ".new")
    fresh.unlink(missing_ok=True)
    new = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
    try:
        os.write(new, encode(header, records))
    finally:
        os.close(new)
    fresh.replace(path)


def read(path: str) -> list[Sample]:
    """All that is known of an attempt, oldest first; empty when nothing is."""
    try:
        fd = os.open(path, os.O_RDONLY | _SAFE)
    except OSError:  # there is none, or the job put a link there
        return []
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        found = decode(os.pread(fd, _TOP + MOST * _RECORD.size, 0))
    finally:
        os.close(fd)
    if found is None:
        return []
    header, records = found
    return [*records[:-1], header.last] if len(records) > 1 else records
