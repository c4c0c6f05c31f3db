"""`LocalRuntime`: the `Runtime` protocol over the keeper.

All that it remembers can be lost: what was asked and not yet answered (sent again when a keeper is lost), and what was
reported already (so that nothing is reported twice to the same server). The keeper's journal is the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paddleflow
from paddleflow.access.user_folders import UIDS
from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import format_bytes
from paddleflow.environment import inherited
from paddleflow.errors import NotFound, PaddleFlowError, Unavailable
from paddleflow.jobs.code import FOLDER as CODE
from paddleflow.jobs.code import checkout_command
from paddleflow.jobs.environment import FOLDER as ENVIRONMENTS
from paddleflow.jobs.environment import VARIABLE as REQUIREMENTS
from paddleflow.jobs.environment import environment_command
from paddleflow.runtimes.exec import ExecRequest
from paddleflow.runtimes.local import capacity, sampler, secret_files
from paddleflow.runtimes.local.containers import Containers, has_container, ignored, main_process
from paddleflow.runtimes.local.exec_session import LocalExec
from paddleflow.runtimes.local.job_folders import JobLogs, JobSamples, empty_trash, folder_text, log_name
from paddleflow.runtimes.local.keeper_connection import KEEPER_COMMAND, KeeperConnection, connect, reap
from paddleflow.runtimes.local.log_gap import create_anew
from paddleflow.runtimes.local.remote_storages import RemoteStorages, is_remote
from paddleflow.runtimes.local.user_ids import UserIds
from paddleflow.runtimes.log_store import Sample
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import (
    RUN_VARIABLE,
    SECRETS_VARIABLE,
    AttemptObservation,
    Delayed,
    Ended,
    Launch,
    NodeInfo,
    Ready,
    Started,
)
from paddleflow.settings import LocalSettings

PROTOCOL = 3
PREFETCH = 3  #: the protocol from which on a keeper prefetches
PATIENCE = 20.0  #: seconds until a keeper that does not answer is an error, unless it is said
WORK_VARIABLE = "PF_WORK_DIR"
READ_STORAGES_EVERY = 1.0  #: seconds; what must be hidden from isolated jobs
LEAST_DESCRIPTORS = 64  #: the keeper itself, its cgroups, and a few attempts of an earlier keeper
_PACKAGES = str(Path(paddleflow.__file__).resolve().parents[1])
ADMINISTRATOR = "root"  #: of the platform; its jobs run as the server's account
RETRY = (0.0, 0.05, 0.2, 1.0)  #: seconds before a keeper is started again; the last one for all later tries

log = logging.getLogger(__name__)


class LocalRuntime:
    """Runs attempts as processes of this machine."""

    def __init__(
        self,
        settings: LocalSettings,
        data: Path,
        clock: Clock,
        *,
        files: Path | None = None,
        keeper: Sequence[str] = KEEPER_COMMAND,
        patience: float = PATIENCE,
        storages: RemoteStorages | None = None,
    ) -> None:
        self._settings = settings
        self._patience = patience
        self._data = data
        self._root = str(data)
        self._code = (files or data) / CODE  #: where snapshots of code are kept
        self._clock = clock
        self._keeper = keeper
        self.logs = JobLogs(data)
        self.samples = JobSamples(data)
        self.isolation = ""  #: what the keeper says of it, for people
        self._inherited = inherited("HOME,USER,LOGNAME,TMPDIR")
        self._containers = Containers(settings, data) if settings.containers != "off" else None
        self._users = UserIds(data / UIDS, capacity.uid_range(settings))
        self._node = capacity.this_machine(settings)
        self._log_limit = capacity.log_limit(settings)
        self._link: KeeperConnection | None = None
        self._protocol = 0  #: that the keeper speaks; 0: not known yet
        self._hello = asyncio.Event()
        self._open = False
        self._problem = ""  # why the keeper cannot be reached
        self._failures = 0
        self._unstarted: dict[AttemptId, dict[str, Any]] = {}
        self._not_resent: set[AttemptId] = set()  #: prefetched by an earlier keeper, until this one has told its state
        self._stopping: dict[AttemptId, float] = {}
        self._forgetting: dict[int, Sequence[AttemptId]] = {}
        self._numbers = 0
        self._reported: dict[AttemptId, type[AttemptObservation]] = {}
        self._pids: dict[AttemptId, int] = {}
        self._samples: dict[AttemptId, sampler.Seen] = {}
        self._observed: list[AttemptObservation] = []
        self._news = asyncio.Event()
        self._states: list[asyncio.Future[list[AttemptObservation]]] = []
        self._logged: set[str] = set()
        self.local_storages: Callable[[], Awaitable[Sequence[str]]] | None = (
            None  #: folders that are storages of anybody
        )
        self._read_storages_at = 0.0
        self._hidden: list[str] = [str(self._code.parent)]
        self._secret_folders: dict[AttemptId, str] = {}  #: of attempts whose end is not recorded
        self._storages = storages  #: None: those that are no folders are refused
        self._preparing: dict[AttemptId, asyncio.Task[None]] = {}  #: whose storages are being mounted or copied
        self._finishing: dict[AttemptId, asyncio.Task[None]] = {}  #: whose outputs are being stored
        self._copied: dict[AttemptId, str] = {}  #: folders of attempts with copies of artifacts

    # ------------------------------------------------------------------ connection

    @property
    def problem(self) -> str:
        return self._problem

    async def open(self) -> None:
        await asyncio.to_thread(self._prepare_data)
        if self._containers is not None:
            await self._containers.check()
        self._open = True
        self._connect()

    def _prepare_data(self) -> None:
        check_descriptors()
        self._data.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # somebody else's, who lets us write there
            self._data.chmod(0o700)
        empty_trash(self._data)

    async def close(self) -> None:
        self._open = False
        for task in (*self._preparing.values(), *self._finishing.values()):
            task.cancel()
        if self._link is not None:
            try:
                async with asyncio.timeout(2.0):
                    await self._link.drain()
            except TimeoutError:
                log.warning("the keeper does not take what was sent to it")
            self._link.close()
            self._link = None
        for waiter in self._states:
            waiter.cancel()
        self._news.set()
        reap()

    def _connect(self) -> None:
        """Reach a keeper and send again all that it has not answered."""
        if not self._open:
            return
        try:
            connection = connect(self._data, self._keeper)
        except OSError as error:
            problem = f"cannot reach or start the keeper of {self._data}: {error}"
            if (
                not self._problem
            ):  # it is tried every second: a line for each would fill the disk; /readyz has the newest
                log.error(problem)
            self._problem = problem
            self._connect_later()
            return
        self._problem = ""
        link = self._link = KeeperConnection(connection, self._receive, self._lost)
        link.send(
            {
                "do": "configure",
                "log_limit": self._log_limit,
                "limit_text": format_bytes(self._log_limit),
                "limits": self._settings.limits != "off",
                "isolation": self._isolates,
                "processes": self._settings.processes,
                "shown": [sys.prefix, sys.base_prefix, _PACKAGES],
            }
        )
        link.send({"do": "hide", "folders": self._hidden})
        if self._reported or self._states or self._forgetting or self._unstarted:
            link.send({"do": "state"})
        for number, attempts in self._forgetting.items():
            link.send({"do": "forget", "attempts": attempts, "number": number})
        # What waited for a slot is not sent again: its slot class was forgotten, and the state says whether it had started.
        # Only what was sent before this: the keeper may be given more while its answer is under way.
        self._not_resent = {name for name, body in self._unstarted.items() if body.get("prefetched")}
        if again := [body for body in self._unstarted.values() if not body.get("prefetched")]:
            link.send({"do": "start", "launches": again})
        for attempt, grace in self._stopping.items():
            link.send({"do": "stop", "attempts": [attempt], "grace": grace})

    def _lost(self) -> None:
        self._link, self._protocol = None, 0
        self._hello.clear()
        if self._open:
            if self._failures < len(RETRY) or self._failures % 60 == 0:
                file = self._data / "keeper.log"
                log.warning("the keeper is gone; starting another one (its own log is %s)", file)
            self._connect_later()

    def _connect_later(self) -> None:
        delay = RETRY[min(self._failures, len(RETRY) - 1)]
        self._failures += 1
        asyncio.get_running_loop().call_later(delay, self._connect)

    def _send(self, message: dict[str, Any]) -> None:
        if self._link is not None:
            self._link.send(message)

    async def _drain(self) -> None:
        if self._link is not None:
            await self._link.drain()

    # ------------------------------------------------------------------ messages of the keeper

    def _receive(self, message: dict[str, Any]) -> None:
        for word, value in message.items():
            if word == "events":
                self._take([self._observation(event) for event in value])
            elif word == "state":
                self._take_state([self._observation(event) for event in value])
            elif word == "forgot":
                self._forgetting.pop(value, None)
            elif word == "hello":
                self._on_hello(value)
            elif word == "isolation":
                if value != self.isolation:
                    log.info("isolation of users: %s", value)
                self.isolation = value
            elif word in {"limits", "notes"}:
                self._log_once(word, value)

    def _observation(self, event: list[Any]) -> AttemptObservation:
        """An event of the keeper: a word, then the fields in their order. Where it was is known here: on this machine."""
        match event[0]:
            case "started":
                return Started(*event[1:], node=self._node.name)
            case "ended":
                return Ended(*event[1:], node=self._node.name)
        return _KINDS[event[0]](*event[1:])

    def _on_hello(self, protocol: int) -> None:
        self._failures, self._protocol = 0, protocol
        self._hello.set()
        if protocol != PROTOCOL:
            self._log_once(
                "notes",
                [f"a keeper that speaks protocol {protocol}, not {PROTOCOL}, still looks after older jobs"],
            )

    def _log_once(self, word: str, value: Any) -> None:
        texts = [f"CPU and memory limits of jobs are not enforced: {value}"] if word == "limits" and value else []
        texts += value if word == "notes" else []
        for text in texts:
            if text not in self._logged:
                self._logged.add(text)
                log.warning("%s", text)

    def _take(self, observations: Sequence[AttemptObservation]) -> None:
        if self._copied:
            observations = self._without_unfinished(observations)
        fresh = [seen for seen in observations if self._is_news(seen)]
        if fresh:
            self._observed += fresh
            self._news.set()

    def _is_news(self, seen: AttemptObservation) -> bool:
        """Remember it; whether this server does not know it yet."""
        if isinstance(seen, Returned):
            if not self._unstarted.get(seen.attempt, {}).get("prefetched"):
                return False  # it was given a slot meanwhile
            del self._unstarted[seen.attempt]
            return True
        last = self._reported.get(seen.attempt)
        if last is Ended or last is type(seen) or (last is Ready and isinstance(seen, Started)):
            return False
        self._reported[seen.attempt] = type(seen)
        self._unstarted.pop(seen.attempt, None)
        if isinstance(seen, Started):
            self._pids[seen.attempt] = seen.pid
        elif isinstance(seen, Ended):
            if seen.successor in self._unstarted:  # it has a slot now, also for another keeper
                self._unstarted[seen.successor]["prefetched"] = False
            for table in (self._stopping, self._pids, self._samples):
                table.pop(seen.attempt, None)
        return True

    def _take_state(self, state: list[AttemptObservation]) -> None:
        forgetting = {attempt for attempts in self._forgetting.values() for attempt in attempts}
        state = [seen for seen in state if seen.attempt not in forgetting]
        known = {seen.attempt for seen in state}
        missing, self._not_resent = self._not_resent - known, set()
        state += [Returned(name) for name in missing if self._unstarted.get(name, {}).get("prefetched")]
        for attempt, kind in list(self._reported.items()):
            if kind is not Ended and attempt not in known:
                message = "lost: the keeper of this machine's jobs does not know it any more"
                state.append(Ended(attempt, self._clock.now(), None, message))
        waiters, self._states = self._states, []
        if not waiters:
            self._take(state)
            return
        for seen in state:
            self._is_news(seen)
        self._observed.clear()  # all of it is in the state
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(state)

    # ------------------------------------------------------------------ the protocol

    @property
    def foreign_pods(self) -> None:
        return None

    @property
    def prefetching(self) -> LocalRuntime:
        return self

    async def nodes(self) -> Sequence[NodeInfo]:
        """This machine. What it has is read once, at start, so there is no change to observe."""
        return (self._node,)

    def job_folder(self, job: str) -> str:
        return folder_text(self._root, job)

    def member_address(self, job: str, role: str, index: int) -> str:
        return ""

    @property
    def numbers_devices(self) -> bool:
        return True

    def folder_on_disk(self, job: str) -> Path:
        return Path(self.job_folder(job))

    async def start(self, launches: Sequence[Launch]) -> None:
        if any(launch.waits_for_slot for launch in launches) and not await self._can_prefetch():
            self._observed += [Returned(launch.attempt) for launch in launches if launch.waits_for_slot]
            self._news.set()
            launches = [launch for launch in launches if not launch.waits_for_slot]
        if isolated := [launch for launch in launches if self._is_isolated(launch)]:
            await self._hide_storages()
            await asyncio.to_thread(self._make_folders, isolated)
        if any(launch.image for launch in launches) and self._containers is not None:
            launches = self._refuse_images(launches, self._containers)
        if any(is_remote(launch) for launch in launches):
            self._prepare([launch for launch in launches if is_remote(launch)])
            launches = [launch for launch in launches if not is_remote(launch)]
        await self._start(launches)

    async def _start(self, launches: Sequence[Launch]) -> None:
        """Launches whose storages are folders of this machine."""
        if files := [launch for launch in launches if launch.files]:
            await asyncio.to_thread(self._write_files, files)
        if given := [launch for launch in launches if launch.secret_files]:
            launches = await self._with_secret_files(launches, given)
        wire = {launch.attempt: self._wire(launch) for launch in launches}
        if self._containers is None and any(launch.image for launch in launches):
            self._say_ignored(launches, wire)
        self._unstarted.update((name, body) for name, body in wire.items() if name not in self._reported)
        self._send({"do": "start", "launches": list(wire.values())})
        await self._drain()

    # ------------------------------------------------------------------ storages that are no folders

    def _prepare(self, launches: Sequence[Launch]) -> None:
        """Beside everything else: storages may take long. What waits for a slot gets it when its storages are there."""
        for launch in launches:
            if self._storages is None:
                places = ", ".join(mount.location for mount in launch.mounts if "://" in mount.location)
                self._end_unstarted(launch.attempt, f"{places} cannot be mounted: this runtime has nobody who does it")
            elif launch.waits_for_slot:
                self._observed.append(Returned(launch.attempt))
                self._news.set()
            elif launch.attempt not in self._preparing and launch.attempt not in self._reported:
                self._preparing[launch.attempt] = self._storages.spawn(self._prepare_one(launch, self._storages))

    async def _prepare_one(self, launch: Launch, storages: RemoteStorages) -> None:
        folder = self._copies_folder(launch.attempt)
        try:
            prepared = await storages.prepare(launch, folder, partial(self._report_delay, launch.attempt))
            if storages.has_copies(folder):
                self._copied[launch.attempt] = folder
            await self._start([prepared])
        except PaddleFlowError as error:
            self._end_unstarted(launch.attempt, f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        except Exception as error:  # a fault in one job must not stop the others
            log.exception("the storages of %s cannot be prepared", launch.attempt)
            self._end_unstarted(launch.attempt, f"its storages cannot be prepared: {error}")
        finally:
            self._preparing.pop(launch.attempt, None)

    def _report_delay(self, attempt: AttemptId, message: str) -> None:
        self._observed.append(Delayed(attempt, self._clock.now(), message))
        self._news.set()

    def _end_unstarted(self, attempt: AttemptId, message: str) -> None:
        self._copied.pop(attempt, None)
        self._take([Ended(attempt, self._clock.now(), None, message)])

    def _copies_folder(self, attempt: AttemptId) -> str:
        job, (role, index), number = parse_attempt(attempt)
        return f"{self.job_folder(job)}/copies/{role}-{index}.{number}"

    def _without_unfinished(self, observations: Sequence[AttemptObservation]) -> list[AttemptObservation]:
        """An end is news when the outputs are where they belong."""
        assert self._storages is not None, "somebody made the copies"
        for seen in observations:
            if isinstance(seen, Ended) and seen.attempt in self._copied and seen.attempt not in self._finishing:
                self._finishing[seen.attempt] = self._storages.spawn(self._finish(seen, self._storages))
        return [seen for seen in observations if not (isinstance(seen, Ended) and seen.attempt in self._finishing)]

    def _unfinished_as_running(self, seen: AttemptObservation) -> AttemptObservation:
        """For whoever adopts: what has ended but for its outputs still runs."""
        if not isinstance(seen, Ended) or self._without_unfinished([seen]):
            return seen
        self._reported[seen.attempt] = Started
        return Started(seen.attempt, seen.started_at or seen.at, node=seen.node)

    async def _finish(self, seen: Ended, storages: RemoteStorages) -> None:
        folder = self._copied[seen.attempt]
        try:
            if storages.has_copies(folder):
                await storages.finish(folder, partial(self._report_delay, seen.attempt))
        except PaddleFlowError as error:
            seen = replace(seen, exit_code=seen.exit_code or None, message=seen.message or error.message)
        except Exception as error:
            log.exception("the outputs of %s cannot be stored", seen.attempt)
            message = seen.message or f"its output artifacts cannot be stored: {error}"
            seen = replace(seen, exit_code=seen.exit_code or None, message=message)
        self._finishing.pop(seen.attempt, None)
        self._copied.pop(seen.attempt, None)
        await storages.discard(folder)
        self._take([seen])

    @property
    def _isolates(self) -> bool:
        return self._settings.isolation != "off"

    def _is_isolated(self, launch: Launch) -> bool:
        return self._isolates and launch.user not in ("", ADMINISTRATOR)

    def hide(self, folders: Sequence[str]) -> None:
        """From isolated jobs that start from now on: the storages of all users, each of which sees its own where it is mounted."""
        wanted = sorted({*folders, str(self._code.parent)})
        if wanted != self._hidden:
            self._hidden = wanted
            self._send({"do": "hide", "folders": wanted})

    async def _hide_storages(self) -> None:
        if self.local_storages is not None and self._clock.monotonic() >= self._read_storages_at:
            self._read_storages_at = self._clock.monotonic() + READ_STORAGES_EVERY
            self.hide(await self.local_storages())

    def _make_folders(self, launches: Iterable[Launch]) -> None:
        """Of their users, for what is kept for all jobs of one."""
        for launch in launches:
            if launch.requirements:
                self._environments(launch).mkdir(parents=True, exist_ok=True)

    def _environments(self, launch: Launch) -> Path:
        return self._data / ENVIRONMENTS / quote(launch.user, safe="")

    def _own_mounts(self, launch: Launch) -> list[list[Any]]:
        """What an isolated job needs of the data folder besides its own: snapshots and packages of its user."""
        own: list[tuple[Path, bool]] = []
        if launch.code:
            own.append((self._code / quote(launch.user, safe=""), True))
        if launch.requirements:
            own.append((self._environments(launch), False))
        return [[str(folder), str(folder), read_only, ""] for folder, read_only in own]

    def _refuse_images(self, launches: Sequence[Launch], containers: Containers) -> list[Launch]:
        """End what cannot run in a container."""
        refused = {launch.attempt: said for launch in launches if launch.image and (said := containers.refusal(launch))}
        self._take([Ended(attempt, self._clock.now(), None, message) for attempt, message in refused.items()])
        return [launch for launch in launches if launch.attempt not in refused]

    def _say_ignored(self, launches: Sequence[Launch], wire: Mapping[AttemptId, dict[str, Any]]) -> None:
        """Once in a job: in the log of its first member, when that starts for the first time. Of a run's steps it is said
        where the run is made: a line in each of their logs would be noise."""
        informed = set()
        for launch in launches:
            job, _, number = parse_attempt(launch.attempt)
            if launch.image and number == 1 and job not in informed and RUN_VARIABLE not in launch.env:
                informed.add(job)
                wire[launch.attempt]["note"] = ignored(launch.image)

    def _write_files(self, launches: Iterable[Launch]) -> None:
        """Into folders that may be their user's: nothing that a link leads to is written."""
        for launch in launches:
            folder = Path(self.job_folder(parse_attempt(launch.attempt)[0]))
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in launch.files.items():
                with open(create_anew(str(folder / name), 0o644), "w", encoding="utf-8") as file:
                    file.write(text)

    async def _with_secret_files(self, launches: Sequence[Launch], given: Sequence[Launch]) -> list[Launch]:
        """Write them; a launch whose files cannot be written ends at once."""
        failed: dict[AttemptId, str] = {}
        for launch in given:
            folder = self._secret_folders[launch.attempt] = self._secret_folder(launch.attempt)
            owner = self._users.get(launch.user) if self._is_isolated(launch) and os.geteuid() == 0 else None
            try:
                await asyncio.to_thread(secret_files.write, folder, launch.secret_files, owner)
            except OSError as error:
                failed[launch.attempt] = f"the files of its secrets cannot be written: {error.strerror}"
        self._take([Ended(attempt, self._clock.now(), None, message) for attempt, message in failed.items()])
        return [launch for launch in launches if launch.attempt not in failed]

    def _secret_folder(self, attempt: AttemptId) -> str:
        job, key, _ = parse_attempt(attempt)
        return secret_files.folder_of(self.job_folder(job), *key)

    def _wire(self, launch: Launch) -> dict[str, Any]:
        """A launch as the keeper takes it: what only processes have is added here."""
        job, (role, index), _ = parse_attempt(launch.attempt)
        folder = self.job_folder(job)
        work, limit = f"{folder}/work", launch.limit
        command, cwd = launch.command, launch.working_dir or work
        in_container = bool(launch.image) and self._containers is not None
        if launch.requirements:
            command = (*environment_command(sys.executable, str(self._environments(launch))), *command)
        if launch.code:
            store = f"file://{quote(str(self._code))}"
            before = checkout_command(
                sys.executable, store, launch.user, launch.code, f"{folder}/code", launch.working_dir
            )
            command, cwd = (*before, *command), work
        wire: dict[str, Any] = {
            "attempt": launch.attempt,
            "argv": list(command),
            "env": {**launch.env, **launch.secret_env, WORK_VARIABLE: work},
            "cwd": cwd,
            "work": work,
            "log": f"{folder}/{log_name(role, index)}",
            "cpu": limit.cpu if limit else 0,
            "memory": limit.memory if limit else 0,
            "memory_text": format_bytes(limit.memory) if limit else "",
            "mounts": [[mount.location, mount.target, mount.read_only, mount.sub_path] for mount in launch.mounts],
            "port": launch.ready_port,
        }
        if launch.requirements:
            wire["env"][REQUIREMENTS] = launch.requirements
        if launch.secret_files:
            wire["env"][SECRETS_VARIABLE] = self._secret_folder(launch.attempt)
        if self._is_isolated(launch):
            if os.geteuid() == 0:
                wire["uid"] = self._users.get(launch.user)
            elif not in_container:  # an ordinary account has one number for all
                wire["uid"] = os.geteuid()
            if not in_container:
                wire["mounts"] += self._own_mounts(launch)
            own = {"HOME": work, "USER": launch.user, "LOGNAME": launch.user, "TMPDIR": "/tmp"}  # noqa: S108 — its own
            # What the user set stays; what the server passed on of its own account does not.
            wire["own_env"] = {name: own[name] for name in own if launch.env.get(name) == self._inherited.get(name)}
        if launch.prefetch is not None:
            wire["slot_class"] = launch.prefetch.slot_class
            if launch.prefetch.waiting:
                wire |= {"prefetched": True, "after": list(launch.prefetch.after)}
        return self._containers.wrap(wire, launch) if in_container and self._containers is not None else wire

    async def _can_prefetch(self) -> bool:
        """Whether the keeper can; an older one would start at once what waits for a slot."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._hello.wait()
        return self._protocol >= PREFETCH

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        for attempt in attempts:
            if (preparing := self._preparing.pop(attempt, None)) is not None and preparing.cancel():
                self._end_unstarted(attempt, "stopped before it started")
            if self._reported.get(attempt) is not Ended:
                self._stopping[attempt] = grace
        self._send({"do": "stop", "attempts": list(attempts), "grace": grace})
        await self._drain()

    async def withdraw(self, attempts: Sequence[AttemptId]) -> None:
        self._send({"do": "withdraw", "attempts": list(attempts)})
        await self._drain()

    async def observe(self) -> AsyncIterator[Sequence[AttemptObservation]]:
        while self._open:
            await self._news.wait()
            self._news.clear()
            batch, self._observed = self._observed, []
            if batch:
                yield batch

    async def adopt(self) -> Sequence[AttemptObservation]:
        waiter: asyncio.Future[list[AttemptObservation]] = asyncio.get_running_loop().create_future()
        self._states.append(waiter)
        if waiting := [name for name, body in self._unstarted.items() if body.get("prefetched")]:
            self._send({"do": "withdraw", "attempts": waiting})  # whoever asks does not know of them
            for name in waiting:
                del self._unstarted[name]
        self._send({"do": "state"})
        try:
            async with asyncio.timeout(self._patience):
                state = await waiter
            await asyncio.to_thread(self._find_folders, state)
            return [self._unfinished_as_running(seen) for seen in state] if self._copied else state
        except TimeoutError as error:
            raise Unavailable(
                f"the keeper of {self._data} has not answered for {self._patience:g} s",
                hint=f"see {self._data}/keeper.log",
            ) from error

    def _find_folders(self, state: Iterable[AttemptObservation]) -> None:
        """Of attempts that an earlier server started."""
        for attempt in {seen.attempt for seen in state}:
            folder = self._secret_folder(attempt)
            if Path(folder).is_dir():
                self._secret_folders[attempt] = folder
            if self._storages is not None and self._storages.has_copies(copies := self._copies_folder(attempt)):
                self._copied[attempt] = copies

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._reported.pop(attempt, None)
            self._stopping.pop(attempt, None)
        if self._secret_folders:
            used = [folder for attempt in attempts if (folder := self._secret_folders.pop(attempt, ""))]
            await asyncio.to_thread(secret_files.remove, used)
        self._numbers += 1
        self._forgetting[self._numbers] = list(attempts)
        if self._link is not None:
            self._link.post({"do": "forget", "attempts": list(attempts), "number": self._numbers})
            await self._link.drain()

    async def execute(self, request: ExecRequest) -> LocalExec:
        """A further command inside a running attempt; see `exec`."""
        pid = self._pids.get(request.attempt)
        if pid is None:
            raise NotFound(f"{request.attempt} does not run", code="JobNotFound")
        if has_container(self._root, request.attempt):
            inside = main_process(self._root, request.attempt)
            if inside is None:
                raise NotFound(f"the container of {request.attempt} has not started yet", code="JobNotFound")
            pid = inside
        session = await asyncio.to_thread(LocalExec, request, pid)
        session.begin()
        return session

    async def sample(self) -> Mapping[AttemptId, Sample]:
        leaders = {pid: attempt for attempt, pid in self._pids.items()}
        if not leaders:
            return {}
        taken = await asyncio.to_thread(self._take_samples, leaders)
        for attempt, seen in taken.items():
            if attempt in self._pids:
                self._samples[attempt] = sampler.grown(self._samples.get(attempt), seen)
        return {attempt: self._samples[attempt].sample for attempt in taken if attempt in self._samples}

    def _take_samples(self, leaders: Mapping[int, AttemptId]) -> Mapping[AttemptId, sampler.Seen]:
        inside = {main_process(self._root, attempt) or pid: attempt for pid, attempt in leaders.items()}
        return sampler.take(inside, self._clock.now())


def check_descriptors() -> None:
    """Unavailable when this process may open too few files for a keeper to work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        raise Unavailable(
            f"this process may open {soft} files at once, and at least {LEAST_DESCRIPTORS} are needed",
            hint=f"raise the limit before the start: ulimit -n {min(hard, 4096) if hard > 0 else 4096}",
        )


_KINDS: dict[str, type[Ready | Returned]] = {"ready": Ready, "returned": Returned}
