"""The run engine on a real database: restarts at bad moments, and faults that stay with one run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import Resources
from paddleflow.engine import run_writes
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.runs import machine
from paddleflow.runs.facts import Command, Fact
from paddleflow.runs.names import job_id
from paddleflow.runs.rows import component_row
from paddleflow.runs.state import Instance, RunState
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.spec.job import FlavourChoice, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.spec.pipeline.model import Retry, Step
from paddleflow.store.bus import JOBS as JOBS_TOPIC
from paddleflow.store.connection import open_database
from paddleflow.store.statements import compose
from tests.patience import soon
from tests.run_scene import OK, RunScene, pipeline


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[RunScene]:
    database = await open_database("", tmp_path, durable=False)
    scene = RunScene(database, tmp_path, ManualClock())
    await scene.prepare()
    yield scene
    await database.close()


def step(name: str, *deps: str, **more: object) -> Step:
    return Step(name, "true", deps=deps, **more)  # type: ignore[arg-type]  # fields of a step, by name


async def running(scene: RunScene, run: str, name: str, tries: int = 1) -> AttemptId:
    """The attempt of a step's try, once it runs."""

    def found() -> AttemptId | None:
        mine = [each.attempt for each in scene.world.launched if each.attempt.startswith(f"job-{run}-{name}-")]
        return mine[tries - 1] if len(mine) >= tries else None

    attempt = await soon(found, f"try {tries} of {name} runs")
    assert attempt is not None
    return attempt


async def test_a_restart_while_a_step_waits_for_its_next_try_and_its_successor_was_prefetched(scene: RunScene) -> None:
    """The withdrawn job keeps its row, so its component's number is never given again."""
    steps = [
        step("a", env=OK),
        step("b", "a", env=OK),
        step("c", "b", retry=Retry(times=1, delay=60.0)),
        step("d", "c", env=OK),
    ]
    async with scene.engine():
        run = await scene.submit(pipeline(*steps))
        attempt = await running(scene, run, "c")

        async def prefetched() -> bool:
            return "d" in await scene.steps(run)

        while not await prefetched():
            pass
        scene.runtime.finish(attempt, 1)
        while await prefetched():
            pass
    jobs = await scene.database.read(lambda tx: tx.all(JOBS["jobs_of_run"], run_id=run))
    assert len(jobs) == 4, "the job of d is there still"
    async with scene.engine():
        scene.clock.advance(61.0)  # type: ignore[attr-defined]  # a ManualClock
        scene.bus.wake(JOBS_TOPIC)
        scene.runtime.finish(await running(scene, run, "c", 2), 0)
        await scene.until(run, "succeeded")


async def test_a_run_whose_machine_raises_fails_with_words_and_others_go_on(
    scene: RunScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each transition, one after the other, until the run ends without a fault."""
    real, count, at = machine.advance, [0], [1]
    victim = [""]

    def faulty(state: RunState, fact: Fact) -> tuple[RunState, list[Command]]:
        if state.id == victim[0]:
            count[0] += 1
            if count[0] == at[0]:
                raise RuntimeError(f"at {type(fact).__name__}")
        return real(state, fact)

    monkeypatch.setattr("paddleflow.engine.run_engine.advance", faulty)
    steps = [step("a", env=OK), step("b", "a", env=OK), step("c", env=OK, loop_argument=[1, 2])]
    ends: list[str] = []
    async with scene.engine():
        while not ends or ends[-1] != "succeeded":
            count[0] = 0
            victim[0] = f"run-{2 * at[0] - 1:06}"
            bad = await scene.submit(pipeline(*steps))
            assert bad == victim[0]
            good = await scene.submit(pipeline(*steps))
            await scene.until(good, "succeeded")
            row = await scene.until(bad, "failed", "succeeded")
            ends.append(row.status)
            if row.status == "failed":
                assert "RuntimeError" in row.message
            at[0] += 1
    assert len(ends) > 5


async def test_a_run_whose_rows_cannot_be_read_fails_with_words_and_others_go_on(scene: RunScene) -> None:
    async with scene.engine():
        bad = await scene.submit(pipeline(step("a")))
        attempt = await running(scene, bad, "a")
    await scene.database.write(lambda tx: tx.run(compose("update run_components set parameters = 'no JSON'")))
    async with scene.engine():
        row = await scene.until(bad, "failed")
        assert "JSONDecodeError" in row.message
        good = await scene.submit(pipeline(step("a", env=OK)))
        await scene.until(good, "succeeded")
    assert (await scene.steps(bad))["a"].status == "terminated"
    assert attempt in {each.attempt for each in scene.world.launched}
    job = await scene.database.read(lambda tx: tx.one(JOBS["job_by_id"], id=attempt.split(".")[0]))
    assert job is not None
    assert job["status"] == "terminated", "what it had at work is stopped"


async def test_a_run_whose_job_id_is_taken_fails_with_words_and_others_go_on(scene: RunScene) -> None:
    """Ids of jobs may be chosen by anybody, and those of steps can be foreseen."""
    taken = job_id("run-000001", "a", 0, 1, 1)
    document = SingleJob(id=taken, command="true", flavour=FlavourChoice(cpu="1", mem="1Mi"))
    submitter = Submitter("root", True, {})
    await scene.database.write(submit, Submission([job_set_of(document)], submitter, scene.clock.now()))
    async with scene.engine():
        bad = await scene.submit(pipeline(step("a", env=OK)))
        row = await scene.until(bad, "failed")
        assert f"a job of the id {taken} exists already" in row.message
        good = await scene.submit(pipeline(step("a", env=OK)))
        await scene.until(good, "succeeded")


async def test_a_run_whose_changes_cannot_be_written_fails_with_words_and_others_go_on(
    scene: RunScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = component_row

    def faulty(run: RunState, item: Instance, *rest: Any) -> dict[str, Any]:
        if run.id == "run-000001" and item.name == "b":
            raise TypeError("cannot be encoded")
        return real(run, item, *rest)

    monkeypatch.setattr(run_writes, "component_row", faulty)
    async with scene.engine():
        bad = await scene.submit(pipeline(step("a", env=OK), step("b", "a"), step("c", "a")))
        row = await scene.until(bad, "failed")
        assert "TypeError" in row.message
        good = await scene.submit(pipeline(step("a", env=OK), step("b", "a", env=OK)))
        await scene.until(good, "succeeded")


async def test_after_a_restart_prefetched_jobs_are_placed_on_the_nodes_on_which_they_run(scene: RunScene) -> None:
    """Two nodes with a step on each; the steps after them begin on both while no engine is there."""
    names = ("n1", "n2")
    scene.world.nodes = {name: NodeInfo(name, "127.0.0.1", Resources.of(1000, 2 * 2**30)) for name in names}
    async with scene.engine():
        run = await scene.submit(pipeline(*(step(name) for name in "abcd")))
        await soon(lambda: len(scene.runtime._waiting) == 2, "two run, and one is prefetched on each node")
    for attempt in [each.attempt for each in scene.world.launched]:
        scene.runtime.finish(attempt, 0)
    began = {parse_attempt(each.attempt)[0]: each.node for each in scene.world.launched[2:]}
    assert sorted(began.values()) == ["n1", "n2"]
    async with scene.engine() as engine:
        await engine.first_turn.wait()
        tasks = await scene.database.read(lambda tx: tx.all(compose("SELECT job_id, node FROM tasks")))
        assert {row["job_id"]: row["node"] for row in tasks if row["job_id"] in began} == began
        for attempt in [each.attempt for each in scene.world.launched[2:]]:
            scene.runtime.finish(attempt, 0)
        await scene.until(run, "succeeded")
