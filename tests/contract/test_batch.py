"""Calls that can be done together are, on every engine, and each has its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.store import counters
from paddleflow.store.database import Batched, Database, Tx


@dataclass
class Adding:
    """Raises counters by one each; names that begin with a minus are refused, a name "broken" breaks those beside it."""

    groups: list[list[str]] = field(default_factory=list)

    def many(self, tx: Tx, names: Sequence[str]) -> list[str | PaddleFlowError]:
        self.groups.append(list(names))
        for name in names:
            if not name.startswith("-"):
                counters.bump(tx, name)
        if "broken" in names:
            raise ValueError(", ".join(names))
        return [NotFound(name) if name.startswith("-") else name for name in names]


async def in_one_group(db: Database, adding: Adding, names: Sequence[str]) -> list[str]:
    """Write while the writer is busy, so that all of them wait when it is done."""
    gate = threading.Event()
    busy = asyncio.ensure_future(db.write(lambda _: gate.wait(60)))
    fn = Batched(adding.many)
    writes = [asyncio.ensure_future(told(db.write(fn, name))) for name in names]
    await asyncio.sleep(0)
    gate.set()
    await busy
    return await asyncio.gather(*writes)


async def told(write: Awaitable[str]) -> str:
    """What came of it."""
    try:
        return f"did {await write}"
    except (NotFound, ValueError) as error:
        return f"{type(error).__name__} {error}"


async def stored(db: Database, names: Sequence[str]) -> list[str]:
    return [name for name in names if await db.read(counters.value, name)]


async def test_they_share_one_call_and_have_each_their_answer(database: Database) -> None:
    names = ["a", "-b", "c", "d"]
    adding = Adding()
    results = await in_one_group(database, adding, names)
    assert results == ["did a", "NotFound -b", "did c", "did d"]
    assert len(adding.groups) < len(names)
    assert await stored(database, names) == ["a", "c", "d"]


async def test_one_that_breaks_is_undone_alone(database: Database) -> None:
    names = ["a", "broken", "-b", "c"]
    results = await in_one_group(database, Adding(), names)
    assert results == ["did a", "ValueError broken", "NotFound -b", "did c"]
    assert await stored(database, names) == ["a", "c"]


async def test_one_by_itself(database: Database) -> None:
    results = [await told(database.write(Batched(Adding().many), name)) for name in ("a", "-b")]
    assert results == ["did a", "NotFound -b"]
    assert await stored(database, ["a", "-b"]) == ["a"]
