"""One job that this code cannot move is set aside, failed, with words; everybody else's jobs go on.

The machine of one job raises at its first transition, then at its second, and so on, until it never does any more.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine import cluster_engine, recovery, turn
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.jobs.facts import Fact
from paddleflow.jobs.machine import JobState, Step, advance
from paddleflow.jobs.queries import get_job, get_tasks
from paddleflow.jobs.rows import TaskRow
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.memory import EXIT, MemoryCluster, MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database
from tests.patience import PATIENCE

CLOCK = SystemClock()
CAPACITY = Resources.of(4000, 2**30)
SMALL = FlavourChoice(cpu="1", mem="1Mi")
WORDS = "a fault of the server ended it: ZeroDivisionError; the server's log has the details"


IMPATIENT = Timing(poll=0.02, first_pause=0.002, last_pause=0.01)


class Faulty:
    """`advance` that fails at one transition of one job."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, state: JobState, fact: Fact) -> Step:
        if state.id == "bad":
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError
        return advance(state, fact)


class Scene:
    def __init__(self, database: Database, data: Path) -> None:
        self.database, self.data = database, data
        self.cluster, self.bus = MemoryCluster(), LocalBus()

    def engine(self) -> ClusterEngine:
        parts = Parts(self.database, CLOCK, self.bus, Settings(), self.data, "engine", timing=IMPATIENT)
        return ClusterEngine(parts, MemoryRuntime(CLOCK, CAPACITY, self.cluster))

    async def send(self, *jobs: str) -> None:
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", CAPACITY)]})
        for job in jobs:
            document = SingleJob(id=job, command="x", flavour=SMALL, env={EXIT: "0"})
            await self.database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))
        self.bus.wake(JOBS)

    async def ends(self, job: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                row = await self.database.read(get_job, job)
                if row.finished_at is not None:
                    return f"{row.status} {row.message}".strip()
                await asyncio.sleep(0.002)


async def test_the_machine_of_one_job_fails_at_every_transition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for nth in range(1, 10):
        faulty = Faulty(nth)
        monkeypatch.setattr(turn, "advance", faulty)
        folder = tmp_path / str(nth)
        folder.mkdir()
        database = await open_database("", folder, durable=False)
        try:
            await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
            scene = Scene(database, folder)
            async with asyncio.TaskGroup() as group:
                engine = scene.engine()
                running = group.create_task(engine.run())
                await scene.send("bad", "good", "fine")
                assert await scene.ends("good") == await scene.ends("fine") == "succeeded"
                outcomes.append(await scene.ends("bad"))
                await scene.send("after")
                assert await scene.ends("after") == "succeeded", "the place of the bad one is free"
                assert engine.health() == ""
                running.cancel()
            tasks = await database.read(get_tasks, "bad")
            assert all(task.status in {"failed", "succeeded"} for task in tasks)
        finally:
            await database.close()
        if faulty.left > 0:
            break
    assert outcomes[-1] == "succeeded"
    assert set(outcomes[:-1]) == {f"failed {WORDS}"}
    assert len(outcomes) > 3


async def test_a_job_that_cannot_be_taken_up_after_a_restart_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database("", tmp_path, durable=False)
    real = recovery.places_of

    def places_of(tasks: list[TaskRow]) -> object:
        if any(task.job_id == "bad" for task in tasks):
            raise ZeroDivisionError
        return real(tasks)

    try:
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        scene = Scene(database, tmp_path)
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", CAPACITY)]})
        for job in ("bad", "good"):
            document = SingleJob(id=job, command="x", flavour=SMALL)
            await database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(scene.engine().run())
            async with asyncio.timeout(PATIENCE):
                while len(scene.cluster.launched) < 2:
                    await asyncio.sleep(0.002)
            running.cancel()
        monkeypatch.setattr(recovery, "places_of", places_of)
        async with asyncio.TaskGroup() as group:
            engine = scene.engine()
            running = group.create_task(engine.run())
            assert await scene.ends("bad") == f"failed {WORDS}"
            await scene.send("after")
            assert await scene.ends("after") == "succeeded"
            assert (await database.read(get_job, "good")).finished_at is None, "it goes on"
            running.cancel()
    finally:
        await database.close()


async def test_a_fault_of_ours_that_is_nobody_s_is_told_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database("", tmp_path, durable=False)

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("no cycle today")

    try:
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        scene = Scene(database, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(cluster_engine, "decide", broken)
            engine = scene.engine()
            running = asyncio.ensure_future(engine.run())
            async with asyncio.timeout(PATIENCE):
                while engine.health() != "begins anew after an error: no cycle today":
                    await asyncio.sleep(0.002)
            assert not running.done()
        await scene.send("good")
        assert await scene.ends("good") == "succeeded"
        async with asyncio.timeout(PATIENCE):
            while engine.health():
                await asyncio.sleep(0.002)
        running.cancel()
        await asyncio.wait([running])
    finally:
        await database.close()


async def test_a_turn_that_does_not_end_is_told_until_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await open_database("", tmp_path, durable=False)
    gate, real = asyncio.Event(), ClusterEngine._turn

    async def slow(self: ClusterEngine, lease: tuple[str, int]) -> None:
        await gate.wait()
        await real(self, lease)

    monkeypatch.setattr(ClusterEngine, "_turn", slow)
    try:
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        scene = Scene(database, tmp_path)
        engine = scene.engine()
        running = asyncio.ensure_future(engine.run())
        async with asyncio.timeout(PATIENCE):
            while not engine.health(0.01).startswith("does not advance: a turn has lasted"):
                await asyncio.sleep(0.002)
        gate.set()
        await scene.send("good")
        assert await scene.ends("good") == "succeeded"
        assert engine.health() == ""
        running.cancel()
        await asyncio.wait([running])
    finally:
        await database.close()
