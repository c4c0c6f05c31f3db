"""An operator on a real API server that lacks what it needs: the definition of PaddleJob, a new enough one, or Volcano. It stays
alive, says what is missing, and goes on when that is there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_fixture import LiveCluster
from tests.operator_process import ROOT, blocked, install, job, running, submit
from tests.patience import eventually
from tests.simulated_paddlejob import role

DEFINITION = "crd/paddlejobs.batch.paddlepaddle.org"


def definition(group: str, version: str, kind: str, plural: str, schema: dict[str, Any], **more: Any) -> str:
    """A small definition of somebody else's."""
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    body = {"group": group, "names": names, "scope": "Namespaced", "versions": [served]}
    metadata = {"name": f"{plural}.{group}"}
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": body,
        }
    )


ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PHASES = {"type": "object", "properties": {"phase": {"type": "string"}, "mode": {"type": "string"}}}


def older(**more: Any) -> str:
    """A PaddleJob of earlier days: its status has two words."""
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": PHASES}}
    return definition("batch.paddlepaddle.org", "v1", "PaddleJob", "paddlejobs", schema, **more)


GROUPS = definition("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", ANYTHING, subresources={"status": {}})


@pytest.fixture
def space(control_plane: LiveCluster) -> Iterator[str]:
    install(control_plane, {"scheduling": "volcano"})
    with control_plane.namespace() as name:
        yield name


def events(cluster: LiveCluster, space: str, reason: str) -> str:
    return cluster.kubectl("get", "events", "-n", space, f"--field-selector=reason={reason}")


def forget_jobs(cluster: LiveCluster) -> None:
    cluster.kubectl("delete", DEFINITION, "--ignore-not-found")


def pods(cluster: LiveCluster, space: str, name: str) -> None:
    cluster.kubectl("wait", "--for=create", f"pod/{name}-worker-0", "-n", space, "--timeout=60s")


def test_a_missing_definition_is_waited_for(control_plane: LiveCluster, space: str, tmp_path: Path) -> None:
    """It is missing at first, comes, goes with its jobs, and comes again: the same process sees all of that."""
    forget_jobs(control_plane)
    log = tmp_path / "operator.log"
    with running(control_plane, tmp_path, "--namespace", space) as operator:
        eventually(lambda: "404 page not found" in log.read_text(), "a word about it")
        install(control_plane)
        submit(control_plane, space, "first", {"worker": role(1)})
        pods(control_plane, space, "first")
        forget_jobs(control_plane)
        install(control_plane)
        submit(control_plane, space, "second", {"worker": role(1)})
        pods(control_plane, space, "second")
        assert operator.poll() is None
    lines = [line for line in log.read_text().splitlines() if "PaddleJob" in line]
    assert len(lines) < 20, "it asks ever more seldom"


@pytest.mark.parametrize(
    ("more", "words"),
    [({"subresources": {"status": {}}}, "its status lacks fields"), ({}, "has no subresource status")],
    ids=["few fields", "no status"],
)
def test_an_older_definition_is_named(
    control_plane: LiveCluster, space: str, tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    forget_jobs(control_plane)
    control_plane.apply(older(**more))
    control_plane.wait(DEFINITION, "condition=Established")
    with running(control_plane, tmp_path, "--namespace", space) as operator:
        submit(control_plane, space, "x", {"worker": role(1)})
        eventually(lambda: words in events(control_plane, space, "DefinitionTooOld"), "an event")
        before = control_plane.kubectl("get", "pdj", "x", "-n", space, "-o", "jsonpath={.metadata.resourceVersion}")
        control_plane.kubectl("delete", "pod", "x-worker-0", "-n", space)
        eventually(lambda: _tries(control_plane, space) >= 2, "one more try")
        found = control_plane.kubectl("get", "pods", "-n", space, "-o", "name")
        assert found == "", "without a memory it makes nothing anew"
        assert job(control_plane, space, "x")["metadata"]["resourceVersion"] == before
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
        eventually(lambda: _formation(control_plane, space) == 1, "a status that is kept")
        pods(control_plane, space, "x")
        assert operator.poll() is None


def _formation(cluster: LiveCluster, space: str) -> int:
    """The formation in its status; the job is touched, so that it is reconciled now and not at the next retry."""
    cluster.kubectl("annotate", "pdj", "x", f"touched={time.monotonic()}", "--overwrite", "-n", space)
    return int(job(cluster, space, "x").get("status", {}).get("formation", 0))


def _tries(cluster: LiveCluster, space: str) -> int:
    selector = "--field-selector=reason=DefinitionTooOld"
    counts = cluster.kubectl("get", "events", "-n", space, selector, "-o", "jsonpath={.items[*].count}")
    return sum(int(count) for count in counts.split())


def test_missing_volcano_is_named(control_plane: LiveCluster, space: str, tmp_path: Path) -> None:
    with running(control_plane, tmp_path, "--namespace", space, "--scheduling", "volcano") as operator:
        submit(control_plane, space, "x", {"worker": role(1)})
        said = blocked(control_plane, space, "x")
        assert said.startswith("KindMissing")
        assert "Is Volcano there?" in said
        assert "Is Volcano there?" in events(control_plane, space, "KindMissing")
        try:
            control_plane.apply(GROUPS)
            control_plane.wait("crd/podgroups.scheduling.volcano.sh", "condition=Established")
            eventually(lambda: not control_plane.refusal("get", "podgroups", "-n", space), "kubectl knows PodGroups")
            control_plane.kubectl("wait", "--for=create", "podgroup/x", "-n", space, "--timeout=60s")
            admitted = '{"status": {"phase": "Inqueue"}}'
            control_plane.kubectl(
                "patch", "podgroup", "x", "-n", space, "--subresource=status", "--type=merge", "-p", admitted
            )
            pods(control_plane, space, "x")
            control_plane.wait("pdj/x", "condition=Blocked=false", space)
        finally:
            control_plane.kubectl("delete", "-f", "-", stdin=GROUPS)
        assert operator.poll() is None
