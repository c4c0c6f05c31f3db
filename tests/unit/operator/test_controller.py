"""What one look at a job writes: how often its status, and what it does about pods that are in its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.errors import Conflict
from paddleflow.kube.client import Client
from paddleflow.kube.controller import DONE, RequeueAfter
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import NAMESPACES, PADDLEJOBS, PODS, Object, owner, uid
from paddleflow.kube.transport import Request, Response
from paddleflow.operator.controller import SETTLE, PaddleJobController
from paddleflow.operator.paddlejob.job import Options
from paddleflow.operator.paddlejob.pods import JOB_LABEL
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon
from tests.simulated_paddlejob import job, role

KEY = "team/demo"


class Scene:
    """One job on an API server in memory, looked at by hand."""

    def __init__(self) -> None:
        self.server = MemoryApiServer()
        self.client = Client(self.server)
        self.clock = ManualClock()
        self.recorder = Recorder(self.client, "test", self.clock)
        self.jobs = PaddleJobController(self.client, self.recorder, self.clock, Options())

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

    async def submit(self, members: int) -> None:
        asked = job({"worker": role(members)})
        await self.client.create(PADDLEJOBS, PADDLEJOBS.object("demo", "team", spec=asked["spec"]))
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
        assert await scene.status() == {}, "the next look comes at once: its pods are new"
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
            said = b'{"message": "exceeded quota: few"}'
            return Response(403, {}, said) if request.path.startswith("/api/v1/namespaces/team/pods") else None

        scene.server.refuse = refuse
        assert await scene.jobs.reconcile(KEY) == RequeueAfter(1.0)
        (blocked,) = (await scene.status())["conditions"]
        assert (blocked["type"], blocked["status"], blocked["reason"]) == ("Blocked", "True", "QuotaExceeded")


async def test_pods_of_an_earlier_job_of_the_name_make_way() -> None:
    """The garbage collector forgets them where the new job came while it did not watch."""
    async with Scene().running() as scene:
        earlier = {"apiVersion": PADDLEJOBS.api_version, "kind": "PaddleJob", "name": "demo", "uid": "earlier"}
        left = PODS.object("demo-worker-0", "team", spec={})
        left["metadata"] |= {"labels": {JOB_LABEL: "demo"}, "ownerReferences": [{**earlier, "controller": True}]}
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
