"""The operator as a Deployment on the real nodes, once for all suites that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_fixture import LiveCluster
from tests.operator_process import SPACE, install, uninstall

VALUES = {
    "image": "docker.io/local/paddleflow:dev",
    "imagePullPolicy": "Never",
    "scheduling": "volcano",
    "lostAfter": 3,
    "nodeSelector": {"kubernetes.io/hostname": "node1"},  # tests kill the others
}


@pytest.fixture(scope="session")
def deployed(cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The cluster with the operator in it; nothing of it is left afterwards."""
    cluster.load("operator")
    install(cluster, VALUES, deployment=True)
    cluster.wait("deployment/paddleflow-operator", "condition=Available", SPACE, 180)
    yield cluster
    uninstall(cluster, VALUES)
