"""What one reconcile of a job writes: how often its status, and what it does about pods that are in its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.errors import Conflict, NotFound
from paddleflow.kube.client import Client
from paddleflow.kube.controller import DONE, RequeueAfter
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import EVENTS, NAMESPACES, PADDLEJOBS, PODGROUPS, PODS, SERVICES, Object, owner, uid
from paddleflow.kube.transport import Request, Response
from paddleflow.operator.controller import SETTLE, PaddleJobController
from paddleflow.operator.paddlejob.job import ORIGINAL_FINALIZER, OperatorOptions
from paddleflow.operator.paddlejob.pods import NAME_LABEL
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon
from tests.simulated_paddlejob import job, role

KEY = "team/demo"


class Scene:
    """One job on an API server in memory, reconciled by hand."""

    def __init__(self, **options: Any) -> None:
        self.server = MemoryApiServer()
        self.client = Client(self.server)
        self.clock = ManualClock()
        self.recorder = Recorder(self.client, "test", self.clock)
        self.jobs = PaddleJobController(self.client, self.recorder, self.clock, OperatorOptions(**options))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            tasks = [group.create_task(cache.run()) for cache in self.jobs.caches.values()]
            for cache in self.jobs.caches.values():
                await cache.synced.wait()
            await self.client.create(NAMESPACES, NAMESPACES.object("team"))
            yield self
            for task in tasks:
                task.cancel()

    async def submit(self, members: int, finalizers: tuple[str, ...] = (), **spec: Any) -> None:
        asked = job({"worker": role(members), **spec})
        made = PADDLEJOBS.object("demo", "team", spec=asked["spec"])
        made["metadata"]["finalizers"] = list(finalizers)
        await self.client.create(PADDLEJOBS, made)
        await soon(lambda: self.jobs.jobs.get(KEY), "the job")

    async def pod(self, index: int, **status: object) -> None:
        """What a kubelet would say."""
        name = f"demo-worker-{index}"
        before = self.jobs.pods.get(f"team/{name}")
        await self.client.patch(PODS, name, "team", body={"status": status}, subresource="status")
        await soon(lambda: self.jobs.pods.get(f"team/{name}") != before, "the pod's status")

    async def status(self) -> Object:
        found: Object = (await self.client.get(PADDLEJOBS, "demo", "team")).get("status") or {}
        return found


async def test_the_first_status_counts_the_pods() -> None:
    async with Scene().running() as scene:
        await scene.submit(3)
        await scene.jobs.reconcile(KEY)
        assert await scene.status() == {}, "the next reconcile comes at once: its pods are new"
        assert await scene.jobs.reconcile(KEY) == DONE
        assert (await scene.status())["worker"]["pending"] == 3


async def test_counts_are_gathered_from_the_first_change_on() -> None:
    async with Scene().running() as scene:
        await scene.submit(2)
        await scene.jobs.reconcile(KEY)
        await scene.jobs.reconcile(KEY)
        scene.clock.advance(100.0)  # long after the last write
        await scene.pod(0, phase="Pending", podIP="10.0.0.1")
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(SETTLE)
        scene.clock.advance(SETTLE - 1)
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(1.0)
        assert (await scene.status())["worker"]["pending"] == 2
        scene.clock.advance(1.0)
        assert await scene.jobs.reconcile(KEY) == DONE
        assert (await scene.status())["worker"]["starting"] == 1


async def test_a_refusal_is_in_the_first_status() -> None:
    async with Scene().running() as scene:
        await scene.submit(1)

        def refuse(request: Request) -> Response | None:
            body = b'{"message": "exceeded quota: few"}'
            return Response(403, {}, body) if request.path.startswith("/api/v1/namespaces/team/pods") else None

        scene.server.refuse = refuse
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(1.0)
        (blocked,) = (await scene.status())["conditions"]
        assert (blocked["type"], blocked["status"], blocked["reason"]) == ("Blocked", "True", "QuotaExceeded")


async def test_pods_of_an_earlier_job_of_the_name_make_way() -> None:
    """The garbage collector forgets them where the new job came while it did not watch."""
    async with Scene().running() as scene:
        earlier = {"apiVersion": PADDLEJOBS.api_version, "kind": "PaddleJob", "name": "demo", "uid": "earlier"}
        left = PODS.object("demo-worker-0", "team", spec={})
        left["metadata"] |= {
            "labels": {NAME_LABEL: "demo-worker-0"},
            "ownerReferences": [{**earlier, "controller": True}],
        }
        await scene.client.create(PODS, left)
        await soon(scene.jobs.pods.keys, "the pod")
        await scene.submit(1)
        with pytest.raises(Conflict):
            await scene.jobs.reconcile(KEY)
        await soon(lambda: not scene.jobs.pods.keys(), "the pod's end")
        await scene.jobs.reconcile(KEY)
        (pod,) = (await scene.client.list(PODS, "team")).items
        found = owner(pod)
        assert found is not None
        assert found.uid == uid(await scene.client.get(PADDLEJOBS, "demo", "team"))


async def test_a_status_that_may_not_be_written_is_said_by_an_event() -> None:
    async with Scene().running() as scene:
        await scene.submit(1)
        await scene.jobs.reconcile(KEY)

        def forbid(request: Request) -> Response | None:
            return Response(403, {}, b'{"message": "no"}') if "/status" in request.path else None

        scene.server.refuse = forbid
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(1.0)
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(2.0)
        scene.server.refuse = lambda request: None
        await scene.jobs.reconcile(KEY)
        assert (await scene.status())["phase"] == "Pending"


async def test_the_finalizer_of_the_original_operator_is_taken_off() -> None:
    async with Scene().running() as scene:
        await scene.submit(1, finalizers=("somebody.else/keeps", ORIGINAL_FINALIZER))
        await scene.jobs.reconcile(KEY)
        live = await scene.client.get(PADDLEJOBS, "demo", "team")
        assert live["metadata"]["finalizers"] == ["somebody.else/keeps"]


async def test_a_finalizer_that_comes_back_is_taken_off_again_only_when_the_job_is_deleted() -> None:
    """The original operator, where it still runs, would put it on again for ever."""
    async with Scene().running() as scene:
        await scene.submit(1, finalizers=(ORIGINAL_FINALIZER,))
        await scene.jobs.reconcile(KEY)
        before = scene.jobs.jobs.get(KEY)
        await scene.client.patch(PADDLEJOBS, "demo", "team", body={"metadata": {"finalizers": [ORIGINAL_FINALIZER]}})
        await soon(lambda: scene.jobs.jobs.get(KEY) != before, "the finalizer is back")
        await scene.jobs.reconcile(KEY)
        assert (await scene.client.get(PADDLEJOBS, "demo", "team"))["metadata"]["finalizers"] == [ORIGINAL_FINALIZER]
        before = scene.jobs.jobs.get(KEY)
        await scene.client.delete(PADDLEJOBS, "demo", "team")
        await soon(lambda: scene.jobs.jobs.get(KEY) != before, "the deletion is seen")
        await scene.jobs.reconcile(KEY)
        with pytest.raises(NotFound):
            await scene.client.get(PADDLEJOBS, "demo", "team")


async def test_pods_wait_for_the_service_that_names_them() -> None:
    async with Scene().running() as scene:
        await scene.client.create(SERVICES, SERVICES.object("demo", "team", spec={"clusterIP": "None"}))
        await scene.submit(2, intranet="Service")
        for _ in range(3):
            await scene.jobs.reconcile(KEY)
        status = await scene.status()
        (blocked,) = status["conditions"]
        assert (blocked["reason"], status["phase"]) == ("NameTaken", "Pending")
        assert (await scene.client.list(PODS, "team")).items == [], "their names would lead nowhere"
        await scene.client.delete(SERVICES, "demo", "team")
        await scene.jobs.reconcile(KEY)
        assert len((await scene.client.list(PODS, "team")).items) == 2


async def test_the_reason_of_volcano_is_shown() -> None:
    async with Scene(volcano=True).running() as scene:
        await scene.submit(1)
        await scene.jobs.reconcile(KEY)
        group = await scene.client.patch(
            PODGROUPS, "demo", "team", body={"status": {"phase": "Pending"}}, subresource="status"
        )
        about = {"kind": "PodGroup", "name": "demo", "namespace": "team", "uid": uid(group)}
        for number, message in enumerate(
            ("resource in cluster is overused: overused cpu", "0/0 tasks in gang unschedulable")
        ):
            said = {
                "involvedObject": about,
                "reason": "Unschedulable",
                "message": message,
                "lastTimestamp": f"{number}",
            }
            await scene.client.create(EVENTS, EVENTS.object(f"e{number}", "team", **said))
        await soon(lambda: b"Pending" in (scene.jobs.pod_groups.get(KEY) or b""), "the group's phase")
        await scene.jobs.reconcile(KEY)
        scene.clock.advance(SETTLE)
        await scene.jobs.reconcile(KEY)
        assert (await scene.status())["message"] == "waits for the gang: resource in cluster is overused: overused cpu"
