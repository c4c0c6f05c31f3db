"""`LocalRuntime`: the `Runtime` protocol over the keeper.

All that it remembers can be lost: what was asked and not yet answered (sent again when a keeper is lost), and what was
reported already (so that nothing is reported twice to the same server). The keeper's journal is the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import format_bytes
from paddleflow.errors import Unavailable
from paddleflow.jobs.code import FOLDER as CODE
from paddleflow.jobs.code import checkout_command
from paddleflow.runtimes.local import capacity, sampler
from paddleflow.runtimes.local.job_folders import JobLogs, JobSamples, empty_trash, folder_text, log_name
from paddleflow.runtimes.local.link import KEEPER_COMMAND, Link, connect, reap
from paddleflow.runtimes.local.user_ids import UserIds
from paddleflow.runtimes.log_store import Sample
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Launch, NodeInfo, Ready, Started
from paddleflow.settings import LocalSettings, inherited

PROTOCOL = 3
PREFETCH = 3  #: the protocol from which on a keeper prefetches
PATIENCE = 20.0  #: seconds until a keeper that does not answer is an error
WORK_VARIABLE = "PF_WORK_DIR"
LEAST_DESCRIPTORS = 64  #: the keeper itself, its cgroups, and a few attempts of an earlier keeper
ADMINISTRATOR = "root"  #: of the platform; its jobs run as the server's account
RETRY = (0.0, 0.05, 0.2, 1.0)  #: seconds before a keeper is started again; the last one for all later tries

log = logging.getLogger(__name__)


class LocalRuntime:
    """Runs attempts as processes of this machine."""

    def __init__(
        self, settings: LocalSettings, data: Path, clock: Clock, *, keeper: Sequence[str] = KEEPER_COMMAND
    ) -> None:
        self._settings = settings
        self._data = data
        self._clock = clock
        self._keeper = keeper
        self.logs = JobLogs(data)
        self.samples = JobSamples(data)
        self.isolation = ""  #: what the keeper says of it, for people
        self._inherited = inherited("HOME,USER,LOGNAME,TMPDIR")
        self._users = UserIds(data / "uids.json", capacity.uid_range(settings))
        self._node = capacity.this_machine(settings)
        self._log_limit = capacity.log_limit(settings)
        self._link: Link | None = None
        self._protocol = 0  #: that the keeper speaks; 0: not known yet
        self._hello = asyncio.Event()
        self._open = False
        self._problem = ""  # why the keeper cannot be reached
        self._failures = 0
        self._unstarted: dict[AttemptId, dict[str, Any]] = {}
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

    # ------------------------------------------------------------------ connection

    @property
    def problem(self) -> str:
        return self._problem

    async def open(self) -> None:
        await asyncio.to_thread(self._prepare_data)
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
            self._problem = f"cannot reach or start the keeper of {self._data}: {error}"
            log.error(self._problem)
            self._connect_later()
            return
        self._problem = ""
        link = self._link = Link(connection, self._receive, self._lost)
        link.send(
            {
                "do": "configure",
                "log_limit": self._log_limit,
                "limit_text": format_bytes(self._log_limit),
                "limits": self._settings.limits != "off",
                "isolation": self._isolates,
                "processes": self._settings.processes,
            }
        )
        if self._reported or self._states or self._forgetting or self._unstarted:
            link.send({"do": "state"})
        for number, attempts in self._forgetting.items():
            link.send({"do": "forget", "attempts": attempts, "number": number})
        # What waited for a slot is not sent again: its slot class was forgotten, and the state says whether it had started.
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
        state += [
            Returned(name) for name, body in self._unstarted.items() if body.get("prefetched") and name not in known
        ]
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
    def prefetching(self) -> LocalRuntime:
        return self

    async def nodes(self) -> Sequence[NodeInfo]:
        """This machine. What it has is read once, at start, so there is no change to observe."""
        return (self._node,)

    def job_folder(self, job: str) -> str:
        return folder_text(self._data, job)

    def folder_on_disk(self, job: str) -> Path:
        return Path(self.job_folder(job))

    async def start(self, launches: Sequence[Launch]) -> None:
        if any(launch.waits_for_slot for launch in launches) and not await self._can_prefetch():
            self._observed += [Returned(launch.attempt) for launch in launches if launch.waits_for_slot]
            self._news.set()
            launches = [launch for launch in launches if not launch.waits_for_slot]
        if self._isolates and any(launch.code and self._is_isolated(launch) for launch in launches):
            launches = self._refuse_code(launches)
        if files := [launch for launch in launches if launch.files]:
            await asyncio.to_thread(self._write_files, files)
        wire = {launch.attempt: self._wire(launch) for launch in launches}
        self._unstarted.update((name, body) for name, body in wire.items() if name not in self._reported)
        self._send({"do": "start", "launches": list(wire.values())})
        await self._drain()

    @property
    def _isolates(self) -> bool:
        return self._settings.isolation != "off"

    def _is_isolated(self, launch: Launch) -> bool:
        return self._isolates and launch.user not in ("", ADMINISTRATOR)

    def _refuse_code(self, launches: Sequence[Launch]) -> list[Launch]:
        """End what cannot run: the store of snapshots holds those of all users, so an isolated job does not see it."""
        message = "code snapshots are not delivered to isolated jobs (local.isolation): put the code on a storage"
        refused = [launch for launch in launches if launch.code and self._is_isolated(launch)]
        self._take([Ended(launch.attempt, self._clock.now(), None, message) for launch in refused])
        return [launch for launch in launches if launch not in refused]

    def _write_files(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            folder = Path(self.job_folder(parse_attempt(launch.attempt)[0]))
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in launch.files.items():
                (folder / name).write_text(text, "utf-8")

    def _wire(self, launch: Launch) -> dict[str, Any]:
        """A launch as the keeper takes it: what only processes have is added here."""
        job, (role, index), _ = parse_attempt(launch.attempt)
        folder = self.job_folder(job)
        work, limit = f"{folder}/work", launch.limit
        command, cwd = launch.command, launch.working_dir or work
        if launch.code:
            store = f"file://{quote(str(self._data / CODE))}"
            before = checkout_command(
                sys.executable, store, launch.user, launch.code, f"{folder}/code", launch.working_dir
            )
            command, cwd = (*before, *command), work
        wire: dict[str, Any] = {
            "attempt": launch.attempt,
            "argv": list(command),
            "env": {**launch.env, WORK_VARIABLE: work},
            "cwd": cwd,
            "work": work,
            "log": f"{folder}/{log_name(role, index)}",
            "cpu": limit.cpu if limit else 0,
            "memory": limit.memory if limit else 0,
            "memory_text": format_bytes(limit.memory) if limit else "",
            "mounts": [[mount.location, mount.target, mount.read_only, mount.sub_path] for mount in launch.mounts],
            "port": launch.ready_port,
        }
        if self._is_isolated(launch):
            wire["uid"] = self._users.get(launch.user)
            own = {"HOME": work, "USER": launch.user, "LOGNAME": launch.user, "TMPDIR": "/tmp"}  # noqa: S108 — its own
            # What the user set stays; what the server passed on of its own account does not.
            wire["own_env"] = {name: own[name] for name in own if launch.env.get(name) == self._inherited.get(name)}
        if launch.prefetch is not None:
            wire["slot_class"] = launch.prefetch.slot_class
            if launch.prefetch.waiting:
                wire |= {"prefetched": True, "after": list(launch.prefetch.after)}
        return wire

    async def _can_prefetch(self) -> bool:
        """Whether the keeper can; an older one would start at once what waits for a slot."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._hello.wait()
        return self._protocol >= PREFETCH

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        for attempt in attempts:
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
            async with asyncio.timeout(PATIENCE):
                return await waiter
        except TimeoutError as error:
            raise Unavailable(
                f"the keeper of {self._data} has not answered for {PATIENCE:g} s", hint=f"see {self._data}/keeper.log"
            ) from error

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._reported.pop(attempt, None)
            self._stopping.pop(attempt, None)
        self._numbers += 1
        self._forgetting[self._numbers] = list(attempts)
        if self._link is not None:
            self._link.post({"do": "forget", "attempts": list(attempts), "number": self._numbers})
            await self._link.drain()

    async def sample(self) -> Mapping[AttemptId, Sample]:
        leaders = {pid: attempt for attempt, pid in self._pids.items()}
        if not leaders:
            return {}
        taken = await asyncio.to_thread(sampler.take, leaders, self._clock.now())
        for attempt, seen in taken.items():
            if attempt in self._pids:
                self._samples[attempt] = sampler.grown(self._samples.get(attempt), seen)
        return {attempt: self._samples[attempt].sample for attempt in taken if attempt in self._samples}


def check_descriptors() -> None:
    """Unavailable when this process may open too few files for a keeper to work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        raise Unavailable(
            f"this process may open {soft} files at once, and at least {LEAST_DESCRIPTORS} are needed",
            hint=f"raise the limit before the start: ulimit -n {min(hard, 4096) if hard > 0 else 4096}",
        )


_KINDS: dict[str, type[Ready | Returned]] = {"ready": Ready, "returned": Returned}
