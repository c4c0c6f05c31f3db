"""A runtime without processes: for tests that need speed or control, and for trying documents out.

It keeps every promise of `Runtime` but runs nothing: an attempt goes on until `finish` is called, or ends with the code that
its environment names (``PF_MEMORY_EXIT=0``), at once or after so many seconds (``PF_MEMORY_SECONDS``). What "runs" outlives the server object, as processes do: give
the same `World` to the next `MemoryRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.errors import NotFound
from paddleflow.runtimes.runtime import Ended, Launch, LogChunk, NodeInfo, Observation, Ready, Recalled, Sample, Started

EXIT = "PF_MEMORY_EXIT"
SECONDS = "PF_MEMORY_SECONDS"


@dataclass(slots=True)
class World:
    """What goes on when a server dies."""

    launched: list[Launch] = field(default_factory=list)  #: every start that was not a repetition
    known: dict[AttemptId, list[Observation]] = field(default_factory=dict)
    logs: dict[str, bytearray] = field(default_factory=dict)  #: by `Launch.log`
    heirs: int = 0  #: how often one took the place of another
    news: list[Observation] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryRuntime:
    """Implements `Runtime` in this process."""

    def __init__(self, clock: Clock, capacity: Resources | None = None, world: World | None = None) -> None:
        self._clock = clock
        self._capacity = capacity or Resources.of(4000, 8 * 2**30)
        self.world = world or World()
        self._ahead: dict[AttemptId, Launch] = {}

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
            if launch.ahead and self._lane(launch.lane) and all(map(self._can_be_awaited, launch.after)):
                self._ahead[launch.attempt] = launch
                continue
            if launch.ahead:
                self._give_back([launch.attempt])
                continue
            self._ahead.pop(launch.attempt, None)
            self._begin(launch)

    def _begin(self, launch: Launch) -> None:
        now = self._clock.now()
        self.world.launched.append(launch)
        self.world.known[launch.attempt] = []
        self.world.logs.setdefault(launch.log, bytearray())
        self._tell(Started(launch.attempt, now, 1), Ready(launch.attempt, now))
        if EXIT not in launch.env:
            return
        code = int(launch.env[EXIT])
        if SECONDS in launch.env:
            loop = asyncio.get_running_loop()
            loop.call_later(float(launch.env[SECONDS]), self.finish, launch.attempt, code)
        else:
            self.finish(launch.attempt, code)

    def _lane(self, lane: str) -> list[AttemptId]:
        """What runs in a lane."""
        return [each.attempt for each in self.world.launched if each.lane == lane and self._runs(each.attempt)]

    def _runs(self, attempt: AttemptId) -> bool:
        known = self.world.known.get(attempt)
        return known is not None and not any(isinstance(seen, Ended) for seen in known)

    def _give_back(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._ahead.pop(attempt, None)
            self.world.news.append(Recalled(attempt))
        self.world.wake.set()

    def _can_be_awaited(self, attempt: AttemptId) -> bool:
        ends = [seen.exit_code for seen in self.world.known.get(attempt, ()) if isinstance(seen, Ended)]
        return attempt in self._ahead or (attempt in self.world.known and ends in ([], [0]))

    def _with_followers(self, attempt: AttemptId) -> list[AttemptId]:
        """One that is ahead, and who comes after it."""
        gone = [attempt] if attempt in self._ahead else []
        for each in self._ahead.values():
            if gone and not set(gone).isdisjoint(each.after):
                gone.append(each.attempt)
        return gone

    async def recall(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._give_back(self._with_followers(attempt))

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        for attempt in attempts:
            if attempt in self._ahead:
                self._give_back(self._with_followers(attempt)[1:])
                del self._ahead[attempt]
                self.world.known[attempt] = []
                self._tell(Ended(attempt, self._clock.now(), None, "stopped before it ran"))
            elif attempt in self.world.known:
                self.finish(attempt, 143)

    def finish(self, attempt: AttemptId, exit_code: int | None, message: str = "") -> None:
        """End an attempt; one that has ended stays as it is."""
        if not self._runs(attempt):  # it has ended, or was forgotten with its world
            return
        lane = next((each.lane for each in self.world.launched if each.attempt == attempt), "")
        mine = [each for each in self._ahead.values() if lane and each.lane == lane]
        heir = next((each for each in mine if exit_code == 0 and self._may_follow(each, attempt)), None)
        self._tell(Ended(attempt, self._clock.now(), exit_code, message, heir=None if heir is None else heir.attempt))
        if heir is not None:
            del self._ahead[heir.attempt]
            self.world.heirs += 1
            self._begin(heir)
        elif exit_code != 0 or not self._lane(lane):
            self._give_back([each.attempt for each in mine])

    def _may_follow(self, launch: Launch, ended: AttemptId) -> bool:
        return all(each == ended or not (self._runs(each) or each in self._ahead) for each in launch.after)

    def say(self, attempt: AttemptId, text: bytes) -> None:
        """What an attempt writes to its log."""
        log = next(launch.log for launch in self.world.launched if launch.attempt == attempt)
        self.world.logs[log] += text

    def _tell(self, *seen: Observation) -> None:
        for item in seen:
            kept = replace(item, heir=None) if isinstance(item, Ended) else item  # whoever asks later decides anew
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
        self._ahead.clear()
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
