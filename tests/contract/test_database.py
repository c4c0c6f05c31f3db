"""What `paddleflow.store.database` promises, on every engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Internal, Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Tx, Value
from paddleflow.store.statements import parse

SQL = parse(
    "test_database.py",
    """
-- name: make_parents
-- A table to refer to.
create table parents (id text primary key, note text, number bigint, share double precision, flag integer)

-- name: make_children
-- A reference that is only checked at the commit.
create table children (
    id text primary key,
    parent text not null references parents (id) deferrable initially deferred
)

-- name: add
-- A row.
insert into parents (id, note, number, share, flag) values (:id, :note, :number, :share, :flag)

-- name: add_id
-- A row with nothing but its id.
insert into parents (id, number) values (:id, 0)

-- name: add_child
-- A row that needs a parent by the time of the commit.
insert into children (id, parent) values (:id, :parent)

-- name: all
-- Everything, in order.
select id, note, number, share, flag from parents order by id

-- name: get
-- One row.
select id, note, number, share, flag from parents where id = :id

-- name: number
-- One number.
select number from parents where id = :id

-- name: put
-- Set a number.
update parents set number = :number where id = :id

-- name: count
-- How many there are.
select count(*) as n from parents

-- name: total
-- A sum, which PostgreSQL counts in another type.
select sum(number) as n, avg(number) as mean from parents

-- name: bad
-- No such table.
select * from nowhere

-- name: like
-- A pattern.
select id from parents where id like :pattern and note = '100%'
""",
)


@pytest.fixture
async def db(database: Database) -> Database:
    def make(tx: Tx) -> None:
        tx.run(SQL["make_parents"])
        tx.run(SQL["make_children"])

    await database.write(make)
    return database


def add(tx: Tx, name: str, note: str = "") -> int:
    return tx.run(SQL["add"], id=name, note=note, number=0, share=0.0, flag=0)


async def count(db: Database) -> int:
    found: int = await db.read(lambda tx: tx.value(SQL["count"]))
    return found


async def test_values_come_back_as_they_went_in(db: Database) -> None:
    class State(StrEnum):
        PENDING = "pending"

    row: dict[str, Value] = {"id": "a", "note": "naïve 任务 'x' %s :y", "number": 2**62, "share": 0.1, "flag": None}
    await db.write(lambda tx: tx.run(SQL["add"], **row))
    await db.write(lambda tx: tx.run(SQL["add"], id="b", note=State.PENDING, number=-1, share=1.0, flag=True))
    assert await db.read(lambda tx: tx.one(SQL["get"], id="a")) == row
    assert await db.read(lambda tx: tx.all(SQL["all"])) == [
        row,
        {"id": "b", "note": "pending", "number": -1, "share": 1.0, "flag": 1},
    ]
    assert await db.read(lambda tx: tx.value(SQL["number"], id="a")) == 2**62
    assert await db.read(lambda tx: tx.value(SQL["number"], id="none")) is None
    assert await db.read(lambda tx: tx.one(SQL["get"], id="none")) is None


async def test_a_write_that_need_not_wait_is_seen_like_any_other(db: Database) -> None:
    await db.write_soon(add, "soon")
    assert await count(db) == 1
    await asyncio.gather(db.write(add, "now"), db.write_soon(add, "soon too"))
    assert await count(db) == 3
    with pytest.raises(Conflict):
        await db.write_soon(add, "soon")
    assert await count(db) == 3


async def test_sums_are_plain_numbers(db: Database) -> None:
    await db.write(lambda tx: tx.many(SQL["add_id"], [{"id": "a"}, {"id": "b"}]))
    await db.write(lambda tx: tx.run(SQL["put"], id="a", number=5))
    row = await db.read(lambda tx: tx.one(SQL["total"]))
    assert row == {"n": 5, "mean": 2.5}
    assert row is not None
    assert [type(value) for value in row.values()] == [int, float]


async def test_counts_of_touched_rows(db: Database) -> None:
    def many(tx: Tx, ids: Iterator[str]) -> int:
        return tx.many(SQL["add_id"], ({"id": name} for name in ids))

    assert await db.write(many, iter("abc")) == 3
    assert await db.write(many, iter("")) == 0
    assert await db.write(lambda tx: tx.run(SQL["put"], id="a", number=1)) == 1
    assert await db.write(lambda tx: tx.run(SQL["put"], id="z", number=1)) == 0


async def test_patterns_mind_the_case_and_percent_signs_are_plain(db: Database) -> None:
    for name in ("Ab", "ab"):
        await db.write(add, name, "100%")
    assert await db.read(lambda tx: tx.all(SQL["like"], pattern="a%")) == [{"id": "ab"}]


async def test_an_exception_undoes_all_of_its_function_and_comes_out_unchanged(db: Database) -> None:
    error = NotFound("gone")

    def fail(tx: Tx) -> None:
        tx.run(SQL["add_id"], id="a")
        raise error

    with pytest.raises(NotFound) as caught:
        await db.write(fail)
    assert caught.value is error
    assert await count(db) == 0


async def test_a_failing_function_does_not_touch_those_that_share_its_commit(db: Database) -> None:
    def fail(tx: Tx, name: str) -> None:
        tx.run(SQL["add_id"], id=name)
        if name.endswith("3"):
            raise NotFound(name)
        if name.endswith("7"):
            tx.all(SQL["bad"])

    names = [f"{number:03}" for number in range(200)]
    results = await asyncio.gather(*(db.write(fail, name) for name in names), return_exceptions=True)
    for name, result in zip(names, results, strict=True):
        assert isinstance(result, {"3": NotFound, "7": Internal}.get(name[-1], type(None))), (name, result)
    stored = [row["id"] for row in await db.read(lambda tx: tx.all(SQL["all"]))]
    assert stored == [name for name in names if name[-1] not in "37"]


async def test_a_constraint_checked_at_the_commit_fails_its_own_function_only(db: Database) -> None:
    def child(tx: Tx, name: str, parent: str) -> int:
        return tx.run(SQL["add_child"], id=name, parent=parent)

    writes = [db.write(add, "a")]
    writes += [db.write(child, f"{number}", "a" if number % 5 else "nobody") for number in range(20)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [number for number, result in enumerate(results[1:]) if isinstance(result, Internal)] == [0, 5, 10, 15]
    assert all(result == 1 for number, result in enumerate(results[1:]) if number % 5)


async def test_what_is_there_already_is_a_conflict(db: Database) -> None:
    await db.write(add, "a")
    with pytest.raises(Conflict, match=r"^parents\.id exists already$") as caught:
        await db.write(add, "a")
    assert caught.value.code == "DuplicatedName"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("value", ["\ud800", 2**70])
async def test_what_cannot_be_stored_is_invalid(db: Database, value: str | int) -> None:
    def put(tx: Tx) -> None:
        add(tx, "a", value if isinstance(value, str) else "")
        tx.run(SQL["put"], id="a", number=value)

    with pytest.raises(Invalid, match="a value cannot be stored"):
        await db.write(put)
    assert await count(db) == 0


@pytest.mark.parametrize("method", ["read", "write"])
async def test_a_failed_statement_ends_the_transaction_even_if_swallowed(db: Database, method: str) -> None:
    seen: list[PaddleFlowError] = []

    def swallow(tx: Tx) -> str:
        for statement in (SQL["bad"], SQL["count"], SQL["count"]):
            try:
                tx.all(statement)
            except PaddleFlowError as error:
                seen.append(error)
        return "fine"

    with pytest.raises(Internal):
        await getattr(db, method)(swallow)
    assert len(set(map(id, seen))) == 1
    assert len(seen) == 3
    assert await count(db) == 0  # and the connection is usable


async def test_concurrent_increments_lose_nothing(db: Database, database_url: str, tmp_path: Path) -> None:
    """Also with a second server on the same database."""

    def increment(tx: Tx) -> int:
        number: int = tx.value(SQL["number"], id="a")
        tx.run(SQL["put"], id="a", number=number + 1)
        return number

    await db.write(add, "a")
    other = await open_database(database_url, tmp_path, durable=False)
    try:
        seen = await asyncio.gather(*((db, other)[turn % 2].write(increment) for turn in range(300)))
    finally:
        await other.close()
    assert sorted(seen) == list(range(300))


async def test_writes_of_one_caller_are_committed_in_order(db: Database) -> None:
    await db.write(add, "a")
    seen: list[int] = []

    def put(tx: Tx, number: int) -> None:
        seen.append(tx.value(SQL["number"], id="a"))
        tx.run(SQL["put"], id="a", number=number)

    async with asyncio.TaskGroup() as group:
        for number in range(1, 101):
            group.create_task(db.write(put, number))
    assert seen == list(range(100))


async def test_a_read_sees_every_acknowledged_write(db: Database) -> None:
    for number in range(1, 51):
        await db.write(add, f"{number}")
        assert await count(db) == number


async def test_a_read_has_one_snapshot(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def look_twice(tx: Tx) -> tuple[int, int]:
        first = tx.value(SQL["count"])
        begun.set()
        assert go_on.wait(30)
        return first, tx.value(SQL["count"])

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(db.read(look_twice))
        assert await asyncio.to_thread(begun.wait, 30)
        await db.write(add, "a")
        assert await count(db) == 1  # another reader sees it, and nobody waits for the first
        go_on.set()
    assert reading.result() == (0, 0)


async def test_a_read_cannot_write(db: Database) -> None:
    with pytest.raises((Internal, Unavailable)):
        await db.read(lambda tx: tx.run(SQL["add_id"], id="a"))
    assert await count(db) == 0


async def test_a_cancelled_caller_harms_nobody(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        tx.run(SQL["add_id"], id="begun")
        begun.set()
        assert go_on.wait(30)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(db.write(slow))
        assert await asyncio.to_thread(begun.wait, 30)
        queued = group.create_task(db.write(add, "queued"))
        await asyncio.sleep(0)  # it is in the queue now
        first.cancel()
        queued.cancel()
        await asyncio.wait([first, queued])
        go_on.set()
    await db.write(add, "later")
    assert [row["id"] for row in await db.read(lambda tx: tx.all(SQL["all"]))] == ["begun", "later"]


async def test_a_cancelled_caller_leaves_those_in_its_commit_alone(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx, name: str) -> None:
        add(tx, name)
        begun.set()
        assert go_on.wait(30)
        go_on.clear()

    async with asyncio.TaskGroup() as group:
        group.create_task(db.write(slow, "first"))
        assert await asyncio.to_thread(begun.wait, 30)
        begun.clear()
        second = group.create_task(db.write(slow, "second"))
        third = group.create_task(db.write(add, "third"))
        await asyncio.sleep(0)  # both are queued, and will be committed together
        go_on.set()
        assert await asyncio.to_thread(begun.wait, 30)
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
        async with asyncio.timeout(30):
            assert await third == 1
    assert await count(db) == 3


async def test_any_event_loop_may_call(db: Database) -> None:
    def elsewhere(name: str) -> None:
        async def add() -> int:
            await db.write(lambda tx: tx.run(SQL["add_id"], id=name))
            return await count(db)

        assert asyncio.run(add()) >= 1

    await asyncio.gather(*(asyncio.to_thread(elsewhere, name) for name in "abc"))
    assert await count(db) == 3


@pytest.mark.parametrize("method", ["read", "write"])
async def test_even_odd_exceptions_come_home(db: Database, method: str) -> None:
    """A thread that swallowed one would leave its caller waiting for ever."""

    def stop(_tx: Tx) -> None:
        raise StopIteration

    def leave(_tx: Tx) -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError):
        await getattr(db, method)(stop)
    with pytest.raises(SystemExit):
        await getattr(db, method)(leave)
    assert await count(db) == 0


async def test_close_finishes_what_is_queued_and_refuses_more(db: Database, database_url: str, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(db.write(add, f"{number}"))
        await asyncio.sleep(0)  # all are queued
        await db.close()
    with pytest.raises(Unavailable, match="closed"):
        await db.write(lambda tx: None)
    with pytest.raises(Unavailable, match="closed"):
        await db.read(lambda tx: None)
    again = await open_database(database_url, tmp_path)
    assert await count(again) == 50
    await again.close()
    await db.close()  # twice is fine


async def test_a_peek_sees_what_was_acknowledged_and_changes_nothing(db: Database) -> None:
    await db.write(lambda tx: tx.run(SQL["add_id"], id="a"))
    assert await db.peek(lambda tx: tx.value(SQL["number"], id="a")) == 0
    with pytest.raises(PaddleFlowError):
        await db.peek(lambda tx: tx.run(SQL["add_id"], id="b"))
    with pytest.raises(ZeroDivisionError):
        await db.peek(lambda tx: 1 // 0)
    await db.write(lambda tx: tx.run(SQL["put"], id="a", number=7))
    assert await db.peek(lambda tx: tx.value(SQL["number"], id="a")) == 7
    await db.close()
    with pytest.raises(Unavailable):
        await db.peek(lambda tx: None)
