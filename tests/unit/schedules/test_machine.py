"""What becomes of due slots: the reference's vectors, each option, and that every slot is decided about exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.schedules.machine import PORTION, ActiveRun, Decision, Fire, Skip, decide
from paddleflow.schedules.model import ConcurrencyPolicy, Schedule, ScheduleOptions, ScheduleStatus
from paddleflow.schedules.timetable import parse

MINUTE = 60.0
NOON = 1_780_000_020.0 - 1_780_000_020.0 % MINUTE
NOW = NOON + 5  #: the slots of noon and of the two minutes before are due
TABLE = parse("*/1 * * * *", "UTC")


def made(**changes: object) -> Schedule:
    schedule = Schedule(
        seq=1, name="nightly", description="", pipeline="ppl-000001", version="1", user="alice", crontab="*/1 * * * *",
        timezone="UTC", options=ScheduleOptions(), start_at=None, end_at=None, anchor_at=0.0, status=ScheduleStatus.RUNNING, message="",
        next_at=NOON - 2 * MINUTE, check_at=NOON - 2 * MINUTE, suspended=False, created_at=0.0, updated_at=0.0,
    )  # fmt: skip
    return replace(schedule, **changes)  # type: ignore[arg-type]  # the names are fields


def words(decision: Decision) -> list[str]:
    return ["initiating" if isinstance(slot, Fire) else "skipped" for slot in decision.slots]


def runs(count: int, stopping: int = 0) -> list[ActiveRun]:
    return [ActiveRun(f"run-{n:06}", n <= stopping) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("options", "expected", "suspended"),
    [
        (ScheduleOptions(expire_interval=60), ["skipped", "skipped", "initiating"], False),
        (ScheduleOptions(concurrency=1), ["initiating"], True),
        (ScheduleOptions(concurrency=10), ["initiating"] * 3, False),
        (ScheduleOptions(concurrency=1, policy=ConcurrencyPolicy.SKIP), ["initiating", "skipped", "skipped"], False),
        (ScheduleOptions(concurrency=1, policy=ConcurrencyPolicy.REPLACE), ["skipped", "skipped", "initiating"], False),
        (ScheduleOptions(), ["initiating"] * 3, False),
        (ScheduleOptions(catchup=False), ["skipped", "skipped", "initiating"], False),
        (
            ScheduleOptions(catchup=False, concurrency=2, policy=ConcurrencyPolicy.REPLACE),
            ["skipped", "skipped", "initiating"],
            False,
        ),
        (
            ScheduleOptions(concurrency=2, policy=ConcurrencyPolicy.REPLACE),
            ["skipped", "initiating", "initiating"],
            False,
        ),
        (ScheduleOptions(concurrency=0, policy=ConcurrencyPolicy.REPLACE), ["initiating"] * 3, False),
    ],
)
def test_vectors(options: ScheduleOptions, expected: list[str], suspended: bool) -> None:
    decision = decide(made(options=options), TABLE, [], NOW)
    assert words(decision) == expected
    assert decision.schedule.suspended is suspended
    assert decision.schedule.next_at == NOON + MINUTE if not suspended else NOON - MINUTE
    assert decision.schedule.check_at == (None if suspended else NOON + MINUTE)
    assert decision.schedule.status is ScheduleStatus.RUNNING


def test_after_its_end_it_is_a_success() -> None:
    decision = decide(made(end_at=NOON - MINUTE), TABLE, [], NOW)
    assert words(decision) == ["initiating", "initiating"]
    assert decision.schedule.status is ScheduleStatus.SUCCESS
    assert (decision.schedule.next_at, decision.schedule.check_at) == (None, None)


def test_a_schedule_whose_end_comes_before_its_first_slot_ends_at_once() -> None:
    decision = decide(made(next_at=NOON + MINUTE, end_at=NOON + 30), TABLE, [], NOON - 600)
    assert (decision.schedule.status, decision.schedule.message) == ("success", "no slot is left before endTime")


def test_a_slot_that_waits_is_taken_when_a_run_ends() -> None:
    schedule = decide(made(options=ScheduleOptions(concurrency=1)), TABLE, [], NOW).schedule
    still = decide(schedule, TABLE, runs(1), NOW + 1)
    assert (still.slots, still.schedule) == ((), schedule)
    taken = decide(schedule, TABLE, [], NOW + 2)
    assert taken.slots == (Fire(NOON - MINUTE),)
    assert taken.schedule.next_at == NOON


def test_a_slot_that_waits_may_expire_and_be_overtaken() -> None:
    waiting = decide(made(options=ScheduleOptions(concurrency=1, expire_interval=300)), TABLE, runs(1), NOW).schedule
    assert waiting.check_at == NOON - 2 * MINUTE + 301
    late = decide(waiting, TABLE, runs(1), NOON + 200)
    assert words(late) == ["skipped"]
    overtaken = decide(made(options=ScheduleOptions(concurrency=1, catchup=False)), TABLE, runs(1), NOW)
    assert overtaken.schedule.check_at == NOON + MINUTE
    assert words(decide(overtaken.schedule, TABLE, runs(1), NOON + MINUTE)) == ["skipped"]


def test_replacing_stops_the_oldest_runs_that_are_not_stopping_already() -> None:
    options = ScheduleOptions(concurrency=2, policy=ConcurrencyPolicy.REPLACE)
    assert decide(made(options=options), TABLE, runs(2), NOW).stops == ("run-000001", "run-000002")
    one = made(options=options, next_at=NOON)
    assert decide(one, TABLE, runs(2), NOW).stops == ("run-000001",)
    assert decide(one, TABLE, runs(1), NOW).stops == ()
    assert decide(one, TABLE, runs(3, stopping=2), NOW).stops == ()
    assert decide(one, TABLE, runs(4, stopping=2), NOW).stops == ("run-000003",)


def test_each_slot_left_out_says_why() -> None:
    def reason(options: ScheduleOptions, active: Sequence[ActiveRun] = ()) -> str:
        return next(
            slot.reason for slot in decide(made(options=options), TABLE, active, NOW).slots if isinstance(slot, Skip)
        )

    assert reason(ScheduleOptions(expire_interval=60)) == "expired: it did not start within 60 seconds"
    assert reason(ScheduleOptions(catchup=False)) == "a newer slot is due, and catchup is off"
    assert (
        reason(ScheduleOptions(concurrency=1, policy=ConcurrencyPolicy.REPLACE))
        == "replaced by newer slots, concurrency is 1"
    )
    assert (
        reason(ScheduleOptions(concurrency=1, policy=ConcurrencyPolicy.SKIP), runs(1))
        == "skipped: 1 runs are active, concurrency is 1"
    )


def test_only_running_schedules_fire() -> None:
    for status in ScheduleStatus:
        if status is not ScheduleStatus.RUNNING:
            schedule = made(status=status)
            assert decide(schedule, TABLE, [], NOW) == Decision(schedule)


def test_a_clock_that_jumps_back_fires_nothing_again() -> None:
    after = decide(made(), TABLE, [], NOW).schedule
    for earlier in (NOW - 1, NOW - 3600, 0.0):
        decision = decide(after, TABLE, [], earlier)
        assert (decision.slots, decision.schedule) == ((), after)


def test_a_long_outage_is_worked_off_in_portions() -> None:
    schedule = made(next_at=NOON - (3 * PORTION - 1) * MINUTE)
    fired: list[float] = []
    for portion in range(3):
        decision = decide(schedule, TABLE, [], NOW)
        assert decision.more is (portion < 2)
        assert decision.schedule.check_at == (NOW if decision.more else NOON + MINUTE)
        fired += [slot.slot for slot in decision.slots]
        schedule = decision.schedule
    assert fired == [NOON - n * MINUTE for n in reversed(range(3 * PORTION))]


OPTIONS = st.builds(
    ScheduleOptions,
    catchup=st.booleans(),
    expire_interval=st.sampled_from([0, 0, 30, 90, 600]),
    concurrency=st.integers(0, 4),
    policy=st.sampled_from(ConcurrencyPolicy),
)
#: how far the clock moves (it may jump back, or be late by hours) and which runs have ended before the next look
LOOKS = st.lists(
    st.tuples(st.sampled_from([-3600.0, -5.0, 0.0, 1.0, 30.0, 61.0, 600.0, 9000.0]), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100)
@given(
    OPTIONS,
    st.sampled_from(["* * * * *", "*/7 * * * *", "@every 45s", "30 2 * * *", "0 */2 * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.one_of(st.none(), st.floats(60, 100_000)),
    LOOKS,
)
def test_every_slot_is_decided_about_exactly_once_and_in_order(
    options: ScheduleOptions, crontab: str, zone: str, end: float | None, looks: list[tuple[float, int]]
) -> None:
    begin = 1_774_700_000.0  # a day before the clocks change in Berlin
    table = parse(crontab, zone, begin)
    end_at = None if end is None else begin + end
    schedule = made(options=options, crontab=crontab, timezone=zone, next_at=table.next(begin), end_at=end_at)
    now = latest = begin
    decided: list[float] = []
    active: list[ActiveRun] = []
    for jump, ended in looks:
        now += jump
        latest = max(latest, now)
        active = active[ended:]
        for _ in range(10):
            decision = decide(schedule, table, active, now)
            fires = [slot.slot for slot in decision.slots if isinstance(slot, Fire)]
            assert all(slot.slot <= now for slot in decision.slots), "nothing before its time"
            assert decision.schedule.next_at is None or decision.schedule.next_at not in decided
            if options.concurrency and options.policy is not ConcurrencyPolicy.REPLACE:
                assert len(active) + len(fires) <= max(options.concurrency, len(active))
            decided += [slot.slot for slot in decision.slots]
            stopped = set(decision.stops)
            active = [replace(run, stopping=run.stopping or run.id in stopped) for run in active]
            active += [ActiveRun(f"run-{slot}", False) for slot in fires]
            if options.concurrency and options.policy is ConcurrencyPolicy.REPLACE:
                assert sum(not run.stopping for run in active) <= options.concurrency
            schedule = decision.schedule
            if not decision.more:
                break
        if schedule.status is ScheduleStatus.RUNNING and not decision.more:
            again = decide(schedule, table, active, now)
            assert (again.slots, again.stops) == ((), ()), "asking again changes nothing"
    horizon = latest if end_at is None else min(latest, end_at)
    expected = list(table.slots(table.next(begin), horizon))
    assert decided == expected[: len(decided)], "no slot twice, none left out, in order"
    if len(decided) < len(expected) and not decision.more and now == latest:
        assert schedule.suspended, "only a slot that waits holds up those behind it"
        assert schedule.next_at == expected[len(decided)]
