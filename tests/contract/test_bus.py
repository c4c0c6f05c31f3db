"""What `paddleflow.store.bus` promises: whoever waits is woken, here and in other processes; time bounds every wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from paddleflow.store.bus import Bus
from paddleflow.store.connection import open_bus
from paddleflow.store.postgres_bus import PostgresBus
from tests.postgres_server import PostgresServer, UrlFactory

LONG = 30.0


@pytest.fixture
async def bus(database_url: str) -> AsyncIterator[Bus]:
    opened = await open_bus(database_url)
    yield opened
    await opened.close()


async def test_waiting_ends_with_the_time(bus: Bus) -> None:
    assert await bus.wait("jobs", 0.01) is False
    with bus.subscribe("jobs") as subscription:
        assert await subscription.wait(0.01) is False


async def test_all_who_wait_for_the_topic_are_woken_and_nobody_else(bus: Bus) -> None:
    with bus.subscribe("jobs") as first, bus.subscribe("jobs") as second, bus.subscribe("runs") as other:
        bus.wake("jobs")
        assert await first.wait(LONG)
        assert await second.wait(LONG)
        assert not await other.wait(0.01)


async def test_a_plain_wait_is_woken(bus: Bus) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bus.wait("jobs", LONG))
        await asyncio.sleep(0)  # it waits now
        bus.wake("jobs")
    assert waiting.result()


async def test_a_wake_up_between_two_waits_is_not_missed_and_counts_once(bus: Bus) -> None:
    with bus.subscribe("jobs") as subscription:
        bus.wake("jobs")
        bus.wake("jobs")
        assert await subscription.wait(LONG)
        assert not await subscription.wait(0.01)


async def test_any_thread_may_wake(bus: Bus) -> None:
    with bus.subscribe("jobs") as subscription:
        await asyncio.to_thread(bus.wake, "jobs")
        assert await subscription.wait(LONG)


async def test_waking_nobody_is_fine_also_after_the_end(bus: Bus) -> None:
    bus.wake("jobs")
    with bus.subscribe("jobs"):
        pass
    bus.wake("jobs")
    await bus.close()
    bus.wake("jobs")


async def test_closing_wakes_everybody(bus: Bus) -> None:
    with bus.subscribe("jobs") as subscription:
        await bus.close()
        assert await subscription.wait(LONG)


@pytest.mark.postgres
async def test_other_processes_are_woken(postgres_url_factory: UrlFactory) -> None:
    url = postgres_url_factory()
    here, there = PostgresBus(url), PostgresBus(url)
    try:
        with there.subscribe("jobs") as subscription, there.subscribe("runs") as other:
            for _ in range(20):
                here.wake("jobs")
                assert await subscription.wait(LONG)
            assert not await other.wait(0.01)
    finally:
        await here.close()
        await there.close()


@pytest.mark.postgres
async def test_a_lost_connection_comes_back_and_wakes_everybody(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_server.create()
    caplog.set_level(logging.WARNING)
    bus = PostgresBus(url)
    try:
        with bus.subscribe("jobs") as subscription:
            await asyncio.to_thread(
                postgres_server.execute,
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{url.rpartition('/')[2]}'",
            )
            assert await subscription.wait(LONG)
        assert "lost for now" in caplog.text
    finally:
        await bus.close()
