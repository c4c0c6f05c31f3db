"""Runs on a real engine and database, without processes: steps are attempts of a `MemoryRuntime` that write their outputs.

What a step does is said by its environment: `EXIT`, `SECONDS` (see `runtimes.memory`), `CONTENT` (what it writes to every output)
`WRITES_NOTHING` and `FAILURES` (how many of its tries fail).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddleflow.access import users
from paddleflow.base.clock import Clock, SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.runs.model import NewRun
from paddleflow.runs.rows import ComponentRow, RunRow
from paddleflow.runs.runs import create, get_components, get_run
from paddleflow.runtimes.memory import EXIT, MemoryCluster, MemoryRuntime
from paddleflow.runtimes.runtime import Launch
from paddleflow.settings import Settings
from paddleflow.spec.pipeline.model import Cache, Component, FsMount, Pipeline, Step
from paddleflow.storage.model import Place
from paddleflow.storage.storages import Wanted, create_storage
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.database import Database, Tx
from tests.patience import PATIENCE

CAPACITY = Resources.of(4000, 8 * 2**30)
CONTENT = "TEST_CONTENT"
WRITES_NOTHING = "TEST_WRITES_NOTHING"
FAILURES = "TEST_FAILURES"
FS = "fs-root-store"
OK = {EXIT: "0"}


class FilesRuntime(MemoryRuntime):
    """Writes the outputs of steps into a folder, as their processes would."""

    def __init__(self, clock: Clock, world: MemoryCluster, folder: Path) -> None:
        super().__init__(clock, CAPACITY, world)
        self._folder = folder

    def _launch(self, launch: Launch) -> None:
        if WRITES_NOTHING not in launch.env:
            for name, value in launch.env.items():
                if name.startswith("PF_OUTPUT_ARTIFACT_"):
                    (self._folder / value.partition(f"/{FS}/")[2]).write_text(launch.env.get(CONTENT, "content"))
        if FAILURES in launch.env:
            step = launch.attempt.partition(".")[0].rpartition("-")[0]
            tries = sum(each.attempt.startswith(f"{step}-") for each in self.cluster.launched)
            code = "1" if tries < int(launch.env[FAILURES]) else "0"
            launch = replace(launch, env={**launch.env, EXIT: code})
        super()._launch(launch)


class RunScene:
    """A database with a storage, a world in which attempts go on, and as many engines as it takes."""

    def __init__(self, database: Database, data: Path, clock: Clock | None = None) -> None:
        self.database, self.data = database, data
        self.clock = clock or SystemClock()
        self.folder = data / "storage" / "root" / "store"
        self.world, self.bus = MemoryCluster(), LocalBus()
        self.runtime = FilesRuntime(self.clock, self.world, self.folder)

    async def prepare(self) -> None:
        self.folder.mkdir(parents=True)

        def fill(tx: Tx) -> None:
            now = self.clock.now()
            ensure_defaults(tx, now, CAPACITY)
            users.add(tx, "root", "", now)
            wanted = Wanted(
                "store", "root", Place("local", "", str(self.folder)), {}, "", independent=False, confined=False
            )
            create_storage(tx, wanted, now)

        await self.database.write(fill)

    async def submit(self, pipeline: Pipeline) -> str:
        new = NewRun("root", pipeline, "text", "", fs_id=FS, fs_name="store")
        run = await self.database.write(create, new, self.clock.now())
        self.bus.wake(JOBS)
        return run

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[ClusterEngine]:
        """An engine at work; killed at the end, as by SIGKILL: nothing is written any more."""
        self.runtime = FilesRuntime(self.clock, self.world, self.folder)
        engine = ClusterEngine(
            Parts(self.database, self.clock, self.bus, Settings(), self.data, "engine"), self.runtime
        )
        task = asyncio.ensure_future(engine.run())
        try:
            yield engine
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def run_row(self, run: str) -> RunRow:
        return await self.database.read(get_run, run)

    async def steps(self, run: str) -> dict[str, ComponentRow]:
        return {row.full_name: row for row in await self.database.read(get_components, run)}

    async def until(self, run: str, *statuses: str) -> RunRow:
        """The run once it is in one of these statuses."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while (row := await self.run_row(run)).status not in statuses:
            if asyncio.get_running_loop().time() > deadline:
                steps = {name: (step.status, step.message) for name, step in (await self.steps(run)).items()}
                pytest.fail(f"{run} is {row.status}, not {statuses}: {row.message}; {steps}")
            await asyncio.sleep(0.002)
        return row

    async def end_of(self, pipeline: Pipeline) -> tuple[RunRow, dict[str, ComponentRow]]:
        """A run to its end: its row, and the rows of its steps by name."""
        run = await self.submit(pipeline)
        row = await self.until(run, "succeeded", "failed", "terminated")
        return row, await self.steps(run)


def pipeline(*steps: Step, **more: Any) -> Pipeline:
    children: dict[str, Component] = {step.name: step for step in steps}
    return Pipeline("p", children, main_fs=FsMount("store"), **more)


def maker(name: str = "make", *, cached: bool = False, env: Mapping[str, str] = OK, **more: Any) -> Step:
    """A step with one output, `out`."""
    return Step(name, "make", env={**OK, **env}, outputs=("out",), cache=Cache(enable=cached), **more)
