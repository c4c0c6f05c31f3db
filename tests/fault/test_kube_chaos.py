"""A controller whose API server restarts, answers slowly or not at all, conflicts, throttles, forgets and drops watches:
in the end nothing drifts, and no write was made that changed nothing.

The controller is the smallest one that has everything: a ConfigMap with a count and a word has so many children that say the
word. People create, change and delete parents meanwhile, and tamper with children.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.errors import NotFound
from paddleflow.kube import resources
from paddleflow.kube.apply import differences, marked
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.config import from_kubeconfig
from paddleflow.kube.controller import DONE, Controller, Result
from paddleflow.kube.errors import Gone
from paddleflow.kube.queue import Backoff, WorkQueue
from paddleflow.kube.resources import CONFIG_MAPS, SECRETS, Object, View
from paddleflow.kube.transport import HttpTransport, Transport
from paddleflow.kube.writer import Writer
from paddleflow.testing.api_server import MemoryApiServer
from tests.cluster_fixture import LiveCluster
from tests.fault.kube_proxy import FaultProxy
from tests.kube_objects import metadata
from tests.kube_server import connected, own_namespace
from tests.patience import soon

PARENT = {"role": "parent"}
CHILD = {"role": "child"}
NAMES = [f"p{number}" for number in range(8)]
FEWEST_FAULTS = 20  #: wild times last until there were so many: how long that takes depends on the machine


def children_of(parent: View) -> list[Object]:
    """What a parent asks for. Children are Secrets, so that each kind has a cache of its own."""
    data = parent["data"]
    word = base64.b64encode(data["word"].encode()).decode()
    space = resources.namespace(parent)
    return [
        marked(
            {
                "apiVersion": SECRETS.api_version,
                "kind": SECRETS.kind,
                "metadata": metadata(f"{resources.name(parent)}-{number}", space, labels=CHILD, owner=parent),
                "data": {"word": word},
            }
        )
        for number in range(int(data["count"]))
    ]


class Family:
    """The controller, as a process would have it: caches, queue and workers from nothing."""

    def __init__(self, client: Client, space: str) -> None:
        pause = Backoff(0.02, 0.3)
        self.parents: Cache[Object] = Cache(
            client, CONFIG_MAPS, space, labels="role=parent", backoff=Backoff(0.02, 0.3), quiet=2.0, page=3
        )
        self.children: Cache[Object] = Cache(
            client, SECRETS, space, labels="role=child", backoff=Backoff(0.02, 0.3), quiet=2.0, page=3
        )
        self.writer = Writer(client, self.children)
        clock = SystemClock()
        self.controller = Controller("family", self.reconcile, clock, queue=WorkQueue(clock, pause), workers=4)
        self.controller.watch(self.parents)
        self.controller.watch_owned(self.children, "ConfigMap")

    async def reconcile(self, key: str) -> Result:
        parent = self.parents.get(key)
        if parent is None or "deletionTimestamp" in parent["metadata"]:
            return DONE
        wanted = {resources.key(child): child for child in children_of(parent)}
        there = {resources.key(child): child for child in self.children.by_owner(resources.uid(parent))}
        for name, child in wanted.items():
            if name not in there or differences(child, there[name]):
                await self.writer.apply(child)
        for name in there.keys() - wanted.keys():
            await self.writer.delete(there[name])
        return DONE

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Family]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in (self.parents, self.children, self.controller)]
            yield self
            for task in tasks:
                task.cancel()


class People:
    """Whoever else is at work on the cluster, without a proxy in between."""

    def __init__(self, client: Client, space: str, seed: int) -> None:
        self._client = client
        self._space = space
        self._random = Random(seed)

    async def act(self) -> None:
        random = self._random
        name = random.choice(NAMES)
        data = {"count": str(random.randrange(5)), "word": random.choice(["left", "right", "up"])}
        parent = {**CONFIG_MAPS.object(name, self._space, data=data)}
        parent["metadata"]["labels"] = PARENT
        child = f"{name}-{random.randrange(3)}"
        try:
            match random.randrange(6):
                case 0:
                    await self._client.delete(CONFIG_MAPS, name, self._space)
                case 1:
                    await self._client.delete(SECRETS, child, self._space)
                case 2:
                    tampered = {"data": {"word": "d3Jvbmc="}, "metadata": {"labels": {"mine": "yes"}}}
                    await self._client.patch(SECRETS, child, self._space, body=tampered)
                case _:
                    await self._client.apply(CONFIG_MAPS, parent, field_manager="people")
        except NotFound:
            return

    async def drift(self) -> list[str]:
        """What is not as the parents want it."""
        parents = (await self._client.list(CONFIG_MAPS, self._space, labels="role=parent")).items
        there = {
            resources.key(child): child
            for child in (await self._client.list(SECRETS, self._space, labels="role=child")).items
        }
        found = []
        for parent in parents:
            for child in children_of(parent):
                live = there.pop(resources.key(child), None)
                if live is None:
                    found.append(f"{resources.key(child)} is missing")
                else:
                    found.extend(f"{resources.key(child)}: {where}" for where in differences(child, live))
        return [*found, *(f"{key} is left over" for key in there)]


async def no_drift(people: People, server: Transport, seconds: float) -> None:
    """Waits until the server has what is wanted."""
    found = ["nothing was compared"]

    async def compare() -> None:
        nonlocal found
        while True:
            if isinstance(server, MemoryApiServer):
                server.collect()
            found = await people.drift()
            if not found:
                return
            await asyncio.sleep(0.05)

    try:
        async with asyncio.timeout(seconds):
            await compare()
    except TimeoutError:
        raise AssertionError(f"drift: {found}") from None


async def chaos(
    server: Transport,
    space: str,
    seed: int,
    *,
    steps: int,
    pause: float,
    patience: float,
    restart: Callable[[], object],
    calm: Callable[[], object] = lambda: None,
) -> FaultProxy:
    """The scene: wild times, then calm, then a restart of the controller that finds nothing to do."""
    direct = Client(server, manager="people")
    people = People(direct, space, seed)
    async with FaultProxy(server, seed).serving() as proxy:
        client = Client(HttpTransport(proxy.endpoint))
        async with Family(client, space).running() as children:
            for step in itertools.count():
                if step >= steps and sum(proxy.faults.values()) >= FEWEST_FAULTS:
                    break
                await people.act()
                if step % 40 == 39:
                    proxy.sever()
                if step in {steps // 3, steps // 2}:
                    await asyncio.to_thread(restart)
                await asyncio.sleep(pause)
            proxy.wild = False
            proxy.sever()
            await asyncio.to_thread(calm)
            await no_drift(people, server, patience)
            queue = children.controller.queue
            await soon(lambda: not len(queue) and not queue.delayed, "nothing more to reconcile")
        assert proxy.idle_writes == []
        await client.close()
        written = len(proxy.writes)
        again = Client(HttpTransport(proxy.endpoint))
        turns = 0

        def count(key: str, old: object, new: object) -> None:
            nonlocal turns
            turns += 1

        async with Family(again, space).running() as children:
            children.parents.subscribe(count)
            queue = children.controller.queue
            await soon(lambda: turns and not len(queue) and not queue.delayed, "all was reconciled")
            await no_drift(people, server, patience)
        await again.close()
        assert proxy.writes[written:] == []
        return proxy


@pytest.mark.parametrize("seed", range(4))
async def test_in_memory(seed: int) -> None:
    async with asyncio.timeout(100):
        server = MemoryApiServer()
        proxy = await chaos(server, "default", seed, steps=150, pause=0.01, patience=30.0, restart=server.forget)
    assert proxy.writes


async def test_a_real_api_server_that_is_restarted_as_well(control_plane: LiveCluster) -> None:
    def restart() -> None:
        control_plane.restart("apiserver")

    def calm() -> None:
        # Seen: the garbage collector never removes the children of a parent that was deleted and made anew while the API
        # server was away, and does within seconds when it begins anew. Its broken watch is probably why; not our drift.
        control_plane.restart("controllers")

    wire = HttpTransport(from_kubeconfig(control_plane.kubeconfig), timeout=10.0)
    async with asyncio.timeout(300), own_namespace(Client(wire)) as space:
        proxy = await chaos(wire, space, 7, steps=120, pause=0.05, patience=60.0, restart=restart, calm=calm)
    await wire.close()
    assert proxy.writes


async def test_a_restarted_api_server_has_forgotten_and_the_cache_lists_again(control_plane: LiveCluster) -> None:
    async with connected(from_kubeconfig(control_plane.kubeconfig)) as client, own_namespace(client) as space:
        old = (await client.list(SECRETS, space)).version
        cache: Cache[Object] = Cache(client, SECRETS, space, backoff=Backoff(0.02, 0.3))
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            task = group.create_task(cache.run())
            await cache.synced.wait()
            for number in range(5):
                await client.create(SECRETS, SECRETS.object(f"s{number}", space))
            await asyncio.to_thread(control_plane.restart, "apiserver")
            await client.delete(SECRETS, "s0", space)
            await soon(lambda: len(cache) == 4, f"four secrets, found {cache.keys()}")
            with pytest.raises(Gone):
                async for _ in client.watch(SECRETS, space, version=old):
                    pass
            task.cancel()
