"""Our filters beside kube-scheduler's own, on a real API server: what we place it would place, what we leave waiting it leaves too.

The board decides about random pods and nodes. Then each pod is given to kube-scheduler in the order of our decisions, with a
resource of its own that only the chosen node has, so that it may take that node or refuse.

kube-scheduler follows pods and nodes a moment behind, and does not look again at everything that it refused by what it had not seen yet.
So it binds a pod that needs the last node first (`caught_up`): then it has seen all before it, also that what was there earlier is gone.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from paddleflow.base.clock import SystemClock
from paddleflow.errors import NotFound
from paddleflow.kube import config
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import CLAIMS, NAMESPACES, NODES, PODS, STORAGE_CLASSES, VOLUMES, Object, Resource
from paddleflow.kube.transport import HttpTransport
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.podscheduler.scheduler import PodScheduler
from paddleflow.podscheduler.volumes import SELECTED_NODE
from paddleflow.scheduling.rules import Rules
from tests import pod_strategies
from tests.cluster_fixture import LiveCluster
from tests.patience import PATIENCE

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
OWN = {"key": "differential", "effect": "NoSchedule"}  #: keeps the pods of other tests away
TOLERATED = [
    {"key": key, "operator": "Exists"}
    for key in ("differential", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def decided(nodes: list[Object], pods: list[Object]) -> tuple[list[tuple[Object, str]], list[Object]]:
    """Our placements in their order, and who waits."""
    board, reader = Board(Rules(patience=float("inf"))), PodReader()
    for name, labels in pod_strategies.NAMESPACES.items():
        board.put_namespace(name, labels)
    for node in nodes:
        board.put_node(node["metadata"]["name"], read_node(node))
    waiting = {pod["metadata"]["name"]: pod for pod in pods}
    for pod in pods:
        made = copy.deepcopy(pod)
        made["metadata"] |= {"uid": pod["metadata"]["name"]}
        made["spec"]["schedulerName"] = "paddleflow"
        read = reader.read(made)
        board.put_pod(read.key, read)
    placed: list[tuple[Object, str]] = []
    now = 1_800_000_000.0
    while turn := board.decide(now := now + 1).binds:
        placed += [(waiting.pop(pod.name), node) for pod, node in turn]
    return placed, list(waiting.values())


async def answer(client: Client, pod: Object) -> tuple[str, str]:
    """The node that kube-scheduler gave a pod, empty when it says that there is none; and why."""
    own, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.get(PODS, own, space)
            if found["spec"].get("nodeName"):
                return str(found["spec"]["nodeName"]), ""
            for condition in found["status"].get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return "", condition["message"]
            await asyncio.sleep(0.02)


async def add_node(client: Client, node: Object, room: dict[str, str]) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node, "status": {}})
    body = {"status": {"allocatable": room, "capacity": room}}
    await client.patch(NODES, node["metadata"]["name"], body=body, subresource="status")


async def caught_up(client: Client, round_: str) -> None:
    """Until kube-scheduler has seen all nodes and pods that were written or deleted before."""
    name, pin = f"last-{round_}", {f"pin.test/last-{round_}": "1"}
    await add_node(client, {"metadata": {"name": name}, "spec": {"taints": [OWN]}}, {"pods": "1", **pin})
    container = {"name": "c", "image": "none", "resources": {"requests": pin, "limits": pin}}
    await client.create(PODS, PODS.object(name, "one", spec={"containers": [container], "tolerations": TOLERATED}))
    async with asyncio.timeout(PATIENCE):
        while not (await client.get(PODS, name, "one"))["spec"].get("nodeName"):
            await asyncio.sleep(0.02)
    await client.delete(PODS, name, "one", grace=0)
    await client.delete(NODES, name)


async def compare(client: Client, nodes: list[Object], pods: list[Object], round_: str) -> None:
    for node in nodes:
        node["spec"].setdefault("taints", []).append(OWN)
    for pod in pods:
        pod["spec"].setdefault("tolerations", []).extend(TOLERATED)
        pod["metadata"]["name"] += f"-{round_}"
    placed, left = decided(nodes, pods)
    for node in nodes:
        pins = {f"pin.test/{pod['metadata']['name']}": "1" for pod, on in placed if on == node["metadata"]["name"]}
        room = {**node["status"]["allocatable"], **pins, **{f"pin.test/{pod['metadata']['name']}": "1" for pod in left}}
        await add_node(client, node, room)
    await caught_up(client, round_)
    try:
        for pod, wanted in [*placed, *[(pod, "") for pod in left]]:
            made = copy.deepcopy(pod)
            pin = {f"pin.test/{pod['metadata']['name']}": "1"}
            resources = made["spec"]["containers"][0]["resources"]
            resources["requests"] = {**resources["requests"], **pin}
            resources["limits"] = {**resources.get("limits", {}), **pin}
            made["spec"]["schedulerName"] = "default-scheduler"
            await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **made})
            given_to, why = await answer(client, made)
            assert given_to == wanted, f"{made['metadata']['name']}: {why or given_to}: {made['spec']}"
    finally:
        for pod in pods:
            try:
                await client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
            except NotFound:
                continue
        for node in nodes:
            await client.delete(NODES, node["metadata"]["name"])


@pytest.fixture(scope="module")
def ready(control_plane: LiveCluster) -> LiveCluster:
    async def prepare() -> None:
        client = Client(HttpTransport(config.from_kubeconfig(control_plane.kubeconfig)))
        for name, labels in pod_strategies.NAMESPACES.items():
            space = NAMESPACES.object(name)
            space["metadata"]["labels"] = labels
            await client.apply(NAMESPACES, space, field_manager="test")
        heavy: dict[str, Any] = {"handler": "runc", "overhead": {"podFixed": pod_strategies.OVERHEAD}}
        await client.apply(RUNTIME_CLASSES, RUNTIME_CLASSES.object(pod_strategies.RUNTIME_CLASS, **heavy))
        async with asyncio.timeout(60):
            for name in pod_strategies.NAMESPACES:
                while not any(
                    each["metadata"]["name"] == "default" for each in (await client.list(ACCOUNTS, name)).items
                ):
                    await asyncio.sleep(0.1)
        await client.close()

    asyncio.run(prepare())
    return control_plane


@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(nodes=pod_strategies.nodes(), pods=pod_strategies.pod_lists())
def test_never_a_placement_that_kube_scheduler_would_refuse(
    ready: LiveCluster, nodes: list[dict[str, Any]], pods: list[dict[str, Any]]
) -> None:
    async def run() -> None:
        client = Client(HttpTransport(config.from_kubeconfig(ready.kubeconfig)))
        try:
            await compare(client, nodes, pods, f"{time.monotonic_ns():x}"[-8:])
        finally:
            await client.close()

    asyncio.run(run())


@asynccontextmanager
async def scheduling(kubeconfig: Path, name: str) -> AsyncIterator[Client]:
    """A scheduler of this name in this process."""
    client, clock = Client(HttpTransport(config.from_kubeconfig(kubeconfig))), SystemClock()
    recorder = Recorder(client, "test", clock)
    scheduler = PodScheduler(client, recorder, clock, Rules(), "pack", name)
    async with asyncio.TaskGroup() as group:
        loops = [*[cache.run for cache in scheduler.caches.all], recorder.run, scheduler.run]
        tasks = [group.create_task(loop()) for loop in loops]
        yield client
        for task in tasks:
            task.cancel()
    await client.close()


def test_claims_that_wait_for_their_consumer_are_bound_with_it(ready: LiveCluster) -> None:
    """One claim finds a volume, for another one is made; the controller of Kubernetes binds both once the pod has its node."""
    mark = f"{time.monotonic_ns():x}"[-8:]
    node, local, made, pod = f"volumes-{mark}", f"local-{mark}", f"made-{mark}", f"pod-{mark}"

    def volume(name: str, storage_class: str, claim: Object | None = None) -> Object:
        named = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [named]}]}},
        }
        if claim is not None:
            spec["claimRef"] = {"namespace": "default", "name": made, "uid": claim["metadata"]["uid"]}
        return VOLUMES.object(name, spec=spec)

    async def selected(client: Client) -> Object:
        async with asyncio.timeout(PATIENCE):
            while True:
                claim = await client.get(CLAIMS, made, "default")
                if (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE):
                    return claim
                await asyncio.sleep(0.05)

    async def run() -> None:
        async with scheduling(ready.kubeconfig, mark) as client:
            await client.create(NODES, NODES.object(node, spec={"taints": [OWN]}) | {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}})  # fmt: skip
            room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            await client.patch(NODES, node, body={"status": {"allocatable": room, "capacity": room}}, subresource="status")  # fmt: skip
            for name, provisioner in ((local, "kubernetes.io/no-provisioner"), (made, "example.com/test")):
                late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
                await client.create(STORAGE_CLASSES, STORAGE_CLASSES.object(name, **late))
                asked = {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
                await client.create(CLAIMS, CLAIMS.object(name, "default", spec=asked))
            await client.create(VOLUMES, volume(local, local))
            volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in (local, made)]
            container = {"name": "c", "image": "none"}
            spec = {"schedulerName": mark, "containers": [container], "volumes": volumes, "tolerations": TOLERATED}
            await client.create(PODS, PODS.object(pod, "default", spec=spec))
            claim = await selected(client)
            assert claim["metadata"]["annotations"][SELECTED_NODE] == node
            assert not (await client.get(PODS, pod, "default"))["spec"].get("nodeName")
            await client.create(VOLUMES, volume(made, made, claim))
            async with asyncio.timeout(PATIENCE):
                while not (await client.get(PODS, pod, "default"))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            for name in (local, made):
                found = await client.get(CLAIMS, name, "default")
                assert (found["status"]["phase"], found["spec"]["volumeName"]) == ("Bound", name)
            await client.delete(PODS, pod, "default", grace=0)
            for name in (local, made):
                await client.delete(CLAIMS, name, "default")
                await client.delete(VOLUMES, name)
                await client.delete(STORAGE_CLASSES, name)
            await client.delete(NODES, node)

    asyncio.run(run())
