"""Files of this machine to and from a store, by parts: a transfer that was interrupted goes on where it was.

A download grows in a hidden file beside its target, whose name is made of store, key and version; it becomes the target when it
is whole. An upload to a store that takes parts is noted in a folder of this machine; the same file to the same key sends only the
parts that the store lacks. Either end sees the old file or the new one, never a mix. Retries are the store's (`wrappers.Retrying`).
Called by the commands for files and by mounts.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import cast

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound, PaddleFlowError, Unavailable
from paddleflow.objects.store import CHUNK, Entry, MultipartStore, ObjectStore, Part, shorten, stat_file

PART = 16 * 2**20  #: bytes of a part of an upload, unless the file has more than `MOST_PARTS` of them
MOST_PARTS = 10_000
PARTS_AT_ONCE = 4
NOTES_KEPT = 7 * 86_400.0  #: seconds after which an upload that nobody went on with is forgotten

#: Is told of bytes that have arrived, those of an earlier attempt included.
Progress = Callable[[int], None]


def ignore(size: int) -> None:
    """For callers that show no progress."""


def download(store: ObjectStore, key: str, target: Path, progress: Progress = ignore) -> Entry:
    """Bring a file of the store to this machine."""
    entry = stat_file(store, key)
    partial = target.with_name(f".{_word(target.name, store.name, key, entry.tag)}.part")
    with partial.open("ab") as file:
        if file.tell() > entry.size:
            file.truncate(0)
        progress(file.tell())
        while (offset := file.tell()) < entry.size:
            piece = store.read(key, offset=offset, size=CHUNK, tag=entry.tag)
            if not piece:
                raise Unavailable(f"{shorten(key)} in {store.name} ended after {offset} of {entry.size} bytes")
            file.write(piece)
            progress(len(piece))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    return entry


def upload(
    store: ObjectStore,
    source: Path,
    key: str,
    notes: Path,
    progress: Progress = ignore,
    *,
    part: int = PART,
    at_once: int = PARTS_AT_ONCE,
) -> Entry:
    """Bring a file of this machine into the store. `notes`: the folder that remembers uploads by parts."""
    with source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not store.capabilities.multipart or size <= part:
            entry = store.write(key, file)
            progress(size)
            return entry
        notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_old(notes)
        plan = Plan(key, str(source.absolute()), notes, part)
        return upload_parts(store, file.fileno(), plan, refuse_changes(file.fileno(), str(source)), progress, at_once)


@dataclass(frozen=True, slots=True)
class Plan:
    """An upload by parts: of what, to what, and under which condition. A later one goes on with an earlier one that is the same."""

    key: str
    source: str  #: names the file on this machine
    notes: Path  #: the folder that remembers uploads by parts
    part: int = PART
    metadata: Mapping[str, str] = field(default_factory=dict)
    if_absent: bool = False
    if_tag: str = ""


def refuse_changes(fd: int, source: str) -> Callable[[], None]:
    """Raises `Conflict` when the file is not as it was."""
    before = _state(fd)

    def check() -> None:
        if _state(fd) != before:
            raise Conflict(f"{source} was changed while it was uploaded", hint="upload it again")

    return check


def upload_parts(
    store: ObjectStore,
    fd: int,
    plan: Plan,
    check: Callable[[], None],
    progress: Progress = ignore,
    at_once: int = PARTS_AT_ONCE,
) -> Entry:
    """Bring a file into a store that takes parts. What `check` raises ends the upload for good, all else until somebody goes on."""
    return _Upload(store, fd, plan, progress).run(at_once, check)


def abort_uploads(store: ObjectStore, notes: Path, wanted: Callable[[str], bool]) -> None:
    """Give up what is remembered, except of sources that are still `wanted`."""
    for note in list(notes.glob("*.json")):
        with suppress(OSError, ValueError, KeyError, PaddleFlowError):
            found = json.loads(note.read_text())
            if wanted(found["source"]):
                continue
            cast(MultipartStore, store).abort_upload(found["key"], found["upload"])
            note.unlink()


def _state(fd: int) -> tuple[int, int]:
    about = os.fstat(fd)
    return about.st_size, about.st_mtime_ns


class _Upload:
    """One file on its way by parts."""

    def __init__(self, store: ObjectStore, fd: int, plan: Plan, progress: Progress) -> None:
        self._store = cast(MultipartStore, store)
        self._fd, self._plan, self._key, self._progress = fd, plan, plan.key, progress
        self._size, changed_at = _state(fd)
        self._part = max(plan.part, -(-self._size // MOST_PARTS))
        words = json.dumps(dict(plan.metadata), sort_keys=True)
        word = _word(store.name, plan.key, plan.source, str(self._size), str(changed_at), words)
        self._note = plan.notes / f"{word}.json"

    def run(self, at_once: int, check: Callable[[], None]) -> Entry:
        upload, have = self._resume() or (self._start(), {})
        numbers = range(1, -(-self._size // self._part) + 1)
        for number in have:
            self._progress(len(self._range(number)))
        with ThreadPoolExecutor(at_once, "upload") as pool:
            coming = [pool.submit(self._send, upload, number) for number in numbers if number not in have]
            try:
                have |= {part.number: part for part in (each.result() for each in coming)}
            except BaseException:
                pool.shutdown(cancel_futures=True)  # what has arrived stays for the next attempt
                raise
        try:
            check()
        except BaseException:
            self._store.abort_upload(self._key, upload)
            self._note.unlink(missing_ok=True)
            raise
        entry = self._finish(upload, [have[number] for number in numbers])
        self._note.unlink(missing_ok=True)
        return entry

    def _finish(self, upload: str, parts: list[Part]) -> Entry:
        plan = self._plan
        try:
            return self._store.finish_upload(self._key, upload, parts, if_absent=plan.if_absent, if_tag=plan.if_tag)
        except NotFound:
            found = self._store.stat(self._key)
            if not plan.metadata or (found.size, found.metadata) != (self._size, plan.metadata):
                raise
            return found  # only the answer had been lost

    def _start(self) -> str:
        upload = self._store.start_upload(self._key, metadata=self._plan.metadata)
        self._note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._note.with_suffix(".new")
        note = {"upload": upload, "part": self._part, "key": self._key, "source": self._plan.source}
        fresh.write_text(json.dumps(note))
        fresh.replace(self._note)
        return upload

    def _resume(self) -> tuple[str, dict[int, Part]] | None:
        """The upload of an earlier attempt, and what the store has of it, as it is here.

        A store whose tags are no checksums (with keys of a key service) gets all parts again.
        """
        try:
            found = json.loads(self._note.read_text())
            upload = str(found["upload"])
            if found["part"] != self._part:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        try:
            parts = self._store.list_parts(self._key, upload)
        except NotFound:
            return None
        return upload, {part.number: part for part in parts if part.tag == self._tag(part.number)}

    def _tag(self, number: int) -> str:
        """Of a part that has arrived whole: some servers keep what they got of one when the connection was cut."""
        wanted = self._range(number)
        content = os.pread(self._fd, len(wanted), wanted.start)
        return hashlib.md5(content, usedforsecurity=False).hexdigest()

    def _range(self, number: int) -> range:
        begin = (number - 1) * self._part
        return range(begin, min(begin + self._part, self._size))

    def _send(self, upload: str, number: int) -> Part:
        wanted = self._range(number)
        content = os.pread(self._fd, len(wanted), wanted.start)
        part = self._store.write_part(self._key, upload, number, content)
        self._progress(len(content))
        return part


def _forget_old(notes: Path) -> None:
    for note in notes.iterdir():
        with suppress(OSError):
            if time.time() - note.stat().st_mtime > NOTES_KEPT:
                note.unlink()


def _word(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
