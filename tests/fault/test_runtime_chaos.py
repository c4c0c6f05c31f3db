"""The runtime of a cluster whose API server throttles, forgets, cuts connections and drops watches, while servers die and people delete
pods: every attempt has one pod and one end, and nothing is left in the cluster."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import orjson
import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, SECRETS, SERVICES
from paddleflow.kube.transport import HttpTransport, Request, Response
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime
from paddleflow.runtimes.kubernetes.pods import ATTEMPT, PodSettings, pod_name
from paddleflow.runtimes.runtime import Ended, Launch, Started
from paddleflow.testing.api_server import MemoryApiServer
from tests.fault.kube_proxy import FaultProxy
from tests.patience import PATIENCE, soon

T = TypeVar("T")
ATTEMPTS = 30
FEWEST_FAULTS = 20
BEGAN, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def code_of(attempt: str) -> int:
    """What the program of an attempt ends with."""
    return int(attempt.split("-")[1].split(".")[0]) % 3


def is_stopped(attempt: str) -> bool:
    """Whether its user stops it as soon as it runs."""
    return int(attempt.split("-")[1].split(".")[0]) % 7 == 3


class Kubelet:
    """Runs what is there, without a proxy in between; and a person who deletes some of it."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client, self._random = client, Random(seed)
        self.ran: defaultdict[str, set[str]] = defaultdict(set)  #: attempt → uids of its pods

    async def act(self) -> None:
        for pod in (await self._client.list(PODS, "default")).items:
            metadata, states = pod["metadata"], (pod.get("status") or {}).get("containerStatuses") or [{}]
            attempt = metadata["annotations"][ATTEMPT]
            self.ran[attempt].add(metadata["uid"])
            with suppress(NotFound):
                state = states[0].get("state") or {}
                if "terminated" in state:
                    continue
                if "deletionTimestamp" in metadata:
                    await self._end(metadata["name"], 143)
                elif "running" not in state:
                    await self._status(metadata["name"], "Running", {"running": {"startedAt": BEGAN}})
                elif is_stopped(attempt):
                    continue  # it would run for ever
                elif self._random.random() < 0.1:
                    await self._client.delete(PODS, metadata["name"], "default")
                elif self._random.random() < 0.5:
                    await self._end(metadata["name"], code_of(attempt))

    async def run(self, attempt: AttemptId) -> None:
        await self._status(pod_name(attempt), "Running", {"running": {"startedAt": BEGAN}})

    async def end(self, attempt: AttemptId) -> None:
        await self._end(pod_name(attempt), 0)

    async def _end(self, name: str, code: int) -> None:
        ended = {"exitCode": code, "startedAt": BEGAN, "finishedAt": ENDED}
        await self._status(name, "Failed" if code else "Succeeded", {"terminated": ended})

    async def _status(self, name: str, phase: str, state: dict[str, object]) -> None:
        status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}
        await self._client.patch(PODS, name, "default", body={"status": status}, subresource="status")


class Server:
    """What the engine does with a runtime, in its smallest form: start until it is started, forget what is recorded."""

    def __init__(self, endpoint: Callable[[], Client], data: Path) -> None:
        self._client, self._data = endpoint, data
        self.ends: defaultdict[str, list[Ended]] = defaultdict(list)

    async def live(self, wanted: list[Launch]) -> None:
        """One life of a server, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            runtime = await insist(lambda: self._opened(group))
            try:
                for seen in await insist(runtime.adopt):
                    await self._take(runtime, seen)
                group.create_task(self._start(runtime, wanted))
                async for batch in runtime.observe():
                    for each in batch:
                        await self._take(runtime, each)
            finally:
                await runtime.close()

    async def _opened(self, group: asyncio.TaskGroup) -> KubernetesRuntime:
        runtime = KubernetesRuntime(
            self._client(),
            SystemClock(),
            self._data,
            group.create_task,
            settings=PodSettings("lab", default_image="image:1", root_queues=["*"]),
            check_every=0.2,
        )
        await runtime.open()
        return runtime

    async def _start(self, runtime: KubernetesRuntime, wanted: list[Launch]) -> None:
        for launch in wanted:
            if launch.attempt not in self.ends:
                await insist(partial(runtime.start, [launch]))

    async def _take(self, runtime: KubernetesRuntime, seen: object) -> None:
        if isinstance(seen, Started) and is_stopped(seen.attempt):
            await insist(lambda: runtime.stop([seen.attempt], 1.0))
        if isinstance(seen, Ended):
            self.ends[seen.attempt].append(seen)
            await insist(lambda: runtime.forget([seen.attempt]))


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Until it works, as the engine does."""
    while True:
        try:
            return await call()
        except PaddleFlowError:
            await asyncio.sleep(0.02)


async def left_over(client: Client) -> list[str]:
    found = [(await client.list(each, "default")).items for each in (PODS, CONFIG_MAPS, SECRETS, SERVICES)]
    return [each["metadata"]["name"] for items in found for each in items]


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_doubled_or_left(seed: int, tmp_path: Path) -> None:
    upstream = MemoryApiServer()
    direct = Client(upstream, manager="kubelet")
    await direct.create(NODES, NODES.object("n1"))
    kubelet, random = Kubelet(direct, seed), Random(seed)
    wanted = [
        Launch(
            AttemptId(f"job-{number}.worker-0.1"), ("true",), {}, node="n1", files={"hosts": "a"},
            secret_env={"TOKEN": "x"}, ports=(80,),
        )
        for number in range(ATTEMPTS)
    ]  # fmt: skip
    async with FaultProxy(upstream, seed, 0.15).serving() as proxy, asyncio.timeout(4 * PATIENCE):
        server = Server(lambda: Client(HttpTransport(proxy.endpoint, timeout=5.0)), tmp_path)
        life = asyncio.create_task(server.live(wanted))
        steps = 0
        while len(server.ends) < ATTEMPTS:
            steps += 1
            await kubelet.act()
            if steps % 25 == 24:
                proxy.sever()
            if steps % 40 == 39:
                upstream.forget()
            if steps % 60 == 59:  # the server is killed, at whichever line it is
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
                life = asyncio.create_task(server.live(wanted))
            if life.done():
                await life
            await asyncio.sleep(random.uniform(0.01, 0.03))
        proxy.wild = False
        proxy.sever()
        while await left_over(direct):
            await kubelet.act()
            await asyncio.sleep(0.05)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
    assert sum(proxy.faults.values()) >= FEWEST_FAULTS
    assert {attempt: len(uids) for attempt, uids in kubelet.ran.items()} == {each.attempt: 1 for each in wanted}
    for launch in wanted:
        first = server.ends[launch.attempt][0]  # what is reported again was recorded before
        own = (143, False) if is_stopped(launch.attempt) else (code_of(launch.attempt), False)
        assert (first.exit_code, first.disrupted) in (own, (143, True)), first


async def test_a_webhook_that_does_not_answer_holds_up_nobody_else(tmp_path: Path) -> None:
    """Nor does what waits for it stay when it is stopped."""
    upstream, down = MemoryApiServer(), True
    said = orjson.dumps({"reason": "InternalError", "message": 'failed calling webhook "guard.example.com": timed out'})

    def refuse(request: Request) -> Response | None:
        guarded = request.method == "POST" and "/namespaces/guarded/pods" in request.path
        return Response(500, {}, said) if guarded and down else None

    upstream.refuse = refuse
    seen: dict[str, list[object]] = defaultdict(list)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        runtime = KubernetesRuntime(
            Client(upstream),
            SystemClock(),
            tmp_path,
            group.create_task,
            settings=PodSettings("lab", default_image="image:1"),
        )
        await runtime.open()

        async def watch() -> None:
            async for batch in runtime.observe():
                for each in batch:
                    seen[getattr(each, "attempt", "")].append(each)

        watcher = group.create_task(watch())
        names, direct = {"a": "guarded", "b": "guarded", "c": "open"}, Client(upstream)
        for space in ("guarded", "open"):
            await direct.create(NAMESPACES, NAMESPACES.object(space))
        attempts = {name: AttemptId(f"job-{name}.worker-0.1") for name in names}
        await runtime.start([Launch(attempts[name], ("true",), {}, namespace=names[name]) for name in names])
        assert [each["metadata"]["name"] for each in (await direct.list(PODS)).items] == ["job-c-worker-0-1"]
        await soon(lambda: bool(seen[attempts["a"]]), "it says why it waits")
        assert "guard.example.com" in str(seen[attempts["a"]][0])
        await runtime.stop([attempts["b"]], 1.0)
        await soon(lambda: isinstance((seen[attempts["b"]] or [None])[-1], Ended), "what nobody wants has ended")
        down = False
        while len((await direct.list(PODS)).items) < 2:
            await asyncio.sleep(0.05)
        assert {each["metadata"]["name"] for each in (await direct.list(PODS)).items} == {
            "job-a-worker-0-1",
            "job-c-worker-0-1",
        }
        watcher.cancel()
        await runtime.close()


async def test_a_node_that_gives_no_logs_is_not_asked_by_each_of_its_pods(tmp_path: Path) -> None:
    """A kubelet that the API server cannot reach: its pods start and end as all others do."""
    upstream, asked = MemoryApiServer(), 0

    def refuse(request: Request) -> Response | None:
        nonlocal asked
        if "/log?" not in request.path:
            return None
        asked += 1
        return Response(500, {}, b"dial tcp: connection refused")

    upstream.refuse = refuse
    direct = Client(upstream, manager="kubelet")
    await direct.create(NODES, NODES.object("n1"))
    kubelet, seen = Kubelet(direct, 0), list[object]()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        runtime = KubernetesRuntime(
            Client(upstream), SystemClock(), tmp_path, group.create_task,
            settings=PodSettings("lab", default_image="image:1"),
        )  # fmt: skip
        await runtime.open()

        async def watch() -> None:
            async for batch in runtime.observe():
                seen.extend(batch)

        watcher = group.create_task(watch())
        first, *others = [
            Launch(AttemptId(f"job-{number}.worker-0.1"), ("true",), {}, node="n1") for number in range(30)
        ]
        await runtime.start([first])
        await kubelet.run(first.attempt)
        await soon(lambda: asked == 1, "its log is asked for")
        await runtime.start(others)
        for launch in others:
            await kubelet.run(launch.attempt)
        await soon(lambda: sum(isinstance(each, Started) for each in seen) == 30, "all have started")
        assert asked < 10
        for launch in others:
            await kubelet.end(launch.attempt)
        await soon(lambda: sum(isinstance(each, Ended) for each in seen) == 29, "their ends are told")
        watcher.cancel()
        await runtime.close()
