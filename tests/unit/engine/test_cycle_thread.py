"""Long work of a turn leaves the event loop free; short work stays on it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from paddleflow.engine.cycle_thread import CycleThread
from tests.patience import PATIENCE


async def test_short_work_stays_on_the_loop() -> None:
    assert await CycleThread(large=10).run(threading.get_ident, 9) == threading.get_ident()


async def test_large_work_runs_on_a_thread_while_the_loop_goes_on() -> None:
    thread, go_on = CycleThread(large=10), threading.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(thread.run(lambda: go_on.wait(PATIENCE) and threading.get_ident(), 10))
        await asyncio.sleep(0)
        assert thread.busy
        waiting = group.create_task(thread.free())
        await asyncio.sleep(0)
        assert not waiting.done(), "who looks at the board waits"
        go_on.set()
        assert await running not in {threading.get_ident(), False}
        await waiting
    assert not thread.busy


async def test_what_took_long_runs_on_a_thread_the_next_time_until_it_is_short_again() -> None:
    thread = CycleThread(large=10, long=0.001)

    def long() -> int:
        sum(range(1_000_000))
        return threading.get_ident()

    here = threading.get_ident()
    assert await thread.run(long, 0) == here
    assert await thread.run(threading.get_ident, 0) != here
    assert await thread.run(threading.get_ident, 0) == here


async def test_an_error_comes_back_and_the_board_is_free() -> None:
    def fail() -> None:
        raise ValueError("no")

    thread = CycleThread(large=0)
    with pytest.raises(ValueError, match="no"):
        await thread.run(fail, 1)
    assert not thread.busy
