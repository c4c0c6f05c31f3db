"""Leases: one holder at a time, and a late one touches nothing."""

from __future__ import annotations

import asyncio

import pytest

from paddleflow.errors import Temporary
from paddleflow.store import leases
from paddleflow.store.database import Database
from paddleflow.store.leases import LeaseLost

NOW = 1_700_000_000.0


async def take(db: Database, holder: str, now: float = NOW) -> int | None:
    return await db.write(leases.acquire, "engine", holder, now, 10.0)


async def test_only_one_of_many_gets_it(database: Database) -> None:
    tokens = await asyncio.gather(*(take(database, f"server-{number}") for number in range(20)))
    assert [token for token in tokens if token is not None] == [1]


async def test_it_can_be_taken_when_its_time_is_over_and_the_token_grows(database: Database) -> None:
    assert await take(database, "a") == 1
    assert await take(database, "b", NOW + 9.999) is None
    assert await take(database, "b", NOW + 10.0) == 2


async def test_a_late_holder_is_fenced_off(database: Database) -> None:
    old = await take(database, "a")
    new = await take(database, "b", NOW + 11)
    assert old is not None
    assert new is not None
    with pytest.raises(LeaseLost, match="token 1") as caught:
        await database.write(leases.check, "engine", old)
    assert isinstance(caught.value, Temporary)
    assert not await database.write(leases.renew, "engine", old, NOW + 11, 10.0)
    await database.write(leases.release, "engine", old)  # does not take it from the new holder
    await database.write(leases.check, "engine", new)


async def test_the_same_holder_gets_a_new_token_at_once(database: Database) -> None:
    assert await take(database, "a") == 1
    assert await take(database, "a") == 2
    with pytest.raises(LeaseLost):
        await database.write(leases.check, "engine", 1)


async def test_renewing_prolongs_it(database: Database) -> None:
    token = await take(database, "a")
    assert token is not None
    assert await database.write(leases.renew, "engine", token, NOW + 9, 10.0)
    assert await take(database, "b", NOW + 18) is None
    assert await database.write(leases.renew, "engine", token, NOW + 30, 10.0)  # late, but nobody had taken it


async def test_given_back_it_is_free_at_once_and_the_token_still_grows(database: Database) -> None:
    token = await take(database, "a")
    assert token is not None
    await database.write(leases.release, "engine", token)
    with pytest.raises(LeaseLost):
        await database.write(leases.check, "engine", token)
    assert not await database.write(leases.renew, "engine", token, NOW, 10.0)
    assert await take(database, "b") == 2


async def test_a_nameless_holder_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="holder"):
        await take(database, "")
