"""Files of storages for routes: what lies there, the bytes of a range, uploads by parts. Blocks on the store; in a `FilePool`.

An upload by parts keeps its parts in the storage itself, below `UPLOADS`, so that it can be resumed after any server was killed,
by any server. Its object appears whole when the upload is finished, and the parts go with it or by `abort_upload`. A storage has
`MOST_UPLOADS` that are not finished; one to which nothing came for `UPLOAD_KEPT` seconds is removed when the next one starts. Whoever
may write to a storage may see the ids of its uploads: they are no secrets.
"""

from __future__ import annotations

import hashlib
import heapq
import io
import re
import secrets
from collections.abc import Callable, Generator, Iterator
from itertools import islice

from paddleflow.base.text import as_utf8
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound, OverQuota
from paddleflow.objects.store import CHANGED, CHUNK, Entry, Kind, ObjectStore, stat_file
from paddleflow.storage.file_pool import SlicedWork

UPLOADS = ".pf-uploads"  #: folder of a storage in which parts wait; never listed
MOST_PART = 16 * 2**20  #: bytes of a part
MOST_PARTS = 10_000
MOST_UPLOADS = 256  #: of a storage that are not finished
UPLOAD_KEPT = 7 * 86_400.0  #: seconds after its last part
BEGUN = "begun"  #: beside the parts of an upload: without it nothing is taken
PIECE = 2**20  #: bytes that a download holds for its client
MOST_LISTED = 10_000_000  #: entries of a folder: a store that is a server of the user's may list without end
AT_ONCE = 1_000  #: entries of a folder that are in memory while it is removed
BEGINNINGS = 20  #: times that a file may change before its first piece is read
_ID = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"[0-9]{5}")  #: name of a part; whoever writes to the storage may put anything beside them


@dataclass(frozen=True, slots=True)
class StoredPart:
    number: int
    size: int


def list_page(
    store: ObjectStore, folder: str, after: str, most: int, most_listed: int = MOST_LISTED
) -> SlicedWork[tuple[list[Entry], bool]]:
    """The first entries of a folder by name after a name, and whether there are more. Memory: one page."""
    found = store.stat(folder)
    if found.kind is not Kind.FOLDER:
        return [found], False
    kept: list[tuple[str, Entry]] = []
    for number, entry in enumerate(
        store.list_entries(folder), 1
    ):  # every entry counts: a store may repeat those before `after`
        if number > most_listed:
            raise Invalid(f"folder {folder[:200]!r} has more than {most_listed:,} entries")
        name = as_utf8(entry.key.rpartition("/")[2])
        if name > after and entry.key != UPLOADS:
            kept.append((name, entry))
        if len(kept) > 4 * most:
            kept = heapq.nsmallest(most + 1, kept, key=lambda pair: pair[0])
        if number % 100 == 0:
            yield number
    kept = heapq.nsmallest(most + 1, kept, key=lambda pair: pair[0])
    return [entry for _, entry in kept[:most]], len(kept) > most


@dataclass(frozen=True, slots=True)
class Content:
    """A range of one version of a file, with its first piece."""

    entry: Entry
    offset: int
    size: int
    first: bytes


def begin_content(store: ObjectStore, key: str, choose: Callable[[Entry], tuple[int, int]]) -> Content:
    """Begin to read: `choose` says what of it, by its entry. What changes before the first piece is there is begun anew."""
    tries = BEGINNINGS
    while True:
        entry = stat_file(store, key)
        offset, size = choose(entry)
        try:
            first = store.read(key, offset=offset, size=min(PIECE, size), tag=entry.tag) if size else b""
            return Content(entry, offset, size, first)
        except Conflict as error:
            tries -= 1
            if error.code != CHANGED or not tries:
                raise


def pieces_of(store: ObjectStore, content: Content) -> Generator[bytes, None, None]:
    """All of it, of one version; the store is closed behind it."""
    piece, offset, rest = content.first, content.offset, content.size
    try:
        while piece:
            yield piece
            offset, rest = offset + len(piece), rest - len(piece)
            piece = (
                store.read(content.entry.key, offset=offset, size=min(PIECE, rest), tag=content.entry.tag)
                if rest > 0
                else b""
            )
    finally:
        store.close()


def remove(store: ObjectStore, key: str, recursive: bool, at_once: int = AT_ONCE) -> SlicedWork[int]:
    """A file, an empty folder, or with `recursive` all below one; how many files. Nothing there is `NotFound`."""
    found = store.stat(key)
    if found.kind is not Kind.FOLDER:
        store.remove(key)
        return 1
    if not recursive:
        store.remove_folder(key)
        return 0
    count = 0
    pending = [(key, False)]
    while pending:
        current, emptied = pending.pop()
        if emptied:
            store.remove_folder(current)
            continue
        some = list(islice(store.list_entries(current), at_once))
        pending.append((current, len(some) < at_once))
        for entry in some:
            if entry.kind is Kind.FOLDER:
                pending.append((entry.key, False))
            else:
                store.remove(entry.key)
                count += 1
            yield count
    return count


def check_sum(content: bytes, sha256: str) -> None:
    """Refuse content that is not what its sender says."""
    if sha256 and hashlib.sha256(content).hexdigest() != sha256.lower():
        raise Invalid(f"the {len(content)} bytes that arrived have another sha256 than {sha256[:64]}", code="BadDigest")


def start_upload(store: ObjectStore, now: float) -> SlicedWork[str]:
    """The id of a new one; those that were given up go first."""
    waiting = 0
    for entry in list(islice(store.list_entries(UPLOADS), AT_ONCE)):
        upload = entry.key.rpartition("/")[2]
        if not _ID.fullmatch(upload):
            continue
        parts = islice(store.list_entries(entry.key), MOST_PARTS)
        seen = max((each.modified_at for each in parts), default=entry.modified_at)
        if seen < now - UPLOAD_KEPT:
            abort_upload(store, upload)
        else:
            waiting += 1
        yield waiting
    if waiting >= MOST_UPLOADS:
        raise OverQuota(
            f"{waiting} uploads to this storage are not finished, at most {MOST_UPLOADS}",
            code="TooManyUploads",
            hint="finish them, abort them (DELETE), or wait: an upload is removed a week after its last part",
        )
    upload = secrets.token_hex(16)
    store.write(f"{_folder(upload)}/{BEGUN}", b"")
    return upload


def write_part(store: ObjectStore, upload: str, number: int, content: bytes) -> StoredPart:
    if not 1 <= number <= MOST_PARTS:
        raise Invalid(f"part {number} is none of 1 to {MOST_PARTS}")
    _require(store, upload)
    store.write(_part_key(upload, number), content)
    return StoredPart(number, len(content))


def _require(store: ObjectStore, upload: str) -> None:
    try:
        store.stat(f"{_folder(upload)}/{BEGUN}")
    except NotFound as error:
        raise _not_there(upload) from error


def _not_there(upload: str) -> NotFound:
    return NotFound(f"upload {upload} was never started, or was finished or given up", code="UploadNotFound")


def show_upload(store: ObjectStore, upload: str) -> list[StoredPart]:
    """What has arrived of one that goes on."""
    _require(store, upload)
    return list_parts(store, upload)


def list_parts(store: ObjectStore, upload: str) -> list[StoredPart]:
    """What has arrived of an upload, by number."""
    found = islice(store.list_entries(_folder(upload)), MOST_PARTS + AT_ONCE)
    named = ((entry.key.rpartition("/")[2], entry) for entry in found)
    parts = [StoredPart(int(name), entry.size) for name, entry in named if _PART.fullmatch(name)]
    for part in parts:
        if part.size > MOST_PART:  # put there by something else, such as a job: a sparse file costs its writer nothing
            raise Invalid(f"part {part.number} of upload {upload} has {part.size:,} bytes, at most {MOST_PART:,}")
    return sorted(parts, key=lambda part: part.number)


def finish_upload(store: ObjectStore, upload: str, key: str, *, if_absent: bool = False, if_tag: str = "") -> Entry:
    """Make the object of the parts 1, 2, 3 …, then forget them. Asked again after it was done: `NotFound`.

    With a condition as for `ObjectStore.write`; if it does not hold, the parts stay.
    """
    parts = list_parts(store, upload)
    if not parts:
        raise _not_there(upload)
    if [part.number for part in parts] != list(range(1, len(parts) + 1)):
        absent = next(number for number, part in enumerate(parts, 1) if part.number != number)
        raise Conflict(f"part {absent} of upload {upload} has not arrived", code="UploadIncomplete")
    content = io.BufferedReader(_Parts(store, upload, parts), CHUNK)
    entry = store.write(key, content, if_absent=if_absent, if_tag=if_tag)
    abort_upload(store, upload)
    return entry


def abort_upload(store: ObjectStore, upload: str) -> None:
    for entry in list(islice(store.list_entries(_folder(upload)), MOST_PARTS + AT_ONCE)):
        store.remove(entry.key)
    store.remove_folder(_folder(upload))


def _folder(upload: str) -> str:
    if not _ID.fullmatch(upload):
        raise Invalid(f"{upload[:80]!r} is not the id of an upload")
    return f"{UPLOADS}/{upload}"


def _part_key(upload: str, number: int) -> str:
    return f"{_folder(upload)}/{number:05d}"


class _Parts(io.RawIOBase):
    """The parts of an upload, one after the other, as a stream."""

    def __init__(self, store: ObjectStore, upload: str, parts: list[StoredPart]) -> None:
        self._pieces = self._read_all(store, upload, parts)
        self._rest = memoryview(b"")

    @staticmethod
    def _read_all(store: ObjectStore, upload: str, parts: list[StoredPart]) -> Iterator[bytes]:
        for part in parts:
            for offset in range(0, part.size, CHUNK):
                yield store.read(_part_key(upload, part.number), offset=offset, size=CHUNK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]  # whatever `io` hands over
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(target), len(self._rest))
        target[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
