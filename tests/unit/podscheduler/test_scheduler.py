"""The loop against an API server in memory: bindings, reasons, lost answers, evictions, statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import (
    CLAIMS,
    EVENTS,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    STORAGE_CLASSES,
    VOLUMES,
    Object,
)
from paddleflow.kube.transport import Request, Response
from paddleflow.podscheduler import statuses
from paddleflow.podscheduler.scheduler import PodScheduler
from paddleflow.podscheduler.volumes import SELECTED_NODE
from paddleflow.podscheduler.writer import TIMING, WriterTiming
from paddleflow.scheduling.rules import Rules
from paddleflow.testing.api_server import MemoryApiServer


async def add_node(client: Client, name: str, cpu: str = "4") -> None:
    await client.create(NODES, NODES.object(name))
    room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    await client.patch(NODES, name, body={"status": {"allocatable": room}}, subresource="status")


def pod(name: str, cpu: str = "1", group: str = "", **more: Any) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    made = PODS.object(name, "default", spec={"schedulerName": "paddleflow", "containers": [container], **more})
    if group:
        made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group}
    return made


@asynccontextmanager
async def scheduling(server: MemoryApiServer, timing: WriterTiming = TIMING, **rules: Any) -> AsyncIterator[Client]:
    client, clock = Client(server), SystemClock()
    recorder = Recorder(client, "test", clock)
    scheduler = PodScheduler(client, recorder, clock, Rules(**rules), "pack", "paddleflow", timing)
    scheduler.caches.watched = scheduler.caches.all
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in scheduler.caches.all]
        tasks += [group.create_task(recorder.run()), group.create_task(scheduler.run())]
        yield client
        for task in tasks:
            task.cancel()


async def until(client: Client, name: str, condition: Callable[[Object], bool]) -> Object:
    """The pod, once the condition holds."""
    async with asyncio.timeout(60):
        while True:
            found = await client.get(PODS, name, "default")
            if condition(found):
                return found
            await asyncio.sleep(0.01)


def placed(found: Object) -> bool:
    return bool(found["spec"].get("nodeName"))


def condition(found: Object, kind: str) -> Object:
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


async def test_binds_gangs_and_pods_and_keeps_the_statuses_true() -> None:
    server = MemoryApiServer()
    async with scheduling(server) as client:
        await add_node(client, "n0")
        await client.create(QUEUES, QUEUES.object("q", spec={"capability": {"cpu": "3"}}))
        await client.create(PODGROUPS, PODGROUPS.object("g", "default", spec={"minMember": 2, "queue": "q"}))
        for name in ("g-0", "g-1"):
            await client.create(PODS, pod(name, group="g"))
        await client.create(PODS, pod("large", cpu="9"))
        for name in ("g-0", "g-1"):
            assert (await until(client, name, placed))["spec"]["nodeName"] == "n0"
        waits = await until(client, "large", lambda each: bool(condition(each, "PodScheduled")))
        assert condition(waits, "PodScheduled")["reason"] == "Unschedulable"
        assert condition(waits, "PodScheduled")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        async with asyncio.timeout(60):
            while (await client.get(QUEUES, "q")).get("status", {}).get("running") != 1:
                await asyncio.sleep(0.01)
        assert (await client.get(QUEUES, "q"))["status"]["allocated"]["cpu"] == "2"
        assert (await client.get(PODGROUPS, "g", "default"))["status"]["phase"] == "Running"


async def test_a_gang_that_is_being_created_costs_one_write_for_each_pod() -> None:
    timing = WriterTiming(tell_after=(3600.0, 3600.0))  # however slow this machine is
    server = MemoryApiServer()
    async with scheduling(server, timing) as client:
        await add_node(client, "n0")
        await client.create(PODGROUPS, PODGROUPS.object("g", "default", spec={"minMember": 4}))
        for number in range(4):
            await client.create(PODS, pod(f"g-{number}", group="g"))
            await asyncio.sleep(0.01)  # so that it is decided about
        for number in range(4):
            await until(client, f"g-{number}", placed)
    about_pods = [each.path.partition("?")[0] for each in server.writes if "/pods/" in each.path]
    assert sorted(about_pods) == [f"/api/v1/namespaces/default/pods/g-{number}/binding" for number in range(4)]
    assert not [each for each in server.writes if "/events" in each.path]


async def test_a_scheduler_that_starts_anew_writes_nothing_that_is_so_already(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = WriterTiming(tell_after=(0.05, 0.05), status_every=0.05)
    server = MemoryApiServer()
    async with scheduling(server, timing) as client:
        await add_node(client, "n0")
        await client.create(QUEUES, QUEUES.object("q", spec={"capability": {"cpu": "3"}}))
        await client.create(PODGROUPS, PODGROUPS.object("g", "default", spec={"minMember": 2, "queue": "q"}))
        for name in ("g-0", "g-1"):
            await client.create(PODS, pod(name, group="g"))
        await client.create(PODS, pod("large", cpu="9"))
        await until(client, "large", lambda each: bool(condition(each, "PodScheduled")))
        async with asyncio.timeout(60):
            while (await client.get(QUEUES, "q")).get("status", {}).get("running") != 1:
                await asyncio.sleep(0.01)
    before = len(server.writes)
    looks: list[str] = []
    wrong_queues = statuses.Statuses.wrong_queues

    def look(self: statuses.Statuses) -> dict[str, dict[str, Any]]:
        looks.append("")
        return wrong_queues(self)

    monkeypatch.setattr(statuses.Statuses, "wrong_queues", look)
    async with scheduling(server, timing) as client:
        await client.create(PODS, pod("next"))
        await until(client, "next", placed)
        async with asyncio.timeout(60):
            while len(looks) < 2:
                await asyncio.sleep(0.01)
    after = [each.path.partition("?")[0].rpartition("default/")[2] for each in server.writes[before:]]
    assert after == ["pods", "pods/next/binding"]


async def test_a_binding_whose_answer_is_lost_is_looked_up_and_not_repeated() -> None:
    server = MemoryApiServer()
    lost: list[str] = []

    def lose(request: Request) -> Response | None:
        if request.path.partition("?")[0].endswith("/binding") and not lost:
            lost.append(request.path)
            server.refuse = lambda _: None
            asyncio.get_running_loop().create_task(server.send(request))
            return Response(503, {}, b"{}")
        return None

    server.refuse = lose
    async with scheduling(server) as client:
        await add_node(client, "n0")
        await client.create(PODS, pod("a"))
        await until(client, "a", placed)
        await client.create(PODS, pod("b", cpu="3"))
        await until(client, "b", placed)
    bindings = [write for write in server.writes if write.path.partition("?")[0].endswith("/binding")]
    assert [write.status for write in bindings] == [201, 201]
    assert lost


async def test_a_pod_of_a_higher_priority_takes_the_place_of_another() -> None:
    server = MemoryApiServer()
    async with scheduling(server, preemption=True, least_run=0.0) as client:
        await add_node(client, "n0")
        await client.create(PODS, pod("low", cpu="4"))
        await until(client, "low", placed)
        await client.create(PODS, pod("high", cpu="4", priority=10))
        async with asyncio.timeout(60):
            while True:
                found = await client.list(PODS, "default")
                low = next((each for each in found.items if each["metadata"]["name"] == "low"), None)
                if low is None or "deletionTimestamp" in low["metadata"]:
                    break
                await asyncio.sleep(0.01)
        if low is not None:
            assert condition(low, "DisruptionTarget")["reason"] == "PreemptionByScheduler"
            await client.delete(PODS, "low", "default", grace=0)  # the kubelet's part
        await until(client, "high", placed)


async def test_an_eviction_waits_for_a_disruption_budget_that_forbids_it() -> None:
    server = MemoryApiServer()
    refused: list[str] = []

    def forbid(request: Request) -> Response | None:
        if request.path.partition("?")[0].endswith("/eviction") and len(refused) < 2:
            refused.append(request.path)
            text = (
                b'{"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "would violate the budget"}'
            )
            return Response(429, {}, text)
        return None

    server.refuse = forbid
    async with scheduling(server, preemption=True, least_run=0.0) as client:
        await add_node(client, "n0")
        await client.create(PODS, pod("low", cpu="4"))
        await until(client, "low", placed)
        await client.create(PODS, pod("high", cpu="4", priority=10))
        async with asyncio.timeout(60):
            while any(
                each["metadata"]["name"] == "low" and "deletionTimestamp" not in each["metadata"]
                for each in (await client.list(PODS, "default")).items
            ):
                await asyncio.sleep(0.01)
        assert len(refused) == 2


CLASS = {"provisioner": "test", "volumeBindingMode": "WaitForFirstConsumer"}
CLAIM = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def test_a_pod_is_bound_when_its_volume_was_made_for_its_node() -> None:
    server = MemoryApiServer()
    async with scheduling(server) as client:
        await client.create(STORAGE_CLASSES, STORAGE_CLASSES.object("late", **CLASS))
        await add_node(client, "n0")
        await client.create(CLAIMS, CLAIMS.object("data", "default", spec=CLAIM))
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        await client.create(PODS, pod("a", volumes=volumes))
        async with asyncio.timeout(60):
            while True:  # the provisioner's part
                claim = await client.get(CLAIMS, "data", "default")
                if (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE):
                    break
                await asyncio.sleep(0.01)
        assert claim["metadata"]["annotations"][SELECTED_NODE] == "n0"
        assert not placed(await client.get(PODS, "a", "default"))
        await client.create(VOLUMES, VOLUMES.object("pv", spec={"capacity": {"storage": "1Gi"}}))
        await client.patch(CLAIMS, "data", "default", body={"spec": {"volumeName": "pv"}})
        await client.patch(CLAIMS, "data", "default", body={"status": {"phase": "Bound"}}, subresource="status")
        await until(client, "a", placed)


async def test_a_node_that_the_provisioner_gives_back_is_tried_again() -> None:
    timing = WriterTiming(retry=(0.05, 0.05))
    server = MemoryApiServer()
    async with scheduling(server, timing) as client:
        await client.create(STORAGE_CLASSES, STORAGE_CLASSES.object("late", **CLASS))
        await add_node(client, "n0")
        await client.create(CLAIMS, CLAIMS.object("data", "default", spec=CLAIM))
        await client.create(PODS, pod("a", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
        for _ in range(2):  # asked, given back, asked again
            async with asyncio.timeout(60):
                while (await client.get(CLAIMS, "data", "default"))["metadata"].get("annotations") != {
                    SELECTED_NODE: "n0"
                }:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # seen by the scheduler, too
            await client.patch(CLAIMS, "data", "default", body={"metadata": {"annotations": {SELECTED_NODE: None}}})
        async with asyncio.timeout(60):
            while not any(each["reason"] == "FailedBinding" for each in (await client.list(EVENTS, "default")).items):
                await asyncio.sleep(0.01)
