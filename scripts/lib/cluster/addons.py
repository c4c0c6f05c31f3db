"""What a cluster can have beside Kubernetes itself: Volcano, CoreDNS, Argo Workflows, simulated nodes.

Volcano, kwok and Argo's controller run as processes beside the control plane, so they need neither images nor nodes. Each `start` returns when
its part is of use, not just started.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.cluster import api, images, processes
from scripts.lib.cluster.control_plane import READY_SECONDS, Runner
from scripts.lib.cluster.errors import ClusterError, eventually
from scripts.lib.cluster.inventory import DNS, LOOPBACK, Cluster
from scripts.lib.cluster.nodes import Node
from scripts.lib.cluster.paths import DEFINITIONS, MANIFESTS, PROGRAMS

#: Volcano's webhooks that its chart switches on and that somebody here uses: path, group and version, operations
_WEBHOOKS = {
    "queues/mutate": ("scheduling.volcano.sh/v1beta1", ["CREATE"]),
    "queues/validate": ("scheduling.volcano.sh/v1beta1", ["CREATE", "UPDATE", "DELETE"]),
    "podgroups/validate": ("scheduling.volcano.sh/v1beta1", ["CREATE"]),
    "jobs/mutate": ("batch.volcano.sh/v1alpha1", ["CREATE"]),
    "jobs/validate": ("batch.volcano.sh/v1alpha1", ["CREATE", "UPDATE"]),
}
_FAKE = "kwok.x-k8s.io/node"  #: annotation and taint of simulated nodes


def start_coredns(cluster: Cluster, run: Runner) -> None:
    """Names for services and pods."""
    nodes = [Node(cluster, name) for name in cluster.node_names]
    for node in nodes:
        node.load(images.COREDNS.archive)
    _apply(cluster, MANIFESTS / "coredns.yaml")

    def reachable(node: Node) -> bool:
        """The proxy's rules come a moment after the pod: ask the service's address itself."""
        command = [*node.entry(), "timeout", "1", "bash", "-c", f"</dev/tcp/{DNS}/53"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    for node in nodes:
        eventually(lambda node=node: reachable(node), f"{node.name} reaches the cluster's DNS", READY_SECONDS)  # type: ignore[misc]


def start_volcano(cluster: Cluster, run: Runner) -> None:
    """Gangs and queues."""
    _apply(cluster, DEFINITIONS / "volcano")
    keys = cluster.folder / "keys"
    for kind, configuration in _webhook_configurations(cluster):
        status, told = api.ask(cluster, f"/apis/admissionregistration.k8s.io/v1/{kind}", "POST", configuration)
        if status != 201:
            raise ClusterError(f"the API server refused a webhook of Volcano ({status}): {told}")
    admin = ["--kubeconfig", str(keys / "admin.kubeconfig")]
    quick = [*admin, "--kube-api-qps", "500", "--kube-api-burst", "1000", "--leader-elect=false"]
    run(
        "volcano-webhooks",
        [
            *(str(PROGRAMS / "vc-webhook-manager"), *admin, "--listen-address", cluster.address),
            *("--port", str(cluster.port("webhooks")), "--webhook-url", f"https://{cluster.address}"),
            *("--tls-cert-file", f"{keys}/webhooks.crt", "--tls-private-key-file", f"{keys}/webhooks.key"),
            *("--ca-cert-file", f"{keys}/ca.crt", "--enabled-admission", ",".join(f"/{path}" for path in _WEBHOOKS)),
        ],
    )
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    probe = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "probe"}}

    def checked() -> bool:
        processes.require_alive(cluster.folder, "volcano-webhooks")
        return api.ask(cluster, f"{queues}?dryRun=All", "POST", {**probe, "spec": {"weight": 1}})[0] == 201

    eventually(checked, "Volcano's webhooks answer", READY_SECONDS)
    run(
        "volcano-controllers",
        [
            *(str(PROGRAMS / "vc-controller-manager"), *quick),
            *("--listen-address", f"{LOOPBACK}:{cluster.port('volcano-controllers')}", "--worker-threads", "4"),
        ],
    )
    run(
        "volcano-scheduler",
        [
            *(str(PROGRAMS / "vc-scheduler"), *quick, "--scheduler-conf", str(MANIFESTS / "volcano-scheduler.yaml")),
            *("--listen-address", f"{LOOPBACK}:{cluster.port('volcano')}", "--schedule-period", "200ms"),
            *("--cache-dumper=false", "--plugins-dir", ""),
        ],
    )

    def open_queue() -> bool:
        processes.require_alive(cluster.folder, "volcano-controllers", "volcano-scheduler")
        status, told = api.ask(cluster, f"{queues}/default")
        return status == 200 and told.get("status", {}).get("state") == "Open"

    eventually(open_queue, "Volcano's default queue is open", READY_SECONDS)


def _webhook_configurations(cluster: Cluster) -> list[tuple[str, dict[str, object]]]:
    """One configuration per webhook, under the names that Volcano looks for, leading to its process."""
    authority = base64.b64encode((cluster.folder / "keys" / "ca.crt").read_bytes()).decode()
    made: list[tuple[str, dict[str, object]]] = []
    for path, (group_version, operations) in _WEBHOOKS.items():
        resource, verb = path.split("/")
        group, version = group_version.split("/")
        kind = "Mutating" if verb == "mutate" else "Validating"
        url = f"https://{cluster.address}:{cluster.port('webhooks')}/{path}"
        webhook = {
            "name": f"{verb}{resource}.volcano.sh",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": authority},
            "sideEffects": "NoneOnDryRun",
            "rules": [
                {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": [resource]}
            ],
        }
        configuration: dict[str, object] = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"volcano-admission-service-{resource}-{verb}"},
            "webhooks": [webhook],
        }
        made.append((f"{kind.lower()}webhookconfigurations", configuration))
    return made


def start_kwok(cluster: Cluster, run: Runner) -> None:
    """Simulated nodes: pods placed there are Running at once, and cost nothing. Beside real ones they carry a taint."""
    run(
        "kwok",
        [
            *(str(PROGRAMS / "kwok"), "--kubeconfig", str(cluster.folder / "keys" / "admin.kubeconfig")),
            *("--manage-all-nodes=false", "--manage-nodes-with-annotation-selector", f"{_FAKE}=fake"),
            *("--server-address", f"{LOOPBACK}:{cluster.port('kwok')}", "--node-lease-duration-seconds", "40"),
        ],
    )
    capacity = {"cpu": "128", "memory": "1Ti", "pods": "1000"}
    taints = [{"key": _FAKE, "value": "fake", "effect": "NoSchedule"}] if cluster.nodes else []
    names = [f"kwok{number}" for number in range(1, cluster.shape.simulated + 1)]
    for name in names:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {_FAKE: "fake"}, "labels": labels},
            "spec": {"taints": taints},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        status, told = api.ask(cluster, "/api/v1/nodes", "POST", node)
        if status != 201:
            raise ClusterError(f"the API server refused the simulated node {name} ({status}): {told}")

    def ready() -> bool:
        processes.require_alive(cluster.folder, "kwok")
        known = api.ready_nodes(cluster)
        return all(known.get(name, False) for name in names)

    eventually(ready, f"{len(names)} simulated nodes are ready", READY_SECONDS)


def start_argo(cluster: Cluster, run: Runner) -> None:
    """Workflows. The controller takes up what was submitted before it came, so there is nothing more to wait for."""
    _apply(cluster, DEFINITIONS / "argo")
    _apply(cluster, MANIFESTS / "argo.yaml")
    for name in cluster.node_names:
        Node(cluster, name).load(images.ARGOEXEC.archive)
    run(
        "argo",
        [
            *("env", "LEADER_ELECTION_DISABLE=true", "ARGO_NAMESPACE=argo", str(PROGRAMS / "argo-workflow-controller")),
            *("--kubeconfig", str(cluster.folder / "keys" / "admin.kubeconfig"), "--namespace", "argo"),
            *("--executor-image", images.ARGOEXEC.name, "--executor-image-pull-policy", "IfNotPresent"),
        ],
    )
    processes.require_alive(cluster.folder, "argo")


def _apply(cluster: Cluster, manifests: Path) -> None:
    done = subprocess.run(
        [PROGRAMS / "kubectl", "apply", "--server-side", "-f", manifests],
        env={**os.environ, **kubectl_variables(cluster)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"kubectl apply of {manifests.name} failed: {done.stderr.strip()}")


def kubectl_variables(cluster: Cluster) -> dict[str, str]:
    """The environment of a kubectl or helm that neither reads nor leaves anything outside the cluster's folder."""
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "KUBECACHEDIR": str(cluster.folder / "kubectl"),
        "KUBERC": "off",
        **{f"HELM_{kind}_HOME": str(cluster.folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")},
    }


@dataclass(frozen=True)
class Addon:
    """Something beside Kubernetes itself, of the part of the same name."""

    start: Callable[[Cluster, Runner], None]
    on_nodes: bool = False  #: whether it runs as pods, and so must wait for nodes


ADDONS = {
    "coredns": Addon(start_coredns, on_nodes=True),
    "argo": Addon(start_argo, on_nodes=True),
    "volcano": Addon(start_volcano),
    "kwok": Addon(start_kwok),
}
