"""Jobs as pods, and pods bound per second. Each part is a run of its own on a cluster of its own, against peers of that run.

`node`: on one real node (needs root), from `start` to the observation `Started` beside a plain client that creates the same pod and
watches, then from the submit of a job to its pod running beside `kubectl run` with the same limits; in turns. Below 0.2 cores the
container runtime itself is slowed down by the limit. All other parts are on simulated nodes:
a plain client that only binds (the limit), kube-scheduler with raised client limits and as it is, Volcano, and ours, each alone, one
after the other. `binding`, `defaults`, `gangs`: from the first create to the last binding that a watch brings, and for each pod
from its create to its binding; processor time is that of the scheduler's process. `backlog`: pods are there before the scheduler is,
from the first binding to the last. `start`: ours begins on a cluster full of pods; 20 s later it has nothing to do.
`jobs`: jobs of a server submitted at once, beside a plain client that creates as many pods; simulated nodes keep no logs, so following
them is not in it. Then the server is stopped and started.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from benchmarks import pod_binding, pod_jobs
from benchmarks.harness import Bench, begin, percentile
from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.kube import config
from paddleflow.kube.client import Client
from paddleflow.kube.resources import PODS
from paddleflow.kube.transport import HttpTransport
from paddleflow.runtimes.kubernetes import pods, status
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.runtime import Ended, Launch, Started

TOOL = Path(__file__).resolve().parent.parent / "scripts" / "cluster"
IMAGE = "docker.io/local/busybox:1"
NOBODY = 65534  #: who containers run as; the image is root's
NODE = "node"


def launch(name: str) -> Launch:
    return Launch(AttemptId(f"job-{name}.worker-0.1"), ("true",), {}, image=IMAGE)


async def ours(runtime: KubernetesRuntime, name: str) -> float:
    """Seconds until the runtime observes that an attempt runs, or ran."""
    wanted = launch(name)
    began = time.monotonic()
    await runtime.start([wanted])
    took = 0.0
    async for batch in runtime.observe():
        found = [each for each in batch if isinstance(each, Started | Ended) and each.attempt == wanted.attempt]
        took = took or (time.monotonic() - began if found else 0.0)
        if any(isinstance(each, Ended) for each in found):
            break
    await runtime.forget([wanted.attempt])
    return took


async def plain(client: Client, name: str) -> float:
    """The same by a plain client."""
    made = pods.pod(launch(name), PodSettings("plain", run_as_user=NOBODY))
    del made["metadata"]["finalizers"]
    began = time.monotonic()
    there = await client.create(PODS, made)
    own = made["metadata"]["name"]
    version = there["metadata"]["resourceVersion"]
    async with aclosing(client.watch(PODS, "default", version=version, fields=f"metadata.name={own}")) as events:
        async for event in events:
            if status.started_at(event.object) is not None:
                break
    took = time.monotonic() - began
    await client.delete(PODS, own, "default", grace=0)
    return took


async def measure(bench: Bench, kubeconfig: Path) -> None:
    rounds = 5 if bench.quick else 30
    endpoint = config.from_kubeconfig(kubeconfig)
    client = Client(HttpTransport(endpoint))
    mine, theirs = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        async with asyncio.TaskGroup() as group:
            runtime = KubernetesRuntime(
                Client(HttpTransport(endpoint)),
                SystemClock(),
                Path(folder),
                group.create_task,
                settings=PodSettings("bench", run_as_user=NOBODY),
            )
            await runtime.open()
            await ours(runtime, "warm")
            for number in range(rounds):
                theirs.append(await plain(client, f"plain-{number}"))
                mine.append(await ours(runtime, f"ours-{number}"))
            await runtime.close()
    await client.close()
    for share, name in ((0.5, "median"), (0.99, "p99")):
        figure = f"start to a pod that runs, {name}"
        bench.figure(figure, "s", percentile(mine, share), "plain client", percentile(theirs, share), n=rounds)


def on_real_node(bench: Bench) -> None:
    name = f"bench-{os.getpid()}"
    bench.note("bringing up one real node")
    try:
        shape = ["up", "--name", name, "--nodes", "1", "--json"]
        shown = json.loads(subprocess.run([TOOL, *shape], check=True, capture_output=True, text=True).stdout)
        asyncio.run(measure(bench, Path(shown["kubeconfig"])))
        bench.note("jobs of a server beside kubectl run")
        asyncio.run(pod_jobs.measure_submit(bench, Path(shown["kubeconfig"]), IMAGE))
    finally:
        subprocess.run([TOOL, "down", "--name", name], check=False, capture_output=True)


def main() -> None:
    bench = begin("kubernetes", __doc__ or "", parts=[NODE, *pod_binding.PARTS])
    if bench.begins(NODE):
        on_real_node(bench)
    for part in pod_binding.PARTS:
        if bench.begins(part):
            pod_binding.run(bench, part)
    bench.finish()


if __name__ == "__main__":
    main()
