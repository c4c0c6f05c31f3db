"""A server's engine for API tests: the real engine on a runtime without processes, and patience for what it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddleflow.api.platform import Compute, Platform
from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.jobs.submission import Nodes
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.settings import Settings
from tests.api.client import Api
from tests.patience import PATIENCE

CAPACITY = Resources.of(8000, 16 * 2**30, {"nvidia.com/gpu": 4000})
TINY = {"cpu": "100m", "mem": "1Mi"}

NORMAL = Timing()


class OneEngine:
    """What handlers ask of the engines: those of one cluster, with one node."""

    def __init__(self) -> None:
        self.running: ClusterEngine | None = None
        self.elsewhere: dict[str, str] = {}
        self._node = NodeInfo("memory", "127.0.0.1", CAPACITY)

    def engine(self, cluster: str) -> ClusterEngine | None:
        return self.running if cluster == DEFAULT_CLUSTER else None

    def nodes(self, cluster: str) -> list[NodeInfo]:
        return [self._node] if cluster == DEFAULT_CLUSTER else []

    def runtime(self, cluster: str) -> None:
        return None

    def trouble(self, cluster: str) -> str:
        return ""

    def capacities(self) -> Nodes:
        return {DEFAULT_CLUSTER: [(self._node.name, self._node.capacity)]}


class Workshop:
    """Where the jobs of a test run."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self.runtime = MemoryRuntime(clock, CAPACITY)
        self._engines = OneEngine()
        self.place = Compute(settings.data_folder, self.runtime, self._engines)

    @property
    def engine(self) -> ClusterEngine | None:
        return self._engines.running

    @asynccontextmanager
    async def open(self, platform: Platform, timing: Timing = NORMAL) -> AsyncIterator[ClusterEngine]:
        """The engine works while this is entered."""
        data = self.place.data
        parts = Parts(
            platform.database, platform.clock, platform.bus, platform.settings, data, "test",
            timing=timing, keyring=platform.keyring,
        )  # fmt: skip
        engine = self._engines.running = ClusterEngine(parts, self.runtime)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(engine.run())
            try:
                async with asyncio.timeout(PATIENCE):
                    await engine.first_turn.wait()
                yield engine
            finally:
                task.cancel()

    def finish(self, attempt: str, code: int = 0) -> None:
        self.runtime.finish(AttemptId(attempt), code)

    def say(self, attempt: str, text: bytes) -> None:
        self.runtime.say(AttemptId(attempt), text)


async def until(client: Api, job: str, *statuses: str) -> dict[str, Any]:
    """The job once it is in one of these statuses."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        shown: dict[str, Any] = (await client.get(f"/job/{job}")).ok()
        if shown["status"] in statuses:
            return shown
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"{job} is {shown['status']}, not {statuses}: {shown['message']}")
        await asyncio.sleep(0.002)


async def eventually_answers(client: Api, path: str, good: Callable[[Any], bool]) -> dict[str, Any]:
    """What a path answers, once that is as wanted."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        answer: dict[str, Any] = (await client.get(path)).ok()
        if good(answer):
            return answer
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"{path} still answers {answer}")
        await asyncio.sleep(0.005)
