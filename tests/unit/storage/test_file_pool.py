"""Work on files takes turns: small work never waits for huge work, and huge work ends when nobody wants it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from paddleflow.errors import TooMany
from paddleflow.storage.file_pool import STREAMS_EACH, FilePool, SlicedWork
from tests.patience import PATIENCE, soon


def endless(closed: threading.Event) -> SlicedWork[None]:
    done = 0
    try:
        while True:
            done += 1
            yield done
    finally:
        closed.set()


def three() -> SlicedWork[str]:
    yield 1
    yield 2
    return "three"


async def test_small_work_is_done_beside_work_without_end() -> None:
    pool = FilePool(threads=1, slice_seconds=0.001)
    closed = threading.Event()
    progress: list[int] = []
    huge = asyncio.ensure_future(pool.of("alice").run_in_slices(endless(closed), progress.append))
    await soon(lambda: progress)
    assert await pool.of("alice").run_in_slices(three()) == "three"
    assert await pool.of("alice").run(lambda: 7) == 7
    huge.cancel()
    with pytest.raises(asyncio.CancelledError):
        await huge
    await soon(closed.is_set, "the work is closed")
    pool.close()


async def test_long_work_leaves_threads_for_small_work() -> None:
    """Pieces of long work that never end hold no more threads than are theirs."""
    pool = FilePool(threads=3, slice_seconds=0.0, long=2, held=PATIENCE)
    held, release = threading.Semaphore(0), threading.Event()

    def stuck() -> SlicedWork[None]:
        yield 1
        held.release()
        release.wait()

    works = [asyncio.ensure_future(pool.of("alice").run_in_slices(stuck())) for _ in range(5)]
    await asyncio.to_thread(held.acquire)
    await asyncio.to_thread(held.acquire)
    assert await pool.of("alice").run(lambda: 7) == 7
    assert not held.acquire(blocking=False)
    release.set()
    await asyncio.gather(*works)
    pool.close()


async def test_long_work_that_blocks_keeps_nobody_else_s_long_work_waiting() -> None:
    """Two accounts with slow stores of their own could hold all places for as long as they like."""
    pool = FilePool(threads=4, slice_seconds=0.0, long=3, long_held=0.01)
    held, release = threading.Semaphore(0), threading.Event()

    def stuck() -> SlicedWork[None]:
        yield 1
        held.release()
        release.wait()

    users = ("alice", "alice", "bob")
    works = [asyncio.ensure_future(pool.of(user).run_in_slices(stuck())) for user in users]
    for _ in users:
        await asyncio.to_thread(held.acquire)
    assert await asyncio.wait_for(pool.of("carol").run_in_slices(three()), PATIENCE) == "three"
    release.set()
    await asyncio.gather(*works)
    assert not pool.long.locked()
    pool.close()


async def test_a_report_may_end_the_work() -> None:
    pool = FilePool(threads=1, slice_seconds=0.0)
    closed = threading.Event()

    def enough(done: int) -> None:
        if done > 3:
            raise LookupError

    with pytest.raises(LookupError):
        await pool.of("alice").run_in_slices(endless(closed), enough)
    assert closed.is_set()
    pool.close()


async def test_a_stream_is_closed_when_its_reader_goes() -> None:
    pool = FilePool(threads=1)
    closed = threading.Event()

    def pieces() -> Generator[bytes, None, None]:
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    stream = pool.of("alice").iterate(pieces(), lambda: None)
    assert await anext(stream) == b"x"
    await stream.aclose()
    assert closed.is_set()
    source = (piece for piece in (b"a", b"b"))
    assert [piece async for piece in pool.of("alice").iterate(source, lambda: None)] == [b"a", b"b"]
    pool.close()


async def test_a_stream_that_was_never_begun_is_closed_and_counted_no_more() -> None:
    pool = FilePool(threads=1)
    closed: list[int] = []

    def nothing() -> Generator[bytes, None, None]:
        yield b""

    for number in range(2):
        streams = [pool.of("alice").iterate(nothing(), lambda: closed.append(1)) for _ in range(STREAMS_EACH)]
        with pytest.raises(TooMany, match="16 downloads of user"):
            pool.of("alice").iterate(nothing(), lambda: closed.append(1))
        await pool.of("bob").iterate(nothing(), lambda: None).aclose()
        for stream in streams:
            await stream.aclose()
        await soon(lambda number=number: len(closed) == (number + 1) * (STREAMS_EACH + 1), "all are closed")  # type: ignore[misc]  # bound now
    pool.close()


async def test_files_that_do_not_answer_hold_only_threads_of_their_user() -> None:
    """Also when nobody waits for them any more: a thread counts until it is free."""
    pool = FilePool(threads=4, each=2, held=PATIENCE)
    held, release = threading.Semaphore(0), threading.Event()

    def stuck() -> None:
        held.release()
        release.wait()

    for _ in range(2):
        works = [asyncio.ensure_future(pool.of("mallory").run(stuck)) for _ in range(5)]
        await asyncio.sleep(0)
        for work in works:
            work.cancel()
        await asyncio.wait(works)
    works = [asyncio.ensure_future(pool.of("mallory").run(stuck)) for _ in range(5)]
    await asyncio.to_thread(held.acquire)
    await asyncio.to_thread(held.acquire)
    assert await pool.of("alice").run(lambda: 7) == 7
    assert not held.acquire(blocking=False)
    release.set()
    await asyncio.gather(*works)
    await soon(lambda: not pool._turns, "nothing is kept of users who wait for nothing")
    pool.close()


async def test_threads_that_are_blocked_leave_their_places_to_other_users() -> None:
    """Four users with silent stores could hold all threads for a minute at a time."""
    pool = FilePool(threads=4, each=2, held=0.01)
    held, release = threading.Semaphore(0), threading.Event()

    def stuck() -> None:
        held.release()
        release.wait()

    users = ("ann", "ben", "cat", "dan") * 5
    works = [asyncio.ensure_future(pool.of(user).run(stuck)) for user in users]
    for _ in range(8):
        assert await asyncio.to_thread(held.acquire, timeout=PATIENCE)
    assert await asyncio.wait_for(pool.of("eve").run(lambda: 7), PATIENCE) == 7
    assert await asyncio.wait_for(pool.of("eve").run_in_slices(three()), PATIENCE) == "three"
    assert not held.acquire(blocking=False), "each has its own threads and no more"
    release.set()
    await asyncio.gather(*works)
    await soon(lambda: not pool._turns)
    assert pool._places._value == 4, "no place is given back twice"
    pool.close()
