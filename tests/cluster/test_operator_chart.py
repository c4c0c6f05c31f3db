"""The chart through Helm itself: it says what our own renderer says, and goes in, over and out of a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddleflow.operator.main import definitions
from scripts.lib import chart
from tests.cluster_fixture import LiveCluster, require
from tests.operator_process import CHART, ROOT, SPACE

OURS = "app.kubernetes.io/name=paddleflow-operator"
KINDS = "deployments,services,poddisruptionbudgets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"


@pytest.fixture
def cluster_with_helm(control_plane: LiveCluster) -> LiveCluster:
    require(["helm"])
    return control_plane


def helm(cluster: LiveCluster, *words: str) -> str:
    done = cluster.run("helm", *words)
    assert done.returncode == 0, f"helm {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def rendered(cluster: LiveCluster, *words: str) -> dict[tuple[str, str], Any]:
    place = ("paddleflow", str(CHART), "--namespace", SPACE, "--include-crds", "--kube-version", "1.34.4")
    return by_name(yaml.safe_load_all(helm(cluster, "template", *place, *words)))


def by_name(objects: Iterator[Any] | list[Any]) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects if each}


VALUES: list[Mapping[str, Any]] = [
    {},
    {"namespace": "research", "scheduling": "volcano", "etcdServer": "https://etcd:2379", "etcdSecret": "etcd"},
    {"replicas": 2, "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    {"imagePullSecrets": [{"name": "registry"}], "lostAfter": 5},
    {
        "affinity": {"podAntiAffinity": {}},
        "podDisruptionBudget": {"minAvailable": 1},
        "metricsService": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "serviceMonitor": {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}},
    },
]


@pytest.mark.parametrize("values", VALUES, ids=["defaults", "gangs in one namespace", "places", "secrets", "monitored"])
def test_helm_renders_what_our_renderer_does(
    cluster_with_helm: LiveCluster, tmp_path: Path, values: Mapping[str, Any]
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    theirs = rendered(cluster_with_helm, "--values", str(file))
    assert theirs == by_name([*definitions(), *chart.render(CHART, SPACE, values)])


def test_the_plain_manifests_are_the_charts(cluster_with_helm: LiveCluster) -> None:
    ours = by_name(yaml.safe_load_all((ROOT / "deploy" / "operator.yaml").read_text("utf-8")))
    assert ours.pop(("Namespace", SPACE))
    assert ours == rendered(cluster_with_helm)


def test_helm_lint_has_nothing_to_say(cluster_with_helm: LiveCluster) -> None:
    output = helm(cluster_with_helm, "lint", "--strict", str(CHART))
    assert "1 chart(s) linted, 0 chart(s) failed" in output
    assert "WARNING" not in output


def test_helm_installs_upgrades_and_uninstalls(cluster_with_helm: LiveCluster) -> None:
    cluster = cluster_with_helm
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "deploy" / "operator.yaml"))
    place = ("paddleflow", "--namespace", SPACE)
    helm(cluster, "install", *place, str(CHART), "--create-namespace")
    assert "paddlejobs.batch.paddlepaddle.org" in cluster.kubectl("get", "crd", "-o", "name")
    helm(
        cluster,
        "upgrade",
        *place,
        str(CHART),
        "--set",
        "scheduling=volcano,replicas=2,podDisruptionBudget.minAvailable=1",
    )
    found = json.loads(cluster.kubectl("get", KINDS, "-A", "-l", OURS, "-o", "json"))["items"]
    after = by_name(found)
    assert after["Deployment", "paddleflow-operator"]["spec"]["replicas"] == 2
    assert "podgroups" in json.dumps(after["ClusterRole", "paddleflow-operator"]["rules"])
    assert after["PodDisruptionBudget", "paddleflow-operator"]["spec"]["minAvailable"] == 1
    assert after["Service", "paddleflow-operator-metrics"]["spec"]["ports"][0]["port"] == 8080
    assert len(after) == len(chart.render(CHART, SPACE)) + 1
    helm(cluster, "uninstall", *place, "--wait")
    assert cluster.kubectl("get", KINDS, "-A", "-l", OURS, "-o", "name") == ""
    assert cluster.kubectl("get", "secrets", "-n", SPACE, "-o", "name") == "", "Helm's own memory of the release"
    # Helm never deletes definitions, because the jobs would go with them: that stays a step of its own.
    cluster.kubectl("delete", "-f", str(ROOT / "deploy" / "crds"))
    cluster.kubectl("delete", "namespace", SPACE)
