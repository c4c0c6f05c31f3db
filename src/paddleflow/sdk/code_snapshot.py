"""Snapshots of code as the client makes them: a folder is scanned (rules of `ignore`, bounds of `spec.code`), cut into chunks,
and those that the server does not have are sent. Called by `code`.

Hashes of files that did not change (size, time, inode) are remembered beside the contexts, so that a second submission reads
nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from paddleflow import environment
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, NotFound, TooLarge
from paddleflow.sdk.ignore import DEFAULTS, FILES, Rule, is_ignored, read_rules
from paddleflow.sdk.records import items, table
from paddleflow.sdk.transport import Transport
from paddleflow.spec.code import (
    MOST_BYTES,
    MOST_CHUNK,
    MOST_FILES,
    CodeFile,
    CodeLink,
    Manifest,
    Part,
    link_fault,
    pack_chunk,
    path_fault,
)

SMALL = 2**20  #: files up to this size share a chunk with their neighbours
PACK = 2 * 2**20  #: a chunk of small files is closed behind this size
UPLOAD = 12 * 2**20  #: most bytes of one request; a server takes 16 MiB
LARGEST_SHOWN = 5
HASHERS = 4  #: threads that read and hash chunks; each holds one chunk
CACHE = "code-cache"  #: folder beside the contexts
SCANS = 3  #: how often a folder is looked at, if files in it change meanwhile

Progress = Callable[[int, int], None]  #: bytes sent so far, bytes in all


class _Changed(Invalid):
    """A file is not what it was when the folder was looked at."""

    def __init__(self, path: str) -> None:
        hint = "try again when no program writes to it, or name it in .paddleflowignore"
        super().__init__(f"{path} changed while the code was sent", hint=hint)


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that is part of a snapshot."""

    path: str  #: below the folder
    file: str
    status: os.stat_result


@dataclass(slots=True)
class _Chunk:
    """Bytes that are sent together: whole small files, or a piece of a large one."""

    pieces: list[tuple[_Source, int, int]] = field(default_factory=list)  #: file, offset, length
    size: int = 0
    name: str = ""  #: sha256, once it is known

    def add(self, source: _Source, offset: int, length: int) -> None:
        self.pieces.append((source, offset, length))
        self.size += length

    @property
    def key(self) -> str:
        """What its content depends on, as far as a look at the files tells."""
        found = [
            (source.path, offset, length, source.status.st_mtime_ns, source.status.st_size, source.status.st_ino)
            for source, offset, length in self.pieces
        ]
        return hashlib.sha256(repr(found).encode()).hexdigest()

    @property
    def path(self) -> str:
        """Of its file, or of its first and how many more."""
        first, *more = dict.fromkeys(source.path for source, _, _ in self.pieces)
        return f"{first} or one of {len(more)} other files" if more else first

    def read(self) -> bytes:
        parts = []
        for source, offset, length in self.pieces:
            try:
                with open(source.file, "rb") as opened:
                    opened.seek(offset)
                    content = opened.read(length)
            except FileNotFoundError as error:
                raise _Changed(source.path) from error
            if len(content) != length:
                raise _Changed(source.path)
            parts.append(content)
        return b"".join(parts)


@dataclass(frozen=True)
class Scan:
    """A folder that was looked at: its manifest, and where the bytes of each chunk are."""

    manifest: Manifest
    chunks: Mapping[str, _Chunk]


def scan(folder: Path, cache: Path | None = None, *, most: int = MOST_BYTES) -> Scan:
    """The snapshot of a folder. TooLarge names its largest files; Invalid names what cannot be sent."""
    files, links = _walk(folder)
    total = sum(source.status.st_size for source in files)
    if total > most:
        largest = sorted(files, key=lambda source: -source.status.st_size)[:LARGEST_SHOWN]
        shown = ", ".join(f"{source.path} ({_megabytes(source.status.st_size)})" for source in largest)
        raise TooLarge(
            f"{folder} has {_megabytes(total)} of files, the maximum is {_megabytes(most)}; the largest: {shown}",
            hint="name what is not code in .paddleflowignore, and keep data on a storage (--fs)",
        )
    chunks = _packed(files)
    _name(chunks, cache)
    return Scan(
        Manifest(_files(files, chunks), tuple(CodeLink(path, target) for path, target in links)),
        {chunk.name: chunk for chunk in chunks},
    )


def _walk(folder: Path) -> tuple[list[_Source], list[tuple[str, str]]]:
    """Regular files and links below a folder that no rule ignores, in order of their paths."""
    files: list[_Source] = []
    links: list[tuple[str, str]] = []
    pending: list[tuple[str, list[Rule]]] = [("", list(DEFAULTS))]
    while pending:
        base, rules = pending.pop()
        here = folder / base
        rules = rules + [rule for name in FILES for rule in _rules(here / name, base)]
        for entry in sorted(os.scandir(here), key=lambda each: each.name):
            path = f"{base}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(rules, path, is_folder):
                continue
            if fault := path_fault(path):
                raise Invalid(f"{path!r} cannot be sent: it {fault}", hint="name it in .paddleflowignore")
            if entry.is_dir() and (Path(entry.path) / "pyvenv.cfg").exists():
                continue  # a virtual environment belongs to one machine
            if is_folder:
                pending.append((f"{path}/", rules))
            elif entry.is_symlink():
                target = str(Path(entry.path).readlink())
                if fault := link_fault(path, target):
                    raise Invalid(f"the link {path} → {target} {fault}", hint="name it in .paddleflowignore")
                links.append((path, target))
            elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                files.append(_Source(path, entry.path, status))
            if len(files) + len(links) > MOST_FILES:
                raise TooLarge(
                    f"{folder} has more than {MOST_FILES:,} files", hint="name what is not code in .paddleflowignore"
                )
    return sorted(files, key=lambda each: each.path), sorted(links)


def _rules(file: Path, base: str) -> list[Rule]:
    try:
        return read_rules(file.read_text("utf-8", "replace"), base) if file.is_file() else []
    except OSError:
        return []


def _packed(files: list[_Source]) -> list[_Chunk]:
    """Files in chunks. Where a pack of small files ends depends on paths too, so that one file more moves few others."""
    chunks: list[_Chunk] = []
    pack = _Chunk()
    for source in files:
        size = source.status.st_size
        if size > SMALL:
            for offset in range(0, size, MOST_CHUNK):
                alone = _Chunk()
                alone.add(source, offset, min(MOST_CHUNK, size - offset))
                chunks.append(alone)
        elif size:
            pack.add(source, 0, size)
        if pack.size >= PACK or (pack.size and zlib.crc32(source.path.encode()) % 64 == 0):
            chunks.append(pack)
            pack = _Chunk()
    return [*chunks, pack] if pack.size else chunks


def _files(files: list[_Source], chunks: list[_Chunk]) -> tuple[CodeFile, ...]:
    """Every file with its parts, now that chunks have names."""
    parts: dict[str, list[Part]] = {source.path: [] for source in files}
    for chunk in chunks:
        at = 0
        for source, _, length in chunk.pieces:
            parts[source.path].append(Part(chunk.name, at, length))
            at += length
    return tuple(
        CodeFile(source.path, source.status.st_size, bool(source.status.st_mode & 0o100), tuple(parts[source.path]))
        for source in files
    )


def _name(chunks: list[_Chunk], cache: Path | None) -> None:
    """The hash of each chunk: remembered from last time if no file of it changed, else of its bytes."""
    known: dict[str, str] = {}
    if cache is not None:
        try:
            known = table(json.loads(cache.read_text("utf-8")))
        except (OSError, ValueError):
            known = {}
    keys = [chunk.key for chunk in chunks]
    changed = [chunk for chunk, key in zip(chunks, keys, strict=True) if key not in known]
    if changed:
        with ThreadPoolExecutor(HASHERS) as pool:  # reading and hashing let go of the interpreter
            hashes = list(pool.map(lambda chunk: hashlib.sha256(chunk.read()).hexdigest(), changed))
        for chunk, name in zip(changed, hashes, strict=True):
            chunk.name = name
    for chunk, key in zip(chunks, keys, strict=True):
        chunk.name = chunk.name or known[key]
    found = {key: chunk.name for chunk, key in zip(chunks, keys, strict=True)}
    if cache is not None and found != known:
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            half = cache.with_suffix(f".{os.getpid()}")
            half.write_text(json.dumps(found), "utf-8")
            half.replace(cache)
        except OSError:
            return  # it only saves time


def upload(transport: Transport, folder: Path, progress: Progress | None) -> dict[str, Any]:
    """Makes a snapshot of a folder; sends what the server does not have. When a file changes meanwhile, it begins again."""
    for _ in range(SCANS - 1):
        with suppress(_Changed):
            return _upload(transport, folder, progress)
    return _upload(transport, folder, progress)


def _upload(transport: Transport, folder: Path, progress: Progress | None) -> dict[str, Any]:
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    found = scan(folder, environment.user_config_folder() / CACHE / f"{name}.json")
    body = found.manifest.to_json()
    missing = items(table(transport.call("POST", "/code/missing", body=body, settled=NotFound)).get("missing"))
    total = sum(found.chunks[name].size for name in missing)
    sent = 0
    for batch in _batches(found, missing):
        transport.send("POST", "/code/chunks", batch)
        sent += len(batch)
        if progress is not None:
            progress(min(sent, total), total)
    made = table(transport.call("POST", "/code", body=body, settled=NotFound))
    return {"snapshot": str(made["id"]), "files": made["files"], "size": made["size"]}


def unpack(chunks: Iterator[bytes], to: Path) -> None:
    """Unpacks the archive that a server sends of a snapshot into a folder."""
    # A buffered reader of our own: the answer cannot be sought in.
    with tarfile.open(fileobj=io.BufferedReader(_Reader(chunks)), mode="r|") as archive:
        archive.extractall(to, filter="data")


def _batches(found: Scan, missing: list[str]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for name in missing:
        content = found.chunks[name].read()
        if hashlib.sha256(content).hexdigest() != name:
            raise _Changed(found.chunks[name].path)
        packed = pack_chunk(content)
        if batch and size + len(packed) > UPLOAD:
            yield b"".join(batch)
            batch, size = [], 0
        batch.append(packed)
        size += len(packed)
    if batch:
        yield b"".join(batch)


class _Reader(io.RawIOBase):
    """Pieces of a stream as something to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
