"""How long a server that starts anew waits for a cluster: in rounds of requests, because an API server under load takes long for each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Unavailable
from paddleflow.kube.client import Client
from paddleflow.kube.lease import Lease
from paddleflow.kube.resources import LEASES, PODS, Object
from paddleflow.kube.transport import Request, Response
from paddleflow.podscheduler.foreign_pods import ForeignPods
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.testing.api_server import MemoryApiServer
from tests.unit.podscheduler.test_foreign_pods import allow_everything
from tests.unit.podscheduler.test_scheduler import add_node, pod

QUIET = 50  #: passes of the loop in which nobody asks for anything more


class Rounds(MemoryApiServer):
    """Answers all that was asked at once, as soon as nobody asks for more: a chain of requests costs a round for each."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse = allow_everything
        self.rounds: list[list[str]] = []
        self._asked: list[str] = []
        self._round = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self._asked.append(f"{request.method} {request.path}")
        await self._round.wait()
        return await super().send(request)

    async def answer(self) -> None:
        """For ever, round by round."""
        while True:
            asked = -1
            while not self._asked or asked != len(self._asked):
                asked = len(self._asked)
                for _ in range(QUIET):
                    await asyncio.sleep(0)
            self.rounds.append(self._asked)
            self._asked, now = [], self._round
            self._round = asyncio.Event()
            now.set()


async def test_a_cluster_is_opened_in_few_rounds_of_requests(tmp_path: Path) -> None:
    server, clock = Rounds(), SystemClock()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        answering = group.create_task(server.answer())
        client, spawn = Client(server), group.create_task
        await add_node(client, "n0")
        await client.create(PODS, pod("there", nodeName="n0"))
        for name, space, holder in (("held", "default", "us"), ("paddleflow-scheduler", "kube-system", "server")):
            spec: Object = {"holderIdentity": holder, "leaseDurationSeconds": 15}  # the server was killed
            await client.create(LEASES, LEASES.object(name, space, spec=spec))
        server.rounds.clear()
        runtime = KubernetesRuntime(
            client,
            clock,
            tmp_path,
            spawn,
            settings=PodSettings("c"),
            lease=Lease(Client(server), "held", "default", "us", clock),
            foreign_pods=ForeignPods(Client(server), Client(server), clock, spawn, cluster="c", identity="server"),
        )
        await runtime.open()
        await runtime.adopt()
        used = list(server.rounds)
        await runtime.close()
        answering.cancel()
    assert len(used) <= 7, used


async def test_a_cluster_that_is_away_is_known_at_once_and_opened_when_it_is_back(tmp_path: Path) -> None:
    server, clock = MemoryApiServer(), SystemClock()
    away = True

    def answer(request: Request) -> Response | None:
        broken = away and request.path.startswith("/apis/ray.io")
        return Response(503, {}, b'{"message": "later"}') if broken else allow_everything(request)

    server.refuse = answer
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        client, spawn = Client(server), group.create_task
        await add_node(client, "n0")
        foreign = ForeignPods(Client(server), Client(server), clock, spawn, cluster="c", identity="server")
        lease = Lease(Client(server), "held", "default", "us", clock)
        runtime = KubernetesRuntime(
            client, clock, tmp_path, spawn, settings=PodSettings("c"), lease=lease, foreign_pods=foreign
        )
        others = len(asyncio.all_tasks())
        with pytest.raises(Unavailable, match="later"):
            await runtime.open()
        assert len(asyncio.all_tasks()) == others, "nothing goes on"
        away = False
        await runtime.open()
        assert foreign.usable
        assert [node.name for node in await runtime.nodes()] == ["n0"]
        await client.create(PODS, pod("later", nodeName="n0"))
        while not (await runtime.nodes())[0].taken.cpu:
            await asyncio.sleep(0)
        await runtime.close()
