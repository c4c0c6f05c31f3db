"""A runtime without processes: for tests that need speed or control, and for trying documents out.

It keeps every promise of `Runtime` but runs nothing: an attempt runs until `finish` is called, or ends with the code that
its environment names (``PF_MEMORY_EXIT=0``), at once or after so many seconds (``PF_MEMORY_SECONDS``). Its nodes are set
by `set_nodes`. What "runs" outlives the server object, as processes do: give the same
`MemoryCluster` to the next `MemoryRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import field, replace

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound
from paddleflow.runtimes.log_store import LogChunk, Sample, TaskAddress
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import (
    AttemptObservation,
    Ended,
    Launch,
    NodeChanged,
    NodeInfo,
    NodeRemoved,
    Observation,
    Ready,
    Started,
)

EXIT = "PF_MEMORY_EXIT"
SECONDS = "PF_MEMORY_SECONDS"
LOG = "PF_MEMORY_LOG"  #: what it writes to its log
DEFAULT_CAPACITY = Resources.of(4000, 8 * 2**30)


@dataclass(slots=True)
class MemoryCluster:
    """What outlives a server."""

    launched: list[Launch] = field(default_factory=list)  #: every start that was not a repetition
    known: dict[AttemptId, list[AttemptObservation]] = field(default_factory=dict)
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    logs: dict[TaskAddress, bytearray] = field(default_factory=dict)
    log_begins: dict[TaskAddress, dict[int, int]] = field(default_factory=dict)  #: of each attempt, by its number
    samples: dict[TaskAddress, list[Sample]] = field(default_factory=dict)
    planned_ends: dict[AttemptId, int] = field(default_factory=dict)  #: of those that have not started
    successors: int = 0  #: how often one took the slot of another
    news: list[Observation] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


def task_of(attempt: AttemptId) -> TaskAddress:
    job, key, _ = parse_attempt(attempt)
    return TaskAddress(job, *key)


def slot_class_of(launch: Launch) -> str:
    return launch.prefetch.slot_class if launch.prefetch is not None else ""


class MemoryLogs:
    """A `LogStore` in memory."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def read(self, task: TaskAddress, offset: int, limit: int) -> LogChunk:
        if task not in self._cluster.logs:
            raise NotFound(f"there is no log of {task}", hint="it was never written, or has been deleted")
        text = bytes(self._cluster.logs[task])
        start = max(len(text) + offset, 0) if offset < 0 else min(offset, len(text))
        data = text[start : start + max(limit, 0)]
        return LogChunk(data, start, start + len(data), len(text))

    async def size(self, task: TaskAddress) -> int:
        return len(self._cluster.logs.get(task, b""))

    async def begins(self, task: TaskAddress) -> Mapping[int, int]:
        return self._cluster.log_begins.get(task, {})

    async def remove(self, jobs: Sequence[str]) -> None:
        for task in [task for task in self._cluster.logs if task.job in jobs]:
            del self._cluster.logs[task]
        for task in [task for task in self._cluster.samples if task.job in jobs]:
            del self._cluster.samples[task]


class MemorySamples:
    """A `SampleStore` in memory."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        for task, sample in samples.items():
            sample = replace(sample, log_size=len(self._cluster.logs.get(task, b"")))
            self._cluster.samples.setdefault(task, []).append(sample)

    async def read(self, task: TaskAddress) -> list[Sample]:
        return list(self._cluster.samples.get(task, ()))


class MemoryRuntime:
    """Implements `Runtime` in this process. It has one node, unless the cluster brings its own."""

    def __init__(
        self, clock: Clock, capacity: Resources = DEFAULT_CAPACITY, cluster: MemoryCluster | None = None
    ) -> None:
        self._clock = clock
        self.cluster = cluster or MemoryCluster()
        self.logs = MemoryLogs(self.cluster)
        self.samples = MemorySamples(self.cluster)
        if not self.cluster.nodes:
            self.cluster.nodes["memory"] = NodeInfo("memory", "127.0.0.1", capacity)
        self._waiting: dict[AttemptId, Launch] = {}  #: prefetched, without a slot

    @property
    def problem(self) -> str:
        return ""

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """What runs stays in the cluster."""

    # ------------------------------------------------------------------ nodes

    async def nodes(self) -> Sequence[NodeInfo]:
        return list(self.cluster.nodes.values())

    def set_nodes(self, nodes: Iterable[NodeInfo]) -> None:
        """These nodes and no others: some come, change, are cordoned or go, and what ran on those that go is lost."""
        before, self.cluster.nodes = self.cluster.nodes, {node.name: node for node in nodes}
        self._notify(*(NodeChanged(node) for node in self.cluster.nodes.values() if before.get(node.name) != node))
        for name in [name for name in before if name not in self.cluster.nodes]:
            self._notify(NodeRemoved(name))
            for launch in [launch for launch in self.cluster.launched if launch.node == name]:
                self.finish(launch.attempt, None, f"lost with node {name}")

    # ------------------------------------------------------------------ attempts

    def job_folder(self, job: str) -> str:
        return f"/jobs/{job}"

    def member_address(self, job: str, role: str, index: int) -> str:
        return ""

    @property
    def numbers_devices(self) -> bool:
        return True

    def folder_on_disk(self, job: str) -> None:
        return None

    async def start(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            if launch.attempt in self.cluster.known:
                continue
            if launch.waits_for_slot and self._running(slot_class_of(launch)) and self._may_wait(launch):
                self._waiting[launch.attempt] = launch
                continue
            if launch.waits_for_slot:
                self._return([launch.attempt])
                continue
            self._waiting.pop(launch.attempt, None)
            self._launch(launch)

    def _launch(self, launch: Launch) -> None:
        now = self._clock.now()
        self.cluster.launched.append(launch)
        self.cluster.known[launch.attempt] = []
        log = self.cluster.logs.setdefault(task_of(launch.attempt), bytearray())
        number = int(launch.attempt.rpartition(".")[2])
        self.cluster.log_begins.setdefault(task_of(launch.attempt), {}).setdefault(number, len(log))
        log.extend(launch.env.get(LOG, "").encode())
        if launch.node and launch.node not in self.cluster.nodes:
            self._report(Ended(launch.attempt, now, None, f"there is no node {launch.node}"))
            return
        self._report(Started(launch.attempt, now, 1, node=self._node_of(launch)), Ready(launch.attempt, now))
        text = launch.env.get(EXIT, self.cluster.planned_ends.pop(launch.attempt, None))
        if text is None:
            return
        code = int(text)
        if SECONDS in launch.env:
            loop = asyncio.get_running_loop()
            loop.call_later(float(launch.env[SECONDS]), self.finish, launch.attempt, code)
        else:
            self.finish(launch.attempt, code)

    def _node_of(self, launch: Launch) -> str:
        return launch.node or next(iter(self.cluster.nodes), "")

    def _runs(self, attempt: AttemptId) -> bool:
        known = self.cluster.known.get(attempt)
        return known is not None and not any(isinstance(seen, Ended) for seen in known)

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        for attempt in attempts:
            if attempt in self._waiting:
                self._return(self._with_followers(attempt)[1:])
                del self._waiting[attempt]
                self.cluster.known[attempt] = []
                self._report(Ended(attempt, self._clock.now(), None, "stopped before it ran"))
            elif attempt in self.cluster.known:
                self.finish(attempt, 143, "stopped")

    def finish(self, attempt: AttemptId, exit_code: int | None, message: str = "") -> None:
        """End an attempt; one that has ended stays as it is."""
        if not self._runs(attempt):  # it has ended, or was forgotten with its cluster
            return
        launch = next(each for each in self.cluster.launched if each.attempt == attempt)
        slot_class = slot_class_of(launch)
        mine = [each for each in self._waiting.values() if slot_class and slot_class_of(each) == slot_class]
        successor = next((each for each in mine if exit_code == 0 and self._may_follow(each, attempt)), None)
        started = next((seen.at for seen in self.cluster.known[attempt] if isinstance(seen, Started)), None)
        follows = None if successor is None else successor.attempt
        now, node = self._clock.now(), self._node_of(launch)
        self._report(Ended(attempt, now, exit_code, message, started_at=started, successor=follows, node=node))
        if successor is not None:
            del self._waiting[successor.attempt]
            self.cluster.successors += 1
            self._launch(successor)
        elif exit_code != 0 or not self._running(slot_class):
            self._return([each.attempt for each in mine])

    def say(self, attempt: AttemptId, text: bytes) -> None:
        """What an attempt writes to its log."""
        self.cluster.logs[task_of(attempt)] += text

    def _report(self, *seen: AttemptObservation) -> None:
        for item in seen:
            kept = replace(item, successor=None) if isinstance(item, Ended) else item  # whoever asks later decides anew
            self.cluster.known[item.attempt].append(kept)
        self._notify(*seen)

    def _notify(self, *seen: Observation) -> None:
        self.cluster.news.extend(seen)
        self.cluster.wake.set()

    async def observe(self) -> AsyncIterator[Sequence[Observation]]:
        while True:
            await self.cluster.wake.wait()
            self.cluster.wake.clear()
            news, self.cluster.news = self.cluster.news, []
            if news:
                yield news

    async def adopt(self) -> Sequence[AttemptObservation]:
        self._waiting.clear()
        self.cluster.news = [seen for seen in self.cluster.news if isinstance(seen, NodeChanged | NodeRemoved)]
        known: list[AttemptObservation] = []
        for history in self.cluster.known.values():
            ends = [seen for seen in history if isinstance(seen, Ended)]
            known += ends or history
        return known

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            if not self._runs(attempt):
                self.cluster.known.pop(attempt, None)

    async def sample(self) -> Mapping[AttemptId, Sample]:
        return {}

    # ------------------------------------------------------------------ prefetching

    @property
    def foreign_pods(self) -> None:
        return None

    @property
    def prefetching(self) -> MemoryRuntime:
        return self

    async def withdraw(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._return(self._with_followers(attempt))

    def _running(self, slot_class: str) -> list[AttemptId]:
        """What holds a slot of a class."""
        mine = [each.attempt for each in self.cluster.launched if slot_class_of(each) == slot_class]
        return [attempt for attempt in mine if self._runs(attempt)]

    def _return(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._waiting.pop(attempt, None)
        self._notify(*(Returned(attempt) for attempt in attempts))

    def _may_wait(self, launch: Launch) -> bool:
        """Whether all that it comes after may still end well, or has."""
        return launch.prefetch is not None and all(map(self._may_succeed, launch.prefetch.after))

    def _may_succeed(self, attempt: AttemptId) -> bool:
        ends = [seen.exit_code for seen in self.cluster.known.get(attempt, ()) if isinstance(seen, Ended)]
        return attempt in self._waiting or (attempt in self.cluster.known and ends in ([], [0]))

    def _with_followers(self, attempt: AttemptId) -> list[AttemptId]:
        """One that waits for a slot, and who comes after it."""
        gone = [attempt] if attempt in self._waiting else []
        for each in self._waiting.values():
            if gone and each.prefetch is not None and not set(gone).isdisjoint(each.prefetch.after):
                gone.append(each.attempt)
        return gone

    def _may_follow(self, launch: Launch, ended: AttemptId) -> bool:
        after = launch.prefetch.after if launch.prefetch is not None else ()
        return all(each == ended or not (self._runs(each) or each in self._waiting) for each in after)
