"""The contract of prefetching: a waiting launch takes the slot of another of its class, or is returned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.prefetch import PrefetchRequest, Returned
from paddleflow.runtimes.runtime import Ended, Launch, Started
from tests.runtime_driver import DRIVERS, DrivenScene


@pytest.fixture(params=sorted(DRIVERS))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DrivenScene]:
    made = DrivenScene(DRIVERS[request.param](tmp_path), tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.end()


def finish(scene: DrivenScene, *launches: Launch) -> None:
    for launch in launches:
        scene.driver.finish(launch)


def prefetched(launch: Launch, *after: Launch) -> Launch:
    return replace(launch, prefetch=PrefetchRequest("small", True, tuple(each.attempt for each in after)))


async def withdraw(scene: DrivenScene, attempts: list[AttemptId]) -> None:
    assert scene.runtime.prefetching is not None
    await scene.runtime.prefetching.withdraw(attempts)


def most_at_once(scene: DrivenScene) -> int:
    """How many ran at the same time, by what their ends say; who takes a slot starts when the other one has ended."""
    moments = [(end.at, -1) for end in scene.reported(Ended)]
    moments += [(end.started_at, 1) for end in scene.reported(Ended) if end.started_at is not None]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


def with_slot(launch: Launch) -> Launch:
    return replace(launch, prefetch=PrefetchRequest("small"))


async def test_a_prefetched_launch_starts_in_the_slot_of_another(scene: DrivenScene) -> None:
    first, second, third = (scene.make(name) for name in ("first", "second", "third"))
    await scene.runtime.start([with_slot(first), prefetched(second), prefetched(third)])
    await scene.until(lambda: bool(scene.reported(Started, first.attempt)))
    finish(scene, first, second)
    assert (await scene.end_of(first)).successor == second.attempt
    assert (await scene.end_of(second)).successor == third.attempt
    finish(scene, third)
    end = await scene.end_of(third)
    assert (end.exit_code, end.successor) == (0, None)
    assert most_at_once(scene) == 1
    assert [scene.driver.times_started(launch) for launch in (first, second, third)] == [1, 1, 1]


async def test_no_more_run_at_once_than_were_given_a_slot(scene: DrivenScene) -> None:
    first, *others = (scene.make(f"n{number}") for number in range(6))
    other, *waiting = others
    await scene.runtime.start([with_slot(first), with_slot(other), *map(prefetched, waiting)])
    await scene.until(lambda: len(scene.reported(Started)) == 2)
    finish(scene, first, *others)
    for launch in (first, *others):
        await scene.end_of(launch)
    assert most_at_once(scene) == 2


async def test_after_a_failure_all_of_the_slot_class_is_returned(scene: DrivenScene) -> None:
    bad, other = scene.make("bad", exit_code=3), scene.make("other")
    waiting = [scene.make(name, exit_code=0) for name in ("one", "two")]
    await scene.runtime.start([with_slot(other), *map(prefetched, waiting), with_slot(bad)])
    end = await scene.end_of(bad)
    assert (end.exit_code, end.successor) == (3, None)
    await scene.until(lambda: {seen.attempt for seen in scene.reported(Returned)} == {each.attempt for each in waiting})
    finish(scene, other)
    assert (await scene.end_of(other)).successor is None
    assert [scene.driver.times_started(each) for each in waiting] == [0, 0]


async def test_what_is_withdrawn_never_starts_and_may_be_started_later(scene: DrivenScene) -> None:
    first, second = scene.make("first"), scene.make("second", exit_code=4)
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await withdraw(scene, [second.attempt, first.attempt, AttemptId("job-none.worker-0.1")])
    await scene.until(lambda: bool(scene.reported(Returned)))
    finish(scene, first)
    assert (await scene.end_of(first)).successor is None
    assert [seen.attempt for seen in scene.reported(Returned)] == [second.attempt]
    assert (await scene.run(with_slot(second))).exit_code == 4


async def test_what_follows_nothing_is_returned(scene: DrivenScene) -> None:
    launch = scene.make("alone", exit_code=0)
    await scene.runtime.start([prefetched(launch)])
    await scene.until(lambda: bool(scene.reported(Returned, launch.attempt)))
    assert (await scene.run(with_slot(launch))).exit_code == 0


async def test_what_waits_may_be_given_a_slot_of_its_own(scene: DrivenScene) -> None:
    first, second = scene.make("first"), scene.make("second", exit_code=0)
    await scene.runtime.start([with_slot(first), prefetched(second)])
    assert (await scene.run(with_slot(second))).exit_code == 0
    finish(scene, first)
    assert (await scene.end_of(first)).successor is None


async def test_what_is_stopped_while_it_waits_never_runs(scene: DrivenScene) -> None:
    first, second = scene.make("first"), scene.make("second", exit_code=0)
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await scene.runtime.stop([second.attempt], 5.0)
    end = await scene.end_of(second)
    assert (end.exit_code, end.message) == (None, "stopped before it ran")
    finish(scene, first)
    assert (await scene.end_of(first)).successor is None
    assert scene.driver.times_started(second) == 0


async def test_what_comes_after_another_waits_for_it(scene: DrivenScene) -> None:
    first, other, last = scene.make("first"), scene.make("other"), scene.make("last", exit_code=0)
    await scene.runtime.start([with_slot(first), with_slot(other), prefetched(last, first)])
    finish(scene, other)
    assert (await scene.end_of(other)).successor is None
    finish(scene, first)
    assert (await scene.end_of(first)).successor == last.attempt
    assert (await scene.end_of(last)).exit_code == 0


async def test_nobody_follows_one_that_never_was_or_that_was_withdrawn(scene: DrivenScene) -> None:
    first, second, third = scene.make("first"), scene.make("second", exit_code=0), scene.make("third", exit_code=0)
    never = scene.make("never", exit_code=0)
    await scene.runtime.start([with_slot(first), prefetched(second), prefetched(third, second)])
    await withdraw(scene, [second.attempt])
    await scene.until(lambda: [seen.attempt for seen in scene.reported(Returned)] == [second.attempt, third.attempt])
    await scene.runtime.start([prefetched(third, never)])
    await scene.until(lambda: len(scene.reported(Returned, third.attempt)) == 2)
    await scene.runtime.start([prefetched(second), prefetched(third, second)])
    await scene.runtime.stop([second.attempt], 0.0)
    await scene.until(lambda: len(scene.reported(Returned, third.attempt)) == 3)
    finish(scene, first)
    assert (await scene.end_of(first)).successor is None


async def test_the_next_server_finds_nothing_waiting(scene: DrivenScene) -> None:
    first, second = scene.make("first"), scene.make("second", exit_code=0)
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await scene.until(lambda: bool(scene.reported(Started, first.attempt)))
    await scene.reopen()
    assert {seen.attempt for seen in await scene.runtime.adopt()} == {first.attempt}
    finish(scene, first)
    assert (await scene.end_of(first)).successor is None
    assert scene.driver.times_started(second) == 0
