"""Jobs of the platform as pods, seen by somebody who watches the API server: from the submit to a pod that runs on a real node beside
`kubectl run`, in turns; and a thousand jobs of one pod on simulated nodes beside a plain client that creates a thousand pods.

Both sides ask for the same resources. A job is limited to its flavour, and the container runtime starts a container within the limits
of its pod: below 0.2 cores this alone takes longer than all else (`SMALL`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from benchmarks.harness import Bench
from benchmarks.ours import Server
from paddleflow.kube import config
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.resources import PODS, Object, split
from paddleflow.kube.transport import HttpTransport
from scripts.lib.cluster.paths import PROGRAMS

CREATORS = 32  #: creates in flight of the plain client
FLAVOUR = {"cpu": "500m", "mem": "64Mi"}
SMALL = {"cpu": "50m", "mem": "16Mi"}
COMMAND = "trap exit TERM; sleep 600 & wait"  # ends at once when it is told to
TICK = 1.0  #: seconds between two looks of the kubelet at its containers


class Watcher:
    """When pods began to run, and which are there."""

    def __init__(self, kubeconfig: Path) -> None:
        self.client = Client(HttpTransport(config.from_kubeconfig(kubeconfig), limit=CREATORS))
        self.began: dict[str, float] = {}  #: by name
        self._there: set[str] = set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        pods = Cache(self.client, PODS, "default", transform=_runs)
        pods.subscribe(self._note)
        task = asyncio.create_task(pods.run())
        await pods.synced.wait()
        try:
            yield
        finally:
            task.cancel()
            await self.client.close()

    def _note(self, key: str, old: bool | None, new: bool | None) -> None:
        if new:
            self.began.setdefault(split(key)[1], time.monotonic())
        (self._there.discard if new is None else self._there.add)(key)
        self._changed.set()

    async def until(self, condition: Callable[[], bool], within: float = 300.0) -> None:
        async with asyncio.timeout(within):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def idle(self) -> None:
        """Wait until no pod is there, and then for any part of a kubelet's tick: a pod that began right after one would always wait for the next."""
        await self.until(lambda: not self._there)
        await asyncio.sleep(random.uniform(0, TICK))

    async def runs(self, part: str) -> float:
        """When the pod began to run whose name has this part."""
        await self.until(lambda: any(part in name for name in self.began))
        return next(at for name, at in self.began.items() if part in name)


def _runs(found: Object) -> bool:
    return (found.get("status") or {}).get("phase") == "Running"


def prepare(server: Server, kubeconfig: Path, image: str) -> None:
    """A cluster and a queue on it."""
    credential = base64.b64encode(kubeconfig.read_bytes()).decode()
    setting = json.dumps({"defaultImage": image, "runAsUser": 65534})
    server.call("POST", "/cluster", {"clusterName": "lab", "clusterType": "Kubernetes", "credential": credential, "setting": setting})  # fmt: skip
    room = {"cpu": "10000", "mem": "100Ti"}
    server.call("POST", "/queue", {"name": "q", "namespace": "default", "clusterName": "lab", "maxResources": room})


def job(name: str, flavour: Mapping[str, str] = SMALL) -> dict[str, object]:
    return {"name": name, "command": COMMAND, "flavour": flavour, "schedulingPolicy": {"queue": "q"}}


async def measure_submit(bench: Bench, kubeconfig: Path, image: str) -> None:
    """On a real node, one at a time, each when the one before it is gone."""
    rounds = 5 if bench.quick else 20
    watcher = Watcher(kubeconfig)
    with Server(1) as server:
        prepare(server, kubeconfig, image)
        contest = Contest(watcher, server, kubeconfig, image)
        async with watcher.watching():
            normal = await contest.run(rounds, FLAVOUR)
            small = await contest.run(rounds, SMALL)
        await asyncio.to_thread(server.settle)
    for flavour, (mine, theirs) in ((FLAVOUR, normal), (SMALL, small)):
        figure = f"submit to a pod that runs, {flavour['cpu']} cpu, median"
        bench.figure(figure, "s", median(mine), "kubectl run", median(theirs), n=rounds)
    more = [1000 * (ours - other) for ours, other in zip(*normal, strict=True)]
    bench.goal("submit to a pod that runs, beyond kubectl run", "ms", median(more), 100.0, n=rounds)


class Contest:
    """Jobs of a server and pods of `kubectl run`, in turns."""

    def __init__(self, watcher: Watcher, server: Server, kubeconfig: Path, image: str) -> None:
        self._watcher, self._server, self._image = watcher, server, image
        self._kubectl = [str(PROGRAMS / "kubectl"), "--kubeconfig", str(kubeconfig)]

    async def run(self, rounds: int, flavour: Mapping[str, str]) -> tuple[list[float], list[float]]:
        """Seconds from the submit to a pod that runs: of ours, of kubectl's."""
        mine, theirs = list[float](), list[float]()
        for number in range(rounds + 1):
            theirs.append(await self._run_by_kubectl(f"kubectl-{flavour['cpu']}-{number}", flavour))
            mine.append(await self._run_by_server(f"job-{number}", flavour))
        return mine[1:], theirs[1:]  # without the first of each

    async def _run_by_kubectl(self, name: str, flavour: Mapping[str, str]) -> float:
        limits = {"cpu": flavour["cpu"], "memory": flavour["mem"]}
        overrides = json.dumps({"spec": {"containers": [{"name": name, "resources": {"limits": limits}}]}})
        words = ["run", name, "--image", self._image, "--restart", "Never", "--override-type", "strategic"]
        command = [*self._kubectl, *words, "--overrides", overrides, "--command", "--", "sh", "-c", COMMAND]
        await self._watcher.idle()
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        took = await self._watcher.runs(name) - began
        await process.wait()
        await self._watcher.client.delete(
            PODS, name, "default", grace=1
        )  # 0 would leave it to end during the next turn
        return took

    async def _run_by_server(self, name: str, flavour: Mapping[str, str]) -> float:
        await self._watcher.idle()
        began = time.monotonic()
        made = await asyncio.to_thread(self._server.call, "POST", "/job/single", job(name, flavour))
        took = await self._watcher.runs(made["id"]) - began
        await asyncio.to_thread(self._server.call, "PUT", f"/job/{made['id']}", None, action="stop")
        return took


async def measure_thousand(bench: Bench, kubeconfig: Path, nodes: int) -> None:
    """On simulated nodes, all at once."""
    count = 100 if bench.quick else 1000
    plain = await _create_plainly(kubeconfig, count, nodes)
    watcher = Watcher(kubeconfig)
    with Server(1) as server:
        prepare(server, kubeconfig, "none")
        async with watcher.watching():
            first = await asyncio.to_thread(server.call, "POST", "/job/single", job("first"))
            await watcher.runs(first["id"])  # the cluster is open by then
            used, began = server.cpu_seconds(server.pid), time.monotonic()
            await asyncio.to_thread(server.submit_many, [job(f"job-{number}") for number in range(count)])
            await watcher.until(lambda: sum("job-" in name for name in watcher.began) > count)
            ours, used = time.monotonic() - began, server.cpu_seconds(server.pid) - used
            server.stop()
            again = time.monotonic()
            server.start()
            after = await asyncio.to_thread(server.call, "POST", "/job/single", job("after"))
            await watcher.runs(after["id"])
            restart = time.monotonic() - again
    bench.goal("start of the server on pods of its jobs to the next pod that runs", "s", restart, 3.0, n=count)
    bench.figure("processor time of the server per job", "ms", 1000 * used / count, n=count)
    bench.figure("jobs of one pod, submitted at once, that run", "/s", count / ours, "plain client that creates pods", count / plain, n=count)  # fmt: skip


async def _create_plainly(kubeconfig: Path, count: int, nodes: int) -> float:
    """Seconds until as many pods run."""
    watcher, turns = Watcher(kubeconfig), asyncio.Semaphore(CREATORS)

    async def create(number: int) -> None:
        requests = {"cpu": SMALL["cpu"], "memory": SMALL["mem"]}
        container = {
            "name": "c",
            "image": "none",
            "command": ["sh", "-c", COMMAND],
            "resources": {"requests": requests},
        }
        spec = {
            "nodeName": f"kwok{number % nodes + 1}",
            "containers": [container],
            "automountServiceAccountToken": False,
        }
        async with turns:
            await watcher.client.create(PODS, PODS.object(f"thousand-{number}", "default", spec=spec))

    async def delete(number: int) -> None:
        async with turns:
            await watcher.client.delete(PODS, f"thousand-{number}", "default", grace=0)

    async with watcher.watching():
        began = time.monotonic()
        await asyncio.gather(*[create(number) for number in range(count)])
        await watcher.until(lambda: len(watcher.began) >= count)
        took = time.monotonic() - began
        await asyncio.gather(*[delete(number) for number in range(count)])
    return took
