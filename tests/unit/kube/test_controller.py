"""Workers around a reconcile function: nothing that it raises ends the others."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Conflict, Permanent, Unavailable
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.controller import DONE, Controller, Reconciled, RequeueAfter, Result
from paddleflow.kube.errors import Throttled
from paddleflow.kube.resources import CONFIG_MAPS, SECRETS, Object
from paddleflow.testing.api_server import MemoryApiServer
from tests.kube_objects import owner_reference
from tests.patience import soon


class Worker:
    """Plays a list of outcomes for each key, and is done when they are played."""

    def __init__(self, workers: int = 2, **plays: list[Result | Exception]) -> None:
        self.plays = plays
        self.calls: Counter[str] = Counter()
        self.turns: dict[str, list[str]] = defaultdict(list)
        self.at_once: Counter[str] = Counter()
        self.controller = Controller("test", self.reconcile, SystemClock(), workers=workers, observe=self.observe)

    def observe(self, turn: Reconciled) -> None:
        assert turn.seconds >= 0
        self.turns[turn.key].append(turn.result)

    async def reconcile(self, key: str) -> Result:
        self.calls[key] += 1
        self.at_once[key] += 1
        assert self.at_once[key] == 1, f"{key} is with two workers"
        try:
            await asyncio.sleep(0)
            play = self.plays.get(key)
            outcome = play.pop(0) if play else DONE
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            self.at_once[key] -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(self.controller.run())
            yield
            task.cancel()


async def test_what_fails_comes_again_and_the_others_go_on() -> None:
    worker = Worker(a=[Unavailable("no"), ZeroDivisionError("fault"), Conflict("late")], b=[RequeueAfter(0.001)])
    async with worker.running():
        for key in "abc":
            worker.controller.queue.add(key)
        await soon(lambda: [len(worker.turns[key]) for key in "abc"] == [4, 2, 1], "all turns")
    assert worker.turns == {"a": ["error", "crash", "conflict", "done"], "b": ["again", "done"], "c": ["done"]}
    assert worker.controller.queue.failures("a") == 0


async def test_a_permanent_fault_comes_again_only_when_something_changes() -> None:
    worker = Worker(a=[Permanent("broken")])
    async with worker.running():
        worker.controller.queue.add("a")
        await soon(lambda: worker.turns["a"] == ["permanent"], "one turn")
        assert worker.controller.queue.delayed == len(worker.controller.queue) == 0
        worker.controller.queue.add("a")
        await soon(lambda: worker.turns["a"] == ["permanent", "done"], "the change was reconciled")


async def test_one_that_is_throttled_waits_as_long_as_it_was_told() -> None:
    slow = Throttled("slow down")
    slow.retry_after = 1
    worker = Worker(a=[slow])
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with worker.running():
        worker.controller.queue.add("a")
        await soon(lambda: worker.turns["a"] == ["throttled", "done"], "both turns")
        assert loop.time() - began >= 1.0


async def test_many_changes_while_it_is_worked_on_are_one_more_look() -> None:
    worker = Worker(workers=4)
    async with worker.running():
        for _ in range(50):
            worker.controller.queue.add("a")
        await soon(lambda: worker.turns["a"], "a turn")
    assert worker.calls["a"] <= 2


async def test_changes_of_objects_and_of_their_children_lead_to_the_key() -> None:
    server = MemoryApiServer()
    client = Client(server)
    parents: Cache[Object] = Cache(client, CONFIG_MAPS)
    children: Cache[Object] = Cache(client, SECRETS)
    worker = Worker()
    worker.controller.watch(parents)
    worker.controller.watch_owned(children, "ConfigMap")
    made = await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(parents.run()), group.create_task(children.run())]
        async with worker.running():
            await soon(lambda: worker.calls["default/a"] == 1, "the object")
            child = SECRETS.object("b", "default")
            child["metadata"]["ownerReferences"] = [owner_reference(made)]
            await client.create(SECRETS, child)
            await soon(lambda: worker.calls["default/a"] == 2, "its child")
            await client.delete(SECRETS, "b", "default")
            await soon(lambda: worker.calls["default/a"] == 3, "the child's end")
            assert set(worker.calls) == {"default/a"}
        for task in tasks:
            task.cancel()


async def test_changes_are_gathered_and_what_is_new_is_looked_at_at_once() -> None:
    client = Client(MemoryApiServer())
    parents: Cache[Object] = Cache(client, CONFIG_MAPS)
    children: Cache[Object] = Cache(client, SECRETS)
    controller = Controller("test", Worker().reconcile, SystemClock(), gather=3600.0)
    controller.watch(parents)
    controller.watch_owned(children, "ConfigMap")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(parents.run()), group.create_task(children.run())]
        made = await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
        await soon(lambda: len(controller.queue) == 1, "the new one in line")
        assert await controller.queue.get() == "default/a"
        controller.queue.done("default/a")
        for number in range(10):
            child = SECRETS.object(f"b-{number}", "default")
            child["metadata"]["ownerReferences"] = [owner_reference(made)]
            await client.create(SECRETS, child)
        await client.patch(CONFIG_MAPS, "a", "default", body={"data": {"x": "y"}})
        await soon(lambda: len(children) == 10 and parents.all()[0].get("data"), "all changes in the caches")
        assert (len(controller.queue), controller.queue.delayed) == (0, 1)
        await client.delete(CONFIG_MAPS, "a", "default")
        await soon(lambda: len(controller.queue) == 1, "its end in line")
        for task in tasks:
            task.cancel()


async def test_nothing_is_looked_at_before_all_caches_have_listed() -> None:
    server = MemoryApiServer()
    client = Client(server)
    await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
    parents: Cache[Object] = Cache(client, CONFIG_MAPS)
    children: Cache[Object] = Cache(client, SECRETS)
    worker = Worker()
    worker.controller.watch(parents)
    worker.controller.watch_owned(children, "ConfigMap")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(parents.run())
        async with worker.running():
            await soon(lambda: len(worker.controller.queue), "the object in line")
            for _ in range(100):
                await asyncio.sleep(0)
            assert not worker.calls
            second = group.create_task(children.run())
            await soon(lambda: worker.calls, "the object")
        first.cancel()
        second.cancel()
