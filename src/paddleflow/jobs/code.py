"""Where snapshots of code are kept: chunks and manifests by hash in an object store, apart for each user.

Written by the API, read by `job code` and by `checkout` in the process of a member. What is complete never changes: a
manifest is stored when all its chunks are there, and a chunk's name is the hash of its content. Per user, because whoever
knows a hash could otherwise claim a file of somebody else.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from paddleflow.errors import Conflict, Internal, NotFound, OverQuota
from paddleflow.objects.store import ObjectStore
from paddleflow.spec.code import MOST_CHUNK, MOST_MANIFEST, CodeFile, Manifest, read_manifest

FOLDER = "code"  #: of the data folder
KEPT_UNUSED = 30 * 86400.0  #: seconds that a snapshot is kept after its last submission, when space is short
SENDING = 86400.0  #: seconds that a chunk may wait for its snapshot
LEAST_COUNTED = 65_536  #: bytes that a chunk or manifest counts at least: the number of files is bounded, too
_BLOCK = 512


class CodeStore:
    """Snapshots of all users."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def close(self) -> None:
        """The store, which may hold descriptors."""
        self._store.close()

    def missing(self, user: str, chunks: Iterable[str]) -> list[str]:
        """Those of the chunks that must be sent."""
        return [chunk for chunk in chunks if not self._has(_chunk(user, chunk))]

    def put_chunk(self, user: str, name: str, content: bytes) -> None:
        """Keeps a chunk whose hash was checked."""
        if not self._has(_chunk(user, name)):
            self._store.write(_chunk(user, name), content)

    def make_space(self, user: str, needed: int, limit: int, now: float, kept: Iterable[str] = ()) -> None:
        """Lets a user add `needed` bytes: snapshots that were not used for long go first; `OverQuota` when that is not enough.

        The chunks `kept` stay in any case.
        """
        chunks = list(self._store.list_entries(f"{quote(user, safe='')}/chunks", recursive=True))
        snapshots = list(self._store.list_entries(f"{quote(user, safe='')}/snapshots"))
        used = sum(counted(entry.size) for entry in (*chunks, *snapshots))
        if used + needed <= limit:
            return
        live = set(kept)
        for entry in snapshots:
            if entry.modified_at < now - KEPT_UNUSED:
                self._store.remove(entry.key)
                used -= counted(entry.size)
            else:
                live |= self.manifest(user, entry.key.rpartition("/")[2].removesuffix(".json")).chunks.keys()
        for chunk in chunks:
            # One that came a moment ago may belong to a snapshot that is still being sent.
            if chunk.key.rpartition("/")[2] not in live and chunk.modified_at < now - SENDING:
                self._store.remove(chunk.key)
                used -= counted(chunk.size)
        if used + needed > limit:
            raise OverQuota(
                f"code snapshots of user[{user}] have {used:,} bytes, {needed:,} more are over the limit of {limit:,}",
                code="CodeOverQuota",
                hint="send less: name what is not code in .paddleflowignore; the setting jobs.code_limit is the limit",
            )

    def put_manifest(self, user: str, manifest: Manifest) -> str:
        """The id of a snapshot that is complete; `Conflict` names chunks that were not sent."""
        missing = self.missing(user, manifest.chunks)
        if missing:
            raise Conflict(
                f"{len(missing)} chunks of the code are not here, such as {missing[0]}",
                code="CodeIncomplete",
                hint="send them to POST /code/chunks first",
            )
        id = manifest.id
        self._store.write(_manifest(user, id), manifest.encode())
        return id

    def has_snapshot(self, user: str, id: str) -> bool:
        return self._has(_manifest(user, id))

    def manifest(self, user: str, id: str) -> Manifest:
        try:
            content = self._store.read(_manifest(user, id), size=MOST_MANIFEST)
        except NotFound as error:
            raise NotFound(f"code snapshot[{id[:80]}] of user[{user}] does not exist", code="CodeNotFound") from error
        return read_manifest(json.loads(content))

    def contents(self, user: str, manifest: Manifest) -> Iterator[tuple[CodeFile, Iterator[bytes]]]:
        """Every file with its parts, to be taken before the next file. Memory: a chunk, which small files share, and a part."""
        name, content = "", b""

        def parts_of(file: CodeFile) -> Iterator[bytes]:
            nonlocal name, content
            for part in file.parts:
                if part.chunk != name:
                    name, content = part.chunk, self._store.read(_chunk(user, part.chunk), size=MOST_CHUNK)
                if len(content) < part.offset + part.length:
                    raise Internal(f"chunk {name} of the code is cut")
                yield content[part.offset : part.offset + part.length]

        for file in manifest.files:
            yield file, parts_of(file)

    def unpack(self, user: str, id: str, folder: Path) -> None:
        """Writes a snapshot into an empty folder. Links come last, so that no file is written through one."""
        manifest = self.manifest(user, id)
        made: set[str] = set()
        for file, parts in self.contents(user, manifest):
            target = folder / file.path
            _make_parent(folder, file.path, made)
            mode = 0o755 if file.executable else 0o644
            opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
            with os.fdopen(opened, "wb", buffering=0) as stream:
                for part in parts:
                    stream.write(part)
        for link in manifest.links:
            _make_parent(folder, link.path, made)
            (folder / link.path).symlink_to(link.target)

    def tar(self, user: str, id: str) -> Generator[bytes, None, None]:
        """The snapshot as a tar file, in pieces."""
        manifest = self.manifest(user, id)
        return self._tar(user, manifest)

    def _tar(self, user: str, manifest: Manifest) -> Generator[bytes, None, None]:
        for file, parts in self.contents(user, manifest):
            entry = tarfile.TarInfo(file.path)
            entry.size, entry.mode = file.size, 0o755 if file.executable else 0o644
            yield entry.tobuf(tarfile.PAX_FORMAT)
            yield from parts
            yield bytes(-file.size % _BLOCK)
        for link in manifest.links:
            entry = tarfile.TarInfo(link.path)
            entry.type, entry.linkname = tarfile.SYMTYPE, link.target
            yield entry.tobuf(tarfile.PAX_FORMAT)
        yield bytes(2 * _BLOCK)

    def _has(self, key: str) -> bool:
        try:
            self._store.stat(key)
        except NotFound:
            return False
        return True


def counted(size: int) -> int:
    """The bytes that a file of this size counts. Pure."""
    return max(size, LEAST_COUNTED)


def _make_parent(folder: Path, path: str, made: set[str]) -> None:
    parent = path.rpartition("/")[0]
    if parent not in made:
        (folder / parent).mkdir(parents=True, exist_ok=True)
        made.add(parent)


def _chunk(user: str, name: str) -> str:
    return f"{quote(user, safe='')}/chunks/{name[:2]}/{name}"


def _manifest(user: str, id: str) -> str:
    return f"{quote(user, safe='')}/snapshots/{quote(id, safe='')}.json"


def checkout_command(python: str, store: str, user: str, snapshot: str, folder: str, workdir: str) -> Sequence[str]:
    """The words before a member's command that unpack its code first; see `checkout`."""
    return (python, "-I", "-m", "paddleflow.jobs.checkout", store, user, snapshot, folder, workdir)
