"""Artifacts as streams of bytes: a file as it is, a folder as a tar file, without holding either in memory. Blocks on the disk."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

CHUNK = 2**18
_BLOCK = 512


def file(place: Path) -> Iterator[bytes]:
    with place.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk


def tar(place: Path) -> Iterator[bytes]:
    """Everything below a folder; links stay links. A file that changes meanwhile is cut or filled to the size it had."""
    for folder, names, found in os.walk(place):
        names.sort()
        for name in sorted([*names, *found]):
            path = Path(folder, name)
            relative = str(path.relative_to(place))
            entry = _entry(path, relative)
            if entry is None:
                continue
            yield entry.tobuf(tarfile.PAX_FORMAT)
            if entry.isreg():
                yield from _padded(path, entry.size)
    yield bytes(2 * _BLOCK)


def _entry(path: Path, name: str) -> tarfile.TarInfo | None:
    info = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = info.st_mode & 0o777, int(info.st_mtime)
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
    elif path.is_file():
        entry.size = info.st_size
    else:
        return None
    return entry


def _padded(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as opened:
        while left and (chunk := opened.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    while left:
        part = min(left, CHUNK)
        left -= part
        yield bytes(part)
    yield bytes(-size % _BLOCK)
