"""The loop that fires schedules, over a real database: each slot becomes one run or one note, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddleflow.access import users
from paddleflow.base.clock import ManualClock
from paddleflow.engine.schedule_engine import ScheduleEngine
from paddleflow.errors import Unavailable
from paddleflow.runs import pipelines
from paddleflow.runs.pipelines import Text
from paddleflow.schedules import schedules
from paddleflow.schedules.machine import Decision, decide
from paddleflow.schedules.model import Schedule
from paddleflow.schedules.rules import new_schedule
from paddleflow.spec.document import parse
from paddleflow.spec.schedule import NewSchedule
from paddleflow.store.bus import LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Row, Tx
from paddleflow.store.statements import compose

DOCUMENT = "name: flow\nentry_points:\n  main: {command: echo hello, docker_env: python}\n"
ON_STORAGE = DOCUMENT + "fs_options: {main_fs: {name: gone}}\n"
MINUTE = 60.0
START = 1_780_000_020.0 - 1_780_000_020.0 % MINUTE


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database("", tmp_path, durable=False)
    await opened.write(users.add, "alice", "hash", 0.0)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def engine(database: Database, clock: ManualClock) -> ScheduleEngine:
    return ScheduleEngine(database, clock, LocalBus(), "server-1")


async def made(
    database: Database, clock: ManualClock, text: str = DOCUMENT, name: str = "nightly", **options: object
) -> Schedule:
    def make(tx: Tx) -> Schedule:
        registered, version = pipelines.create(tx, Text(f"flow_{name}", text), "", "alice", clock.now())
        document = {"name": name, "pipelineID": registered.id, "crontab": "* * * * *", "timezone": "UTC", **options}
        return schedules.create(tx, new_schedule(parse(NewSchedule, document), "alice", version.id, clock.now()))

    return await database.write(make)


async def runs(database: Database) -> list[Row]:
    return await database.read(lambda tx: tx.all(compose("select * from runs order by seq")))


async def outcomes(database: Database) -> list[tuple[str, float]]:
    return [(row["status"], (row["scheduled_at"] - START) / MINUTE) for row in await runs(database)]


async def end(database: Database, run: str) -> None:
    await database.write(lambda tx: tx.run(compose("update runs set status = 'succeeded' where id = :id"), id=run))


async def stored(database: Database, schedule: Schedule) -> Schedule:
    return await database.read(schedules.get, schedule.id)


async def test_a_slot_becomes_a_run_at_its_time(database: Database, clock: ManualClock, engine: ScheduleEngine) -> None:
    schedule = await made(database, clock)
    assert await engine.turn() == 10.0, "the timer is never longer than the look by itself"
    clock.advance(55)
    assert await engine.turn() == 5.0, "the timer is for the slot"
    assert await runs(database) == []
    clock.advance(5)
    await engine.turn()
    (run,) = await runs(database)
    assert (run["id"], run["name"], run["user_name"], run["status"]) == ("run-000001", "nightly", "alice", "initiating")
    assert (run["schedule_id"], run["scheduled_at"], run["source"]) == (schedule.id, START + MINUTE, "ppl-000001-1")
    assert run["document"] == DOCUMENT
    await engine.turn()
    assert len(await runs(database)) == 1, "looking again fires nothing"


async def test_slots_missed_in_an_outage_are_caught_up(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    await made(database, clock)
    clock.advance(3 * MINUTE + 1)
    await engine.turn()
    assert await outcomes(database) == [("initiating", 1), ("initiating", 2), ("initiating", 3)]


async def test_without_catchup_only_the_newest_runs(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    await made(database, clock, catchup=False)
    clock.advance(3 * MINUTE + 1)
    await engine.turn()
    assert await outcomes(database) == [("skipped", 1), ("skipped", 2), ("initiating", 3)]
    assert (await runs(database))[0]["message"] == "a newer slot is due, and catchup is off"


async def test_a_long_outage_is_worked_off_without_waiting(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    await made(database, clock, catchup=False)
    clock.advance(250 * MINUTE)
    assert [await engine.turn() for _ in range(3)] == [0.0, 0.0, 10.0]
    assert await outcomes(database) == [("skipped", n) for n in range(1, 250)] + [("initiating", 250)]


async def test_a_suspended_slot_is_taken_when_a_run_ends(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    schedule = await made(database, clock, concurrency=1)
    clock.advance(2 * MINUTE)
    await engine.turn()
    await engine.turn()
    assert await outcomes(database) == [("initiating", 1)]
    assert (await stored(database, schedule)).suspended
    await end(database, "run-000001")
    await engine.turn()
    assert await outcomes(database) == [("succeeded", 1), ("initiating", 2)]


async def test_replacing_stops_the_oldest_run(database: Database, clock: ManualClock, engine: ScheduleEngine) -> None:
    await made(database, clock, concurrency=1, concurrencyPolicy="replace")
    clock.advance(MINUTE)
    await engine.turn()
    clock.advance(MINUTE)
    await engine.turn()
    first, second = await runs(database)
    assert (first["status"], first["stop"], second["status"]) == ("terminating", 1, "initiating")
    assert first["message"] == "replaced by a newer run of its schedule"
    assert first["touched"] > first["seen"], "the engine is told"


async def test_after_its_end_a_schedule_is_over(database: Database, clock: ManualClock, engine: ScheduleEngine) -> None:
    schedule = await made(database, clock, endTime="2026-05-28 20:29:30")
    assert schedule.end_at is not None
    clock.at = schedule.end_at + 3600
    await engine.turn()
    after = await stored(database, schedule)
    assert (after.status, after.next_at) == ("success", None)
    assert all(row["scheduled_at"] <= schedule.end_at for row in await runs(database))
    assert len(await runs(database)) == int((schedule.end_at - START) // MINUTE)


async def test_a_run_that_cannot_be_made_is_noted_and_the_schedule_goes_on(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    broken = await made(database, clock, ON_STORAGE)
    await made(database, clock, name="other")
    clock.advance(MINUTE)
    await engine.turn()
    rows = await runs(database)
    assert sorted((row["name"], row["status"]) for row in rows) == [("nightly", "skipped"), ("other", "initiating")]
    noted = next(row for row in rows if row["name"] == "nightly")
    assert noted["message"].startswith(
        "could not run: 4:30 fs_options.main_fs.name: fs[gone] of user[alice] does not exist"
    )
    after = await stored(database, broken)
    assert (after.status, after.next_at) == ("running", START + 2 * MINUTE)
    assert "fs[gone]" in after.message


async def test_a_schedule_of_nobody_fails(database: Database, clock: ManualClock, engine: ScheduleEngine) -> None:
    schedule = await made(database, clock)
    await database.write(lambda tx: tx.run(compose("delete from users")))
    clock.advance(MINUTE)
    await engine.turn()
    after = await stored(database, schedule)
    assert (after.status, after.message, await runs(database)) == ("failed", "user[alice] does not exist", [])


async def test_a_clock_set_back_fires_nothing_again(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    await made(database, clock)
    clock.advance(MINUTE)
    await engine.turn()
    clock.advance(-3600)
    assert await engine.turn() == 10.0
    clock.advance(3600)
    await engine.turn()
    assert await outcomes(database) == [("initiating", 1)]


async def test_paused_ones_do_not_fire(database: Database, clock: ManualClock, engine: ScheduleEngine) -> None:
    schedule = await made(database, clock, catchup=False)
    await database.write(lambda tx: schedules.pause(tx, schedule, "paused by alice", clock.now()))
    clock.advance(3 * MINUTE)
    await engine.turn()
    assert await runs(database) == []
    paused = await stored(database, schedule)
    await database.write(lambda tx: schedules.resume(tx, paused, clock.now()))
    await engine.turn()
    assert await outcomes(database) == [("skipped", 1), ("skipped", 2), ("initiating", 3)]


async def test_a_server_without_the_lease_fires_nothing(
    database: Database, clock: ManualClock, engine: ScheduleEngine
) -> None:
    await made(database, clock)
    clock.advance(MINUTE)
    await engine.turn()
    clock.advance(20)
    other = ScheduleEngine(database, clock, LocalBus(), "server-2")
    await made(database, clock, name="late")
    clock.advance(40 - 20)
    assert (await other.turn(), len(await runs(database))) == (10.0, 1)
    clock.advance(31)
    await other.turn()
    assert len(await runs(database)) == 3


class Flaky:
    """A database whose n-th write fails, once."""

    def __init__(self, inner: Database, bad: int) -> None:
        self.inner, self.bad, self.count, self.dialect = inner, bad, 0, inner.dialect
        self.read, self.peek, self.close = inner.read, inner.peek, inner.close
        self.write_soon = inner.write_soon

    async def write(self, fn, *args, **kwargs):  # type: ignore[no-untyped-def]  # stands for the real one
        self.count += 1
        if self.count == self.bad:
            raise Unavailable("the disk is full")
        return await self.inner.write(fn, *args, **kwargs)


@pytest.mark.parametrize("bad", [1, 2, 3, 4])
async def test_a_failed_write_loses_and_doubles_nothing(database: Database, clock: ManualClock, bad: int) -> None:
    await made(database, clock)
    await made(database, clock, name="other")
    clock.advance(2 * MINUTE)
    flaky = Flaky(database, bad)
    engine = ScheduleEngine(flaky, clock, LocalBus(), "server-1")
    if bad <= 3:
        with pytest.raises(Unavailable):
            await engine.turn()
    await engine.turn()
    assert sorted(await outcomes(database)) == [
        ("initiating", 1),
        ("initiating", 1),
        ("initiating", 2),
        ("initiating", 2),
    ]


async def test_it_goes_on_after_an_error_and_wakes_when_one_is_made(database: Database, clock: ManualClock) -> None:
    bus = LocalBus()
    await made(database, clock)
    clock.advance(MINUTE)
    engine = ScheduleEngine(Flaky(database, 1), clock, bus, "server-1")

    async def until(count: int) -> None:
        async with asyncio.timeout(20):
            while len(await runs(database)) < count:
                await asyncio.sleep(0.005)  # a look at a condition with a deadline, not a wait for time to pass

    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.run())
        await until(1)
        late = await made(database, clock, name="late")
        await database.write(
            lambda tx: schedules.save(tx, late, replace(late, next_at=clock.now(), check_at=clock.now()), clock.now())
        )
        bus.wake("schedules")
        await until(2)
        task.cancel()


async def test_a_schedule_that_cannot_be_moved_fails_with_words_and_others_fire(
    database: Database, clock: ManualClock, engine: ScheduleEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await made(database, clock, name="bad"), await made(database, clock, name="good")

    def faulty(schedule: Schedule, *rest: Any) -> Decision:
        if schedule.name == "bad":
            raise ZeroDivisionError
        return decide(schedule, *rest)

    monkeypatch.setattr("paddleflow.engine.schedule_engine.decide", faulty)
    clock.advance(MINUTE)
    await engine.turn()
    assert (await stored(database, bad)).status == "failed"
    assert (await stored(database, bad)).message == "a fault of the server: ZeroDivisionError"
    assert [row["schedule_id"] for row in await runs(database)] == [good.id]
