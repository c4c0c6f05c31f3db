"""What one user may have at a time of what all share."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import suppress

import pytest

from paddleflow.api.fair_use import Computing, SharedAnswer, UserQueue
from paddleflow.errors import TooMany
from tests.patience import PATIENCE, soon


async def test_who_is_over_the_limit_waits_in_order_and_others_do_not() -> None:
    queue, inside = UserQueue(2), list[str]()

    async def come(user: str, name: str) -> None:
        await queue.enter(user)
        inside.append(name)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(come("alice", f"alice-{number}"))
        group.create_task(come("bob", "bob"))
        await soon(lambda: "bob" in inside)
        assert inside == ["alice-0", "alice-1", "bob"]
        for number in range(2, 5):
            queue.leave("alice")
            await soon(lambda: len(inside) == number + 2)  # noqa: B023 - called at once
    assert inside[3:] == ["alice-2", "alice-3", "alice-4"]
    for user in ("alice", "alice", "bob"):
        queue.leave(user)
    assert not queue._inside
    assert not queue._waiting


@pytest.mark.parametrize("served", [False, True])
async def test_who_stops_waiting_leaves_the_seat_to_the_next(served: bool) -> None:
    queue = UserQueue(1)
    await queue.enter("alice")
    first, second = (asyncio.ensure_future(queue.enter("alice")) for _ in range(2))
    await asyncio.sleep(0)
    if served:
        queue.leave("alice")  # the seat is the first one's, who is cancelled before it can know
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not served:
        queue.leave("alice")
    async with asyncio.timeout(PATIENCE):
        await second
    queue.leave("alice")
    assert not queue._inside
    assert not queue._waiting


async def test_the_line_of_a_user_has_an_end() -> None:
    queue = UserQueue(1, waiting=1)
    await queue.enter("alice")
    waiting = asyncio.ensure_future(queue.enter("alice"))
    await asyncio.sleep(0)
    with pytest.raises(TooMany, match="1 requests"):
        await queue.enter("alice")
    queue.leave("alice")
    await waiting


async def test_one_computation_of_a_user_at_a_time() -> None:
    computing, go, begun = Computing(), threading.Event(), list[str]()

    def compute(user: str) -> str:
        begun.append(user)
        if user == "alice":
            assert go.wait(PATIENCE)
        return user

    async with asyncio.TaskGroup() as group:
        of_alice = [group.create_task(computing.run("alice", compute, "alice")) for _ in range(6)]
        await soon(lambda: begun == ["alice"])
        async with asyncio.timeout(PATIENCE):
            assert await computing.run("bob", compute, "bob") == "bob"
        assert begun == ["alice", "bob"]
        of_alice[0].cancel()  # its thread is not free, so the next one still waits
        await asyncio.sleep(0)
        assert begun.count("alice") == 1
        go.set()
    assert begun.count("alice") == 6


async def test_an_error_frees_the_turn() -> None:
    computing = Computing()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await computing.run("alice", lambda: 1 // 0)


async def test_what_an_error_held_is_freed_at_once() -> None:
    """Not when the collector comes: a refused document of many megabytes would wait for it."""
    computing = Computing()

    class Large:
        pass

    kept: list[weakref.ref[Large]] = []

    def refuse() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise ValueError("no")

    gc.disable()
    try:
        with suppress(ValueError):
            await computing.run("alice", refuse)
        await soon(lambda: kept[0]() is None, seconds=10)
    finally:
        gc.enable()


async def test_all_who_ask_before_an_answer_is_begun_share_it() -> None:
    shared, go, computed = SharedAnswer[int](), asyncio.Event(), list[int]()

    async def compute() -> int:
        computed.append(0)
        await go.wait()
        return len(computed)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.get(compute))
        await soon(lambda: bool(computed))
        later = [group.create_task(shared.get(compute)) for _ in range(50)]  # what has begun may be out of date
        await asyncio.sleep(0)
        go.set()
    assert first.result() == 1
    assert {each.result() for each in later} == {2}
    assert len(computed) == 2


async def test_who_waited_for_an_answer_that_failed_computes_it() -> None:
    shared, calls = SharedAnswer[int](), list[int]()

    async def compute() -> int:
        calls.append(0)
        if len(calls) == 1:
            raise OSError
        return 7

    answers = await asyncio.gather(*(shared.get(compute) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [OSError, int, int]
