"""``scripts/cluster`` itself: clusters come, live beside each other, and go without a trace, however `up` ended."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from scripts.lib.cluster import processes
from scripts.lib.cluster.paths import folder_of
from tests.cluster_fixture import TOOL, LiveCluster, brought_up, call, own_name, require
from tests.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def traces(name: str) -> list[str]:
    """Whatever of a cluster is still on the machine."""
    folder = folder_of(name)
    with open("/proc/self/mountinfo") as mounts:
        mounted = [line for line in mounts if f"/{name}/" in line]
    files = [folder, folder.with_suffix(".lock")]
    groups = [
        *Path("/sys/fs/cgroup").glob(f"testcluster-{name}.*"),
        *Path("/sys/fs/cgroup").glob(f"*/testcluster-{name}.*"),
    ]
    links = [link for link in ("bridge0", "port1") if Path("/sys/class/net", link).exists()]
    left = [*(file for file in files if file.exists()), *groups, *processes.find(folder), *mounted, *links]
    return [str(each) for each in left]


def test_clusters_live_beside_each_other_and_go_without_a_trace(control_plane: LiveCluster) -> None:
    require(["kube", "kwok"])
    shape = ("--with", "kwok", "--simulated", "3")
    with brought_up("beside", *shape) as second:
        clusters = {each["name"]: each for each in json.loads(call("status", "--json"))}
        assert clusters[second.name]["state"] == clusters[control_plane.name]["state"] == "up"
        assert clusters[second.name]["broken"] == []
        second.kubectl("create", "namespace", "only-here")
        assert "only-here" not in control_plane.kubectl("get", "namespaces")
        assert second.name in call("status")
        assert call("kubeconfig", "--name", second.name).strip() == str(second.kubeconfig)
        assert call("up", "--name", second.name, *shape) == ""  # the same again changes nothing
        refused = subprocess.run(
            [TOOL, "up", "--name", second.name, "--grace", "33"], capture_output=True, text=True, check=False
        )
        assert refused.returncode == 1
        assert "another shape" in refused.stderr
        assert "hint: " in refused.stderr
        _run_pods_that_cost_nothing(second)
    assert traces(second.name) == []  # its ports too: who held them is gone, and the next cluster may have them already
    assert control_plane.kubectl("get", "--raw", "/readyz") == "ok"


def _run_pods_that_cost_nothing(simulated: LiveCluster) -> None:
    assert simulated.nodes == ["kwok1", "kwok2", "kwok3"]
    simulated.kubectl("create", "deployment", "many", "--image", "none", "--replicas", "30")
    simulated.wait("deployment/many", "jsonpath={.status.readyReplicas}=30")


def test_a_killed_start_is_cleaned_by_the_next() -> None:
    nodes = "1" if os.geteuid() == 0 else "0"
    require(["kube", "node-images"] if nodes == "1" else ["kube"])
    name = own_name("killed")
    folder = folder_of(name)
    try:
        with subprocess.Popen([TOOL, "up", "--name", name, "--nodes", nodes], stderr=subprocess.DEVNULL) as starter:
            part = "node1/containerd" if nodes == "1" else "apiserver"
            first = eventually(lambda: processes.find(folder, part), f"{part} is started")
            starter.kill()
        orphans = {process.pid for process in processes.find(folder)}
        assert first[0].pid in orphans, "the kill came too late to leave anything behind"
        call("up", "--name", name, "--nodes", nodes)
        assert not orphans & {process.pid for process in processes.find(folder)}
        assert call("kubectl", "--name", name, "get", "--raw", "/readyz") == "ok"
    finally:
        call("down", "--name", name)
    assert traces(name) == []


def test_a_part_starts_again(control_plane: LiveCluster) -> None:
    before = control_plane.kubectl("get", "namespace", "default", "-o", "jsonpath={.metadata.uid}")
    control_plane.kill("apiserver")
    clusters = {each["name"]: each for each in json.loads(call("status", "--json"))}
    assert clusters[control_plane.name]["broken"] == ["apiserver"]
    control_plane.restart("apiserver")
    assert control_plane.kubectl("get", "namespace", "default", "-o", "jsonpath={.metadata.uid}") == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "--nodes", "4"], "0 to 3 nodes, not 4"),
        (["up", "--with", "cordns"], "known: coredns, argo, volcano, kwok"),
        (["up", "--with", "coredns"], "needs a node"),
        (["up", "--simulated", "5"], "--with kwok"),
        (["up", "--name", "Big"], "lower-case"),
        (["down", "--name", "no/such"], "lower-case"),
        (["build", "kubernetes"], "known: kube, "),
        (["kubectl", "--name", "nobody", "get", "pods"], "no cluster called 'nobody' is up"),
        (["load", "--name", "nobody", "python"], "no cluster called 'nobody' is up"),
        (["on", "node1"], "a node and a command"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(words: list[str], message: str) -> None:
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert message in done.stderr
    assert done.stdout == ""
