"""Written files on their way to the store: staged on disk, uploaded whole, remembered until they have arrived.

A file that is written lies in the staging folder. *Committing* it puts a note beside it (what it is to be in the store:
key, metadata, the version it replaces), synced to disk; once the object is in the store, the note goes, then the file. So the folder
is the journal: whatever has a note was acknowledged and is uploaded by the next mount, and what has none was not.

Two modes. Without write-back a commit is uploaded before `close` and `fsync` return: they mean *durable in the store*, and
no note is needed. With it they return when file and note are on this machine's disk, and uploads happen in the background, retried
while the store is away. They begin a moment later (`LATER`): what is changed, renamed or removed soon costs the store one request or none,
and a program that writes many files does not compete with their uploads at once. Small files and their notes get to the disk by way of a
`journal`, which is many times faster.

A file may be changed during an upload of it, so after a crash the store may have a version of this machine's that no note knows: its
metadata names the staged file (`STAGED`), and it is no conflict. A store without metadata cannot say so; there the note of a file that was committed
while an upload was on its way wins.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, NotFound, OverQuota, PaddleFlowError, Unavailable
from paddleflow.fs.journal import MOST_CONTENT, NAME, Journal
from paddleflow.objects.store import CHANGED, EXISTS, RETRYABLE, Entry, ObjectStore, iterate_content
from paddleflow.objects.transfer import Plan, abort_uploads, upload_parts
from paddleflow.objects.wrappers import Retrying

log = logging.getLogger(__name__)
UPLOADS_AT_ONCE = 16
LONGEST_PAUSE = 30.0
LATER = 1.0  #: seconds from a change that was acknowledged to its upload
PART = 8 * 2**20  #: bytes of a part of a large file
PARTS = "parts"  #: the folder that remembers uploads by parts
PARTS_FROM = 2 * PART  #: bytes of a file that goes by parts which are remembered
LARGE_AT_ONCE = 2  #: uploads of such files; each holds a few parts in memory
MOST_REPLACED = 5  #: times that another writer is faster, then an upload fails
WHOLE = 4 * 2**20  #: bytes of a file that is read before it is sent
STAGED = "pf-staged"  #: metadata of an object: from which staged file it came
REFUSED = (Forbidden, OverQuota)  #: what somebody may set right: keys, what they may do, quota
REFUSED_PAUSE = 5.0  #: seconds until such an upload is tried again
TRIED_AGAIN = (*RETRYABLE, *REFUSED)  #: errors of an upload in the background
DRAIN_SECONDS = 600.0  #: how long an unmount waits for uploads; the rest is done by the next mount


@dataclass(frozen=True, slots=True)
class Commit:
    """What a staged file is to be in the store."""

    key: str
    metadata: Mapping[str, str]
    replaces: str  #: the tag of the version that was changed; empty for a new file
    staged: str = ""  #: what names the staged file: objects that were made of it say so
    again: bool = False  #: an earlier version of the staged file may be on its way to the store
    over: str = ""  #: the same of the file whose name it was given: a version of that may be in the store, too


class Changed(Exception):
    """A file was written to while it was uploaded; nothing of it is seen in the store."""


class Staging:
    """The folders of files that are being written, one per disk of the cache."""

    def __init__(
        self, folders: Sequence[Path], store: ObjectStore, *, later: float = 0.0, refused_pause: float = REFUSED_PAUSE
    ) -> None:
        """`later`: seconds until what was acknowledged is uploaded."""
        self._folders, self._store, self._later, self._refused_pause = tuple(folders), store, later, refused_pause
        for folder in self._folders:
            _make(folder)
        self.pool = ThreadPoolExecutor(UPLOADS_AT_ONCE, "upload")
        self._ended, self._hurry = threading.Event(), threading.Event()
        self.figures: dict[str, int] = {"uploads": 0, "bytes uploaded": 0, "waiting": 0, "failed": 0}
        #: Uploads that wait for somebody to set something right.
        self._refused: list[tuple[Callable[[], None], str]] = []
        self._lock = threading.Lock()
        self._parts = self._folders[0] / PARTS
        self._large = threading.Semaphore(LARGE_AT_ONCE)
        self._retrying = Retrying(store)
        self._journal = Journal(self._folders[0])

    def new_path(self, near: Path | None = None, after: Path | None = None) -> Path:
        """A path for a new file; on the disk of `near`, so that it can be moved there, or where most is free.

        `after`: for the next version of a staged file, whose note replaces that one's.
        """
        if after is not None:
            return after.with_name(f"{line_of(after)}.{_number(after) + 1}.data")
        if len(self._folders) == 1:
            folder = self._folders[0]
        elif near is not None:
            folder = next(each for each in self._folders if near.is_relative_to(each.parent))
        else:
            folder = max(self._folders, key=_free)
        if not folder.exists():  # it was removed under us
            _make(folder)
        return folder / f"{secrets.token_hex(8)}.data"

    def path(self, name: str) -> Path:
        return next((each / name for each in self._folders if (each / name).exists()), self._folders[0] / name)

    def _files(self) -> list[Path]:
        there = (folder for folder in self._folders if folder.exists())  # one may be removed under us
        return [file for folder in there for file in sorted(folder.iterdir()) if file.name not in (NAME, PARTS)]

    def remove_others(self, named: set[Path]) -> None:
        """Remove what was staged by a worker that is gone and belongs to nobody: neither named nor acknowledged."""
        for file in self._files():
            owned = file.with_suffix(".data") in named
            if file.suffix == ".new" or (not owned and not file.with_suffix(".note").exists()):
                file.unlink(missing_ok=True)

    def commit(self, path: Path, fd: int, commit: Commit) -> bool:
        """Make file and note durable on this machine. False: the disk takes no note, and an earlier one is as it was.

        An error of the file itself is raised: its content may not be what was written.
        """
        note = _note_of(commit)
        size = os.fstat(fd).st_size
        small = size <= MOST_CONTENT
        if (
            small
            and _write_note(path, note, sync=False)
            and self._journal.append(path.name, note, os.pread(fd, size, 0))
        ):
            return True
        os.fsync(fd)
        if not _write_note(path, note, sync=True):
            return False
        self._journal.forget(path.name, sync=True)
        return True

    def commit_name(self, path: Path, commit: Commit) -> bool:
        """The same for another note of what was committed; its content stays. False: the disk takes none."""
        note, content = _note_of(commit), self._journal.content(path.name)
        if content is None:
            return _write_note(path, note, sync=True)
        return _write_note(path, note, sync=False) and self._journal.append(path.name, note, content)

    def copy_aside(self, path: Path, name: Path) -> None:
        """Make `name` the name of the file at `path`, and `path` that of a copy as it is now."""
        fresh = path.with_suffix(".new")
        os.link(path, name)
        with path.open("rb") as source, fresh.open("wb") as copy:
            left = os.fstat(source.fileno()).st_size
            while left and (done := os.copy_file_range(source.fileno(), copy.fileno(), left)):
                left -= done
            os.fsync(copy.fileno())
        fresh.rename(path)

    def drop(self, path: Path) -> None:
        """A staged file is no longer wanted, nor its note."""
        self.forget(path)
        path.unlink(missing_ok=True)

    def forget(self, path: Path) -> None:
        """The file is in the store, or no longer wanted: take back the note."""
        path.with_suffix(".note").unlink(missing_ok=True)
        self._journal.forget(path.name)

    def upload(self, fd: int, commit: Commit, unchanged: Callable[[], bool] = lambda: True) -> Entry:
        """Bring the content into the store, in one step, whatever is there: the last close wins.

        Raises what the store raises, and `Changed` before anything is seen there.
        """
        for _ in range(MOST_REPLACED):
            try:
                return self._upload_over(fd, commit, unchanged)
            except Conflict as error:
                if error.code not in (CHANGED, EXISTS):
                    raise
                commit = replace(commit, replaces=self._tag(commit.key))
        raise Unavailable(f"{commit.key} keeps being replaced by others", hint="find out who else writes to it")

    def _upload_over(self, fd: int, commit: Commit, unchanged: Callable[[], bool] = lambda: True) -> Entry:
        """In place of the version that the commit replaces; `Conflict` if the store has another one.

        A request of a worker that was killed may still be on its way to the store. The condition keeps it from arriving after a later version.
        """
        named = {STAGED: commit.staged} if self._says_where_from(commit) else {}
        size = os.fstat(fd).st_size
        can = self._store.capabilities
        tag = commit.replaces if can.if_tag else ""
        absent = can.if_tag and can.if_absent and not commit.replaces
        if can.multipart and size > PARTS_FROM:
            plan = Plan(
                commit.key, commit.staged, self._parts, PART, {**commit.metadata, **named}, if_absent=absent, if_tag=tag
            )
            with self._large:
                return self._count(upload_parts(self._store, fd, plan, partial(_check, unchanged)), size)
        words = {**commit.metadata, **named}
        with _Content(os.dup(fd), unchanged) if size > WHOLE else nullcontext(os.pread(fd, size, 0)) as content:

            def write() -> Entry:
                _check(unchanged)
                if not isinstance(content, bytes):
                    content.seek(0)
                return self._store.write(commit.key, content, metadata=words, if_tag=tag, if_absent=absent)

            return self._count(self._retrying.around("write", write, repeatable=bool(tag) or absent), size)

    def _count(self, entry: Entry, size: int) -> Entry:
        with self._lock:
            self.figures["uploads"] += 1
            self.figures["bytes uploaded"] += size
        return entry

    def _abort_stale(self) -> None:
        """Uploads by parts whose file is not wanted any more."""
        if not self._parts.exists():
            return
        wanted = {line_of(file) for file in self._files() if file.suffix == ".note"}
        abort_uploads(self._store, self._parts, wanted.__contains__)
        with suppress(OSError):
            self._parts.rmdir()

    def _tag(self, key: str) -> str:
        """Of the version that the store has now; empty if it has none."""
        try:
            return self._store.stat(key).tag
        except NotFound:
            return ""

    def _says_where_from(self, commit: Commit) -> bool:
        """Whether the object of a commit can name its staged file."""
        return bool(commit.metadata) and self._store.capabilities.metadata

    def upload_later(self, work: Callable[[], None], what: str) -> None:
        """Do `work`, which uploads, in the background; again while the store is away or refuses it."""
        with self._lock:
            self.figures["waiting"] += 1
        self.pool.submit(self._persist, work, what, time.monotonic() + self._later)

    def _persist(self, work: Callable[[], None], what: str, begin: float = 0.0, *, again: bool = False) -> None:
        """Not before the moment `begin`. `again`: it was refused before, and is counted as failed until it has arrived."""
        failed = False
        self._hurry.wait(max(0.0, begin - time.monotonic()))  # whatever waits for a thread meanwhile begins later still
        try:
            self._try(work, what)
        except REFUSED as error:
            log.warning("%s is refused by the store: %s", what, error)
            self._set_aside(work, what, again)
            return
        except Exception:
            log.exception("%s cannot be uploaded; it stays staged and is tried at the next mount", what)
            failed = True
        with self._lock:
            self.figures["waiting"] -= 1
            self.figures["failed"] += failed - again

    def _try(self, work: Callable[[], None], what: str) -> None:
        pause = 0.2
        while not self._ended.is_set():
            try:
                work()
                return
            except RETRYABLE as error:
                log.warning("%s is not in the store yet: %s", what, error)
                self._ended.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)

    def _set_aside(self, work: Callable[[], None], what: str, again: bool) -> None:
        """Until a moment later, without holding a thread that others need: a store may refuse some files only."""
        with self._lock:
            self.figures["failed"] += not again
            self._refused.append((work, what))
            if len(self._refused) > 1:
                return
        timer = threading.Timer(self._refused_pause, self._try_refused)
        timer.daemon = True
        timer.start()

    def _try_refused(self) -> None:
        with self._lock:
            refused, self._refused = self._refused, []
        with suppress(RuntimeError):  # the mount has ended
            for work, what in refused:
                self.pool.submit(self._persist, work, what, again=True)

    def recover(self) -> int:
        """Upload what an earlier mount had acknowledged; how many files that were. Files without a note go."""
        done = 0
        self._restore()
        notes = {line_of(file): file for file in sorted(self._files(), key=_number) if file.suffix == ".note"}
        for file in self._files():
            if file.suffix == ".note" and notes[line_of(file)] != file:
                self.drop(file.with_suffix(".data"))
        for file in notes.values():
            done += self._recover_one(file)
        for file in self._files():
            if file.suffix == ".new" or (file.suffix == ".data" and not file.with_suffix(".note").exists()):
                file.unlink()
        for name in self._journal.names():
            if not self.path(name).exists():
                self._journal.forget(name)
        if not self._journal.names():
            self._journal.remove()
        self._abort_stale()
        return done

    def _restore(self) -> None:
        """Small files and their notes as they were acknowledged: they may have been written to since then.

        After a crash of the machine they may even be gone: they were not synced themselves.
        """
        if not self._journal.names():
            return
        for record in self._journal.records():
            path = self.path(record.name)
            if self._journal.is_of_this_boot and not path.with_suffix(".note").exists():
                continue  # it has arrived, and only the record is left
            with path.open("wb") as file:
                file.write(record.content)
                file.flush()
                os.fsync(file.fileno())
            _write_note(path, record.note, sync=True)
        self._journal.adopt()

    def _recover_one(self, note: Path) -> int:
        data = note.with_suffix(".data")
        try:
            found = json.loads(note.read_text("utf-8"))
            again = bool(found.get("again"))
            commit = Commit(
                found["key"], found["metadata"], found["replaces"], line_of(note), again, found.get("over", "")
            )
            fd = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            note.unlink(missing_ok=True)  # uploaded, and killed before the note went
            return 0
        except (ValueError, KeyError, TypeError):
            log.exception("note %s is damaged; its file is kept", note)
            return 0
        try:
            self._bring_back(fd, commit, note.stem)
        except PaddleFlowError as error:
            log.warning("%s is not in the store yet: %s", commit.key, error)
            return 0
        finally:
            os.close(fd)
        note.unlink()
        data.unlink()
        return 1

    def _bring_back(self, fd: int, commit: Commit, word: str) -> None:
        """In place of a version that this machine knows or made, under another name if there is one of somebody else."""
        for _ in range(MOST_REPLACED):
            try:
                found: Entry | None = self._store.stat(commit.key)
            except NotFound:
                found = None
            except Conflict:
                break  # it is a folder
            if found is not None and not self._unchanged(commit, fd, found):
                break
            try:
                self._upload_over(fd, replace(commit, replaces=found.tag if found is not None else ""))
                return
            except Conflict as error:
                if error.code not in (CHANGED, EXISTS):
                    raise
        key = f"{commit.key}.conflict-{word}"
        log.warning("%s was changed by somebody else; the version of this machine is %s", commit.key, key)
        self.upload(fd, replace(commit, key=key, replaces=""))

    def _unchanged(self, commit: Commit, fd: int, found: Entry) -> bool:
        """Whether this is the version that was changed here, or already the new one."""
        ours = {each for each in (commit.staged, commit.over) if each}
        if found.tag == commit.replaces or found.metadata.get(STAGED) in ours:
            return True
        if commit.again and not self._says_where_from(commit):
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
        """Wait for uploads on their way, for a bounded time. Those that were to begin later begin now.

        Not for those that the store refuses, which a mount with other keys may send.
        """
        self._hurry.set()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.figures["waiting"] > len(self._refused) and time.monotonic() < deadline:
            time.sleep(0.02)
        self._ended.set()
        self.pool.shutdown(wait=True)
        for file in (file for file in self._files() if file.suffix == ".data"):
            if not file.with_suffix(".note").exists():
                with suppress(OSError):
                    file.unlink()
        if not self._journal.names():
            self._journal.remove()
        self._abort_stale()


def _check(unchanged: Callable[[], bool]) -> None:
    if not unchanged():
        raise Changed


class _Content(FileIO):
    """A staged file as the store reads it: the end is not reached when it was written to meanwhile."""

    def __init__(self, fd: int, unchanged: Callable[[], bool]) -> None:
        super().__init__(fd, "rb")
        self.seek(0)
        self._unchanged = unchanged

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        content = super().read(wanted) or b""
        if (wanted < 0 or not content) and not self._unchanged():
            raise Changed
        return content


def line_of(path: Path) -> str:
    """What the versions of a staged file have in common: the first part of their names."""
    return path.name.partition(".")[0]


def _number(path: Path) -> int:
    """Which of these versions it is."""
    parts = path.name.split(".")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _note_of(commit: Commit) -> str:
    content = {"key": commit.key, "metadata": dict(commit.metadata), "replaces": commit.replaces}
    return json.dumps({**content, "again": commit.again, "over": commit.over})


def _write_note(path: Path, note: str, *, sync: bool) -> bool:
    """Put a note beside a staged file. False: the disk does not take it, and an earlier one is as it was."""
    fresh = path.with_suffix(".new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(note)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        fresh.rename(path.with_suffix(".note"))
    except OSError as error:
        log.warning("no note of %s in %s: %s", path.name, path.parent, error.strerror)
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        return False
    if sync:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return True


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return -1
