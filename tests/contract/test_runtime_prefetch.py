"""The contract of prefetching: a waiting launch takes the slot of another of its class, or is returned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.prefetch import PrefetchRequest, Returned
from paddleflow.runtimes.runtime import Launch, Started
from tests.contract.test_runtime import OPENERS
from tests.patience import soon
from tests.runtime_scene import Scene, gated, open_gate, opened, story


@pytest.fixture(params=sorted(OPENERS))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(OPENERS[request.param], tmp_path) as made:
        yield made


def prefetched(launch: Launch, *after: Launch) -> Launch:
    return replace(launch, prefetch=PrefetchRequest("small", True, tuple(each.attempt for each in after)))


async def withdraw(scene: Scene, attempts: list[AttemptId]) -> None:
    assert scene.runtime.prefetching is not None
    await scene.runtime.prefetching.withdraw(attempts)


def with_slot(launch: Launch) -> Launch:
    return replace(launch, prefetch=PrefetchRequest("small"))


async def test_a_prefetched_launch_starts_in_the_slot_of_another(scene: Scene) -> None:
    first, second, third = (gated(scene, name) for name in ("first", "second", "third"))
    await scene.runtime.start([with_slot(first), prefetched(second), prefetched(third)])
    await scene.until(lambda: bool(scene.reported(Started, first.attempt)))
    open_gate(scene, "first", "second")
    assert (await scene.end_of(first)).successor == second.attempt
    assert (await scene.end_of(second)).successor == third.attempt
    open_gate(scene, "third")
    end = await scene.end_of(third)
    assert (end.exit_code, end.successor) == (0, None)
    assert end.started_at is not None
    assert story(scene) == [f"{name} {word}" for name in ("first", "second", "third") for word in ("begins", "ends")]


async def test_no_more_run_at_once_than_were_given_a_slot(scene: Scene) -> None:
    first, *others = (gated(scene, f"n{number}") for number in range(6))
    other, *waiting = others
    await scene.runtime.start([with_slot(first), with_slot(other), *map(prefetched, waiting)])
    await soon(lambda: sorted(story(scene)) == ["n0 begins", "n1 begins"])
    open_gate(scene, *(f"n{number}" for number in range(6)))
    for launch in (first, *others):
        await scene.end_of(launch)
    running = most = 0
    for line in story(scene):
        running += 1 if line.endswith("begins") else -1
        most = max(most, running)
    assert (most, len(story(scene))) == (2, 12)


async def test_after_a_failure_all_of_the_slot_class_is_returned(scene: Scene) -> None:
    bad, other = scene.shell("bad", "exit 3"), gated(scene, "other")
    waiting = [scene.shell(name, f"touch {scene.folder}/ran") for name in ("one", "two")]
    await scene.runtime.start([with_slot(other), *map(prefetched, waiting), with_slot(bad)])
    end = await scene.end_of(bad)
    assert (end.exit_code, end.successor) == (3, None)
    await scene.until(lambda: {seen.attempt for seen in scene.reported(Returned)} == {each.attempt for each in waiting})
    open_gate(scene, "other")
    assert (await scene.end_of(other)).successor is None
    assert not (scene.folder / "ran").exists()


async def test_what_is_withdrawn_never_starts_and_may_be_started_later(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", "exit 4")
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await withdraw(scene, [second.attempt, first.attempt, AttemptId("job-none.worker-0.1")])
    await scene.until(lambda: bool(scene.reported(Returned)))
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor is None
    assert [seen.attempt for seen in scene.reported(Returned)] == [second.attempt]
    assert (await scene.run(with_slot(second))).exit_code == 4


async def test_what_follows_nothing_is_returned(scene: Scene) -> None:
    launch = scene.shell("alone", "true")
    await scene.runtime.start([prefetched(launch)])
    await scene.until(lambda: bool(scene.reported(Returned, launch.attempt)))
    assert (await scene.run(with_slot(launch))).exit_code == 0


async def test_what_waits_may_be_given_a_slot_of_its_own(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", "true")
    await scene.runtime.start([with_slot(first), prefetched(second)])
    assert (await scene.run(with_slot(second))).exit_code == 0
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor is None


async def test_what_is_stopped_while_it_waits_never_runs(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", f"touch {scene.folder}/ran")
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await scene.runtime.stop([second.attempt], 5.0)
    end = await scene.end_of(second)
    assert (end.exit_code, end.message) == (None, "stopped before it ran")
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor is None
    assert not (scene.folder / "ran").exists()


async def test_what_comes_after_another_waits_for_it(scene: Scene) -> None:
    first, other, last = gated(scene, "first"), gated(scene, "other"), scene.shell("last", "true")
    await scene.runtime.start([with_slot(first), with_slot(other), prefetched(last, first)])
    open_gate(scene, "other")
    assert (await scene.end_of(other)).successor is None
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor == last.attempt
    assert (await scene.end_of(last)).exit_code == 0


async def test_nobody_follows_one_that_never_was_or_that_was_withdrawn(scene: Scene) -> None:
    first, second, third = gated(scene, "first"), scene.shell("second", "true"), scene.shell("third", "true")
    never = scene.shell("never", "true")
    await scene.runtime.start([with_slot(first), prefetched(second), prefetched(third, second)])
    await withdraw(scene, [second.attempt])
    await scene.until(lambda: [seen.attempt for seen in scene.reported(Returned)] == [second.attempt, third.attempt])
    await scene.runtime.start([prefetched(third, never)])
    await scene.until(lambda: len(scene.reported(Returned, third.attempt)) == 2)
    await scene.runtime.start([prefetched(second), prefetched(third, second)])
    await scene.runtime.stop([second.attempt], 0.0)
    await scene.until(lambda: len(scene.reported(Returned, third.attempt)) == 3)
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor is None


async def test_the_next_server_finds_nothing_waiting(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", f"touch {scene.folder}/ran")
    await scene.runtime.start([with_slot(first), prefetched(second)])
    await scene.until(lambda: bool(scene.reported(Started, first.attempt)))
    await scene.reopen()
    assert {seen.attempt for seen in await scene.runtime.adopt()} == {first.attempt}
    open_gate(scene, "first")
    assert (await scene.end_of(first)).successor is None
    assert not (scene.folder / "ran").exists()
