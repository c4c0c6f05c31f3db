"""The control groups of nodes: made before a kubelet starts, removed when its node is gone.

Their names carry cluster and node, so that clusters that are up at once do not share any. They do not begin as those of
the platform's own jobs do: a keeper tidies away what looks like a dead one's.
"""

from __future__ import annotations

import os
from pathlib import Path

from scripts.lib.cluster.errors import eventually
from scripts.lib.cluster.inventory import Cluster

_PREFIX = "testcluster"
_V2 = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_REMOVE_SECONDS = 20.0


def hierarchies() -> list[Path]:
    """The roots in which a node has a group: one with cgroup v2, one per controller with v1."""
    if (_V2 / "cgroup.controllers").exists():
        return [_V2]
    return [_V2 / controller for controller in _CONTROLLERS if (_V2 / controller).is_dir()]


def name_of(cluster: Cluster, node: str) -> str:
    return f"{_PREFIX}-{cluster.name}.{node}"


def make(cluster: Cluster, node: str) -> None:
    """The node's group in every hierarchy; a cpuset of v1 needs its cpus and memory before anything may enter it."""
    for root in hierarchies():
        group = root / name_of(cluster, node)
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if root.name == "cpuset":
                (group / setting).write_text((root / setting).read_text())


def remove(name: str) -> None:
    """All groups of a cluster, deepest first; their processes must be gone, and the kernel may take a moment to see it."""

    def gone() -> bool:
        # a v1 machine may have v2 beside it, where the container runtime makes groups of its own accord
        left = [*_V2.glob(f"{_PREFIX}-{name}.*"), *_V2.glob(f"*/{_PREFIX}-{name}.*")]
        for group in left:
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:  # still busy: we come again
                    continue
        return not any(group.exists() for group in left)

    eventually(gone, f"the control groups of {name} are gone", _REMOVE_SECONDS)
