"""The operator on a real API server with simulated nodes: PaddleJobs of ten pods, and a plain client as the limit.

The peer writes the same pods to the same API server, 16 at a time, without deciding anything. Pods are
counted by a watch, from the moment at which the first job is sent. The two take turns, the other one first each time, and
each begins when nodes and scheduler are done with what was before; medians of the rounds count. Needs the test cluster's parts
(``scripts/cluster build kube kwok``).
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
from paddleflow.kube.transport import HttpTransport
from paddleflow.operator.main import definitions
from paddleflow.operator.paddlejob.job import OperatorOptions, read
from paddleflow.operator.paddlejob.manifests import pod

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "scripts" / "cluster"
MEMBERS, NODES, AT_ONCE = 10, 50, 16
METRICS, HEALTH = "127.0.0.1:18480", "127.0.0.1:18481"


def job(name: str, namespace: str) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
    return PADDLEJOBS.object(name, namespace, spec={"worker": {"replicas": MEMBERS, "template": template}})


class Operator:
    """The real command in its own process."""

    def __init__(self, kubeconfig: str) -> None:
        command = [sys.executable, "-c", "from paddleflow.cli.main import main; main()", "operator"]
        places = ["--kubeconfig", kubeconfig, "--health-probe-bind-address", HEALTH, "--metrics-bind-address", METRICS]
        self.process = subprocess.Popen([*command, *places], stderr=subprocess.DEVNULL)

    def counted(self, metric: str) -> Counter[str]:
        """A metric by its one label."""
        with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf'paddleflow_operator_{metric}\{{\w+="(\w+)"\}} (\S+)', text)
        return Counter({label: int(float(count)) for label, count in found})

    def writes(self) -> Counter[str]:
        """Writes so far, by verb."""
        return self.counted("writes_total")

    async def ready(self) -> None:
        """Until its caches are filled and it has reconciled every job that there is."""
        deadline = time.perf_counter() + 120
        while time.perf_counter() < deadline:
            with suppress(OSError):  # not listening yet, or 503
                urllib.request.urlopen(f"http://{HEALTH}/readyz", timeout=10).close()
                if self.counted("reconcile_seconds_count").total() >= self.counted("jobs").total():
                    return
            await asyncio.sleep(0.1)
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
    """Pods of one namespace, with the moment at which a watch first brought each.

    It stands on the cache of `kube`: an API server under load ends the watch of a reader that falls behind, without a word.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.at: dict[str, float] = {}
        self.changed = time.perf_counter()
        self.cache: Cache[None] = Cache(client, PODS, namespace, transform=lambda pod: None)
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

    async def settled(self) -> None:
        """Until nodes and scheduler have done their part, and the operator has written what it holds back."""
        await self.quiet(6.0, within=300.0)

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
    made = [pod(found, "worker", index, 1, OperatorOptions(), 0, False) for index in range(MEMBERS)]
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
        rate = len(objects) / (max(watched.at.values()) - began)
        await watched.settled()
        return rate


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
        await watched.settled()
        return rate, first


async def one_by_one(client: Client, count: int) -> tuple[list[float], list[float]]:
    """Seconds from the creation of a job to its last pod, on an idle operator; every fourth time also of its pods alone, by
    a client that decides nothing."""
    found, limit = [], []
    async with watching(client, "alone") as watched, watching(client, "plain-alone") as peer:
        for number in range(count):
            found.append(await _alone(watched, [(client, PADDLEJOBS, job(f"one-{number}", "alone"))]))
            if number % 4 == 0:
                pods = peers_pods(number, "plain-alone")
                limit.append(await _alone(peer, [(client, PODS, each) for each in pods]))
    return found, limit


async def _alone(watched: Watched, writes: list[tuple[Client, Resource, Object]]) -> float:
    goal = len(watched.at) + MEMBERS
    began = time.perf_counter()
    await all_at_once(writes)
    await watched.until(goal)
    took = max(watched.at.values()) - began
    await watched.quiet(0.3)
    return took


async def compared(bench: Bench, client: Client, operator: Operator, jobs: int, rounds: int) -> None:
    """Many jobs at once, by us and by the plain client in turns."""
    rates: list[float] = []
    firsts: list[float] = []
    limits: list[float] = []
    writes, small = operator.writes(), operator.memory()
    for number in range(rounds):
        turns = ["plain", "ours"] if number % 2 == 0 else ["ours", "plain"]
        for turn in turns:
            bench.note(f"{jobs} jobs of {MEMBERS} pods, {turn}, round {number + 1} of {rounds}")
            if turn == "plain":
                limits.append(await plain(client, jobs, f"plain-{jobs}-{number}"))
                bench.note(f"  {limits[-1]:.0f} pods/s")
            else:
                rate, first = await ours(client, jobs, f"ours-{jobs}-{number}")
                rates.append(rate)
                firsts.append(first)
                bench.note(f"  {rate:.0f} pods/s, the first job whole after {first:.2f} s")
    total = jobs * rounds
    written = operator.writes()["status"] - writes["status"]
    bench.figure(f"pods created, {jobs} jobs of {MEMBERS}", "pods/s", rates, "plain client, 16 at once", limits)
    bench.goal(f"first of {jobs} jobs whole, slowest round", "s", max(firsts), 1.0, n=rounds)
    bench.goal(f"status writes a job, {jobs} jobs", "writes", written / total, 3.0, n=total)
    memory = (operator.memory() - small) / total / 1024
    bench.goal(f"memory a job, connections open, {jobs} jobs", "KB", memory, 15.0, n=total)


async def measure(bench: Bench, kubeconfig: str) -> None:
    client = Client(HttpTransport(config.from_kubeconfig(Path(kubeconfig)), limit=AT_ONCE + 4))
    for definition in definitions():
        await client.create(DEFINITIONS, definition)
    operator = Operator(kubeconfig)
    try:
        await operator.ready()
        # Opens its connections and makes room for a burst: what a job takes comes on top.
        await ours(client, 32, "warm")
        bench.note("one job at a time")
        times, limit = await one_by_one(client, 10 if bench.quick else 200)
        for share, name in ((0.5, "median"), (0.99, "p99")):
            what, took = f"all children of one job, idle operator, {name}", percentile(times, share) * 1000
            bench.goal(what, "ms", took, 100.0, n=len(times))
            peers = percentile(limit, share) * 1000
            bench.figure(what, "ms", took, f"plain client, 10 pods at once (of {len(limit)})", peers, n=len(times))
        for jobs, rounds in ((30, 1),) if bench.quick else ((200, 3), (1000, 1)):
            await compared(bench, client, operator, jobs, rounds)
        quiet = 15.0 if bench.quick else 60.0
        bench.note(f"a quiet time of {quiet:.0f} s")
        used, written = operator.cpu(), sum(operator.writes().values())
        await asyncio.sleep(quiet)
        bench.goal("idle CPU", "%", (operator.cpu() - used) / quiet * 100, 1.0)
        bench.goal("writes in a quiet time", "writes", float(sum(operator.writes().values()) - written), 0.0)
        operator.stop()
        bench.note("a restart")
        operator = Operator(kubeconfig)
        await operator.ready()
        await asyncio.sleep(10)  # what is held back is written after five seconds
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
        shown = json.loads(subprocess.run([TOOL, *shape], check=True, capture_output=True, text=True).stdout)
        asyncio.run(measure(bench, shown["kubeconfig"]))
    finally:
        subprocess.run([TOOL, "down", "--name", name], check=False, capture_output=True)
    bench.finish()


if __name__ == "__main__":
    main()
