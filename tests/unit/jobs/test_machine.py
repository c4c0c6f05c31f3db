"""The job machine: scenarios, and random histories that must keep its promises."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.frameworks.framework import Completion
from paddleflow.jobs.facts import (
    Evicted,
    Fact,
    Halt,
    Key,
    Launch,
    MemberEnded,
    MemberReady,
    MemberStarted,
    Placed,
    Release,
    Replace,
    Requeue,
    Resized,
    Shrunk,
    StopAsked,
)
from paddleflow.jobs.machine import JobState, Lifecycle, advance
from paddleflow.jobs.model import JobStatus, TaskStatus

ALONE = Lifecycle(stages=(("worker",),), completing=frozenset({"worker"}))
SERVERS_FIRST = Lifecycle(stages=(("pserver",), ("worker",)), completing=frozenset({"worker"}))
W0, W1, P0 = ("worker", 0), ("worker", 1), ("pserver", 0)


def play(state: JobState, *facts: Fact) -> tuple[JobState, list[object]]:
    commands: list[object] = []
    for fact in facts:
        state, more = advance(state, fact)
        commands += more
    return state, commands


def test_one_process_from_start_to_end() -> None:
    state, commands = play(JobState("job-1", ALONE), Placed(1, (W0,)), MemberStarted(2, W0))
    assert state.status is JobStatus.RUNNING
    assert state.started_at == 2
    assert commands == [Launch((W0,))]
    state, commands = play(state, MemberEnded(5, W0, 0))
    assert (state.status, state.finished_at, state.message) == (JobStatus.SUCCEEDED, 5, "")
    assert commands == [Release()]


def test_a_waiting_job_ends_at_once_when_stopped() -> None:
    state, commands = play(JobState("job-1", ALONE), StopAsked(2, "stopped by ann"))
    assert (state.status, state.message, commands) == (JobStatus.TERMINATED, "stopped by ann", [])


def test_workers_start_when_the_servers_are_ready_and_servers_stop_when_workers_are_done() -> None:
    state, commands = play(JobState("job-1", SERVERS_FIRST), Placed(1, (P0, W0, W1)), MemberStarted(2, P0))
    assert commands == [Launch((P0,))]
    assert state.status is JobStatus.PENDING
    state, commands = play(state, MemberReady(3, P0))
    assert commands == [Launch((W0, W1))]
    state, commands = play(state, MemberStarted(4, W0), MemberStarted(4, W1), MemberEnded(9, W0, 0))
    assert state.status is JobStatus.RUNNING
    assert commands == []
    state, commands = play(state, MemberEnded(10, W1, 0))
    assert commands == [Halt((P0,))]
    assert state.status is JobStatus.RUNNING
    state, commands = play(state, MemberEnded(11, P0, 143))
    assert (state.status, commands) == (JobStatus.SUCCEEDED, [Release()])
    assert state.tasks[0].status is TaskStatus.STOPPED


def test_the_first_failure_decides_and_is_named() -> None:
    shape = Lifecycle(stages=(("worker",),), completing=frozenset({"worker"}))
    state, _ = play(JobState("job-1", shape), Placed(1, (W0, W1)), MemberStarted(2, W0), MemberStarted(2, W1))
    state, commands = play(state, MemberEnded(3, W1, 7), MemberEnded(4, W0, 143))
    assert commands == [Halt((W0,)), Release()]
    assert (state.status, state.message) == (JobStatus.FAILED, "worker-1 exited with code 7")


def test_a_failure_stays_named_when_another_member_starts_after_it() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0, W1)), MemberStarted(2, W1), MemberEnded(3, W1, 7))
    state, _ = play(state, MemberStarted(4, W0), MemberEnded(5, W0, 143))
    assert (state.status, state.message) == (JobStatus.FAILED, "worker-1 exited with code 7")


def test_a_server_that_fails_before_the_workers_started_fails_the_job() -> None:
    state, commands = play(
        JobState("job-1", SERVERS_FIRST), Placed(1, (P0, W0)), MemberEnded(2, P0, 127, "no such file")
    )
    assert state.status is JobStatus.FAILED
    assert commands == [Launch((P0,)), Release()]
    assert state.message == "pserver-0 exited with code 127: no such file"


def test_a_job_with_a_restart_policy_goes_back_to_the_queue_and_fails_after_the_limit() -> None:
    state = JobState("job-1", replace(ALONE, restarts=1))
    state, commands = play(state, Placed(1, (W0,)), MemberStarted(2, W0), MemberEnded(3, W0, 1))
    assert commands == [Launch((W0,)), Release(), Requeue(4.0)]
    assert (state.status, state.placed, state.not_before) == (JobStatus.PENDING, False, 4.0)
    assert state.tasks[0].exit_code == 1
    state, commands = play(state, Placed(5, (W0,)), MemberStarted(6, W0), MemberEnded(7, W0, 1))
    assert (state.status, state.attempt) == (JobStatus.FAILED, 2)


def test_a_stop_wins_over_a_restart() -> None:
    state = JobState("job-1", replace(ALONE, restarts=5))
    state, _ = play(state, Placed(1, (W0, W1)), MemberStarted(2, W0), MemberStarted(2, W1), MemberEnded(3, W0, 1))
    state, _ = play(state, StopAsked(4, "enough"), MemberEnded(5, W1, 143))
    assert state.status is JobStatus.TERMINATED


def test_a_stop_halts_what_runs_and_drops_what_waits() -> None:
    state, _ = play(JobState("job-1", SERVERS_FIRST), Placed(1, (P0, W0)), MemberStarted(2, P0))
    state, commands = play(state, StopAsked(3, "stopped"))
    assert commands == [Halt((P0,))]
    assert state.status is JobStatus.TERMINATING
    assert state.tasks[1].status is TaskStatus.STOPPED
    state, commands = play(state, StopAsked(4, "again"), MemberEnded(5, P0, 143))
    assert (state.status, state.message, commands) == (JobStatus.TERMINATED, "stopped", [Release()])


def test_any_completion_needs_one_member() -> None:
    shape = replace(ALONE, completion=Completion.ANY)
    state, commands = play(
        JobState("job-1", shape), Placed(1, (W0, W1)), MemberStarted(1, W0), MemberStarted(1, W1), MemberEnded(2, W1, 0)
    )
    assert commands[-1] == Halt((W0,))
    assert state.outcome is JobStatus.SUCCEEDED


def test_a_lost_member_is_said_in_words() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0,)), MemberEnded(2, W0, None, "the machine restarted"))
    assert (state.status, state.message) == (JobStatus.FAILED, "the machine restarted")


def test_an_evicted_job_waits_again_and_its_attempt_does_not_count_as_a_failure() -> None:
    state = JobState("job-1", replace(ALONE, restarts=1))
    state, _ = play(state, Placed(1, (W0,)), MemberStarted(2, W0))
    state, commands = play(state, Evicted(3, "made way for job-2"))
    assert (state.status, commands) == (JobStatus.PREEMPTING, [Halt((W0,))])
    state, commands = play(state, Evicted(4, "again"), MemberEnded(5, W0, 143))
    assert (state.status, commands) == (JobStatus.PENDING, [Release(), Requeue(5)])
    assert state.message == "made way for job-2; it waits for a place"
    state, commands = play(state, Placed(6, (W0,)), MemberStarted(6, W0), MemberEnded(7, W0, 1))
    assert (state.status, commands[-1]) == (JobStatus.PENDING, Requeue(8.0)), "the first failure of its own"
    state, _ = play(state, Placed(9, (W0,)), MemberEnded(10, W0, 1))
    assert state.status is JobStatus.FAILED


def test_an_evicted_job_ends_if_it_says_so_and_a_stop_wins() -> None:
    state, _ = play(JobState("job-1", replace(ALONE, requeued=False)), Placed(1, (W0,)), Evicted(3, "made way"))
    state, commands = play(state, MemberEnded(5, W0, 143))
    assert (state.status, commands) == (JobStatus.PREEMPTED, [Release()])
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0,)), Evicted(3, "made way"), StopAsked(4, "stopped by ann"))
    state, commands = play(state, MemberEnded(5, W0, 143))
    assert (state.status, commands) == (JobStatus.TERMINATED, [Release()])


def test_members_come_and_go_while_the_others_run() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0, W1)), MemberStarted(2, W0), MemberStarted(2, W1))
    state, commands = play(state, Resized(3, (), (W1,)))
    assert commands == [Halt((W1,))]
    state, commands = play(state, MemberEnded(4, W1, 143))
    assert (state.status, commands, state.tasks[1].status) == (JobStatus.RUNNING, [Shrunk()], TaskStatus.STOPPED)
    state, commands = play(state, Resized(5, (W1,), ()))
    assert commands == [Launch((W1,))]
    state, commands = play(state, MemberStarted(6, W1), MemberEnded(7, W0, 0))
    assert (state.status, commands) == (JobStatus.RUNNING, [])
    state, commands = play(state, MemberEnded(8, W1, 0))
    assert (state.status, commands) == (JobStatus.SUCCEEDED, [Release()])


def test_a_member_that_goes_is_not_waited_for_when_the_others_are_done() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0, W1)), MemberStarted(2, W0), MemberStarted(2, W1))
    state, commands = play(state, Resized(3, (), (W1,)), MemberEnded(4, W0, 0), MemberEnded(5, W1, 143))
    assert (state.status, commands) == (JobStatus.SUCCEEDED, [Halt((W1,)), Halt((W1,)), Release()])


def test_when_the_last_at_work_is_the_one_that_goes_the_others_have_done_it() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0, W1)), MemberStarted(2, W0), MemberStarted(2, W1))
    state, commands = play(state, MemberEnded(3, W0, 0), Resized(4, (), (W1,)))
    assert (state.status, commands) == (JobStatus.RUNNING, [Halt((W1,))])
    state, commands = play(state, MemberEnded(5, W1, 143))
    assert (state.status, state.finished_at, commands) == (JobStatus.SUCCEEDED, 5, [Release()])


def test_servers_are_not_kept_for_workers_that_have_gone() -> None:
    state, _ = play(JobState("job-1", SERVERS_FIRST), Placed(1, (P0, W0, W1)), MemberStarted(2, P0), MemberReady(2, P0))
    state, _ = play(state, MemberStarted(3, W0), MemberStarted(3, W1), MemberEnded(4, W0, 0), Resized(5, (), (W1,)))
    state, commands = play(state, MemberEnded(6, W1, 143))
    assert commands == [Halt((P0,))]
    state, commands = play(state, MemberEnded(7, P0, 143))
    assert (state.status, commands) == (JobStatus.SUCCEEDED, [Release()])


def test_a_member_that_never_started_may_be_the_last_to_go() -> None:
    state, _ = play(JobState("job-1", SERVERS_FIRST), Placed(1, (P0, W0)), MemberStarted(2, P0))
    state, commands = play(state, Resized(3, (), (W0,)), MemberEnded(4, P0, 0))
    assert (state.status, commands) == (JobStatus.SUCCEEDED, [Shrunk(), Release()])


def test_another_size_may_mean_a_new_beginning() -> None:
    state, _ = play(JobState("job-1", ALONE), Placed(1, (W0,)), MemberStarted(2, W0))
    state, commands = play(state, Resized(3, (W1,), (), "started anew", anew=True))
    assert (state.status, commands) == (JobStatus.RUNNING, [Halt((W0,))])
    state, commands = play(state, MemberEnded(4, W0, 143))
    assert (state.status, state.outcome, commands) == (JobStatus.PENDING, None, [Replace()])
    state, commands = play(state, Placed(4, (W0, W1)))
    assert (state.attempt, state.excused, commands) == (2, 1, [Launch((W0, W1))])


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Lifecycle, tuple[Key, ...]]:
    roles = draw(st.lists(st.sampled_from(["pserver", "worker", "master"]), min_size=1, max_size=3, unique=True))
    completing = draw(st.sets(st.sampled_from(roles), min_size=1))
    shape = Lifecycle(
        tuple((role,) for role in roles),
        frozenset(completing),
        draw(st.sampled_from(list(Completion))),
        draw(st.integers(0, 2)),
    )
    keys = tuple((role, n) for role in roles for n in range(draw(st.integers(1, 3))))
    return shape, keys


@settings(max_examples=120)
@given(shapes(), st.randoms(use_true_random=False))
def test_random_histories_keep_the_promises(case: tuple[Lifecycle, tuple[Key, ...]], rng: random.Random) -> None:
    """Members are launched at most once per attempt, in stages; resources are released exactly as often as held."""
    shape, keys = case
    state, launched, held, now = JobState("job-1", shape), set[Key](), 0, 0.0
    halted: set[Key] = set()
    for _ in range(60):
        now += 1
        fact = _any_fact(rng, state, keys, launched, now)
        before = state
        state, commands = advance(state, fact)
        if isinstance(fact, Placed) and state.attempt > before.attempt:
            held, launched, halted = held + 1, set(), set()
        for command in commands:
            match command:
                case Launch(some):
                    assert not launched & set(some), "launched twice"
                    first = min(n for n, stage in enumerate(shape.stages) for key in some if key[0] in stage)
                    earlier = [t for t in state.tasks if any(t.role in s for s in shape.stages[:first])]
                    assert all(t.ready or t.leaving for t in earlier)
                    launched |= set(some)
                case Halt(some):
                    assert set(some) <= launched
                    halted |= set(some)
                case Shrunk():
                    assert not any(t.leaving and not t.status.final for t in state.tasks)
                case Release() | Replace():
                    held -= 1
                    assert all(t.status.final for t in state.tasks) or not state.tasks
                case Requeue(at):
                    assert at > now or "made way" in state.message
                    assert at == now or state.attempt - state.excused <= shape.restarts
        launched -= {t.key for t in state.tasks if t.leaving and t.status.final}  # these may come again
        assert not any(t.leaving and t.status in {TaskStatus.FAILED, TaskStatus.SUCCEEDED} for t in state.tasks)
        assert held == int(state.placed)
        assert 0 <= held <= 1
        if before.status.final:
            assert state is before
        if state.outcome is not None and not state.status.final:
            assert {t.key for t in state.tasks if not t.status.final} <= halted
        again, _ = advance(state, fact) if not isinstance(fact, Placed | Resized) else (state, ())
        assert again.status == state.status, "a fact told twice changes nothing"


def _any_fact(rng: random.Random, state: JobState, keys: tuple[Key, ...], launched: set[Key], now: float) -> Fact:
    choices: list[Fact] = [StopAsked(now, "stop")] if rng.random() < 0.1 else []
    if not state.placed:
        choices.append(Placed(now, keys))
    elif rng.random() < 0.3:
        alive = [t.key for t in state.tasks if not t.leaving]
        added = tuple(key for key in [*keys, (keys[0][0], 9)] if key not in alive)[:1]
        going = tuple(alive[:1]) if len(alive) > 1 and not any(t.leaving for t in state.tasks) else ()
        choices += [Evicted(now, "made way for job-2"), Resized(now, added, ()), Resized(now, (), going)]
        choices.append(Resized(now, added, going, "another size", anew=True))
    for key in launched or keys[:1]:
        choices += [MemberStarted(now, key), MemberReady(now, key), MemberEnded(now, key, rng.choice([0, 0, 1, None]))]
    return rng.choice(choices)
