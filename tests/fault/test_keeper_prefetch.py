"""Prefetching when the keeper is killed, and with a keeper of an earlier version: nothing starts twice, nothing is lost."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.prefetch import PrefetchRequest, Returned
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Launch, Started
from tests.keeper_scene import counted, kill_keeper, times_run
from tests.patience import soon
from tests.runtime_scene import Scene, open_local, opened

MANY = 24

#: As `link.KEEPER_COMMAND`, with a keeper that says it is older than prefetching.
OLDER = (
    sys.executable, "-I", "-S", "-X", "utf8", "-c",
    "import sys; sys.path.append(sys.argv[1]); from paddleflow.runtimes.local import keeper; "
    "keeper.PROTOCOL = 2; keeper.main(sys.argv[2], int(sys.argv[3]))",
)  # fmt: skip


def in_class(launch: Launch, *, waiting: bool) -> Launch:
    return replace(launch, prefetch=PrefetchRequest("small", waiting))


async def run_all(scene: Scene, launches: list[Launch], rng: random.Random) -> None:
    """Two have slots, the others wait for one; what is returned gets a slot. The keeper dies now and then."""
    deaths = sorted(rng.sample(range(1, MANY - 2), 3))
    names = {launch.attempt: launch for launch in launches}
    await scene.runtime.start([in_class(each, waiting=number > 1) for number, each in enumerate(launches)])
    returned = 0
    while len({end.attempt for end in scene.reported(Ended)}) < MANY:
        before = len(scene.seen)
        await scene.until(lambda known=before: len(scene.seen) > known)  # type: ignore[misc]
        if deaths and len(scene.reported(Ended)) >= deaths[0]:
            deaths.pop(0)
            kill_keeper(scene.folder)
        back = [names[seen.attempt] for seen in scene.reported(Returned)][returned:]
        returned += len(back)
        await scene.runtime.start([in_class(each, waiting=False) for each in back])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(4))
async def test_what_waits_for_a_slot_when_the_keeper_dies_runs_once(tmp_path: Path, seed: int) -> None:
    async with opened(open_local, tmp_path) as scene:
        launches = [counted(scene, f"n{number}", "sleep 0.01") for number in range(MANY)]
        await run_all(scene, launches, random.Random(seed))
        assert [times_run(scene, f"n{number}") for number in range(MANY)] == [1] * MANY
        assert all(end.exit_code == 0 or "not known" in end.message for end in scene.reported(Ended))


async def test_an_older_keeper_is_given_no_prefetched_launch(tmp_path: Path) -> None:
    async with opened(partial(open_local, keeper=OLDER), tmp_path) as scene:
        first, second = (counted(scene, name, "true") for name in ("first", "second"))
        await scene.runtime.start([in_class(first, waiting=False), in_class(second, waiting=True)])
        await scene.until(lambda: bool(scene.reported(Returned, second.attempt)))
        assert (await scene.end_of(first)).successor is None
        assert times_run(scene, "second") == 0


async def test_what_a_new_keeper_was_given_is_not_returned_by_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state was asked for before: what was sent since may be running, and the engine would start it again."""
    async with opened(open_local, tmp_path) as scene:
        runtime, states = scene.runtime, list[list[AttemptObservation]]()
        assert isinstance(runtime, LocalRuntime)
        take = runtime._take_state
        monkeypatch.setattr(runtime, "_take_state", states.append)
        gate = tmp_path / "gate"
        wait = f"until [ -e {gate} ]; do sleep 0.02; done"
        before, first = (counted(scene, name, wait) for name in ("before", "first"))
        second = counted(scene, "second", "true")
        await runtime.start([before])
        await scene.until(lambda: bool(scene.reported(Started)))
        kill_keeper(scene.folder)
        await soon(lambda: bool(states), "the next keeper has told its state")
        await runtime.start([in_class(first, waiting=False), in_class(second, waiting=True)])
        monkeypatch.undo()
        take(states[0])
        gate.touch()
        assert (await scene.end_of(first)).successor == second.attempt
        assert (await scene.end_of(second)).exit_code == 0
        assert not scene.reported(Returned)
        assert times_run(scene, "second") == 1
