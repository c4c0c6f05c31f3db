"""The contract of lanes, with real processes: who is ahead takes the place of another of its lane, or is given back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.runtime import Launch, Recalled, Started
from tests.contract.test_runtime import OPENERS
from tests.patience import soon
from tests.runtime_scene import Scene, gated, open_gate, opened, story


@pytest.fixture(params=sorted(OPENERS))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(OPENERS[request.param], tmp_path) as made:
        yield made


def in_lane(launch: Launch, *after: Launch, ahead: bool = True) -> Launch:
    return replace(launch, lane="small", ahead=ahead, after=tuple(each.attempt for each in after))


async def test_what_is_ahead_begins_in_the_place_of_another(scene: Scene) -> None:
    first, second, third = (gated(scene, name) for name in ("first", "second", "third"))
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second), in_lane(third)])
    await scene.until(lambda: bool(scene.told(Started, first.attempt)))
    open_gate(scene, "first", "second")
    assert (await scene.end_of(first)).heir == second.attempt
    assert (await scene.end_of(second)).heir == third.attempt
    open_gate(scene, "third")
    end = await scene.end_of(third)
    assert (end.exit_code, end.heir) == (0, None)
    assert end.started_at is not None
    assert story(scene) == [f"{name} {word}" for name in ("first", "second", "third") for word in ("begins", "ends")]


async def test_no_more_run_at_once_than_were_given_a_place(scene: Scene) -> None:
    first, *others = (gated(scene, f"n{number}") for number in range(6))
    other, *ahead = others
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(other, ahead=False), *map(in_lane, ahead)])
    await soon(lambda: sorted(story(scene)) == ["n0 begins", "n1 begins"])
    open_gate(scene, *(f"n{number}" for number in range(6)))
    for launch in (first, *others):
        await scene.end_of(launch)
    running = most = 0
    for line in story(scene):
        running += 1 if line.endswith("begins") else -1
        most = max(most, running)
    assert (most, len(story(scene))) == (2, 12)


async def test_after_a_failure_all_of_the_lane_is_given_back(scene: Scene) -> None:
    bad, other = scene.shell("bad", "exit 3"), gated(scene, "other")
    ahead = [scene.shell(name, f"touch {scene.folder}/ran") for name in ("one", "two")]
    await scene.runtime.start([in_lane(other, ahead=False), *map(in_lane, ahead), in_lane(bad, ahead=False)])
    end = await scene.end_of(bad)
    assert (end.exit_code, end.heir) == (3, None)
    await scene.until(lambda: {seen.attempt for seen in scene.told(Recalled)} == {each.attempt for each in ahead})
    open_gate(scene, "other")
    assert (await scene.end_of(other)).heir is None
    assert not (scene.folder / "ran").exists()


async def test_what_is_recalled_never_begins_and_may_be_started_later(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", "exit 4")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second)])
    await scene.runtime.recall([second.attempt, first.attempt, AttemptId("job-none.worker-0.1")])
    await scene.until(lambda: bool(scene.told(Recalled)))
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir is None
    assert [seen.attempt for seen in scene.told(Recalled)] == [second.attempt]
    assert (await scene.run(in_lane(second, ahead=False))).exit_code == 4


async def test_what_is_ahead_of_nothing_is_given_back(scene: Scene) -> None:
    launch = scene.shell("alone", "true")
    await scene.runtime.start([in_lane(launch)])
    await scene.until(lambda: bool(scene.told(Recalled, launch.attempt)))
    assert (await scene.run(in_lane(launch, ahead=False))).exit_code == 0


async def test_what_is_ahead_may_be_given_a_place_of_its_own(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", "true")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second)])
    assert (await scene.run(in_lane(second, ahead=False))).exit_code == 0
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir is None


async def test_what_is_stopped_in_its_lane_never_runs(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", f"touch {scene.folder}/ran")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second)])
    await scene.runtime.stop([second.attempt], 5.0)
    end = await scene.end_of(second)
    assert (end.exit_code, end.message) == (None, "stopped before it ran")
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir is None
    assert not (scene.folder / "ran").exists()


async def test_what_comes_after_another_waits_for_it(scene: Scene) -> None:
    first, other, last = gated(scene, "first"), gated(scene, "other"), scene.shell("last", "true")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(other, ahead=False), in_lane(last, first)])
    open_gate(scene, "other")
    assert (await scene.end_of(other)).heir is None
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir == last.attempt
    assert (await scene.end_of(last)).exit_code == 0


async def test_nobody_follows_one_that_never_was_or_that_was_taken_back(scene: Scene) -> None:
    first, second, third = gated(scene, "first"), scene.shell("second", "true"), scene.shell("third", "true")
    never = scene.shell("never", "true")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second), in_lane(third, second)])
    await scene.runtime.recall([second.attempt])
    await scene.until(lambda: [seen.attempt for seen in scene.told(Recalled)] == [second.attempt, third.attempt])
    await scene.runtime.start([in_lane(third, never)])
    await scene.until(lambda: len(scene.told(Recalled, third.attempt)) == 2)
    await scene.runtime.start([in_lane(second), in_lane(third, second)])
    await scene.runtime.stop([second.attempt], 0.0)
    await scene.until(lambda: len(scene.told(Recalled, third.attempt)) == 3)
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir is None


async def test_the_next_server_finds_nothing_ahead(scene: Scene) -> None:
    first, second = gated(scene, "first"), scene.shell("second", f"touch {scene.folder}/ran")
    await scene.runtime.start([in_lane(first, ahead=False), in_lane(second)])
    await scene.until(lambda: bool(scene.told(Started, first.attempt)))
    await scene.reopen()
    assert {seen.attempt for seen in await scene.runtime.adopt()} == {first.attempt}
    open_gate(scene, "first")
    assert (await scene.end_of(first)).heir is None
    assert not (scene.folder / "ran").exists()
