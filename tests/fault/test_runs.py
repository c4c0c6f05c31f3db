"""Runs under faults: every store operation fails once, and the engine is killed at any await.

A run with a loop, the cache, a retry and a post-process ends the same however often the engine had to begin anew, and no
try of any step is started twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from paddleflow.access import users
from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.engine.prefetch import NoPrefetch, Prefetch, Prefetcher
from paddleflow.errors import PaddleFlowError
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.runs.model import NewRun
from paddleflow.runs.runs import create, get_components, get_run
from paddleflow.runtimes.memory import EXIT, SECONDS, MemoryCluster
from paddleflow.settings import Settings
from paddleflow.spec.pipeline.model import CONTINUE, Cache, Component, Dag, FsMount, Pipeline, Retry, Step
from paddleflow.storage.model import Place
from paddleflow.storage.storages import Wanted, create_storage
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database, Tx
from tests.databases import MakeDatabase
from tests.fault.faulty import FaultyDatabase, InjectedFault, killed_at_random_awaits, run_until_no_fault
from tests.run_scene import FAILURES, FilesRuntime

CAPACITY = Resources.of(4000, 8 * 2**30)
CLOCK = SystemClock()
IMPATIENT = Timing(poll=0.02, first_pause=0.005)  #: a lost wake-up costs little
OK, BAD = {EXIT: "0"}, {EXIT: "1"}


def full_pipeline() -> Pipeline:
    cached = Cache(enable=True)
    inner: dict[str, Component] = {"x": Step("x", "work", env=OK), "y": Step("y", "work", env=OK, deps=("x",))}
    steps: dict[str, Component] = {
        "make": Step("make", "make", env=OK, outputs=("out",), cache=cached),
        "same": Step("same", "make", env=OK, outputs=("out",), cache=cached, deps=("make",)),
        "loop": Dag("loop", inner, deps=("make",), loop_argument=[1, 2]),
        "again": Step("again", "fail", env=BAD, retry=Retry(times=1, delay=0.01)),
        "never": Step("never", "work", env=OK, deps=("again",)),
        "skipped": Step("skipped", "work", env=OK, condition="1 > 2"),
    }
    return Pipeline(
        "p", steps, Step("last", "clean", env=OK), main_fs=FsMount("store"), strategy=CONTINUE, parallelism=3
    )


EXPECTED = {
    "make": "succeeded", "same": "succeeded", "loop": "succeeded", "loop.x": "succeeded", "loop.y": "succeeded",
    "loop-1": "succeeded", "loop-1.x": "succeeded", "loop-1.y": "succeeded", "again": "failed", "never": "cancelled",
    "skipped": "skipped", "last": "succeeded",
}  # fmt: skip


class Scene:
    """One run, and as many engines as it takes."""

    def __init__(
        self,
        database: Database,
        data: Path,
        pipeline: Pipeline | None = None,
        prefetch: Callable[[], Prefetcher] = Prefetch,
    ) -> None:
        self.prefetch = prefetch
        self.database = database
        self.data = data
        self.pipeline = pipeline or full_pipeline()
        self.cluster = MemoryCluster()
        self.bus = LocalBus()
        self.run = ""

    async def prepare(self) -> None:
        folder = self.data / "storage" / "root" / "store"
        folder.mkdir(parents=True, exist_ok=True)

        def fill(tx: Tx) -> str:
            ensure_defaults(tx, CLOCK.now(), CAPACITY)
            users.add(tx, "root", "", CLOCK.now())
            wanted = Wanted("store", "root", Place("local", "", str(folder)), {}, "", independent=False, confined=False)
            create_storage(tx, wanted, CLOCK.now())
            new = NewRun("root", self.pipeline, "text", "", fs_id="fs-root-store", fs_name="store")
            return create(tx, new, CLOCK.now())

        try:
            self.run = await self.database.write(fill)
        except InjectedFault:
            if isinstance(self.database, FaultyDatabase) and self.database.tripped == "acknowledgement":
                self.run = "run-000001"
            else:
                self.run = await self.database.write(fill)

    def engine(self) -> ClusterEngine:
        runtime = FilesRuntime(CLOCK, self.cluster, self.data / "storage" / "root" / "store")
        parts = Parts(self.database, CLOCK, self.bus, Settings(), self.data, "engine", timing=IMPATIENT)
        return ClusterEngine(parts, runtime, prefetch=self.prefetch)

    async def statuses(self) -> tuple[str, dict[str, str]]:
        def look(tx: Tx) -> tuple[str, dict[str, str]]:
            found = {row.full_name: row.status for row in get_components(tx, self.run)}
            return get_run(tx, self.run).status, found

        return await self.database.read(look)

    async def to_the_end(self) -> Counter[str]:
        """How often each attempt was launched."""
        engine = asyncio.ensure_future(self.engine().run())
        try:
            async with asyncio.timeout(60):
                while True:
                    with suppress(PaddleFlowError):
                        if (await self.statuses())[0] in {"succeeded", "failed", "terminated"}:
                            break
                    await asyncio.sleep(0.002)
        except TimeoutError:
            pytest.fail(f"the run has not ended: {await self.statuses()}")
        finally:
            engine.cancel()
            with suppress(asyncio.CancelledError):
                await engine
        if isinstance(self.database, FaultyDatabase):
            self.database.heal()
        return Counter(launch.attempt for launch in self.cluster.launched)

    async def to_the_expected_end(self) -> None:
        launched = await self.to_the_end()
        assert await self.statuses() == ("failed", EXPECTED)
        assert [attempt for attempt, count in launched.items() if count > 1] == []
        assert len(launched) == 8  # make, two of x, two of y, two tries of again, last; `same` was served by make


@pytest.mark.timeout(600)
async def test_every_store_operation_fails_once(tmp_path: Path, make_database: MakeDatabase) -> None:
    async def scenario(database: FaultyDatabase) -> None:
        scene = Scene(database, tmp_path)
        await scene.prepare()
        await scene.to_the_expected_end()

    survived = await run_until_no_fault(make_database, scenario, postgres_every=4)
    assert survived > 30


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(15))
async def test_the_engine_is_killed_at_random_awaits(seed: int, tmp_path: Path, make_database: MakeDatabase) -> None:
    rng = random.Random(seed)
    async with make_database() as database:
        scene = Scene(database, tmp_path)
        await scene.prepare()
        await killed_at_random_awaits(rng, lambda: scene.engine().run(), lives=8, awaits=150)
        await scene.to_the_expected_end()


WIDE = 30  #: steps, of which a few fit at once, so that the others are handed out ahead


def wide_pipeline() -> Pipeline:
    """Some beside each other, then three lines of steps that follow each other, then one that waits for all."""
    env = {**OK, SECONDS: "0.001"}
    deps = {**{n: (f"s{n - 3}",) for n in range(15, WIDE - 1)}, WIDE - 1: tuple(f"s{n}" for n in range(WIDE - 1))}
    steps: dict[str, Component] = {f"s{n}": Step(f"s{n}", "work", env=env, deps=deps.get(n, ())) for n in range(WIDE)}
    return Pipeline("wide", steps, parallelism=6)


async def check_wide(scene: Scene) -> None:
    launched = await scene.to_the_end()
    assert await scene.statuses() == ("succeeded", {f"s{n}": "succeeded" for n in range(WIDE)})
    assert (len(launched), set(launched.values())) == (WIDE, {1})


@pytest.mark.timeout(600)
async def test_steps_that_follow_each_other_while_every_store_operation_fails_once(
    tmp_path: Path, make_database: MakeDatabase
) -> None:
    async def scenario(database: FaultyDatabase) -> None:
        scene = Scene(database, tmp_path, wide_pipeline())
        await scene.prepare()
        await check_wide(scene)
        successors.append(scene.cluster.successors)

    successors: list[int] = []
    assert await run_until_no_fault(make_database, scenario, postgres_every=4) > 10
    assert min(successors) > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(15))
async def test_steps_that_follow_each_other_while_the_engine_is_killed(
    seed: int, tmp_path: Path, make_database: MakeDatabase
) -> None:
    rng = random.Random(seed)
    async with make_database() as database:
        scene = Scene(database, tmp_path, wide_pipeline())
        await scene.prepare()
        await killed_at_random_awaits(rng, lambda: scene.engine().run(), lives=8, awaits=60)
        await check_wide(scene)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
async def test_without_prefetch_the_same_comes_out(seed: int, tmp_path: Path, make_database: MakeDatabase) -> None:
    rng = random.Random(seed)
    async with make_database() as database:
        scene = Scene(database, tmp_path, wide_pipeline(), NoPrefetch)
        await scene.prepare()
        await killed_at_random_awaits(rng, lambda: scene.engine().run(), lives=8, awaits=60)
        await check_wide(scene)
        assert scene.cluster.successors == 0


def resting_pipeline() -> Pipeline:
    """Short steps, then one that fails twice and rests in between; what comes after it is prefetched and withdrawn."""
    env = {**OK, SECONDS: "0.001"}
    steps: dict[str, Component] = {f"s{n}": Step(f"s{n}", "work", env=env) for n in range(6)}
    again = {FAILURES: "2", SECONDS: "0.001"}
    steps["again"] = Step("again", "work", env=again, deps=("s5",), retry=Retry(times=2, delay=0.02, factor=1.0))
    steps |= {f"t{n}": Step(f"t{n}", "work", env=env, deps=(f"t{n - 1}" if n else "again",)) for n in range(4)}
    return Pipeline("resting", steps, parallelism=2, strategy=CONTINUE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(10))
async def test_steps_that_rest_between_tries_while_the_engine_is_killed(
    seed: int, tmp_path: Path, make_database: MakeDatabase
) -> None:
    rng = random.Random(seed)
    async with make_database() as database:
        scene = Scene(database, tmp_path, resting_pipeline())
        await scene.prepare()
        await killed_at_random_awaits(rng, lambda: scene.engine().run(), lives=8, awaits=60)
        launched = await scene.to_the_end()
        names = [*(f"s{n}" for n in range(6)), "again", *(f"t{n}" for n in range(4))]
        assert await scene.statuses() == ("succeeded", dict.fromkeys(names, "succeeded"))
        assert (len(launched), set(launched.values())) == (13, {1})
