"""A scheduler of pods whose API server restarts, throttles, forgets and drops watches, while nodes come, go, are cordoned and change
their labels: in the end no node has more than it can hold, no pod waits that a node would take, and the ledger has no drift.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Conflict, NotFound
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import NODES, PODS, Object
from paddleflow.kube.transport import HttpTransport
from paddleflow.podscheduler.pods import pod_request
from paddleflow.podscheduler.scheduler import PodScheduler
from paddleflow.podscheduler.writer import WriterTiming
from paddleflow.scheduling.rules import Rules
from paddleflow.testing.api_server import MemoryApiServer
from tests.fault.kube_proxy import FaultProxy

NAMES = [f"n{number}" for number in range(5)]
ZONES = ("a", "b")
CORES = 4000
FEWEST_FAULTS = 20
TIMING = WriterTiming(retry=(0.02, 0.2))


class People:
    """Whoever else is at work on the cluster, without a proxy in between."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client, self._random = client, Random(seed)
        self._numbers = itertools.count()

    async def add_node(self, name: str) -> None:
        made = NODES.object(name)
        made["metadata"]["labels"] = {"zone": self._random.choice(ZONES)}
        room = {"cpu": f"{CORES}m", "memory": "8Gi", "pods": "20"}
        try:
            await self._client.create(NODES, made)
        except Conflict:
            return
        await self._client.patch(NODES, name, body={"status": {"allocatable": room}}, subresource="status")

    async def act(self) -> None:
        random, client = self._random, self._client
        node = random.choice(NAMES)
        try:
            match random.randrange(10):
                case 0:
                    await client.delete(NODES, node)
                    await self._delete_pods_on(node)
                case 1:
                    await client.patch(NODES, node, body={"spec": {"unschedulable": random.random() < 0.5}})
                case 2:
                    labels = {"zone": random.choice(ZONES)}
                    await client.patch(NODES, node, body={"metadata": {"labels": labels}})
                case 3 | 4:
                    await self.add_node(node)
                case 5:
                    found = (await client.list(PODS, "default")).items
                    if found:
                        await client.delete(PODS, random.choice(found)["metadata"]["name"], "default", grace=0)
                case _:
                    await client.create(PODS, self._pod())
        except NotFound:
            return

    def _pod(self) -> Object:
        random = self._random
        requests = {"cpu": random.choice(["500m", "1", "3"])}
        spec = {
            "schedulerName": "paddleflow",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
            "nodeSelector": {"zone": random.choice(ZONES)} if random.random() < 0.4 else {},
        }
        return PODS.object(f"p{next(self._numbers)}", "default", spec=spec)

    async def _delete_pods_on(self, node: str) -> None:
        for pod in (await self._client.list(PODS, "default")).items:
            if pod["spec"].get("nodeName") == node:
                await self._client.delete(PODS, pod["metadata"]["name"], "default", grace=0)

    async def drift(self, scheduler: PodScheduler) -> list[str]:
        """What is not as it should be."""
        nodes = {node["metadata"]["name"]: node for node in (await self._client.list(NODES)).items}
        pods = (await self._client.list(PODS, "default")).items
        free = dict.fromkeys(nodes, CORES)
        for pod in pods:
            if pod["spec"].get("nodeName") in free:
                free[pod["spec"]["nodeName"]] -= pod_request(pod["spec"]).cpu
        found = [f"{name} holds more than it has: {left}" for name, left in free.items() if left < 0]
        for pod in pods:
            if pod["spec"].get("nodeName"):
                continue
            selector, needed = pod["spec"].get("nodeSelector") or {}, pod_request(pod["spec"]).cpu
            found += [
                f"{pod['metadata']['name']} waits, {name} would take it"
                for name, node in nodes.items()
                if free[name] >= needed
                and not node.get("spec", {}).get("unschedulable")
                and selector.items() <= node["metadata"]["labels"].items()
            ]
        states = scheduler.board.core.cluster.states
        ledger = {name: state.cpu for name, state in states.items()}
        return found if ledger == free else [*found, f"the ledger has {ledger}, the cluster {free}"]


@asynccontextmanager
async def scheduling(client: Client) -> AsyncIterator[PodScheduler]:
    clock = SystemClock()
    recorder = Recorder(client, "test", clock)
    scheduler = PodScheduler(client, recorder, clock, Rules(patience=float("inf")), "pack", "paddleflow", TIMING)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in scheduler.caches.all]
        tasks += [group.create_task(recorder.run()), group.create_task(scheduler.run())]
        yield scheduler
        for task in tasks:
            task.cancel()


async def no_drift(people: People, scheduler: PodScheduler) -> None:
    found = ["nothing was compared"]
    try:
        async with asyncio.timeout(60):
            while found:
                found = await people.drift(scheduler)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"drift: {found}") from None


@pytest.mark.parametrize("seed", range(3))
async def test_no_drift_after_wild_times(seed: int) -> None:
    server = MemoryApiServer()
    people = People(Client(server, manager="people"), seed)
    async with asyncio.timeout(200), FaultProxy(server, seed).serving() as proxy:
        client = Client(HttpTransport(proxy.endpoint))
        async with scheduling(client) as scheduler:
            for step in itertools.count():
                if step >= 200 and sum(proxy.faults.values()) >= FEWEST_FAULTS:
                    break
                await people.act()
                if step % 40 == 39:
                    proxy.sever()
                if step in {70, 100}:
                    server.forget()
                await asyncio.sleep(0.01)
            proxy.wild = False
            proxy.sever()
            await no_drift(people, scheduler)
        await client.close()
        again = Client(HttpTransport(proxy.endpoint))
        async with scheduling(again) as scheduler:  # a process that begins anew finds the same
            await no_drift(people, scheduler)
        await again.close()
