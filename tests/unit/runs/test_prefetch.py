"""Steps whose jobs are made before their time has come: who follows whom, and how that is taken back."""

from __future__ import annotations

import pytest

from paddleflow.runs.facts import BreakpointsSet, JobRefused, StopRequested, TimePassed
from paddleflow.runs.model import PAUSED
from paddleflow.runs.prefetch import FURTHER, FURTHEST
from paddleflow.spec.pipeline.model import Component, Pipeline, Retry, Step
from tests.run_world import RunWorld, run_row


def wide(count: int, parallelism: int) -> RunWorld:
    steps: dict[str, Component] = {f"s{n}": Step(f"s{n}", "true") for n in range(count)}
    return RunWorld(Pipeline("p", steps, parallelism=parallelism))


def chain(*steps: Step) -> RunWorld:
    return RunWorld(Pipeline("p", {step.name: step for step in steps}))


def step(name: str, *deps: str, **more: object) -> Step:
    return Step(name, "true", deps=deps, **more)  # type: ignore[arg-type]  # fields of a step, by name


def succeed(world: RunWorld, name: str) -> None:
    """A step at work ends well, and the machine hears of it."""
    number = next(n for n in world.running if world.state.instances[n].full_name == name)
    tell_all(world)
    world.end_job(number, "succeeded")
    tell_all(world)


def tell_all(world: RunWorld) -> None:
    while world.pending:
        world.tell(world.pending.pop(0))


def finish(world: RunWorld) -> None:
    """All that is at work ends well, or as it was asked, until the run has ended."""
    tell_all(world)
    while not world.state.status.final:
        number = min(world.running)
        world.end_job(number, "terminated" if number in world.stops else "succeeded")
        tell_all(world)


def held(world: RunWorld) -> list[str]:
    return [world.state.instances[number].full_name for number in world.held]


def test_nobody_follows_before_a_step_was_short() -> None:
    world = wide(6, 2)
    tell_all(world)
    assert (world.started, held(world)) == (["s0", "s1"], [])
    world.now += 10.0
    succeed(world, "s0")
    assert (world.started, held(world)) == (["s0", "s1", "s2"], [])


def test_after_each_short_step_more_of_those_that_wait_for_a_slot_follow() -> None:
    world = wide(9, 2)
    succeed(world, "s0")
    assert (world.started, held(world)) == (["s0", "s1", "s2"], ["s3", "s4", "s5", "s6"])
    assert world.followers == []
    succeed(world, "s1")
    assert (world.started[-1], held(world)) == ("s3", ["s4", "s5", "s6", "s7", "s8"])


def test_each_follows_one_so_that_no_more_are_at_work_than_may_be() -> None:
    world = wide(9, 2)
    succeed(world, "s0")  # s1 and s2 are at work; s3 follows s1, s4 follows s2
    world.end_job(2, "succeeded")
    assert [world.state.instances[number].full_name for number in world.followers] == ["s3"]
    world.follow(world.followers[0])
    assert world.followers == []
    assert sorted(world.started) == ["s0", "s1", "s2", "s3"]
    finish(world)
    assert sorted(world.started) == [f"s{n}" for n in range(9)]


def test_a_step_follows_the_one_that_it_waits_for() -> None:
    world = chain(step("a"), step("b", "a"), step("c", "b"), step("d", "c"))
    succeed(world, "a")
    assert (world.started, held(world)) == (["a", "b"], ["c", "d"])
    for expected in (["c"], ["d"]):
        number = max(world.running)
        world.end_job(number, "succeeded")
        assert [world.state.instances[n].full_name for n in world.followers] == expected
        world.follow(world.followers[0])
    world.end_job(max(world.running), "succeeded")
    tell_all(world)
    assert world.state.status == "succeeded"
    assert world.started == ["a", "b", "c", "d"]


def test_a_chain_looks_further_with_each_step_that_was_short_and_never_runs_dry() -> None:
    steps: dict[str, Component] = {f"s{n}": step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(100)}
    world = RunWorld(Pipeline("p", steps, parallelism=2))
    ahead = []
    for number in range(30):
        succeed(world, f"s{number}")
        ahead.append(len(held(world)))
    assert ahead[:3] == [FURTHER, 2 * FURTHER, 3 * FURTHER]
    assert set(ahead[FURTHEST // FURTHER :]) == {FURTHEST}


def test_a_step_that_waits_for_more_than_steps_at_work_does_not_follow() -> None:
    world = chain(step("a"), step("b", "a"), step("c", "b", condition="1 < 2"), step("d", "b", "c"))
    succeed(world, "a")
    assert (world.started, held(world)) == (["a", "b"], [])
    succeed(world, "b")
    assert (world.started, held(world)) == (["a", "b", "c"], [])


def test_nobody_follows_past_a_breakpoint_or_to_a_disabled_step() -> None:
    steps: dict[str, Component] = {each.name: each for each in (step("a"), step("b", "a"), step("c", "b"))}
    paused = Pipeline("p", steps)
    world = RunWorld(paused, row=run_row(paused, breakpoints='["c"]'))
    succeed(world, "a")
    assert (world.started, held(world)) == (["a", "b"], [])
    world = RunWorld(Pipeline("p", steps, disabled=frozenset({"c"})))
    succeed(world, "a")
    assert (world.started, held(world)) == (["a", "b"], [])


def test_who_follows_a_failure_is_cancelled_and_its_job_withdrawn() -> None:
    world = chain(step("a"), step("b", "a"), step("c", "b"))
    succeed(world, "a")
    world.end_job(max(world.running), "failed", "exit 1", 1)
    assert world.followers == []
    tell_all(world)
    assert world.statuses == {"a": "succeeded", "b": "failed", "c": "cancelled"}
    assert world.held == {}
    assert [row["tries"] for row in world.rows.values() if row["full_name"] == "c"] == [0]


def test_nobody_follows_a_step_that_is_tried_again() -> None:
    world = chain(step("a"), step("b", "a", retry=Retry(times=1, delay=5.0)), step("c", "b"))
    succeed(world, "a")
    assert held(world) == ["c"]
    world.end_job(max(world.running), "failed", "exit 1", 1)
    tell_all(world)
    assert held(world) == []
    assert set(world.statuses) == {"a", "b"}, "c has not begun after all"
    world.tell(TimePassed(world.now + 5.0))
    tell_all(world)
    assert held(world) == ["c"]
    succeed(world, "b")
    succeed(world, "c")
    assert world.state.status == "succeeded"
    assert world.started == ["a", "b", "b", "c"]


def test_a_breakpoint_holds_for_who_is_ahead() -> None:
    world = chain(step("a"), step("b", "a"), step("c", "b"), step("d", "c"))
    succeed(world, "a")
    assert held(world) == ["c", "d"]
    world.tell(BreakpointsSet(world.now, frozenset({"c"})))
    assert held(world) == []
    succeed(world, "b")
    assert [(row["full_name"], row["message"]) for row in world.rows.values() if row["message"]] == [("c", PAUSED)]
    world.tell(BreakpointsSet(world.now, frozenset()))
    succeed(world, "c")
    succeed(world, "d")
    assert world.started == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("refused", "left"), [("s3", ["s2"]), ("s2", ["s3"])])
def test_who_is_refused_ahead_of_its_time_is_asked_again_at_its_time(refused: str, left: list[str]) -> None:
    world = wide(4, 1)
    succeed(world, "s0")
    assert held(world) == ["s2", "s3"], "s3 follows s2"
    number = next(each for each in world.held if world.state.instances[each].full_name == refused)
    del world.jobs[world.held.pop(number)]
    world.state.instances[number].job = ""
    world.tell(JobRefused(world.now, number, "the queue is closed"))
    assert (held(world), world.started) == (left, ["s0", "s1"])
    finish(world)
    assert sorted(world.started) == ["s0", "s1", "s2", "s3"]


def test_after_a_restart_who_was_held_back_is_still() -> None:
    world = chain(step("a"), step("b", "a"), step("c", "b"))
    succeed(world, "a")
    world.restart()
    tell_all(world)
    assert (held(world), world.started) == (["c"], ["a", "b"])
    succeed(world, "b")
    succeed(world, "c")
    assert world.state.status == "succeeded"


def test_a_stop_takes_back_who_is_ahead() -> None:
    world = wide(9, 2)
    succeed(world, "s0")
    world.tell(StopRequested(world.now, False, "stopped by alice"))
    assert world.held == {}
    assert world.statuses["s3"] == "cancelled"
    finish(world)
    assert (str(world.state.status), sorted(world.started)) == ("terminated", ["s0", "s1", "s2"])
