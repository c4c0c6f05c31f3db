"""The parts of `benchmarks/kubernetes.py` that are about pods on simulated nodes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean

from benchmarks import pod_jobs
from benchmarks.harness import Bench, percentile, wait_for
from paddleflow.errors import NotFound
from paddleflow.kube import config
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.resources import LEASES, PODGROUPS, PODS, Object, split
from paddleflow.kube.transport import HttpTransport
from scripts.lib.cluster.paths import DEFINITIONS, MANIFESTS, PROGRAMS

TOOL = Path(__file__).resolve().parent.parent / "scripts" / "cluster"
CREATORS = 32  #: creates in flight
BINDERS = 64  #: bindings in flight of the plain client, as many as ours has
PLAIN, OURS, KUBE, RAISED, VOLCANO = "plain", "paddleflow", "kube", "raised", "volcano"
PARTS = ("binding", "defaults", "gangs", "backlog", "start", "jobs")
GRACE = 600  #: seconds before a node of kwok counts as lost: on a busy machine it is late with its heartbeats


@dataclass
class Round:
    """What one contender did."""

    rate: float
    latencies: list[float] = field(default_factory=list)
    cpu: float = 0.0  #: seconds of processor time per pod


def pod(name: str, scheduler: str, group: str = "", node: str = "") -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"schedulerName": scheduler, "containers": [container], "automountServiceAccountToken": False}
    made = PODS.object(name, "default", spec={**spec, "nodeName": node} if node else spec)
    made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group} if group else {}
    return made


async def plain_binder(kubeconfig: Path, nodes: list[str]) -> None:
    """Bind each pod of its name to the next node, and nothing else."""
    client = Client(HttpTransport(config.from_kubeconfig(kubeconfig), limit=BINDERS))
    at = 0
    async with asyncio.TaskGroup() as group:

        def bind(key: str, old: tuple[str, str] | None, new: tuple[str, str] | None) -> None:
            nonlocal at
            if old is None and new is not None and not new[1]:
                at += 1
                space, name = split(key)
                group.create_task(client.bind(name, space, new[0], nodes[at % len(nodes)]))

        pods = Cache(client, PODS, fields=f"spec.schedulerName={PLAIN}", transform=_identity)
        pods.subscribe(bind)
        await pods.run()


def _identity(found: Object) -> tuple[str, str]:
    """The uid and the node of a pod."""
    return found["metadata"]["uid"], found["spec"].get("nodeName") or ""


class Contender:
    """One scheduler as a process of its own, or as two."""

    def __init__(self, name: str, kubeconfig: Path, nodes: int, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._processes = [
                subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                for command in _commands(name, kubeconfig, nodes, folder)
            ]

    def require_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {process.returncode}:\n{self.log()}")

    def log(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-4000:]

    def cpu_seconds(self) -> float:
        """Processor time of its processes, all threads together."""
        total = 0
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes of physical memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return sum(int(Path(f"/proc/{each.pid}/statm").read_text().split()[1]) * page for each in self._processes)

    def stop(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


@contextmanager
def contender(name: str, kubeconfig: Path, nodes: int, folder: Path) -> Iterator[Contender]:
    started = Contender(name, kubeconfig, nodes, folder)
    try:
        yield started
    finally:
        started.stop()


def _commands(name: str, kubeconfig: Path, nodes: int, folder: Path) -> list[list[str]]:
    if name == PLAIN:
        code = "from benchmarks.pod_binding import bind_plainly; bind_plainly()"
        return [[sys.executable, "-c", code, str(kubeconfig), str(nodes)]]
    if name == OURS:
        ours = str(Path(sys.executable).parent / "paddleflow")
        quiet = ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
        return [[ours, "scheduler", "--kubeconfig", str(kubeconfig), *quiet]]
    if name == VOLCANO:  # its own defaults: client limits of 2000, a round a second
        common = ["--kubeconfig", str(kubeconfig), "--leader-elect=false", "--listen-address"]
        ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        conf = ["--scheduler-conf", str(MANIFESTS / "volcano-scheduler.yaml"), "--cache-dumper=false"]
        return [
            [str(PROGRAMS / "vc-scheduler"), *common, ports[0], *conf, "--plugins-dir", ""],
            [str(PROGRAMS / "vc-controller-manager"), *common, ports[1], "--kube-api-qps", "500", "--kube-api-burst", "1000"],
        ]  # fmt: skip
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name}],
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), **({"qps": 1000, "burst": 2000} if name == RAISED else {})},
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(document))
    return [[str(PROGRAMS / "kube-scheduler"), "--config", str(file), "--secure-port", "0"]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Arena:
    """The control plane, seen by the one who creates pods and watches them being bound."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = Client(HttpTransport(config.from_kubeconfig(kubeconfig), limit=CREATORS))
        self._bound: dict[str, float] = {}
        self._created: dict[str, float] = {}

    async def close(self) -> None:
        await self._client.close()

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        pods = Cache(self._client, PODS, "default", transform=_identity)
        pods.subscribe(self._note)
        task = asyncio.create_task(pods.run())
        await pods.synced.wait()
        try:
            yield
        finally:
            task.cancel()

    def _note(self, key: str, old: tuple[str, str] | None, new: tuple[str, str] | None) -> None:
        if new is not None and new[1]:
            self._bound.setdefault(split(key)[1], time.monotonic())

    async def warm(self, scheduler: Contender) -> None:
        """Until it binds a pod: it is up then."""
        name = f"{scheduler.name}-warm"
        try:
            await self.run([pod(name, scheduler.name)], 120, scheduler)
        except TimeoutError as error:
            found = await self._client.get(PODS, name, "default")
            raise TimeoutError(f"{scheduler.name} bound nothing: {found.get('status')}\n{scheduler.log()}") from error

    async def run(self, pods: list[Object], within: float, scheduler: Contender) -> Round:
        """Create all of them, wait until all are bound."""
        self._forget()
        names = [each["metadata"]["name"] for each in pods]
        async with self._watching():
            used, began = scheduler.cpu_seconds(), time.monotonic()
            await self._create(pods)
            await self._all_bound(names, within, scheduler)
            took = max(self._bound.values()) - began
            used = scheduler.cpu_seconds() - used
        latencies = [self._bound[name] - self._created[name] for name in names]
        await self.clear()
        return Round(len(pods) / took, latencies, used / len(pods))

    async def run_backlog(self, pods: list[Object], within: float, start: Callable[[], Contender]) -> float:
        """Pods per second that were there before the scheduler was."""
        self._forget()
        await self._create(pods)
        async with self._watching():
            scheduler = start()
            try:
                await self._all_bound([each["metadata"]["name"] for each in pods], within, scheduler)
            finally:
                scheduler.stop()
        first, last = min(self._bound.values()), max(self._bound.values())
        await self.clear()
        return (len(pods) - 1) / (last - first)

    def _forget(self) -> None:
        self._bound.clear()
        self._created.clear()

    async def _create(self, pods: list[Object]) -> None:
        turns = asyncio.Semaphore(CREATORS)

        async def create(each: Object) -> None:
            async with turns:
                self._created[each["metadata"]["name"]] = time.monotonic()
                await self._client.create(PODS, each)

        await asyncio.gather(*[create(each) for each in pods])

    async def _all_bound(self, names: list[str], within: float, scheduler: Contender) -> None:
        wanted = set(names)
        async with asyncio.timeout(within):
            while not (len(self._bound) >= len(wanted) and self._bound.keys() >= wanted):
                scheduler.require_alive()
                await asyncio.sleep(0.01)

    async def run_gangs(self, contender: Contender, sizes: list[int], within: float) -> float:
        """Whole gangs per second."""
        scheduler = contender.name
        for number, size in enumerate(sizes):
            group = PODGROUPS.object(f"{scheduler}-g{number}", "default", spec={"minMember": size, "queue": "default"})
            await self._client.create(PODGROUPS, group)
        pods = [
            pod(f"{scheduler}-g{number}-{index}", scheduler, f"{scheduler}-g{number}")
            for number, size in enumerate(sizes)
            for index in range(size)
        ]
        found = await self.run(pods, within, contender)
        for number in range(len(sizes)):
            await self._client.delete(PODGROUPS, f"{scheduler}-g{number}", "default")
        return found.rate * len(sizes) / len(pods)

    async def clear(self) -> None:
        """No pod is left."""
        found = (await self._client.list(PODS, "default")).items
        turns = asyncio.Semaphore(CREATORS)

        async def delete(each: Object) -> None:
            async with turns:
                try:
                    await self._client.delete(PODS, each["metadata"]["name"], "default", grace=0)
                except NotFound:
                    return

        await asyncio.gather(*[delete(each) for each in found])

    async def fill(self, count: int, nodes: int) -> None:
        """A cluster full of pods that somebody has placed."""
        turns = asyncio.Semaphore(CREATORS)

        async def create(number: int) -> None:
            async with turns:
                await self._client.create(PODS, pod(f"there-{number}", OURS, node=f"kwok{number % nodes + 1}"))

        await asyncio.gather(*[create(number) for number in range(count)])

    async def wait_for_binding(self, name: str, within: float) -> None:
        async with asyncio.timeout(within):
            while not (await self._client.get(PODS, name, "default"))["spec"].get("nodeName"):
                await asyncio.sleep(0.01)

    async def create(self, made: Object) -> None:
        await self._client.create(PODS, made)

    async def wait_for_quiet(self, seconds: float) -> None:
        """Until nothing has happened to a pod for so long."""
        last = time.monotonic()

        def note(key: str, old: object, new: object) -> None:
            nonlocal last
            last = time.monotonic()

        pods = Cache(self._client, PODS, transform=_identity)
        task = asyncio.create_task(pods.run())
        await pods.synced.wait()
        pods.subscribe(note)
        while time.monotonic() - last < seconds:
            await asyncio.sleep(0.1)
        task.cancel()

    async def forget_leader(self) -> None:
        """The lease of a scheduler that was stopped need not run out."""
        try:
            await self._client.delete(LEASES, "paddleflow-scheduler", "kube-system")
        except NotFound:
            return


async def measure(bench: Bench, part: str, kubeconfig: Path, nodes: int, folder: Path) -> None:
    arena = Arena(kubeconfig)
    try:
        if part == "start":
            await measure_start(bench, arena, kubeconfig, nodes, folder)
        elif part == "backlog":
            await measure_backlog(bench, arena, kubeconfig, nodes, folder)
        elif part == "gangs":
            await measure_gangs(bench, arena, kubeconfig, nodes, folder)
        elif part == "defaults":  # their own limits keep them to a few dozen a second
            count = 200 if bench.quick else 1000
            await measure_binding(bench, arena, kubeconfig, nodes, folder, count, (OURS, KUBE, VOLCANO))
        else:
            count = 300 if bench.quick else 5000
            names = (PLAIN, OURS, RAISED, OURS, PLAIN) if bench.quick else (PLAIN, OURS, RAISED, PLAIN)
            await measure_binding(bench, arena, kubeconfig, nodes, folder, count, names)
    finally:
        await arena.close()


async def measure_binding(
    bench: Bench, arena: Arena, kubeconfig: Path, nodes: int, folder: Path, count: int, names: Sequence[str]
) -> None:
    rounds: dict[str, list[Round]] = {}
    for turn, name in enumerate(names):
        bench.note(f"{name}: {count} pods on {nodes} nodes")
        with contender(name, kubeconfig, nodes, folder) as scheduler:
            await arena.warm(scheduler)
            pods = [pod(f"{name}-{turn}-{each}", name) for each in range(count)]
            rounds.setdefault(name, []).append(await arena.run(pods, 600, scheduler))
            bench.note(
                f"{name}: {rounds[name][-1].rate:.0f}/s, p99 {percentile(rounds[name][-1].latencies, 0.99):.2f} s"
            )
        await arena.forget_leader()
    _show(bench, rounds)


async def measure_gangs(bench: Bench, arena: Arena, kubeconfig: Path, nodes: int, folder: Path) -> None:
    sizes = [2, 4, 8, 16] * 3 if bench.quick else [2, 4, 8, 16, 32, 64] * 16
    gangs: dict[str, list[float]] = {}
    for name in (PLAIN, OURS, OURS, PLAIN, VOLCANO):
        bench.note(f"{name}: {len(sizes)} gangs on {nodes} nodes")
        with contender(name, kubeconfig, nodes, folder) as scheduler:
            await arena.warm(scheduler)
            gangs.setdefault(name, []).append(await arena.run_gangs(scheduler, sizes, 600))
            bench.note(f"{name}: {gangs[name][-1]:.1f}/s")
        await arena.forget_leader()
    _show_rates(bench, "whole gangs bound", {name: mean(rates) for name, rates in gangs.items()}, len(sizes))


async def measure_backlog(bench: Bench, arena: Arena, kubeconfig: Path, nodes: int, folder: Path) -> None:
    count = 300 if bench.quick else 5000
    backlogs: dict[str, float] = {}
    for name in (PLAIN, OURS, RAISED):
        bench.note(f"{name}: a backlog of {count} pods")
        pods = [pod(f"{name}-backlog-{each}", name) for each in range(count)]
        start = partial(Contender, name, kubeconfig, nodes, folder)
        backlogs[name] = await arena.run_backlog(pods, 600, start)
        await arena.forget_leader()
    _show_rates(bench, "pods of a backlog bound", backlogs, count)


def _show_rates(bench: Bench, what: str, found: dict[str, float], n: int) -> None:
    for name, rate in found.items():
        if name != OURS:
            bench.figure(what, "/s", found[OURS], _called(name), rate, n=n)


def _show(bench: Bench, rounds: dict[str, list[Round]]) -> None:
    def rate(name: str) -> float:
        return mean(each.rate for each in rounds[name])

    def cpu(name: str) -> float:
        return 1000 * mean(each.cpu for each in rounds[name])

    def latency(name: str, share: float) -> float:
        return percentile([each for turn in rounds[name] for each in turn.latencies], share)

    for name, found in rounds.items():
        count = sum(len(each.latencies) for each in found)
        if name != OURS:
            bench.figure("pods bound while they are created", "/s", rate(OURS), _called(name), rate(name), n=count)
            for share, words in ((0.5, "p50"), (0.99, "p99")):
                mine, theirs = latency(OURS, share), latency(name, share)
                bench.figure(f"create to bound, {words}", "s", mine, _called(name), theirs, n=count)
            bench.figure("processor time per pod", "ms", cpu(OURS), _called(name), cpu(name), n=count)


async def measure_start(bench: Bench, arena: Arena, kubeconfig: Path, nodes: int, folder: Path) -> None:
    """A process that starts on a cluster full of pods, and then has nothing to do."""
    count, settling, idle = (600, 5.0, 5.0) if bench.quick else (10_000, 20.0, 40.0)
    bench.note(f"starting on a cluster with {count} pods")
    with contender(OURS, kubeconfig, nodes, folder) as scheduler:
        await arena.warm(scheduler)
        empty = scheduler.memory()
    await arena.forget_leader()
    await arena.fill(count, nodes)
    await arena.wait_for_quiet(5.0)  # kwok has made all of them run
    await arena.create(pod("first", OURS))
    began = time.monotonic()
    with contender(OURS, kubeconfig, nodes, folder) as scheduler:
        await arena.wait_for_binding("first", 120)
        took = time.monotonic() - began
        await arena.wait_for_quiet(2.0)  # what follows from the binding is over
        await asyncio.sleep(settling)  # what follows from the start as well: about a second of work in 12 s
        before = scheduler.cpu_seconds()
        await asyncio.sleep(idle)
        used = (scheduler.cpu_seconds() - before) / idle
        held = scheduler.memory()
    bench.goal("start of the process to the first binding", "s", took, 3.0, n=count)
    bench.goal("cpu while nothing happens", "%", 100 * used, 1.0, n=count)
    bench.figure("memory per watched pod", "KiB", (held - empty) / count / 1024, n=count)
    await arena.clear()
    await arena.forget_leader()


def _called(name: str) -> str:
    return {
        PLAIN: "plain client that only binds",
        KUBE: "kube-scheduler",
        RAISED: "kube-scheduler, client limits 1000/2000",
        VOLCANO: "Volcano",
    }[name]


def run(bench: Bench, part: str) -> None:
    """Bring a control plane with simulated nodes up, measure one part, take it down."""
    name, nodes = f"bench-binding-{os.getpid()}", 50 if bench.quick else 500
    bench.note(f"bringing up {nodes} simulated nodes")
    try:
        shape = ["up", "--name", name, "--with", "kwok", "--simulated", str(nodes), "--grace", str(GRACE), "--json"]
        shown = json.loads(subprocess.run([TOOL, *shape], check=True, capture_output=True, text=True).stdout)
        kubeconfig = Path(shown["kubeconfig"])
        kubectl = [str(TOOL), "kubectl", "--name", name]
        subprocess.run(
            [*kubectl, "apply", "--server-side", "-f", str(DEFINITIONS / "volcano")], check=True, capture_output=True
        )
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}}  # fmt: skip
        apply = [*kubectl, "apply", "--server-side", "-f", "-"]
        made = partial(subprocess.run, apply, input=json.dumps(queue).encode(), capture_output=True, check=False)
        wait_for(lambda: made().returncode == 0, "the queue of the definitions", every=0.5)
        if part == "jobs":
            bench.note("a thousand jobs of a server")
            asyncio.run(pod_jobs.measure_thousand(bench, kubeconfig, nodes))
            return
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(bench, part, kubeconfig, nodes, Path(folder)))
    finally:
        subprocess.run([TOOL, "down", "--name", name], check=False, capture_output=True)


def bind_plainly() -> None:
    """The plain client, as a process of its own."""
    asyncio.run(plain_binder(Path(sys.argv[1]), [f"kwok{number}" for number in range(1, int(sys.argv[2]) + 1)]))
