"""Events: the same words once with a count, and never a flood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.clock import ManualClock
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import BURST, WAITING, Budget, Recorder
from paddleflow.kube.resources import CONFIG_MAPS, EVENTS, NODES, Object
from paddleflow.kube.transport import Response
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon


def thing(name: str = "a") -> Object:
    obj = CONFIG_MAPS.object(name, "default")
    obj["metadata"]["uid"] = f"uid-{name}"
    return obj


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[None]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        yield
        await soon(lambda: not recorder._pending and not recorder._wake.is_set(), "all is written")
        task.cancel()


async def events(server: MemoryApiServer) -> list[Object]:
    return list((await Client(server).list(EVENTS)).items)


async def test_an_event_names_its_object_and_says_what_happened() -> None:
    server = MemoryApiServer()
    recorder = Recorder(Client(server), "tests", ManualClock())
    async with running(recorder):
        recorder.record(thing(), "Scaled", "from 2 to 3 workers")
        node = NODES.object("n")
        node["metadata"]["uid"] = "uid-n"
        recorder.record(node, "Lost", "no word for 20 s", warning=True)
    one, two = sorted(await events(server), key=lambda event: str(event["reason"]), reverse=True)
    assert (one["reason"], one["message"], one["type"], one["count"]) == ("Scaled", "from 2 to 3 workers", "Normal", 1)
    assert one["involvedObject"]["uid"] == "uid-a"
    assert one["source"] == {"component": "tests"}
    assert one["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert (two["type"], two["metadata"]["namespace"], two["involvedObject"]["kind"]) == ("Warning", "default", "Node")


async def test_the_same_words_are_one_event_with_a_count_also_after_a_restart() -> None:
    server = MemoryApiServer()
    for number in range(2):
        clock = ManualClock(1_700_000_000.0 + number)
        recorder = Recorder(Client(server), "tests", clock)
        async with running(recorder):
            for _ in range(3):
                recorder.record(thing(), "Failed", "it broke")
    (found,) = await events(server)
    assert found["count"] == 6
    assert (found["firstTimestamp"], found["lastTimestamp"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z")


async def test_a_loop_gone_wrong_is_held_back_and_others_are_not() -> None:
    server = MemoryApiServer()
    clock = ManualClock()
    recorder = Recorder(Client(server), "tests", clock)
    async with running(recorder):
        for number in range(100):
            recorder.record(thing(), "Loop", f"turn {number}")
        recorder.record(thing("b"), "Fine", "still heard")
    found = await events(server)
    assert len(found) == BURST + 1
    assert recorder.dropped == 100 - BURST
    clock.advance(301)
    async with running(recorder):
        recorder.record(thing(), "Loop", "later")
        recorder.record(thing(), "Loop", "too soon")
    assert "later" in [event["message"] for event in await events(server)]
    assert recorder.dropped == 101 - BURST


async def test_telling_never_waits_nor_fails() -> None:
    server = MemoryApiServer()
    recorder = Recorder(Client(server), "tests", ManualClock())
    for number in range(WAITING + 5):
        recorder.record(thing(f"t{number}"), "Made", "x" * 5000)
    assert recorder.dropped == 5
    server.refuse = lambda request: Response(403, {}, b'{"message": "not allowed"}')
    async with running(recorder):
        pass
    assert recorder.dropped == WAITING + 5
    server.refuse = lambda request: None
    async with running(recorder):
        recorder.record(thing(), "Fine", "x" * 5000)
    assert [len(event["message"]) for event in await events(server)] == [1024]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100)), max_size=60))
def test_no_object_is_ever_given_more_than_its_burst_and_what_came_back(steps: list[tuple[str, float]]) -> None:
    budget = Budget(burst=3, refill=0.1)
    now, given_to = 0.0, {"a": 0, "b": 0}
    for who, pause in steps:
        now += pause
        given_to[who] += budget.take(who, now)
        assert given_to[who] <= 3 + now * 0.1 + 1e-6


def test_budgets_of_those_not_heard_of_are_forgotten() -> None:
    budget = Budget(burst=1, refill=0.0, remembered=2)
    assert [budget.take(who, 0.0) for who in "aabca"] == [True, False, True, True, True]
    assert not budget.take("a", 0.0)
