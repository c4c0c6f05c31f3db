"""The event log: one order for everybody, and followers miss nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from paddleflow.store import events
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Tx
from paddleflow.store.events import NewEvent

AT = 1_700_000_000.25


async def test_events_come_back_in_order_by_thing_and_by_kind(database: Database) -> None:
    def write(tx: Tx) -> None:
        events.append(tx, "job", "a", "queued", AT, {"queue": "default", "odd": "\x00\ud800 ü"})
        events.append(tx, "run", "a", "started", AT, {})
        events.append_many(
            tx, [NewEvent("job", "b", AT, "queued", {"n": [1, 2.5, None]}), NewEvent("job", "a", AT + 1, "ended", {})]
        )

    assert await database.read(events.last_seq) == 0
    await database.write(write)
    of_a = await database.read(events.after, "job", "a", 0, 10)
    assert [(event.type, event.at) for event in of_a] == [("queued", AT), ("ended", AT + 1)]
    assert of_a[0].data == {"queue": "default", "odd": "\x00\ud800 ü"}
    of_all = await database.read(events.after, "job", None, 0, 10)
    assert [(event.subject, event.type) for event in of_all] == [("a", "queued"), ("b", "queued"), ("a", "ended")]
    assert of_all[1].data == {"n": [1, 2.5, None]}
    assert await database.read(events.last_seq) == of_all[-1].seq


async def test_paging_by_position(database: Database) -> None:
    rows = [NewEvent("job", "ab"[number % 2], AT, f"{number}", {}) for number in range(50)]
    await database.write(events.append_many, rows)
    seen: list[str] = []
    position = 0
    while page := await database.read(events.after, "job", "b", position, 7):
        assert len(page) <= 7
        seen += [event.type for event in page]
        position = page[-1].seq
    assert seen == [f"{number}" for number in range(1, 50, 2)]


async def test_forgetting_one_thing_leaves_the_others_and_never_reuses_a_position(database: Database) -> None:
    await database.write(events.append, "job", "a", "queued", AT, {})
    await database.write(events.append, "job", "b", "queued", AT, {})
    last = await database.read(events.last_seq)
    await database.write(events.delete_for, "job", "b")
    assert [event.subject for event in await database.read(events.after, "job", None, 0, 10)] == ["a"]
    await database.write(events.append, "job", "c", "queued", AT, {})
    assert await database.read(events.last_seq) > last


async def test_a_follower_misses_nothing_while_two_servers_write(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    """The order of positions is the order of commits, or a follower would step over one that comes late."""
    other = await open_database(database_url, tmp_path, durable=False)
    total = 400
    seen: list[int] = []

    async def follow() -> None:
        async with asyncio.timeout(60):
            while len(seen) < total:
                position = seen[-1] if seen else 0
                seen.extend(event.seq for event in await database.read(events.after, "job", None, position, 50))

    async def write(db: Database, name: str) -> None:
        for number in range(total // 8):
            await db.write(events.append, "job", name, f"{number}", AT, {})

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(follow())
            for writer in range(8):
                group.create_task(write((database, other)[writer % 2], f"{writer}"))
    finally:
        await other.close()
    assert len(set(seen)) == total
