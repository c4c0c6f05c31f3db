"""The contract of the `Runtime` protocol with pods on real nodes, and what only pods have."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddleflow.base.clock import Clock, SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.kube.client import Client
from paddleflow.kube.config import from_kubeconfig
from paddleflow.kube.transport import HttpTransport
from paddleflow.runtimes.kubernetes.collection import task_of
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.runtime import Ended, Launch, Mount, NodeChanged, Ready, Runtime, Started
from tests.cluster_fixture import LiveCluster
from tests.contract.test_runtime import *  # noqa: F403  the suite itself
from tests.patience import eventually
from tests.runtime_driver import DrivenScene

IMAGE = "docker.io/local/busybox:1"
#: ends at once on SIGTERM, which the first process of a container ignores otherwise
WAIT = "trap 'exit 143' TERM; until [ -e {gate} ]; do usleep 100000; done; . {gate}"


class PodDriver:
    """Pods that share a folder of the machine with the test."""

    tells_signals = False

    def __init__(self, cluster: LiveCluster, namespace: str, folder: Path, group: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._folder = folder
        self._group = group

    async def open(self) -> Runtime:
        runtime = self.runtime()
        await runtime.open()
        return runtime

    def runtime(self, image_grace: float = 120.0, clock: Clock | None = None) -> KubernetesRuntime:
        return KubernetesRuntime(
            Client(HttpTransport(from_kubeconfig(self._cluster.kubeconfig), limit=32)),
            clock or SystemClock(),
            self._folder / "data",
            self._group.create_task,
            settings=PodSettings(f"test-{self._namespace}", self._namespace, default_image=IMAGE, root_queues=["*"]),
            image_grace=image_grace,
            check_every=1.0,
        )

    def launch(self, name: str, *, exit_code: int | None = None, says: str = "", node: str = "") -> Launch:
        ran, gate = self._folder / f"{name}.ran", self._folder / f"{name}.gate"
        end = f"exit {exit_code}" if exit_code is not None else WAIT.format(gate=gate)
        script = f"echo x >> {ran}; printf %s {shlex.quote(says)}; {end}"
        return self.shell(name, script, node)

    def shell(self, name: str, script: str, node: str = "") -> Launch:
        folder = Mount("shared", str(self._folder), str(self._folder))
        attempt = AttemptId(f"job-{name}.worker-0.1")
        return Launch(attempt, ("sh", "-c", script), {"COLOUR": "blue"}, node=node, mounts=(folder,))

    def finish(self, launch: Launch, exit_code: int = 0) -> None:
        name = launch.attempt.removeprefix("job-").removesuffix(".worker-0.1")
        fresh = self._folder / f"{name}.gate.new"
        fresh.write_text(f"exit {exit_code}\n")
        fresh.rename(self._folder / f"{name}.gate")

    def times_started(self, launch: Launch) -> int:
        name = launch.attempt.removeprefix("job-").removesuffix(".worker-0.1")
        file = self._folder / f"{name}.ran"
        return len(file.read_text().split()) if file.exists() else 0


@pytest.fixture
def namespace(cluster: LiveCluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    eventually(lambda: not cluster.refusal("get", "serviceaccount", "default", "-n", name), "an account for pods")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
async def driver(cluster: LiveCluster, namespace: str, tmp_path: Path) -> AsyncIterator[PodDriver]:
    tmp_path.chmod(0o777)
    async with asyncio.TaskGroup() as group:
        yield PodDriver(cluster, namespace, tmp_path, group)


@pytest.fixture  # type: ignore[no-redef]
async def scene(driver: PodDriver, tmp_path: Path) -> AsyncIterator[DrivenScene]:
    made = DrivenScene(driver, tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.end()


# ---- what only pods have -------------------------------------------------------------------------------------------


async def test_a_pod_that_somebody_deletes_still_reports_its_end(
    scene: DrivenScene, cluster: LiveCluster, namespace: str
) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Ready)))
    await scene.runtime.close()
    cluster.kubectl("delete", "pod", "job-one-worker-0-1", "-n", namespace, "--wait=false")
    await scene.open()
    end = await scene.end_of(launch)
    assert end.exit_code == 143
    await scene.runtime.forget([launch.attempt])
    eventually(lambda: cluster.kubectl("get", "pods", "-n", namespace, "-o", "name") == "", "the pod is gone")


async def test_an_image_that_cannot_be_pulled_ends_the_attempt_with_its_name(driver: PodDriver, tmp_path: Path) -> None:
    runtime = driver.runtime(image_grace=3.0)
    await runtime.open()
    try:
        attempt = AttemptId("job-image.worker-0.1")
        await runtime.start([Launch(attempt, ("true",), {}, image="127.0.0.1:1/nothing:1")])
        async with asyncio.timeout(90):
            async for batch in runtime.observe():
                ends = [seen for seen in batch if getattr(seen, "attempt", "") == attempt]
                if ends:
                    break
        assert "127.0.0.1:1/nothing:1" in str(ends[-1])
        await runtime.forget([attempt])
    finally:
        await runtime.close()


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_clocks_may_differ(driver: PodDriver, ahead: float) -> None:
    """A stop is waited for as long as its grace is, and what is reported lies on the clock of the platform."""
    clock = SystemClock(wall=lambda: time.time() + ahead)
    runtime = driver.runtime(clock=clock)
    await runtime.open()
    try:
        launch = driver.shell("one", "trap 'sleep 2; exit 7' TERM; until false; do usleep 100000; done")
        began = clock.now()
        await runtime.start([launch])
        seen: list[Started | Ended] = []
        async with asyncio.timeout(90):
            async for batch in runtime.observe():
                seen += [each for each in batch if isinstance(each, Started | Ended)]
                if any(isinstance(each, Ready) for each in batch):
                    await runtime.stop([launch.attempt], 60.0)
                if seen and isinstance(seen[-1], Ended):
                    break
        started, end = seen
        assert isinstance(end, Ended)
        assert (end.exit_code, end.message) == (7, "stopped")
        assert end.started_at is not None
        assert began - 5 < started.at <= end.at <= clock.now()
        assert began - 5 < end.started_at <= end.at
        await runtime.forget([launch.attempt])
    finally:
        await runtime.close()


async def test_what_the_cluster_refuses_ends_at_once(scene: DrivenScene, cluster: LiveCluster, namespace: str) -> None:
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    probe = ("run", "probe", "--image=a:1", "--dry-run=server", "-n", namespace)
    eventually(lambda: "exceeded quota" in cluster.refusal(*probe), "the quota counts")
    end = await scene.run(scene.make("one", exit_code=0))
    assert end.exit_code is None
    assert "exceeded quota" in end.message


async def test_files_environment_and_resources_reach_the_container(scene: DrivenScene, driver: PodDriver) -> None:
    plain = driver.shell("one", 'echo "$COLOUR $(cat $0/hosts)"; pwd')
    launch = Launch(
        plain.attempt,
        (*plain.command, scene.runtime.job_folder("job-one")),
        plain.env,
        files={"hosts": "a b"},
        request=Resources.of(100, 32 << 20),
        limit=Resources.of(1000, 64 << 20),
    )
    scene.started.append(launch.attempt)
    assert (await scene.run(launch)).exit_code == 0
    assert (await scene.log_of(launch)).decode().splitlines() == ["blue a b", "/paddleflow/jobs/job-one"]


async def test_nodes_are_followed(scene: DrivenScene, cluster: LiveCluster) -> None:
    cluster.kubectl("cordon", "node2")
    try:
        async with asyncio.timeout(60):
            async for batch in scene.runtime.observe():
                found = [each.node for each in batch if isinstance(each, NodeChanged) and each.node.name == "node2"]
                if found and not found[-1].schedulable:
                    break
        assert {node.name: node.schedulable for node in await scene.runtime.nodes()}["node2"] is False
    finally:
        cluster.kubectl("uncordon", "node2")


async def test_running_pods_are_sampled(scene: DrivenScene) -> None:
    launch = scene.make("one")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    async with asyncio.timeout(90):
        while not (found := await scene.runtime.sample()):
            await asyncio.sleep(0.5)
    assert found[launch.attempt].memory > 0
    scene.driver.finish(launch)
    await scene.end_of(launch)


async def test_a_log_goes_on_across_servers(scene: DrivenScene, driver: PodDriver, tmp_path: Path) -> None:
    script = "for n in 1 2 3; do echo line $n; until [ -e {folder}/go.$n ]; do usleep 100000; done; done"
    launch = driver.shell("one", script.format(folder=tmp_path))
    scene.started.append(launch.attempt)
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    for number in (1, 2, 3):
        async with asyncio.timeout(60):
            while f"line {number}" not in (await _log(scene, launch)):
                await asyncio.sleep(0.05)
        await scene.reopen()
        await scene.runtime.adopt()
        (tmp_path / f"go.{number}").touch()
    await scene.end_of(launch)
    assert await _log(scene, launch) == "line 1\nline 2\nline 3\n"


async def _log(scene: DrivenScene, launch: Launch) -> str:
    if not await scene.runtime.logs.size(task_of(launch.attempt)):
        return ""
    return (await scene.log_of(launch)).decode()


async def test_a_foreign_pod_of_the_name_is_left_alone(
    scene: DrivenScene, cluster: LiveCluster, namespace: str
) -> None:
    metadata = {"name": "job-one-worker-0-1", "namespace": namespace}
    spec = {"containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "1000"]}]}
    cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    end = await scene.run(scene.make("one", exit_code=0))
    assert "not this job's" in end.message
    assert "job-one-worker-0-1" in cluster.kubectl("get", "pods", "-n", namespace, "-o", "name")
