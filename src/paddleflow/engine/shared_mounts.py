"""Storages of this machine's jobs, mounted by the file system's client: once per storage, shared by all jobs that use it.

The kernel's table of mounts and the database are the truth, and nothing else is kept: a mount is there if the table says so and the
process behind it answers, and it is used if a job that has not ended names its storage. So a server finds the
mounts of a killed predecessor by looking, and a mount whose last job has ended goes some time later (docs/internals/job-mounts.md).

A storage is mounted whole and for writing; what a job sees of it (`subPath`, `readOnly`) is its own bind mount. The name of a mount has a
digest of everything that it was made with: after a change of keys or of cache settings the next job gets a mount of its own.

Mounting waits for a store, so it happens in threads, for a bounded time, and a few at once for one user: a store that hangs
delays nobody else's jobs. What may pass is tried again with back-off. A mount is two processes, so the mounts of one owner are
limited (`local.mounts_per_user`): idle ones are unmounted for new ones, and a job whose owner uses all of them waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import select
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound, PaddleFlowError, TooMany, Unavailable
from paddleflow.fs import device
from paddleflow.fs.background import start_mount
from paddleflow.fs.control import ask_stats
from paddleflow.fs.options import MountOptions
from paddleflow.objects.store import RETRYABLE
from paddleflow.settings import LocalSettings
from paddleflow.storage.cache_settings import StoredCacheSettings, find_cache_settings
from paddleflow.storage.file_pool import FilePool
from paddleflow.storage.model import Storage
from paddleflow.storage.node_caches import report_caches, used_storages
from paddleflow.storage.storages import storage_by_id
from paddleflow.storage.stores import Stores
from paddleflow.store.database import Database, Tx

T = TypeVar("T")
Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
Report = Callable[[str], None]
EACH = 8  #: threads of one user that wait for stores
ANSWER = 40.0  #: seconds until a mount must have come up
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)  #: seconds before the next try; the last one for all later ones
TELL = 1.0  #: seconds after which a waiting job gets the reason
ROUND = 10.0  #: seconds between two looks at what is mounted
RESTART = 5.0  #: seconds in which a worker that was killed is replaced
DIGEST = 12  #: letters
log = Log("engine")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is mounted, and where."""

    storage: Storage
    folder: Path
    options: MountOptions

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass(slots=True)
class _Attempt:
    """A mount that is being made, for all who wait for it."""

    owner: str
    task: asyncio.Task[None] | None = None
    counted: bool = False  #: it has one of the mounts that its owner may have
    message: str = ""  #: why it takes long
    error: PaddleFlowError | None = None


class SharedMounts:
    """The mounts below one data folder."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        stores: Stores,
        settings: LocalSettings,
        data: Path,
        node: str,
        spawn: Spawn,
    ) -> None:
        self._database, self._clock, self._stores, self._settings = database, clock, stores, settings
        self._mounts, self._caches = data / "fs" / "mounts", data / "fs" / "cache"
        self._node = node
        self._spawn = spawn
        self._threads = FilePool(each=EACH, name="mounts")
        self._coming: dict[str, _Attempt] = {}
        self._used_at: dict[str, float] = {}  #: by name of the mount, monotonic
        self._ending: dict[str, asyncio.Lock] = {}

    @staticmethod
    def why_not() -> str:
        """Why nothing can be mounted on this machine; empty when it can."""
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return "/dev/fuse is not there, or this account may not use it"
        if os.geteuid() != 0 and shutil.which("fusermount3") is None and shutil.which("fusermount") is None:
            return "fusermount3 is not installed, which mounts for accounts other than root"
        return ""

    # ---- one storage for one attempt ----

    async def acquire(self, storage: str, report: Report) -> Path:
        """The folder on which a storage is mounted now. Errors are in words for the user of the job.

        It stays mounted as long as a job in the database uses the storage. `report` gets the reason when it takes long.
        """
        plan = await self._plan(storage)
        async with self._ending.setdefault(plan.name, asyncio.Lock()):
            self._used_at[plan.name] = time.monotonic()
        attempt = self._coming.get(plan.name)
        if attempt is None:
            attempt = self._coming[plan.name] = _Attempt(plan.storage.user)
            attempt.task = self._spawn(self._bring_up(plan, attempt))
        assert attempt.task is not None
        reported = ""
        while not (await asyncio.wait({attempt.task}, timeout=TELL))[0]:
            message = attempt.message or f"fs[{plan.storage.name}] is being mounted"
            if message != reported:
                reported = message
                report(message)
        if attempt.task.cancelled():
            raise Unavailable(f"fs[{plan.storage.name}] was not mounted: the server ended")
        if attempt.error is not None:
            raise attempt.error
        return plan.folder

    async def in_thread(self, call: Callable[[], T], user: str = "") -> T:
        """Something that waits for a disk or, with one of the threads of this user, for a store or a mount."""
        return await self._threads.of(user).run(call)

    async def _plan(self, storage: str) -> _Plan:
        def find(tx: Tx) -> tuple[Storage | None, StoredCacheSettings | None]:
            return storage_by_id(tx, storage), find_cache_settings(tx, storage)

        found, cache = await self._database.read(find)
        if found is None:
            raise NotFound(f"fs[{storage}] no longer exists", code="FileSystemNotExist")
        return await self.in_thread(lambda: self._plan_of(found, cache))

    def _plan_of(self, storage: Storage, cache: StoredCacheSettings | None) -> _Plan:
        source = self._stores.source(storage)
        made_with = json.dumps(
            [
                source.url,
                dict(source.properties),
                [[link.path, link.url, dict(link.properties)] for link in source.links],
                [cache.document.cache_dir, cache.document.quota, cache.document.meta_driver] if cache else [],
            ],
            sort_keys=True,
        )
        name = f"{storage.id}.{hashlib.sha256(made_with.encode()).hexdigest()[:DIGEST]}"
        folder = Path(cache.document.cache_dir) if cache and cache.document.cache_dir else self._caches
        usual = MountOptions("", Path())
        options = MountOptions(
            url=source.url,
            folder=self._mounts / name,
            allow_other=os.geteuid()
            == 0,  # jobs may have user numbers of their own; nobody else can enter the data folder
            properties=source.properties,
            links=source.links,
            cache_folder=folder / name,
            cache_size=cache.document.quota if cache and cache.document.quota else usual.cache_size,
            keep_metadata=cache is not None and cache.document.meta_driver == "disk",
        )
        return _Plan(storage, options.folder, options)

    async def _bring_up(self, plan: _Plan, attempt: _Attempt) -> None:
        """Mount it, if it is not; try again for some time."""
        until = time.monotonic() + self._settings.storage_wait
        tries = 0
        try:
            while True:
                try:
                    await self._make_room(plan, attempt)
                    await self.in_thread(lambda: self._mount(plan), plan.storage.user)
                    return
                except RETRYABLE as error:
                    pause = PAUSES[min(tries, len(PAUSES) - 1)]
                    tries += 1
                    if time.monotonic() + pause > until:
                        attempt.error = _refusal(plan, error, f", tried {tries} times")
                        return
                    attempt.counted = False
                    attempt.message = (
                        f"fs[{plan.storage.name}] cannot be mounted yet: {error.message}; tried again in {pause:g} s"
                    )
                except Exception as error:  # nobody else's jobs may suffer from what one storage does
                    attempt.error = _refusal(plan, error, "")
                    return
                await asyncio.sleep(pause)
        finally:
            self._used_at[plan.name] = time.monotonic()
            del self._coming[plan.name]

    async def _make_room(self, plan: _Plan, attempt: _Attempt) -> None:
        """Let the owner have one more mount; idle ones are unmounted for it, the longest idle first. `TooMany`: all are in use."""
        most, owner = self._settings.mounts_per_user, plan.storage.user
        tried: set[str] = set()
        while most:
            mounted, used = await self._mounts_of(owner)
            there = {*mounted, *(name for name, each in self._coming.items() if each.counted and each.owner == owner)}
            if plan.name in there or len(there) < most:
                break
            idle = [name for name in mounted if _storage_of(name) not in used and name not in self._coming]
            longest = min(set(idle) - tried, key=lambda name: self._used_at.get(name, 0.0), default="")
            if not longest:
                raise TooMany(
                    f"user[{owner}] has {len(there)} storages mounted on this machine, at most {most}, and jobs use all of them",
                    hint="wait for the end of jobs; the setting local.mounts_per_user says how many there may be",
                )
            tried.add(longest)
            await self._end(longest)
        attempt.counted = True

    async def _mounts_of(self, owner: str) -> tuple[list[str], set[str]]:
        """Names of the mounts of an owner's storages, and those of the storages that jobs use."""
        names = await self.in_thread(self._mounted)

        def ask(tx: Tx) -> tuple[list[str], set[str]]:
            found = {each: storage_by_id(tx, each) for each in {_storage_of(name) for name in names}}
            own = {each for each, storage in found.items() if storage is not None and storage.user == owner}
            return [name for name in names if _storage_of(name) in own], used_storages(tx, own)

        return await self._database.read(ask)

    def _mount(self, plan: _Plan) -> None:
        """In a thread: make sure that it is mounted and answers."""
        if device.is_mounted(plan.folder):
            if _answers(plan.folder):
                return
            log.warning("a mount whose process is gone is made anew", mount=plan.name)
            with suppress(NotFound):
                device.unmount(plan.folder, force=True)
        try:
            self._mounts.mkdir(parents=True, exist_ok=True, mode=0o700)
            plan.folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise Unavailable(f"{plan.folder} cannot be made: {error.strerror}") from error
        start_mount(plan.options, ANSWER)
        log.info("mounted", fs=plan.storage.id, folder=str(plan.folder))

    # ---- all of them, from time to time ----

    async def run(self) -> None:
        """Unmount what is not used any more, and report what the caches hold."""
        while True:
            try:
                await self.review()
            except (PaddleFlowError, OSError) as error:  # the next round sees the same
                log.warning("mounts were not looked at", reason=str(error))
            await asyncio.sleep(min(ROUND, max(self._settings.mount_idle / 2, 0.1)))

    async def review(self) -> None:
        """One round. Mounts that an earlier server left are adopted here."""
        names, cached = await self.in_thread(lambda: (self._mounted(), _folders(self._caches)))
        storages = {_storage_of(name) for name in (*names, *cached)}

        def ask(tx: Tx) -> tuple[set[str], dict[str, StoredCacheSettings | None]]:
            there = {each: find_cache_settings(tx, each) for each in storages if storage_by_id(tx, each) is not None}
            return used_storages(tx, storages), there

        used, there = await self._database.read(ask)
        held: dict[str, int] = {}
        for name in names:
            storage, now = _storage_of(name), time.monotonic()
            if storage in used or name in self._coming:
                self._used_at[name] = now
            idle = now - self._used_at.setdefault(name, now)
            held[storage] = held.get(storage, 0) + await self.in_thread(partial(_cached_bytes, self._mounts / name))
            if storage not in there or idle >= self._settings.mount_idle:
                cache = self._cache_folder(name, there.get(storage))
                if await self._end(name) and (storage not in there or _is_cleaned(there[storage])):
                    await self.in_thread(partial(shutil.rmtree, cache, ignore_errors=True))
                    held[storage] = 0
        for name in _outdated(cached, [*names, *self._coming], there):
            await self.in_thread(partial(shutil.rmtree, self._caches / name, ignore_errors=True))
        if held:
            await self._database.write(report_caches, self._node, held, self._clock.now())

    def _mounted(self) -> list[str]:
        return [path.name for path in map(Path, device.mounted_folders()) if path.parent == self._mounts]

    def _cache_folder(self, name: str, settings: StoredCacheSettings | None) -> Path:
        named = settings.document.cache_dir if settings else ""
        return (Path(named) if named else self._caches) / name

    async def _end(self, name: str) -> bool:
        """Unmount one that no job uses. False: a new job uses it, or a process has its working directory in it."""
        async with self._ending.setdefault(name, asyncio.Lock()):
            if name in self._coming:
                return False
            try:
                await self.in_thread(lambda: self._unmount(name))
            except PaddleFlowError as error:
                log.warning("a mount that no job uses stays", mount=name, reason=error.message)
                self._used_at[name] = time.monotonic()
                return False
            self._used_at.pop(name, None)
            log.info("unmounted", mount=name)
            return True

    def _unmount(self, name: str) -> None:
        """In a thread. Attempts have copies of the machine's mounts in their namespaces, so the process behind a mount may not notice
        that it is gone as long as any of them runs: then it is ended. Nothing is lost, for `close` waits for the store."""
        folder = self._mounts / name
        processes = _processes(folder)
        try:
            with suppress(NotFound):
                device.unmount(folder)
            ends = time.monotonic() + RESTART
            for process in processes:
                select.select([process], [], [], max(0.0, ends - time.monotonic()))
            for process in processes:  # the supervisor first, or it would replace its worker
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            for process in processes:
                os.close(process)
        with suppress(OSError):
            folder.rmdir()

    def close(self) -> None:
        self._threads.close()


def _refusal(plan: _Plan, error: Exception, tries: str) -> PaddleFlowError:
    """For the user of a job; a fault of the server is logged with its details."""
    what = f"fs[{plan.storage.name}] of type {plan.storage.place.fs_type} cannot be mounted"
    if isinstance(error, PaddleFlowError):
        return type(error)(f"{what}: {error.message}{tries}", code=error.code, hint=error.hint)
    log.error("a storage cannot be mounted", mount=plan.name, reason="".join(traceback.format_exception(error)))
    return Unavailable(f"{what}: a fault of the server: {type(error).__name__}; the server's log has the details")


def _answers(folder: Path) -> bool:
    """Whether somebody is behind a mount. A worker that was killed is replaced within a moment."""
    until = time.monotonic() + RESTART
    while True:
        try:
            ask_stats(folder)
            os.statvfs(folder)  # goes to the process: a mount that it has just left says so
            return True
        except OSError:
            return False
        except PaddleFlowError as error:
            if time.monotonic() > until:
                return not isinstance(error, NotFound)  # slow, but there
            time.sleep(0.1)


def _cached_bytes(folder: Path) -> int:
    try:
        tree = ask_stats(folder)["tree"]
    except PaddleFlowError:
        return 0
    found = tree.get("bytes cached", 0) if isinstance(tree, dict) else 0
    return int(found)


def _processes(folder: Path) -> list[int]:
    """Descriptors of the processes behind a mount: its supervisor, if it lives, and its worker."""
    found: list[int] = []
    try:
        stats = ask_stats(folder)
        supervisor, worker = int(str(stats["pid"])), int(str(stats["worker"]))
        parent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        both = (supervisor, worker) if parent == supervisor else (worker,)
        found.extend(os.pidfd_open(pid) for pid in both)
    except (PaddleFlowError, OSError):
        return found
    return found


def _storage_of(name: str) -> str:
    return name.rpartition(".")[0]


def _folders(folder: Path) -> list[str]:
    """Names in a folder, those that were changed last first."""
    with suppress(OSError):
        found = [(each.stat().st_mtime, each.name) for each in os.scandir(folder) if each.is_dir()]
        return [name for _, name in sorted(found, reverse=True)]
    return []


def _is_cleaned(settings: StoredCacheSettings | None) -> bool:
    return settings is not None and settings.document.clean_cache


def _outdated(cached: Sequence[str], mounted: Sequence[str], there: Collection[str]) -> list[str]:
    """Caches of storages that are gone, and of keys and settings that were replaced."""
    seen: set[str] = set()
    found = []
    for name in cached:
        storage = _storage_of(name)
        if name not in mounted and (storage not in there or storage in seen):
            found.append(name)
        seen.add(storage)
    return found
