"""A real Kubernetes for the tests, from ``scripts/cluster``: one of each shape per test run, gone at its end.

Loaded as a plugin by ``tests/conftest.py``. Tests ask for `control_plane` (no nodes, no root, ready in seconds) or for
`cluster` (three real nodes with Volcano and CoreDNS). A test that does is marked `cluster` here, and all users of a fixture
stay on one worker, so that it is brought up once. Nothing is built here: ``scripts/test`` has done so before.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from scripts.lib.cluster import inventory
from scripts.lib.cluster.addons import kubectl_variables
from scripts.lib.cluster.control_plane import hub_pid
from scripts.lib.cluster.paths import PROGRAMS

TOOL = Path(__file__).resolve().parent.parent / "scripts" / "cluster"
GRACE_SECONDS = 10  #: until the fixture's nodes count as lost; short, for tests of that
_CLONE_NEWNET = 0x40000000
_LACKING = "no test cluster here"
_TIMEOUT = pytest.mark.timeout(400)  # whoever comes first waits for the cluster as well
_GROUPS = {"control_plane": "control-plane", "cluster": "cluster"}  #: fixture → group of tests that share a worker


class LiveCluster:
    """A cluster that is up, and the tool around it."""

    def __init__(self, name: str, *shape: str) -> None:
        self.name = name
        shown = json.loads(call("up", "--name", name, "--json", *shape))
        self.kubeconfig = Path(shown["kubeconfig"])
        self.api: str = shown["api"]
        self.etcd: str = shown["etcd"]
        self.nodes: list[str] = sorted(shown["nodes"])
        self._environment = {**os.environ, **kubectl_variables(inventory.find(name))}
        self._loaded: set[str] = set()

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints; the test fails with what it says when it fails."""
        return _printed(self.run("kubectl", *words, stdin=stdin), f"kubectl {' '.join(words)}")

    def refusal(self, *words: str, stdin: str = "") -> str:
        """What kubectl says when it fails; empty when it does not."""
        done = self.run("kubectl", *words, stdin=stdin)
        return (done.stderr or done.stdout) if done.returncode else ""

    def run(self, program: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One of the programs that were built, for this cluster; without the tool in between, which takes longer than it."""
        command = [str(PROGRAMS / program), *words]
        return subprocess.run(command, input=stdin, env=self._environment, capture_output=True, text=True, check=False)

    def apply(self, manifest: str) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def wait(self, what: str, condition: str, namespace: str = "default", seconds: int = 90) -> None:
        """Until an object has a condition, in kubectl's words: ``wait("pod/a", "jsonpath={.status.phase}=Running")``."""
        self.kubectl("wait", what, f"--for={condition}", "-n", namespace, f"--timeout={seconds}s")

    def load(self, *images: str) -> None:
        """Have images on all nodes: `python`, `operator`, or the path of an archive."""
        if wanted := [image for image in images if image not in self._loaded]:
            require(f"{image}-image" for image in wanted if "/" not in image)
            call("load", "--name", self.name, *wanted)
            self._loaded.update(wanted)

    def kill(self, part: str) -> None:
        """A node, or a part such as `apiserver`, dies without a word."""
        call("kill", "--name", self.name, part)

    def restart(self, part: str) -> None:
        """A dead or living node or part starts again; returns when it is of use."""
        call("restart", "--name", self.name, part)

    def on(self, node: str, *words: str) -> str:
        """What a command prints that runs on a node."""
        return call("on", "--name", self.name, node, *words)

    @contextlib.contextmanager
    def reached_from_pods(self, port: int) -> Iterator[str]:
        """The address at which pods reach a port of this machine's loopback, by a tunnel that begins in the nodes' network."""
        door = _listen_in(f"/proc/{hub_pid(inventory.find(self.name))}/ns/net", inventory.HUB)
        words = [str(PROGRAMS / "tunnel"), str(door.fileno()), f"{inventory.LOOPBACK}:{port}"]
        with door, subprocess.Popen(words, pass_fds=[door.fileno()]) as tunnel:
            try:
                yield f"{inventory.HUB}:{door.getsockname()[1]}"
            finally:
                tunnel.kill()

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace that nobody else uses; its removal is begun, not waited for."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", name)
        yield name
        self.kubectl("delete", "namespace", name, "--wait=false")

    def down(self) -> None:
        call("down", "--name", self.name)


def _listen_in(namespace: str, address: str) -> socket.socket:
    """A listening socket of another network namespace. A thread enters it and ends; the socket stays there."""
    made: list[socket.socket] = []

    def enter() -> None:
        with open(namespace) as there:
            if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), _CLONE_NEWNET) == 0:
                made.append(socket.create_server((address, 0), backlog=128))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert made, f"{namespace} cannot be entered"
    return made[0]


def call(*words: str, stdin: str = "") -> str:
    """What ``scripts/cluster`` prints on stdout; the test fails with its errors when it fails."""
    done = subprocess.run([TOOL, *words], input=stdin, capture_output=True, text=True, check=False)
    return _printed(done, f"scripts/cluster {' '.join(words)}")


def _printed(done: subprocess.CompletedProcess[str], command: str) -> str:
    if done.returncode:
        pytest.fail(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def require(parts: Iterable[str], root: bool = False) -> None:
    """Skip, with a line that says what would help, where a cluster of these parts cannot be."""
    if root and os.geteuid() != 0:
        pytest.skip(f"{_LACKING}: real nodes need root")
    done = subprocess.run([TOOL, "build", "--check", *parts], capture_output=True, text=True, check=False)
    if done.returncode:
        assert "error: not built: " in done.stderr, done.stderr
        hint = "scripts/test builds it" if shutil.which("go") else "Go is not installed"
        pytest.skip(f"{_LACKING}: it is not built; {hint}, scripts/cluster build --help tells more")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests that `require` skipped one place, so that pytest tells of them in one line."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and _LACKING in report.longrepr[2]:
        report.longrepr = (__file__, 0, report.longrepr[2])
    return report


def own_name(purpose: str) -> str:
    """A name for a cluster of this process, by which a later run knows that its owner is gone."""
    return f"test-{os.getpid()}-{purpose}"


def remove_orphans() -> None:
    """Take away the clusters of test runs that were killed."""
    for shown in json.loads(call("status", "--json")):
        owner = re.fullmatch(r"test-(\d+)-.*", shown["name"])
        if owner and not Path(f"/proc/{owner[1]}").exists():
            call("down", "--name", shown["name"])


@contextlib.contextmanager
def brought_up(purpose: str, *shape: str) -> Iterator[LiveCluster]:
    """A cluster that is gone afterwards, even when it did not come up."""
    remove_orphans()
    name = own_name(purpose)
    try:
        yield LiveCluster(name, *shape)
    finally:
        call("down", "--name", name)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[LiveCluster]:
    """An API server with etcd, controllers and scheduler; pods stay pending."""
    require(["kube"])
    with brought_up("control-plane") as up:
        yield up


@pytest.fixture(scope="session")
def cluster() -> Iterator[LiveCluster]:
    """Three real nodes with Volcano and CoreDNS. Who kills a node restarts it; node1 carries the DNS and stays."""
    require(["kube", "node-images", "coredns", "volcano"], root=True)
    shape = ("--nodes", "3", "--with", "coredns,volcano", "--grace", str(GRACE_SECONDS))
    with brought_up("nodes", *shape) as up:
        yield up


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the users of our fixtures, early: xdist reads the groups as soon as everything is collected."""
    for fixture, group in _GROUPS.items():
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")
            item.add_marker(pytest.mark.xdist_group(group))
            item.add_marker(_TIMEOUT)
