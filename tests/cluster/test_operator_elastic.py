"""Elastic members with etcd: what a pod gets is enough for Paddle's own launcher to find its peers in a real etcd, to take in
one that comes and to go on without one that is lost. The launchers run beside the test, not in pods.

Slow, because they are patient: a launcher that comes wipes the others' heartbeats, which are there again after five seconds. One
with less patience than that forms with too few.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddleflow.operator.paddlejob.job import OperatorOptions, read
from paddleflow.operator.paddlejob.manifests import pod
from tests.cluster_fixture import LiveCluster
from tests.framework_environments import programs_of
from tests.patience import eventually

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(400)]

#: what is trained: every process says who it is, and stays
PROGRAM = """
import os, signal
print("is", os.environ["PADDLE_TRAINER_ID"], "of", os.environ["PADDLE_TRAINERS_NUM"], flush=True)
signal.pause()
"""


class Launchers:
    """Paddle's launcher for each worker of an elastic job, as its pod would start it."""

    def __init__(self, etcd: str, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        role = {"replicas": 2, "requests": 1, "limits": 3, "template": {"spec": {"containers": [_CONTAINER]}}}
        metadata = {"name": folder.name.replace("_", "-").lower(), "namespace": "space", "uid": "uid"}
        self._job = read({"metadata": metadata, "spec": {"elastic": 1, "worker": role}})
        self._options = OperatorOptions(etcd=etcd)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "train.py").write_text(PROGRAM)

    def start(self, index: int) -> None:
        environment = pod(self._job, "worker", index, 1, self._options, 0, False)["spec"]["containers"][0]["env"]
        variables = {each["name"]: each["value"] for each in environment if "value" in each}
        variables |= {
            "POD_IP": "127.0.0.1",
            "PADDLE_ELASTIC_TIMEOUT": "12",
            "PADDLE_LOG_DIR": str(self._log(index).parent),
        }
        command = [
            str(programs_of("paddle") / "python"),
            "-m",
            "paddle.distributed.launch",
            str(self._folder / "train.py"),
        ]
        with (self._folder / f"launcher-{index}").open("wb") as output:
            started = subprocess.Popen(
                command, env={**os.environ, **_BESIDE, **variables}, stdout=output, stderr=subprocess.STDOUT
            )
        self._processes[index] = self._stack.enter_context(started)
        self._stack.callback(started.kill)

    def record_delete(self, index: int) -> None:
        self._processes[index].terminate()

    def ranks(self, index: int) -> list[str]:
        """The environment of a worker's process, each time that it was started."""
        log = self._log(index)
        return [line for line in log.read_text().splitlines() if line.startswith("is ")] if log.exists() else []

    def settled(self, *indices: int) -> bool:
        """Whether these and nobody else are together now."""
        last = {self.ranks(index)[-1] if self.ranks(index) else "" for index in indices}
        return last == {f"is {rank} of {len(indices)}" for rank in range(len(indices))}

    def _log(self, index: int) -> Path:
        return self._folder / f"log-{index}" / "workerlog.0"


_CONTAINER = {"name": "main", "image": "train:1"}


#: etcd3 is older than today's protobuf, and gRPC does not like that the launcher forks
_BESIDE = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "GRPC_ENABLE_FORK_SUPPORT": "0"}


@pytest.fixture
def launchers(control_plane: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launchers]:
    beside = programs_of("etcd3").parent / "lib" / "python3.11" / "site-packages"
    monkeypatch.setenv("PYTHONPATH", str(beside))
    with ExitStack() as stack:
        yield Launchers(control_plane.etcd, tmp_path, stack)


def test_launchers_find_each_other_take_one_in_and_go_on_without_one(launchers: Launchers) -> None:
    launchers.start(0)
    launchers.start(1)
    eventually(lambda: launchers.settled(0, 1), "two together")
    launchers.start(2)
    eventually(lambda: launchers.settled(0, 1, 2), "three together")
    launchers.record_delete(0)
    eventually(lambda: launchers.settled(1, 2), "the two that are left, with new ranks")
