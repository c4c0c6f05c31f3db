"""A cluster as everybody here sees it: its name, its shape, its addresses; written down in its folder.

Several clusters are up at once: each has ten ports of its own on loopback. With nodes, everything else is in network
namespaces, so all clusters use the same addresses in there.
"""

from __future__ import annotations

import dataclasses
import json
import socket
from dataclasses import dataclass, field
from pathlib import Path

from scripts.lib.cluster.errors import ClusterError
from scripts.lib.cluster.paths import CLUSTERS, folder_of, locked

LOOPBACK = "127.0.0.1"
HUB = "10.99.0.1"  #: the control plane, where there are nodes; node N is 10.99.0.10+N
SERVICES = "10.97.0.0/16"
PODS = "10.98.0.0/16"  #: node N has 10.98.N.0/24
DNS = "10.97.0.10"
MOST_NODES = 3

_FIRST_PORT, _LAST_PORT, _PORTS = 21000, 31000, 10  #: below those that the kernel hands out by itself
_ORDER = ("api", "etcd", "etcd-peer", "controllers", "scheduler", "volcano", "volcano-controllers", "webhooks", "kwok")


@dataclass(frozen=True)
class Shape:
    """What somebody asked for."""

    nodes: int = 0
    addons: tuple[str, ...] = ()
    simulated: int = 0  #: nodes of kwok
    grace: int = 20  #: seconds until a silent node counts as lost

    def __str__(self) -> str:
        return (
            f"--nodes {self.nodes} --with '{','.join(self.addons)}' --simulated {self.simulated} --grace {self.grace}"
        )


@dataclass(frozen=True)
class Cluster:
    """One cluster, whole or still being brought up."""

    name: str
    shape: Shape
    first_port: int
    complete: bool = False
    clusters: Path = field(default=CLUSTERS, compare=False)  #: the folder of all clusters; not written down
    commands: dict[str, list[str]] = field(default_factory=dict)  #: how each part was started, for a restart

    @property
    def nodes(self) -> int:
        return self.shape.nodes

    @property
    def folder(self) -> Path:
        return folder_of(self.name, self.clusters)

    @property
    def kubeconfig(self) -> Path:
        """For clients on this machine."""
        return self.folder / "kubeconfig"

    @property
    def address(self) -> str:
        """Where the control plane listens; seen from where it runs."""
        return HUB if self.nodes else LOOPBACK

    @property
    def node_names(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    def port(self, use: str) -> int:
        return self.first_port + _ORDER.index(use)

    def url(self, use: str = "api") -> str:
        """For clients on this machine."""
        return f"{'https' if use == 'api' else 'http'}://{LOOPBACK}:{self.port(use)}"

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / "cluster.json.new"
        new.write_text(json.dumps({k: v for k, v in dataclasses.asdict(self).items() if k != "clusters"}, indent=1))
        new.replace(self.folder / "cluster.json")


def load(name: str, clusters: Path = CLUSTERS) -> Cluster | None:
    """The cluster of a name, when there is one that was at least begun."""
    try:
        written = json.loads((folder_of(name, clusters) / "cluster.json").read_text())
        shape = Shape(**{**written["shape"], "addons": tuple(written["shape"]["addons"])})
        return Cluster(**{**written, "shape": shape, "clusters": clusters})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def find(name: str, clusters: Path = CLUSTERS) -> Cluster:
    """The cluster of a name, which must be up."""
    found = load(name, clusters)
    if found is None or not found.complete:
        up = ", ".join(each.name for each in every(clusters) if each.complete) or "none"
        raise ClusterError(f"no cluster called {name!r} is up (up: {up})", f"scripts/cluster up --name {name}")
    return found


def every(clusters: Path = CLUSTERS) -> list[Cluster]:
    """All clusters that were at least begun."""
    names = sorted(file.parent.name for file in clusters.glob("*/cluster.json"))
    return [found for name in names if (found := load(name, clusters)) is not None]


def reserve(name: str, shape: Shape, clusters: Path = CLUSTERS) -> Cluster:
    """Write a new cluster down, with ports that nobody else has."""
    with locked(clusters / "ports.lock", "another cluster takes its ports; waiting for it"):
        taken = {each.first_port for each in every(clusters) if each.name != name}
        for first in range(_FIRST_PORT, _LAST_PORT, _PORTS):
            if first not in taken and all(_free(first + offset) for offset in range(_PORTS)):
                cluster = Cluster(name, shape, first, clusters=clusters)
                cluster.save()
                return cluster
    raise ClusterError(
        f"no {_PORTS} free ports between {_FIRST_PORT} and {_LAST_PORT}", "scripts/cluster status; then down some"
    )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
