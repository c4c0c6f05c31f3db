"""Clients and the engine at once: whatever they do to the same jobs in whatever order, nothing is lost or done twice.

Clients submit, stop, modify and delete the same few ids (also again, once they are free); members end well and badly and
are restarted; the engine dies at any await and comes back. In the end every job has ended exactly once, its history says
so, nobody holds anything, and the engine's memory is empty.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import Resources
from paddleflow.engine.changeset import Placement, Writes, Written, write_turn
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.engine.launch import MemberPlacement
from paddleflow.errors import Conflict, NotFound
from paddleflow.jobs.changes import delete_job, modify_job, stop_job
from paddleflow.jobs.model import FINAL, JobStatus
from paddleflow.jobs.queries import JobFilter, find_jobs
from paddleflow.jobs.rows import JobRow
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.queues.queues import usage_by_queue
from paddleflow.runtimes.memory import MemoryCluster, MemoryRuntime
from paddleflow.runtimes.runtime import Ended, Launch
from paddleflow.settings import JobSettings, Settings
from paddleflow.spec.job import DistributedJob, FlavourChoice, JobChange, MemberDocument, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store import events, leases
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database, Row, Tx
from paddleflow.store.statements import parse
from tests.databases import MakeDatabase

CLOCK = SystemClock()
CAPACITY = Resources.of(3000, 2**30)
SMALL = FlavourChoice(cpu="1", mem="1Mi")
IDS = [f"job-{n}" for n in range(6)]
CLIENTS, ACTS = 4, 30
IMPATIENT = Timing(poll=0.02, first_pause=0.002, last_pause=0.01)
PRIORITIES = ("VERY_LOW", "NORMAL", "VERY_HIGH")
SQL = parse("test_api_races.py", "-- name: notes\n-- What the engine was not told yet.\nselect * from deleted_jobs")


class WatchedRuntime(MemoryRuntime):
    """Refuses to run a member while an earlier attempt of it still runs."""

    async def start(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            job, key, _ = parse_attempt(launch.attempt)
            for other, seen in self.cluster.known.items():
                if parse_attempt(other)[:2] == (job, key) and other != launch.attempt:
                    assert any(isinstance(item, Ended) for item in seen), f"{other} runs while {launch.attempt} starts"
        await super().start(launches)


class Scene:
    """A server without HTTP: transactions as the handlers run them, and one engine at a time."""

    def __init__(self, database: Database, data: Path, rng: random.Random) -> None:
        self.database = database
        self.data = data
        self.rng = rng
        self.cluster = MemoryCluster()
        self.bus = LocalBus()
        self.settings = Settings(jobs=JobSettings(restart_limit=2, restart_delay=0.002))
        self.submitted: Counter[str] = Counter()
        self.engine: ClusterEngine
        self.runtime: WatchedRuntime
        self.calm = False  #: the clients have gone: everything ends well, and the engine stays
        self.steady = False  #: this engine is the one that stays

    # ---- clients ----

    async def client(self) -> None:
        for _ in range(ACTS):
            for _ in range(self.rng.randint(0, 30)):
                await asyncio.sleep(0)
            act = self.rng.choice([self.submit, self.submit, self.stop, self.stop, self.modify, self.delete])
            with suppress(Conflict, NotFound):
                await act(self.rng.choice(IDS))
            self.bus.wake("jobs")

    async def submit(self, job: str) -> None:
        policy = self.rng.choice(["Never", "OnFailure"])
        kind = self.rng.choice(["single", "single", "paddle", "mpi"])
        document: SingleJob | DistributedJob
        if kind == "single":
            document = SingleJob(id=job, command="x", flavour=SMALL, env={"PF_JOB_RESTART_POLICY": policy})
        else:
            roles = ("pserver", "worker") if kind == "paddle" else ("master", "worker")
            members = [MemberDocument(role=role, command="x", flavour=SMALL) for role in roles]
            document = DistributedJob(id=job, framework=kind, members=members)
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", CAPACITY)]})
        await self.database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))
        self.submitted[job] += 1

    async def stop(self, job: str) -> None:
        await self.database.write(stop_job, job, "stopped by root", CLOCK.now(), self.settings.jobs)

    async def modify(self, job: str) -> None:
        change = JobChange(priority=self.rng.choice(PRIORITIES), labels={"n": str(self.rng.randint(0, 9))})
        await self.database.write(modify_job, job, change, CLOCK.now(), self.settings.jobs)

    async def delete(self, job: str) -> None:
        await self.database.write(delete_job, job)

    # ---- what runs ----

    async def fate(self) -> None:
        """Members end, sooner or later."""
        while True:
            await asyncio.sleep(0.001)
            running = [name for name, seen in self.cluster.known.items() if not any(isinstance(s, Ended) for s in seen)]
            for attempt in running:
                if self.calm or self.rng.random() < 0.1:
                    self.runtime.finish(attempt, 0 if self.calm else self.rng.choice([0, 0, 1]))

    # ---- engines ----

    async def engines(self) -> None:
        """One engine after the other; each is killed at a random await until the clients have gone."""
        while True:
            self.runtime = WatchedRuntime(CLOCK, CAPACITY, self.cluster)
            parts = Parts(self.database, CLOCK, self.bus, self.settings, self.data, "engine", timing=IMPATIENT)
            self.engine = ClusterEngine(parts, self.runtime)
            async with asyncio.TaskGroup() as group:
                engine = group.create_task(self.engine.run())
                lives = self.rng.randint(50, 4000)
                while self.calm or lives:
                    self.steady = self.calm
                    lives -= 1
                    await asyncio.sleep(0 if not self.calm else 0.01)
                engine.cancel()

    # ---- the end ----

    async def rows(self) -> list[JobRow]:
        return (await self.database.read(find_jobs, JobFilter(), 0, 100))[0]

    async def settled(self) -> None:
        """Until every job has ended, the engine has seen that, and it has nothing left in mind."""
        while True:
            rows = await self.rows()
            ended = all(JobStatus(row.status).final and row.touched == row.seen for row in rows)
            if ended and not await self.database.read(_notes) and self.steady:
                board = self.engine._board
                if board is not None and not board.waiting and not board.active and not self.cluster.known:
                    return
            await asyncio.sleep(0.005)

    async def check(self) -> None:
        board = self.engine._board
        assert board is not None
        assert (board.core.pending_count, board.core.allocations, board.ports._taken) == (0, {}, set())
        assert await self.database.read(usage_by_queue) == {}
        rows = await self.rows()
        for row in rows:
            assert (row.placed, row.touched) == (0, row.seen)
            assert row.finished_at is not None
            await self._check_history(row)
        starts = Counter(launch.attempt for launch in self.cluster.launched)
        for attempt, times in starts.items():
            assert times <= self.submitted[parse_attempt(attempt)[0]], f"{attempt} was started {times} times"

    async def _check_history(self, row: JobRow) -> None:
        found = await self.database.read(events.after, "job", row.id, 0, 1000)
        statuses = [event.data["status"] for event in found if event.type == "status"]
        assert statuses[0] == "init"
        assert [status for status in statuses if status in FINAL] == [row.status], (row.id, statuses)
        assert statuses[-1] == row.status


def _notes(tx: Tx) -> list[Row]:
    return tx.all(SQL["notes"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(10))
async def test_clients_and_the_engine_at_once(seed: int, tmp_path: Path, make_database: MakeDatabase) -> None:
    async with make_database() as database:
        scene = Scene(database, tmp_path, random.Random(seed))
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            others = [group.create_task(scene.engines()), group.create_task(scene.fate())]
            async with asyncio.TaskGroup() as clients:
                for _ in range(CLIENTS):
                    clients.create_task(scene.client())
            scene.calm = True
            await scene.settled()
            await scene.check()
            for task in others:
                task.cancel()
        assert scene.submitted


async def test_what_was_meant_for_a_job_does_not_reach_its_successor(
    tmp_path: Path, make_database: MakeDatabase
) -> None:
    """Between the engine's look and its write a job is stopped, deleted, and its id used again."""
    async with make_database() as database:
        scene = Scene(database, tmp_path, random.Random(1))
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        await scene.submit("again")
        (old,) = await scene.rows()
        await scene.stop("again")
        await scene.delete("again")
        await scene.submit("again")
        (new,) = await scene.rows()
        assert new.seq > old.seq
        token = await database.write(leases.acquire, "engine", "test", CLOCK.now(), 60)
        assert token is not None
        turn = Writes(
            waits=[("again", old.seq, old.touched, "busy")],
            placements=[
                Placement("again", old.seq, old.touched, 1, (MemberPlacement("worker", 0, "memory"),), frozenset(), 2.0)
            ],
            seen=[(old.seq, 2)],
        )
        written = await database.write(write_turn, turn, ("engine", token), scene.settings.jobs, CLOCK.now())
        assert written == Written({}, False)
        assert await scene.rows() == [new]


async def test_an_end_that_was_not_forgotten_is_not_the_end_of_a_successor(
    tmp_path: Path, make_database: MakeDatabase
) -> None:
    """An engine died between writing an end and telling the runtime so; then the job was deleted and its id used again."""
    async with make_database() as database:
        scene = Scene(database, tmp_path, random.Random(1))
        await database.write(ensure_defaults, CLOCK.now(), CAPACITY)
        attempt = AttemptId("again.worker-0.1")
        scene.cluster.known[attempt] = [Ended(attempt, CLOCK.now(), 0)]
        document = SingleJob(id="again", command="x", flavour=SMALL)
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", CAPACITY)]})
        await database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))
        scene.calm = True
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            others = [group.create_task(scene.engines()), group.create_task(scene.fate())]
            while not scene.cluster.launched or scene.cluster.known:
                await asyncio.sleep(0.002)
            for task in others:
                task.cancel()
        assert [launch.attempt for launch in scene.cluster.launched] == [attempt]
        assert [row.status for row in await scene.rows()] == ["succeeded"]
