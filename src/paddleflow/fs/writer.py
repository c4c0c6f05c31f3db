"""Written files on their way to the store: staged on disk, uploaded whole, remembered until they have arrived.

A file that is written lies in the staging folder. *Committing* it puts a note beside it (what it is to be in the store:
key, metadata, the version it replaces), synced to disk; once the object is in the store, the note goes, then the file. So the folder
is the journal: whatever has a note was acknowledged and is uploaded by the next mount, and what has none was not.

Two modes. Without write-back a commit is uploaded before `close` and `fsync` return: they mean *durable in the store*, and
no note is needed. With it they return when file and note are on this machine's disk, and uploads go on in the background, again and again
while the store is away.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddleflow.errors import Conflict, NotFound, PaddleFlowError
from paddleflow.objects.store import RETRYABLE, Entry, ObjectStore, iterate_content

log = logging.getLogger(__name__)
UPLOADS_AT_ONCE = 16
LONGEST_PAUSE = 30.0
DRAIN_SECONDS = 600.0  #: how long an unmount waits for uploads; the rest is done by the next mount


@dataclass(frozen=True, slots=True)
class Commit:
    """What a staged file is to be in the store."""

    key: str
    metadata: Mapping[str, str]
    replaces: str  #: the tag of the version that was changed; empty for a new file


class Staging:
    """The folder of files that are being written."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self._folder, self._store = folder, store
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.pool = ThreadPoolExecutor(UPLOADS_AT_ONCE, "upload")
        self._ended = threading.Event()
        self.figures: dict[str, int] = {"uploads": 0, "bytes uploaded": 0, "waiting": 0, "failed": 0}
        self._lock = threading.Lock()

    def new_path(self) -> Path:
        return self._folder / f"{secrets.token_hex(8)}.data"

    def commit(self, path: Path, fd: int, commit: Commit) -> bool:
        """Make file and note durable on this machine. False: the disk takes no note, and an earlier one is as it was.

        An error of the file itself is raised: its content may not be what was written.
        """
        os.fsync(fd)
        note = path.with_suffix(".note")
        content = {"key": commit.key, "metadata": dict(commit.metadata), "replaces": commit.replaces}
        fresh = path.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(note)
        except OSError as error:
            log.warning("no note of %s in %s: %s", commit.key, self._folder, error.strerror)
            fresh.unlink(missing_ok=True)
            return False
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def forget(self, path: Path) -> None:
        """The file is in the store, or no longer wanted: take back the note."""
        path.with_suffix(".note").unlink(missing_ok=True)

    def upload(self, fd: int, commit: Commit) -> Entry:
        """Bring the content into the store, in one step. Raises what the store raises."""
        with open(os.dup(fd), "rb", buffering=0) as file:
            size = os.fstat(fd).st_size
            file.seek(0)
            content = file.read() if size <= 4 * 2**20 else file
            entry = self._store.write(commit.key, content or b"", metadata=commit.metadata)
        with self._lock:
            self.figures["uploads"] += 1
            self.figures["bytes uploaded"] += size
        return entry

    def upload_later(self, work: Callable[[], None], what: str) -> None:
        """Do `work`, which uploads, in the background; again while the store is away."""
        with self._lock:
            self.figures["waiting"] += 1
        self.pool.submit(self._persist, work, what)

    def _persist(self, work: Callable[[], None], what: str) -> None:
        pause = 0.2
        try:
            while not self._ended.is_set():
                try:
                    work()
                    return
                except RETRYABLE as error:
                    log.warning("%s is not in the store yet: %s", what, error)
                    self._ended.wait(pause)
                    pause = min(LONGEST_PAUSE, pause * 2)
        except Exception:
            log.exception("%s cannot be uploaded; it stays in %s and is tried at the next mount", what, self._folder)
            with self._lock:
                self.figures["failed"] += 1
        finally:
            with self._lock:
                self.figures["waiting"] -= 1

    def recover(self) -> int:
        """Upload what an earlier mount had acknowledged; how many files that were. Files without a note go."""
        done = 0
        for file in sorted(self._folder.iterdir()):
            if file.suffix == ".note":
                done += self._recover_one(file)
        for file in self._folder.iterdir():
            if file.suffix == ".new" or (file.suffix == ".data" and not file.with_suffix(".note").exists()):
                file.unlink()
        return done

    def _recover_one(self, note: Path) -> int:
        data = note.with_suffix(".data")
        try:
            found = json.loads(note.read_text("utf-8"))
            commit = Commit(found["key"], found["metadata"], found["replaces"])
            fd = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            note.unlink(missing_ok=True)  # uploaded, and killed before the note went
            return 0
        except (ValueError, KeyError, TypeError):
            log.exception("note %s is damaged; its file is kept", note)
            return 0
        try:
            key = commit.key if self._unchanged(commit, fd) else f"{commit.key}.conflict-{note.stem}"
            if key != commit.key:
                log.warning("%s was changed by somebody else; the version of this machine is %s", commit.key, key)
            self.upload(fd, Commit(key, commit.metadata, ""))
        except PaddleFlowError as error:
            log.warning("%s is not in the store yet: %s", commit.key, error)
            return 0
        finally:
            os.close(fd)
        note.unlink()
        data.unlink()
        return 1

    def _unchanged(self, commit: Commit, fd: int) -> bool:
        """Whether the store still has the version that was changed here, or already the new one."""
        try:
            found = self._store.stat(commit.key)
        except NotFound:
            return True
        except Conflict:
            return False
        if found.tag == commit.replaces:
            return True
        at = 0
        if found.size != os.fstat(fd).st_size:
            return False
        for piece in iterate_content(self._store, commit.key):
            if os.pread(fd, len(piece), at) != piece:
                return False
            at += len(piece)
        return True

    def drain(self) -> None:
        """Wait for uploads on their way, for a bounded time."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.figures["waiting"] and time.monotonic() < deadline:
            time.sleep(0.02)
        self._ended.set()
        self.pool.shutdown(wait=True)
        for file in self._folder.glob("*.data"):
            if not file.with_suffix(".note").exists():
                with suppress(OSError):
                    file.unlink()
