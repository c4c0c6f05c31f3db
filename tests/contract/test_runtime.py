"""The contract of the `Runtime` protocol, for every implementation. It needs no shell and no /proc: `tests/runtime_driver.py`
makes launches that succeed, fail or run until they are told. What only processes have is in ``test_runtime_processes.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.errors import NotFound
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.runtimes.memory import task_of
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Ready, Started
from tests.patience import PATIENCE
from tests.runtime_driver import DRIVERS, DrivenScene


@pytest.fixture(params=sorted(DRIVERS))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DrivenScene]:
    made = DrivenScene(DRIVERS[request.param](tmp_path), tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.end()


# ---- starting and ending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 137, 255])
async def test_the_exit_code_is_reported_as_it_is(scene: DrivenScene, code: int) -> None:
    end = await scene.run(scene.make("one", exit_code=code))
    words = "ended by SIGKILL" if code == 137 and not scene.driver.tells_signals else ""
    assert (end.exit_code, end.message, end.successor) == (code, words, None)
    assert end.started_at is not None
    assert end.started_at <= end.at


async def test_order_of_observations(scene: DrivenScene) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Ready)))
    scene.driver.finish(launch)
    await scene.end_of(launch)
    assert [type(seen) for seen in scene.seen] == [Started, Ready, Ended]


async def test_a_short_one_may_be_reported_by_its_end_alone(scene: DrivenScene) -> None:
    end = await scene.run(scene.make("one", exit_code=0))
    assert end.started_at is not None
    assert [type(seen) for seen in scene.seen] in ([Ended], [Started, Ready, Ended])


async def test_started_twice_runs_once(scene: DrivenScene) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch, launch])
    await scene.runtime.start([launch])
    scene.driver.finish(launch)
    await scene.end_of(launch)
    await scene.runtime.start([launch])
    await scene.run(scene.make("two", exit_code=0))
    assert scene.driver.times_started(launch) == 1
    assert len(scene.reported(Ended, launch.attempt)) == 1


async def test_many_at_once(scene: DrivenScene) -> None:
    launches = [scene.make(f"n{number}", exit_code=number % 3) for number in range(60)]
    await scene.runtime.start(launches)
    await scene.until(lambda: len(scene.reported(Ended)) >= 60)
    ends = {end.attempt: end.exit_code for end in scene.reported(Ended)}
    assert ends == {launch.attempt: number % 3 for number, launch in enumerate(launches)}
    assert len(scene.reported(Ended)) == 60


# ---- stopping ------------------------------------------------------------------------------------------------------


async def test_stop_ends_what_runs(scene: DrivenScene) -> None:
    stopped, other = scene.make("stopped"), scene.make("other")
    await scene.runtime.start([stopped, other])
    await scene.until(lambda: len(scene.reported(Started)) == 2)
    await scene.runtime.stop([stopped.attempt], PATIENCE)
    end = await scene.end_of(stopped)
    assert end.exit_code == 143
    assert "stopped" in end.message
    scene.driver.finish(other, 3)
    assert (await scene.end_of(other)).exit_code == 3


async def test_stopping_what_has_ended_or_never_was_is_fine(scene: DrivenScene) -> None:
    launch = scene.make("one", exit_code=4)
    await scene.run(launch)
    await scene.runtime.stop([launch.attempt, AttemptId("job-other.worker-0.1")], 0.0)
    assert (await scene.run(scene.make("two", exit_code=0))).exit_code == 0
    assert len(scene.reported(Ended, launch.attempt)) == 1
    assert scene.reported(Ended, launch.attempt)[0].exit_code == 4


# ---- another server ------------------------------------------------------------------------------------------------


async def test_adopt_reports_what_runs_and_what_has_ended(scene: DrivenScene) -> None:
    running, ended = scene.make("running"), scene.make("ended", exit_code=6)
    await scene.runtime.start([running, ended])
    await scene.end_of(ended)
    await scene.until(lambda: bool(scene.reported(Ready, running.attempt)))
    await scene.reopen()
    known = await scene.runtime.adopt()
    assert [type(seen) for seen in known if seen.attempt == running.attempt] == [Started, Ready]
    [end] = [seen for seen in known if seen.attempt == ended.attempt]
    assert isinstance(end, Ended)
    assert end.exit_code == 6
    nodes = {node.name for node in await scene.runtime.nodes()}
    assert {seen.node for seen in known if isinstance(seen, Started | Ended)} <= nodes, "each says where it is"
    await scene.runtime.start([running])
    scene.driver.finish(running, 5)
    assert (await scene.end_of(running)).exit_code == 5
    assert scene.driver.times_started(running) == 1


async def test_an_end_that_nobody_observed_is_reported_to_the_next_server(scene: DrivenScene) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    await scene.runtime.close()
    scene.driver.finish(launch, 9)
    scene.seen.clear()
    await scene.open()
    known = await scene.runtime.adopt()
    [end] = [seen for seen in known if isinstance(seen, Ended)] or [await scene.end_of(launch)]
    assert end.exit_code == 9


async def test_what_is_forgotten_is_not_reported_again(scene: DrivenScene) -> None:
    one, two = scene.make("one", exit_code=0), scene.make("two", exit_code=0)
    await scene.run(one)
    await scene.run(two)
    await scene.runtime.forget([one.attempt])
    assert {seen.attempt for seen in await scene.runtime.adopt()} == {two.attempt}
    await scene.reopen()
    assert {seen.attempt for seen in await scene.runtime.adopt()} == {two.attempt}
    await scene.runtime.forget([two.attempt])
    await scene.reopen()
    assert list(await scene.runtime.adopt()) == []


async def test_what_runs_is_not_forgotten(scene: DrivenScene) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Ready)))
    await scene.runtime.forget([launch.attempt])
    assert [type(seen) for seen in await scene.runtime.adopt()] == [Started, Ready]
    scene.driver.finish(launch, 2)
    assert (await scene.end_of(launch)).exit_code == 2


async def test_adopted_ends_are_not_observed_a_second_time(scene: DrivenScene) -> None:
    launch = scene.make("one", exit_code=0)
    await scene.runtime.start([launch])
    known: Sequence[AttemptObservation] = []
    async with asyncio.timeout(PATIENCE):
        while not any(isinstance(seen, Ended) for seen in known):
            known = await scene.runtime.adopt()
    await scene.run(scene.make("two", exit_code=0))
    assert not scene.reported(Ended, launch.attempt)


# ---- nodes ---------------------------------------------------------------------------------------------------------


async def test_nodes_have_a_name_an_address_and_a_capacity(scene: DrivenScene) -> None:
    nodes = await scene.runtime.nodes()
    assert nodes
    assert len({node.name for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.address
        assert node.schedulable
        assert node.capacity.cpu >= 1000
        assert node.capacity.memory > 0


async def test_a_launch_runs_on_the_node_that_it_names(scene: DrivenScene) -> None:
    [node, *_] = await scene.runtime.nodes()
    assert (await scene.run(scene.make("one", exit_code=0, node=node.name))).exit_code == 0


# ---- logs and samples ----------------------------------------------------------------------------------------------


async def test_parts_of_a_log(scene: DrivenScene) -> None:
    launch = scene.make("one", exit_code=0, says="0123456789")
    await scene.run(launch)
    logs, task = scene.runtime.logs, task_of(launch.attempt)
    chunk = await logs.read(task, 2, 3)
    assert (chunk.data, chunk.offset, chunk.next_offset, chunk.size) == (b"234", 2, 5, 10)
    assert (await logs.read(task, -3, 100)).data == b"789"
    assert (await logs.read(task, -300, 4)).data == b"0123"
    behind = await logs.read(task, 10, 100)
    assert (behind.data, behind.next_offset) == (b"", 10)
    assert await logs.size(task) == 10


async def test_a_log_outlives_its_attempt_and_its_server_until_it_is_removed(scene: DrivenScene) -> None:
    kept, removed = (scene.make(name, exit_code=0, says="words") for name in ("kept", "removed"))
    for launch in (kept, removed):
        await scene.run(launch)
    await scene.runtime.forget([kept.attempt, removed.attempt])
    await scene.reopen()
    logs = scene.runtime.logs
    await logs.remove(["job-removed", "job-never"])
    assert (await logs.read(task_of(kept.attempt), 0, 100)).data == b"words"
    assert await logs.size(task_of(removed.attempt)) == 0
    with pytest.raises(NotFound):
        await logs.read(task_of(removed.attempt), 0, 1)


async def test_a_log_that_was_never_written_is_not_found(scene: DrivenScene) -> None:
    with pytest.raises(NotFound):
        await scene.runtime.logs.read(TaskAddress("job-none", "worker", 0), 0, 1)
    assert await scene.runtime.logs.size(TaskAddress("job-none", "worker", 0)) == 0


async def test_samples_are_kept_by_task(scene: DrivenScene) -> None:
    launch = scene.make("one", exit_code=0)
    await scene.run(launch)
    task = task_of(launch.attempt)
    assert await scene.runtime.samples.read(task) == []
    for second in (1.0, 2.0):
        await scene.runtime.samples.append({task: Sample(second, second / 4, 1000)})
    assert [sample.at for sample in await scene.runtime.samples.read(task)] == [1.0, 2.0]
    await scene.runtime.logs.remove([task.job])
    assert await scene.runtime.samples.read(task) == []


async def test_the_folder_of_a_job_is_its_own(scene: DrivenScene) -> None:
    assert scene.runtime.job_folder("job-a") != scene.runtime.job_folder("job-b")
    assert scene.runtime.job_folder("job-a") == scene.runtime.job_folder("job-a")
