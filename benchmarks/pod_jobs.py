"""Jobs of the platform as pods, seen by somebody who watches the API server: from the submit to a pod that runs on a real node beside
`kubectl run`, in turns; and a thousand jobs of one pod on simulated nodes beside a plain client that creates a thousand pods.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable
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
FLAVOUR = {"cpu": "50m", "mem": "16Mi"}
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


def job(name: str) -> dict[str, object]:
    return {"name": name, "command": COMMAND, "flavour": FLAVOUR, "schedulingPolicy": {"queue": "q"}}


async def measure_submit(bench: Bench, kubeconfig: Path, image: str) -> None:
    """On a real node, one at a time, each when the one before it is gone."""
    rounds = 5 if bench.quick else 20
    watcher = Watcher(kubeconfig)
    mine, theirs = list[float](), list[float]()
    kubectl = [str(PROGRAMS / "kubectl"), "--kubeconfig", str(kubeconfig)]
    with Server(1) as server:
        prepare(server, kubeconfig, image)
        async with watcher.watching():
            for number in range(rounds + 1):
                name = f"kubectl-{number}"
                words = ["run", name, "--image", image, "--restart", "Never", "--command", "--", "sh", "-c", COMMAND]
                await watcher.idle()
                began = time.monotonic()
                process = await asyncio.create_subprocess_exec(*kubectl, *words, stdout=asyncio.subprocess.DEVNULL)
                theirs.append(await watcher.runs(name) - began)
                await process.wait()
                await watcher.client.delete(PODS, name, "default", grace=0)
                await watcher.idle()
                began = time.monotonic()
                made = await asyncio.to_thread(server.call, "POST", "/job/single", job(f"job-{number}"))
                mine.append(await watcher.runs(made["id"]) - began)
                await asyncio.to_thread(server.call, "PUT", f"/job/{made['id']}", None, action="stop")
        await asyncio.to_thread(server.settle)
    mine, theirs = mine[1:], theirs[1:]  # without the first of each
    bench.figure("submit to a pod that runs, median", "s", median(mine), "kubectl run", median(theirs), n=rounds)
    more = [1000 * (ours - other) for ours, other in zip(mine, theirs, strict=True)]
    bench.goal("submit to a pod that runs, beyond kubectl run", "ms", median(more), 100.0, n=rounds)


async def measure_thousand(bench: Bench, kubeconfig: Path, nodes: int) -> None:
    """On simulated nodes, all at once."""
    count = 100 if bench.quick else 1000
    plain = await _create_plainly(kubeconfig, count, nodes)
    watcher = Watcher(kubeconfig)
    with Server(1) as server:
        prepare(server, kubeconfig, "none")
        async with watcher.watching():
            began = time.monotonic()
            await asyncio.to_thread(server.submit_many, [job(f"job-{number}") for number in range(count)])
            await watcher.until(lambda: sum("job-" in name for name in watcher.began) >= count)
            ours = time.monotonic() - began
    bench.figure("jobs of one pod, submitted at once, that run", "/s", count / ours, "plain client that creates pods", count / plain, n=count)  # fmt: skip


async def _create_plainly(kubeconfig: Path, count: int, nodes: int) -> float:
    """Seconds until as many pods run."""
    watcher, turns = Watcher(kubeconfig), asyncio.Semaphore(CREATORS)

    async def create(number: int) -> None:
        requests = {"cpu": FLAVOUR["cpu"], "memory": FLAVOUR["mem"]}
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
