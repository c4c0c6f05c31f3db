"""Storages that are not folders of this machine, for jobs of the local runtime: mounted, or as copies of artifacts.

`prepare` comes before an attempt is started and gives its launch with folders in the place of URLs; `finish` comes when it has ended,
before that is reported. Mounting is the default (`shared_mounts`). Where nothing can be mounted, a step of a pipeline gets its input
artifacts copied into a folder of the job, and its outputs are copied into the store at its end (`artifact_copies`); a note in the
job's folder says which, so that any server that sees the end can do it. A job that is not a step needs a mount, and fails with
a message that says so.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.engine.shared_mounts import PAUSES, Report, SharedMounts, Spawn
from paddleflow.errors import Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.objects import artifact_copies
from paddleflow.objects.store import RETRYABLE, ObjectStore
from paddleflow.runtimes.artifacts import Artifacts, artifacts_of
from paddleflow.runtimes.runtime import RUN_VARIABLE, Launch, Mount
from paddleflow.settings import LocalSettings
from paddleflow.storage.storages import storage_by_id
from paddleflow.storage.stores import Stores, key_of
from paddleflow.store.database import Database

NOTE = "copies.json"
SEEN_AFTER = 12.0  #: seconds in which a mount notices what others made


@dataclass(frozen=True, slots=True)
class CopiedStorage:
    """What the note says of one storage."""

    storage: str
    prefix: str  #: of its keys: the part that the job sees
    folder: str
    outputs: Sequence[str]


class JobStorages:
    """The storages of the attempts of one machine."""

    def __init__(
        self, database: Database, stores: Stores, mounts: SharedMounts, settings: LocalSettings, spawn: Spawn
    ) -> None:
        self._database, self._stores, self._mounts, self._settings = database, stores, mounts, settings
        self.spawn = spawn

    async def prepare(self, launch: Launch, folder: str, report: Report) -> Launch:
        """The launch with folders of this machine as locations. `folder` is the attempt's own. Raises in words for its user."""
        copies = self._copies()
        mounts: list[Mount] = []
        copied: list[CopiedStorage] = []
        for number, mount in enumerate(launch.mounts):
            if "://" not in mount.location:
                mounts.append(mount)
                continue
            artifacts = artifacts_of(launch.env, mount.target)
            if copies:
                if number or RUN_VARIABLE not in launch.env:  # the main storage of a run comes first
                    raise Unavailable(
                        f"{mount.location} cannot be mounted on this machine ({copies}); only artifacts of steps are copied",
                        hint="see local.storages among the settings",
                    )
                copied.append(await self._copy(mount, artifacts, f"{folder}/{number}", report))
                mounts.append(replace(mount, location=copied[-1].folder, sub_path=""))
            else:
                mounts.append(await self._mount(launch.user, mount, artifacts, report))
        if copied:
            note = json.dumps([asdict(each) for each in copied])
            await self._mounts.in_thread(partial(_write_note, Path(folder), note))
        return replace(launch, mounts=tuple(mounts))

    def _copies(self) -> str:
        """Why artifacts are copied; empty: storages are mounted."""
        if self._settings.storages == "copy":
            return "by the setting local.storages"
        return self._mounts.why_not() if self._settings.storages != "mount" else ""

    async def _mount(self, user: str, mount: Mount, artifacts: Artifacts, report: Report) -> Mount:
        folder = await self._mounts.acquire(mount.storage, report)
        await self._mounts.in_thread(partial(_enter, folder, mount, artifacts), user)
        return replace(mount, location=str(folder))

    # ---- copies ----

    async def _copy(self, mount: Mount, artifacts: Artifacts, folder: str, report: Report) -> CopiedStorage:
        prefix = key_of(mount.sub_path)
        place = Path(folder)

        def work(store: ObjectStore) -> None:
            place.mkdir(parents=True, exist_ok=True)
            artifact_copies.fetch(store, place, prefix, artifacts.inputs)
            artifact_copies.make_places(place, artifacts.outputs)

        await self._with_store(mount.storage, work, report, "its input artifacts cannot be fetched")
        return CopiedStorage(mount.storage, prefix, folder, artifacts.outputs)

    @staticmethod
    def has_copies(folder: str) -> bool:
        """Whether outputs of an attempt are still to be brought into their stores."""
        return (Path(folder) / NOTE).is_file()

    async def finish(self, folder: str, report: Report) -> None:
        """Bring the outputs of an attempt into their stores. May be called again. Raises in words."""
        note = Path(folder) / NOTE
        text = await self._mounts.in_thread(note.read_text)
        for each in (CopiedStorage(**found) for found in json.loads(text)):
            work = partial(artifact_copies.send, folder=Path(each.folder), prefix=each.prefix, paths=each.outputs)
            await self._with_store(each.storage, work, report, "its output artifacts cannot be stored")
        await self._mounts.in_thread(note.unlink)

    async def discard(self, folder: str) -> None:
        """The end of an attempt is recorded: its copies are not needed any more."""
        await self._mounts.in_thread(partial(shutil.rmtree, folder, ignore_errors=True))

    async def _with_store(self, storage: str, work: Callable[[ObjectStore], None], report: Report, what: str) -> None:
        """Something with the store of a storage; what may pass is tried again for some time."""
        found = await self._database.read(storage_by_id, storage)
        if found is None:
            raise NotFound(f"fs[{storage}] no longer exists", code="FileSystemNotExist")

        def run() -> None:
            store = self._stores.open(found)
            try:
                work(store)
            finally:
                store.close()

        until = time.monotonic() + self._settings.storage_wait
        tries = 0
        while True:
            try:
                await self._mounts.in_thread(run, found.user)
                return
            except RETRYABLE as error:
                pause = PAUSES[min(tries, len(PAUSES) - 1)]
                tries += 1
                if time.monotonic() + pause > until:
                    message = f"{what} at fs[{found.name}]: {error.message}, tried {tries} times"
                    raise Unavailable(message, hint=error.hint) from error
                report(f"{what} at fs[{found.name}] yet: {error.message}; tried again in {pause:g} s")
                await asyncio.sleep(pause)
            except PaddleFlowError as error:
                raise type(error)(f"{what} at fs[{found.name}]: {error.message}", hint=error.hint) from error
            except OSError as error:
                raise Unavailable(f"{what} at fs[{found.name}]: {error.strerror}") from error


def _write_note(folder: Path, text: str) -> None:
    """Whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{NOTE}.new"
    new.write_text(text)
    new.replace(folder / NOTE)


def _enter(folder: Path, mount: Mount, artifacts: Artifacts) -> None:
    """In a thread, through the mount: see that what the attempt is to find there is seen, so that the keeper need not wait for a store.

    The engine makes and removes the places of outputs in the store itself, and other machines make inputs; a mount that listed a
    folder before that would not know for some seconds.
    """
    try:
        base = folder / mount.sub_path if mount.sub_path else folder
        if not _appears(base):
            raise Invalid(f"mount source not found: {mount.location.rstrip('/')}/{mount.sub_path}")
        for path in artifacts.inputs:
            _appears(base / path)
        for path in artifacts.outputs:
            place = base / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{mount.location} cannot be used: {error.strerror}") from error


def _appears(path: Path) -> bool:
    until = time.monotonic() + SEEN_AFTER
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.25)
    return True
