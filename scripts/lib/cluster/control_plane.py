"""The control plane: etcd, the API server, the controllers and the scheduler, as plain processes.

Without nodes they listen on loopback and need no root. With nodes they live in a network namespace, the hub, on a bridge
that all nodes are plugged into; a tunnel makes API server and etcd reachable from the machine's loopback all the same.
"""

from __future__ import annotations

import dataclasses
import socket
import subprocess
from pathlib import Path

from scripts.lib.cluster import api, processes
from scripts.lib.cluster.errors import eventually
from scripts.lib.cluster.inventory import HUB, LOOPBACK, SERVICES, Cluster
from scripts.lib.cluster.paths import PROGRAMS

BRIDGE = "bridge0"
READY_SECONDS = 120.0
#: what the API server tells pods as its own address where there is no network; it refuses a loopback one
_NOWHERE = "10.255.255.254"
#: seconds after which a pod is taken from a lost node; Kubernetes itself waits 300, too long for tests
_EVICT_SECONDS = 5


def start(cluster: Cluster, run: Runner) -> None:
    """Start all of it; returns when the API server is ready and has the default service account."""
    run("etcd", _etcd(cluster))
    run("apiserver", _apiserver(cluster))
    wait_ready(cluster)
    run("controllers", _controllers(cluster))
    run("scheduler", _scheduler(cluster))


def wait_ready(cluster: Cluster) -> None:
    """Until the API server says that it is ready."""

    def ready() -> bool:
        processes.require_alive(cluster.folder, "etcd", "apiserver")
        return api.answers(cluster, "/readyz")

    eventually(ready, "the API server is ready", READY_SECONDS, _see(cluster, "apiserver"))


def wait_accounts(cluster: Cluster) -> None:
    """Until pods can be made: they need the service account that the controllers make."""

    def there() -> bool:
        processes.require_alive(cluster.folder, "controllers", "scheduler")
        return api.answers(cluster, "/api/v1/namespaces/default/serviceaccounts/default")

    eventually(there, "the default service account is there", READY_SECONDS, _see(cluster, "controllers"))


def _see(cluster: Cluster, part: str) -> str:
    return f"see {processes.log_of(cluster.folder, part)}"


class Runner:
    """Starts parts of a cluster in its network, and remembers how, so that they can be started again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._commands: dict[str, list[str]] = {}

    def __call__(self, part: str, command: list[str], enter: tuple[str, ...] | None = None) -> int:
        """Start a part in the hub, or where `enter` leads."""
        whole = [*(self.hub_entry() if enter is None else enter), *command]
        self._commands[part] = whole
        return processes.spawn(self.cluster.folder, part, whole)

    def hub_entry(self) -> tuple[str, ...]:
        """The words before a command that is to run in the hub."""
        if not self.cluster.nodes:
            return ()
        return ("nsenter", f"--net=/proc/{hub_pid(self.cluster)}/ns/net", "--")

    def recorded(self) -> Cluster:
        """The cluster with all that was started."""
        return dataclasses.replace(self.cluster, commands={**self.cluster.commands, **self._commands})


def open_hub(cluster: Cluster) -> None:
    """The namespace of the control plane, with its bridge, and the tunnels that lead there."""
    pid = processes.spawn(cluster.folder, "hub", ["unshare", "--net", str(PROGRAMS / "pause")])
    pause = str((PROGRAMS / "pause").resolve())
    # A process in the middle of an exec has its new program for a moment before it has an environment to be found by.
    eventually(lambda: _program(pid) == pause and hub_pid(cluster) == pid, "the hub's namespace is there", 10)
    enter = Runner(cluster).hub_entry()
    for words in (
        ("link", "set", "lo", "up"),
        ("link", "add", BRIDGE, "type", "bridge"),
        ("addr", "add", f"{HUB}/24", "dev", BRIDGE),
        ("link", "set", BRIDGE, "up"),
    ):
        subprocess.run([*enter, "ip", *words], check=True)
    for use in ("api", "etcd"):
        with socket.create_server((LOOPBACK, cluster.port(use)), backlog=1024) as door:
            command = [*enter, str(PROGRAMS / "tunnel"), str(door.fileno()), f"{HUB}:{cluster.port(use)}"]
            processes.spawn(cluster.folder, f"tunnel-{use}", command, files=[door.fileno()])


def hub_pid(cluster: Cluster) -> int:
    found = processes.find(cluster.folder, "hub")
    return found[0].pid if found else 0


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _etcd(cluster: Cluster) -> list[str]:
    inside = f"http://{cluster.address}:{cluster.port('etcd')}"
    return [
        *(
            str(PROGRAMS / "etcd"),
            "--data-dir",
            str(cluster.folder / "etcd"),
            "--unsafe-no-fsync",
            "--log-level",
            "warn",
        ),
        *("--listen-client-urls", inside, "--advertise-client-urls", inside),
        *("--listen-peer-urls", f"http://{LOOPBACK}:{cluster.port('etcd-peer')}"),
        *("--quota-backend-bytes", str(8 * 2**30)),
    ]


def _apiserver(cluster: Cluster) -> list[str]:
    keys = cluster.folder / "keys"
    return [
        *(str(PROGRAMS / "kube-apiserver"), "--etcd-servers", f"http://{cluster.address}:{cluster.port('etcd')}"),
        *("--bind-address", cluster.address, "--secure-port", str(cluster.port("api"))),
        *("--advertise-address", HUB if cluster.nodes else _NOWHERE, "--service-cluster-ip-range", SERVICES),
        *("--tls-cert-file", f"{keys}/apiserver.crt", "--tls-private-key-file", f"{keys}/apiserver.key"),
        *("--client-ca-file", f"{keys}/ca.crt", "--token-auth-file", f"{keys}/tokens.csv"),
        *("--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"),
        *("--service-account-key-file", f"{keys}/accounts.key"),
        *("--service-account-signing-key-file", f"{keys}/accounts.key"),
        *("--service-account-issuer", "https://kubernetes.default.svc"),
        *("--kubelet-client-certificate", f"{keys}/kubelet-client.crt"),
        *("--kubelet-client-key", f"{keys}/kubelet-client.key", "--kubelet-preferred-address-types", "InternalIP"),
        *("--requestheader-client-ca-file", f"{keys}/ca.crt", "--requestheader-username-headers", "X-Remote-User"),
        *("--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        *("--proxy-client-cert-file", f"{keys}/front-proxy.crt", "--proxy-client-key-file", f"{keys}/front-proxy.key"),
        *("--allow-privileged=true", "--enable-aggregator-routing"),
        *("--default-not-ready-toleration-seconds", str(_EVICT_SECONDS)),
        *("--default-unreachable-toleration-seconds", str(_EVICT_SECONDS)),
    ]


def _as(cluster: Cluster, who: str) -> list[str]:
    """The flags with which a component proves to be `who`."""
    file = str(cluster.folder / "keys" / f"{who}.kubeconfig")
    return [
        *("--kubeconfig", file, "--authentication-kubeconfig", file, "--authorization-kubeconfig", file),
        *("--bind-address", LOOPBACK, "--secure-port", str(cluster.port(who)), "--leader-elect=false"),
    ]


def _controllers(cluster: Cluster) -> list[str]:
    keys = cluster.folder / "keys"
    return [
        *(str(PROGRAMS / "kube-controller-manager"), *_as(cluster, "controllers"), "--use-service-account-credentials"),
        *("--service-account-private-key-file", f"{keys}/accounts.key", "--root-ca-file", f"{keys}/ca.crt"),
        *("--cluster-signing-cert-file", f"{keys}/ca.crt", "--cluster-signing-key-file", f"{keys}/ca.key"),
        *("--kube-api-qps", "500", "--kube-api-burst", "1000"),  # or the first service account takes ten seconds
        *("--flex-volume-plugin-dir", str(cluster.folder / "flex"), "--allocate-node-cidrs=false"),
        *("--node-monitor-grace-period", f"{cluster.shape.grace}s", "--node-monitor-period", "1s"),
    ]


def _scheduler(cluster: Cluster) -> list[str]:
    return [str(PROGRAMS / "kube-scheduler"), *_as(cluster, "scheduler")]
