"""The operator on a real API server with simulated nodes: PaddleJobs of ten pods, and a plain client as the limit.

The peer writes the same pods to the same API server, 16 at a time, without deciding anything: nobody can be faster. Pods are
counted by a watch, from the moment at which the first job is sent. Needs the test cluster's parts (``scripts/cluster build kube kwok``).

One run is one sample: on a shared machine the ratio of pods a second lay between 0.68 and 1.9, and the slowest of the single
jobs between 102 and 698 ms, in runs of the same code.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from benchmarks.harness import Bench, begin, percentile
from paddleflow.errors import PaddleFlowError
from paddleflow.kube import config
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.resources import DEFINITIONS, NAMESPACES, PADDLEJOBS, PODS, Object, Resource
from paddleflow.kube.wire import HttpWire
from paddleflow.operator.definitions import definitions
from paddleflow.operator.paddlejob.job import Options, read
from paddleflow.operator.paddlejob.manifests import pod

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "scripts" / "cluster"
MEMBERS, NODES, AT_ONCE = 10, 50, 16
METRICS = "127.0.0.1:18480"


def job(name: str, namespace: str) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
    return PADDLEJOBS.object(name, namespace, spec={"worker": {"replicas": MEMBERS, "template": template}})


class Operator:
    """The real command in its own process."""

    def __init__(self, kubeconfig: str) -> None:
        program = "from paddleflow.cli.main import main; main()"
        command = [
            sys.executable,
            "-c",
            program,
            "operator",
            "--kubeconfig",
            kubeconfig,
            "--health-probe-bind-address",
            "0",
        ]
        self.process = subprocess.Popen([*command, "--metrics-bind-address", METRICS], stderr=subprocess.DEVNULL)

    def writes(self) -> Counter[str]:
        """Writes so far, by verb."""
        with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r'paddleflow_operator_writes_total\{verb="(\w+)"\} (\S+)', text)
        return Counter({verb: int(float(count)) for verb, count in found})

    async def ready(self) -> None:
        for _ in range(600):
            with suppress(OSError):
                self.writes()
                await asyncio.sleep(1)  # its caches fill
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("the operator did not come up")

    def memory(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class Watched:
    """Pods of one namespace, with the moment at which a watch first told of each.

    It stands on the cache of `kube`: an API server under load ends the watch of a reader that falls behind, without a word.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.at: dict[str, float] = {}
        self.changed = time.perf_counter()
        self.cache: Cache[None] = Cache(client, PODS, namespace, prune=lambda pod: None)
        self.cache.subscribe(self._see)

    def _see(self, key: str, old: None, new: None) -> None:
        self.changed = time.perf_counter()
        self.at.setdefault(key.partition("/")[2], self.changed)

    async def until(self, count: int, within: float = 600.0) -> None:
        deadline = time.perf_counter() + within
        while len(self.at) < count:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(self.at)} of {count} pods after {within:.0f} s")
            await asyncio.sleep(0.005)

    async def quiet(self, seconds: float, within: float = 120.0) -> None:
        """Until nothing happened to a pod for so long."""
        deadline = time.perf_counter() + within
        while (rest := self.changed + seconds - time.perf_counter()) > 0 and time.perf_counter() < deadline:
            await asyncio.sleep(rest)


@asynccontextmanager
async def watching(client: Client, namespace: str) -> AsyncIterator[Watched]:
    await client.create(NAMESPACES, NAMESPACES.object(namespace))
    watched = Watched(client, namespace)
    following = asyncio.create_task(watched.cache.run())
    try:
        await watched.cache.synced.wait()
        await asyncio.sleep(1)  # its service account comes
        yield watched
    finally:
        following.cancel()


async def all_at_once(writes: list[tuple[Client, Resource, Object]]) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: Client, resource: Resource, obj: Object) -> None:
        async with gate:
            while True:
                try:
                    await client.create(resource, obj)
                    return
                except PaddleFlowError as error:
                    if "serviceaccount" not in error.message:
                        raise
                    await asyncio.sleep(0.05)  # the namespace is a moment old

    await asyncio.gather(*(one(*each) for each in writes))


def peers_pods(number: int, namespace: str) -> list[Object]:
    """The pods of one job as the operator makes them, but nobody's: without its label, so that it does not follow them."""
    name = f"plain-{number}"
    found = read({**job(name, namespace), "metadata": {"name": name, "namespace": namespace, "uid": "x"}})
    made = [pod(found, "worker", index, 1, Options(), 0, False) for index in range(MEMBERS)]
    for each in made:
        metadata = each["metadata"]
        del metadata["ownerReferences"]
        metadata["labels"] = {f"plain-{key.rpartition('/')[2]}": value for key, value in metadata["labels"].items()}
    return made


async def plain(client: Client, jobs: int, namespace: str) -> float:
    """Pods a second of a client that decides nothing."""
    async with watching(client, namespace) as watched:
        objects = [(client, PODS, made) for number in range(jobs) for made in peers_pods(number, namespace)]
        began = time.perf_counter()
        await all_at_once(objects)
        await watched.until(len(objects))
        await watched.quiet(1.0)
        return len(objects) / (max(watched.at.values()) - began)


async def plain_one_by_one(client: Client, count: int, namespace: str) -> list[float]:
    """Seconds that a client which decides nothing needs for the pods of one job."""
    found = []
    async with watching(client, namespace) as watched:
        for number in range(count):
            made = peers_pods(number, namespace)
            began = time.perf_counter()
            await all_at_once([(client, PODS, each) for each in made])
            await watched.until((number + 1) * MEMBERS)
            found.append(max(watched.at.values()) - began)
            await watched.quiet(0.3)
    return found


async def ours(client: Client, jobs: int, namespace: str) -> tuple[float, float]:
    """Pods a second, and the seconds until the first job was whole."""
    async with watching(client, namespace) as watched:
        began = time.perf_counter()
        await all_at_once([(client, PADDLEJOBS, job(f"job-{number}", namespace)) for number in range(jobs)])
        await watched.until(jobs * MEMBERS)
        whole: Counter[str] = Counter()
        rate, first = jobs * MEMBERS / (max(watched.at.values()) - began), 0.0
        for name, at in sorted(watched.at.items(), key=lambda item: item[1]):
            whole[name.rpartition("-worker-")[0]] += 1
            if whole[name.rpartition("-worker-")[0]] == MEMBERS:
                first = at - began
                break
        await watched.quiet(10.0, within=300.0)  # nodes and scheduler have done their part
        return rate, first


async def one_by_one(client: Client, count: int, namespace: str) -> list[float]:
    """Seconds from the creation of a job to its last pod, on an idle operator."""
    found = []
    async with watching(client, namespace) as watched:
        for number in range(count):
            began = time.perf_counter()
            await client.create(PADDLEJOBS, job(f"one-{number}", namespace))
            await watched.until((number + 1) * MEMBERS)
            found.append(max(watched.at.values()) - began)
            await watched.quiet(0.3)
    return found


async def measure(bench: Bench, kubeconfig: str) -> None:
    client = Client(HttpWire(config.from_kubeconfig(Path(kubeconfig)), limit=AT_ONCE + 4))
    for definition in definitions():
        await client.create(DEFINITIONS, definition)
    operator = Operator(kubeconfig)
    try:
        await operator.ready()
        jobs = 30 if bench.quick else 200
        bench.note("one job at a time")
        count = 10 if bench.quick else 100
        limit = percentile(await plain_one_by_one(client, 10, "plain-alone"), 0.99) * 1000
        times = await one_by_one(client, count, "alone")
        alone = percentile(times, 0.99) * 1000
        bench.goal(
            "all children of one job, idle operator, median", "ms", percentile(times, 0.5) * 1000, 100.0, n=count
        )
        what = "all children of one job, idle operator, p99"
        bench.goal(what, "ms", alone, 100.0, n=count)
        bench.figure(what, "ms", alone, "plain client, 10 pods at once (of 10)", limit, n=count)
        bench.note(f"{jobs} jobs of {MEMBERS} pods")
        peer = await plain(client, jobs, "plain")
        await ours(client, 8, "warm")  # opens the operator's connections: each has a buffer of a quarter of a megabyte
        before, small = operator.writes(), operator.memory()
        rate, first = await ours(client, jobs, "ours")
        bench.figure(
            f"pods created, {jobs} jobs of {MEMBERS}", "pods/s", rate, "plain client, 16 at once", peer, n=jobs
        )
        bench.goal("first job whole", "s", first, 1.0)
        after = operator.writes()
        bench.goal("status writes a job", "writes", (after["status"] - before["status"]) / jobs, 3.0, n=jobs)
        bench.goal("memory a job, connections open", "KB", (operator.memory() - small) / jobs / 1024, 15.0, n=jobs)
        quiet = 15.0 if bench.quick else 60.0
        used, written = operator.cpu(), sum(operator.writes().values())
        await asyncio.sleep(quiet)
        bench.goal("idle CPU", "%", (operator.cpu() - used) / quiet * 100, 1.0)
        bench.goal("writes in a quiet time", "writes", float(sum(operator.writes().values()) - written), 0.0)
        operator.stop()
        operator = Operator(kubeconfig)
        await operator.ready()
        await asyncio.sleep(5)
        bench.goal("writes after a restart", "writes", float(sum(operator.writes().values())), 0.0)
    finally:
        operator.stop()
        await client.close()


def main() -> None:
    bench = begin("operator", __doc__ or "")
    name = f"bench-{os.getpid()}"
    bench.note(f"bringing up an API server with {NODES} simulated nodes")
    shape = ["up", "--name", name, "--with", "kwok", "--simulated", str(NODES), "--json"]
    try:
        told = json.loads(subprocess.run([TOOL, *shape], check=True, capture_output=True, text=True).stdout)
        asyncio.run(measure(bench, told["kubeconfig"]))
    finally:
        subprocess.run([TOOL, "down", "--name", name], check=False, capture_output=True)
    bench.finish()


if __name__ == "__main__":
    main()
