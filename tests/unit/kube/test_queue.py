"""The work queue: each key once, none lost, never with two workers; later and again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paddleflow.base.clock import SystemClock
from paddleflow.kube.queue import Backoff, KeyQueue, WorkQueue

KEYS = st.sampled_from("abcd")


class LineMachine(RuleBasedStateMachine):
    """Against the simplest statement of the promise: after an addition the key is held anew, sooner or later."""

    def __init__(self) -> None:
        super().__init__()
        self.line = KeyQueue(Backoff(1.0, 8.0, Random(1)))
        self.now = 0.0
        self.owed: set[str] = set()  # added, and not taken since
        self.held: set[str] = set()
        self.due: dict[str, float] = {}  # the earliest delay that has not been served
        self.order: list[str] = []  # of first additions, of keys that nobody held

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.line.add(key)
        self.owe(key)

    def owe(self, key: str) -> None:
        if key not in self.owed and key not in self.held:
            self.order.append(key)
        self.owed.add(key)

    def owe_later(self, key: str, at: float) -> None:
        if at < self.due.get(key, float("inf")):
            self.due.pop(key, None)  # of those that are due at the same moment, who asked for it first comes first
            self.due[key] = at

    @rule(key=KEYS, pause=st.floats(0.0, 5.0))
    def add_at(self, key: str, pause: float) -> None:
        self.line.add_at(key, self.now + pause)
        self.owe_later(key, self.now + pause)

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        failures = self.line.failures(key)
        pause = self.line.add_rate_limited(key, self.now)
        full = min(2.0**failures, 8.0)
        assert full * 2 / 3 <= pause <= full
        self.owe_later(key, self.now + pause)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.line.forget(key)
        assert self.line.failures(key) == 0

    @rule(seconds=st.floats(0.0, 3.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        for due, at in sorted(self.due.items(), key=lambda item: item[1]):
            if at <= self.now:
                del self.due[due]
                self.owe(due)
        key = self.line.take(self.now)
        free = self.owed - self.held
        if key is None:
            assert not free
            return
        assert key in free
        assert key == self.order.pop(0)
        self.owed.discard(key)
        self.held.add(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.line.done(key)
        self.held.discard(key)
        if key in self.owed:
            self.order.append(key)

    @invariant()
    def next_moment(self) -> None:
        assert self.line.next_at() == min(self.due.values(), default=None)
        assert self.line.delayed == len(self.due)
        assert len(self.line) == len(self.owed)


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=150, stateful_step_count=40)


def test_pauses_double_up_to_the_longest_and_begin_anew_when_forgotten() -> None:
    backoff = Backoff(1.0, 10.0, Random(0))
    pauses = [backoff.next() for _ in range(8)]
    for pause, full in zip(pauses, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert full * 2 / 3 <= pause <= full
    backoff.reset()
    assert backoff.next() <= 1.0


async def test_workers_wait_and_none_is_woken_for_nothing() -> None:
    queue = WorkQueue(SystemClock())
    taken: list[str] = []

    async def work() -> None:
        while True:
            key = await queue.get()
            taken.append(key)
            queue.done(key)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(10):
            queue.add(str(number))
        queue.add_after("late", 0.01)
        queue.add_after("later", 0.03)
        while len(taken) < 12:
            await asyncio.sleep(0.001)
        for worker in workers:
            worker.cancel()
    assert sorted(taken[:10]) == [str(number) for number in range(10)]
    assert taken[10:] == ["late", "later"]


async def test_a_delayed_key_comes_while_the_only_busy_worker_goes_on() -> None:
    """The timer of the second delayed key is set when the first is taken, not when it is done."""
    queue = WorkQueue(SystemClock())
    queue.add_after("first", 0.0)
    queue.add_after("second", 0.02)
    async with asyncio.timeout(20):
        assert await queue.get() == "first"  # and is never done
        assert await queue.get() == "second"


async def test_a_cancelled_worker_gives_its_call_to_another() -> None:
    queue = WorkQueue(SystemClock())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        first = group.create_task(queue.get())
        second = group.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")  # wakes the first
        first.cancel()
        assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_key_added_while_held_comes_again_after_it_is_done() -> None:
    queue = WorkQueue(SystemClock())
    queue.add("a")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        key = await queue.get()
        queue.add("a")
        other = group.create_task(queue.get())
        await asyncio.sleep(0)
        assert not other.done()
        queue.done(key)
        assert await other == "a"
