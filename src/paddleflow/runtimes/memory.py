"""A runtime without processes: for tests that need speed or control, and for trying documents out.

It keeps every promise of `Runtime` but runs nothing: an attempt goes on until `finish` is called, or ends with the code that
its environment names (``PF_MEMORY_EXIT=0``), at once or after so many seconds (``PF_MEMORY_SECONDS``). What "runs" outlives the server object, as processes do: give
the same `MemoryCluster` to the next `MemoryRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.errors import NotFound
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import Ended, Launch, LogChunk, NodeInfo, Observation, Ready, Sample, Started

EXIT = "PF_MEMORY_EXIT"
SECONDS = "PF_MEMORY_SECONDS"


@dataclass(slots=True)
class MemoryCluster:
    """What goes on when a server dies."""

    launched: list[Launch] = field(default_factory=list)  #: every start that was not a repetition
    known: dict[AttemptId, list[Observation]] = field(default_factory=dict)
    logs: dict[str, bytearray] = field(default_factory=dict)  #: by `Launch.log`
    successors: int = 0  #: how often one took the slot of another
    news: list[Observation] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryRuntime:
    """Implements `Runtime` in this process."""

    def __init__(self, clock: Clock, capacity: Resources | None = None, world: MemoryCluster | None = None) -> None:
        self._clock = clock
        self._capacity = capacity or Resources.of(4000, 8 * 2**30)
        self.world = world or MemoryCluster()
        self._waiting: dict[AttemptId, Launch] = {}

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """What runs goes on in the world."""

    async def capacity(self) -> Sequence[NodeInfo]:
        return [NodeInfo("memory", "127.0.0.1", self._capacity)]

    async def start(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            if launch.attempt in self.world.known:
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
        self.world.launched.append(launch)
        self.world.known[launch.attempt] = []
        self.world.logs.setdefault(launch.log, bytearray())
        self._report(Started(launch.attempt, now, 1), Ready(launch.attempt, now))
        if EXIT not in launch.env:
            return
        code = int(launch.env[EXIT])
        if SECONDS in launch.env:
            loop = asyncio.get_running_loop()
            loop.call_later(float(launch.env[SECONDS]), self.finish, launch.attempt, code)
        else:
            self.finish(launch.attempt, code)

    def _running(self, slot_class: str) -> list[AttemptId]:
        """What holds a slot of a class."""
        mine = [each.attempt for each in self.world.launched if slot_class_of(each) == slot_class]
        return [attempt for attempt in mine if self._runs(attempt)]

    def _runs(self, attempt: AttemptId) -> bool:
        known = self.world.known.get(attempt)
        return known is not None and not any(isinstance(seen, Ended) for seen in known)

    def _return(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._waiting.pop(attempt, None)
            self.world.news.append(Returned(attempt))
        self.world.wake.set()

    def _may_wait(self, launch: Launch) -> bool:
        """Whether all that it comes after may still end well, or has."""
        return launch.prefetch is not None and all(map(self._may_succeed, launch.prefetch.after))

    def _may_succeed(self, attempt: AttemptId) -> bool:
        ends = [seen.exit_code for seen in self.world.known.get(attempt, ()) if isinstance(seen, Ended)]
        return attempt in self._waiting or (attempt in self.world.known and ends in ([], [0]))

    def _with_followers(self, attempt: AttemptId) -> list[AttemptId]:
        """One that waits for a slot, and who comes after it."""
        gone = [attempt] if attempt in self._waiting else []
        for each in self._waiting.values():
            if gone and each.prefetch is not None and not set(gone).isdisjoint(each.prefetch.after):
                gone.append(each.attempt)
        return gone

    @property
    def prefetching(self) -> MemoryRuntime:
        return self

    async def withdraw(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._return(self._with_followers(attempt))

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        for attempt in attempts:
            if attempt in self._waiting:
                self._return(self._with_followers(attempt)[1:])
                del self._waiting[attempt]
                self.world.known[attempt] = []
                self._report(Ended(attempt, self._clock.now(), None, "stopped before it ran"))
            elif attempt in self.world.known:
                self.finish(attempt, 143)

    def finish(self, attempt: AttemptId, exit_code: int | None, message: str = "") -> None:
        """End an attempt; one that has ended stays as it is."""
        if not self._runs(attempt):  # it has ended, or was forgotten with its world
            return
        slot_class = next((slot_class_of(each) for each in self.world.launched if each.attempt == attempt), "")
        mine = [each for each in self._waiting.values() if slot_class and slot_class_of(each) == slot_class]
        successor = next((each for each in mine if exit_code == 0 and self._may_follow(each, attempt)), None)
        self._report(
            Ended(
                attempt,
                self._clock.now(),
                exit_code,
                message,
                successor=None if successor is None else successor.attempt,
            )
        )
        if successor is not None:
            del self._waiting[successor.attempt]
            self.world.successors += 1
            self._launch(successor)
        elif exit_code != 0 or not self._running(slot_class):
            self._return([each.attempt for each in mine])

    def _may_follow(self, launch: Launch, ended: AttemptId) -> bool:
        after = launch.prefetch.after if launch.prefetch is not None else ()
        return all(each == ended or not (self._runs(each) or each in self._waiting) for each in after)

    def say(self, attempt: AttemptId, text: bytes) -> None:
        """What an attempt writes to its log."""
        log = next(launch.log for launch in self.world.launched if launch.attempt == attempt)
        self.world.logs[log] += text

    def _report(self, *seen: Observation) -> None:
        for item in seen:
            kept = replace(item, successor=None) if isinstance(item, Ended) else item  # whoever asks later decides anew
            self.world.known[item.attempt].append(kept)
        self.world.news.extend(seen)
        self.world.wake.set()

    async def observe(self) -> AsyncIterator[Sequence[Observation]]:
        while True:
            await self.world.wake.wait()
            self.world.wake.clear()
            news, self.world.news = self.world.news, []
            if news:
                yield news

    async def adopt(self) -> Sequence[Observation]:
        self._waiting.clear()
        return [seen for history in self.world.known.values() for seen in history]

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self.world.known.pop(attempt, None)

    async def log(self, path: str, offset: int, limit: int) -> LogChunk:
        if path not in self.world.logs:
            raise NotFound(f"log {path} is not there", hint="it was never written, or has been deleted")
        text = bytes(self.world.logs[path])
        start = max(len(text) + offset, 0) if offset < 0 else min(offset, len(text))
        data = text[start : start + max(limit, 0)]
        return LogChunk(data, start, start + len(data), len(text))

    async def sample(self) -> Mapping[AttemptId, Sample]:
        return {}


def slot_class_of(launch: Launch) -> str:
    return launch.prefetch.slot_class if launch.prefetch is not None else ""
