"""What a person may ask of a schedule."""

from __future__ import annotations

import pytest

from paddleflow.base.clock import local_text
from paddleflow.errors import Invalid
from paddleflow.schedules.model import ConcurrencyPolicy, ScheduleOptions
from paddleflow.schedules.rules import new_schedule, shown
from paddleflow.spec.document import parse
from paddleflow.spec.schedule import NewSchedule

NOW = 1_780_000_000.0


def asked(**fields: object) -> NewSchedule:
    return parse(NewSchedule, {"name": "nightly", "pipelineID": "ppl-000001", "crontab": "0 3 * * *", **fields})


def refusal(**fields: object) -> Invalid:
    with pytest.raises(Invalid) as refused:
        new_schedule(asked(**fields), "alice", "1", NOW)
    return refused.value


def test_defaults_are_the_reference_s() -> None:
    made = new_schedule(asked(), "alice", "2", NOW)
    assert made.options == ScheduleOptions(
        catchup=True, expire_interval=0, concurrency=0, policy=ConcurrencyPolicy.SUSPEND
    )
    assert (made.version, made.user, made.anchor_at, made.start_at, made.end_at) == ("2", "alice", NOW, None, None)
    assert made.check_at == made.next_at
    assert made.next_at is not None
    assert made.next_at > NOW


def test_numbers_may_be_text() -> None:
    made = new_schedule(asked(concurrency="3", expireInterval="60", catchup="false"), "alice", "1", NOW)
    assert made.options == ScheduleOptions(catchup=False, expire_interval=60, concurrency=3)
    assert new_schedule(asked(concurrency="", expireInterval=""), "alice", "1", NOW).options == ScheduleOptions()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": -1}, "create schedule failed, err:[concurrency should not be negative]"),
        ({"expireInterval": -1}, "create schedule failed, err:[expire interval should not be negative]"),
        ({"concurrencyPolicy": "wrongPolicy"}, "create schedule failed, err:[concurrency policy[wrongPolicy] not supported]"),
        ({"startTime": "tomorrow"}, "create schedule failed, starttime[tomorrow] format not correct, should be YYYY-MM-DD hh:mm:ss"),
        ({"endTime": "2030-01-01"}, "create schedule failed, endtime[2030-01-01] format not correct, should be YYYY-MM-DD hh:mm:ss"),
        ({"startTime": "2001-01-01 00:00:00"}, "create schedule failed, starttime[2001-01-01 00:00:00] not after currentTime["),
        ({"endTime": "2001-01-01 00:00:00"}, "create schedule failed, endtime[2001-01-01 00:00:00] not after currentTime["),
        ({"startTime": "2040-01-01 00:00:00", "endTime": "2039-01-01 00:00:00"},
         "create schedule failed, endtime[2039-01-01 00:00:00] not after startTime[2040-01-01 00:00:00]"),
        ({"crontab": "* * * *"}, "check crontab failed in creating schedule. error:expected exactly 5 fields"),
        ({"timezone": "Europe/Berln"}, "timezone[Europe/Berln] is not known, did you mean Europe/Berlin?"),
        ({"name": "a-b"}, "schedule name[a-b] is invalid"),
        ({"name": "a"}, "schedule name[a] is invalid"),
    ],
)  # fmt: skip
def test_refusals_keep_the_reference_s_words(fields: dict[str, object], message: str) -> None:
    assert message in refusal(**fields).message


def test_all_faults_come_at_once() -> None:
    error = refusal(
        concurrency=-1, expireInterval=-1, concurrencyPolicy="no", crontab="x", startTime="y", endTime="z", timezone="Q"
    )
    assert {fault.where for fault in error.details} == {
        "concurrency", "expireInterval", "concurrencyPolicy", "startTime", "endTime", "timezone", "crontab",
    }  # fmt: skip
    assert refusal(name="a b").code == "InvalidNamePattern"
    with pytest.raises(Invalid, match="desc too long, should be less than 256"):
        asked(desc="x" * 257)
    assert asked(desc="x" * 256).desc


def test_times_are_those_of_its_zone() -> None:
    made = new_schedule(asked(timezone="Asia/Tokyo", startTime="2030-01-01 00:00:00"), "alice", "1", NOW)
    assert made.start_at == 1_893_423_600.0
    assert shown(made, made.start_at) == "2030-01-01 00:00:00"
    assert shown(made, made.next_at) == "2030-01-01 03:00:00"
    assert shown(made, None) == ""
    own = new_schedule(asked(), "alice", "1", NOW)
    assert shown(own, own.next_at) == local_text(own.next_at)


def test_one_without_a_slot_before_its_end_is_looked_at_at_once() -> None:
    made = new_schedule(asked(crontab="0 0 29 2 *", endTime=local_text(NOW + 3600)), "alice", "1", NOW)
    assert made.check_at == NOW
    late = new_schedule(asked(crontab="0 0 29 2 *", startTime="9999-12-30 00:00:00"), "alice", "1", NOW)
    assert (late.next_at, late.check_at) == (None, NOW)
