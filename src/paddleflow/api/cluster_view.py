"""What the routes of clusters need from the runtime and the engine, which know the nodes.

The composition root gives implementations as ``Platform.clusters`` and ``Platform.check_cluster``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from paddleflow.base.quantity import Resources, left_of
from paddleflow.base.values import dataclass
from paddleflow.queues.model import Cluster


@dataclass(frozen=True, slots=True)
class PodUse:
    """One member of a job on a node, and what it holds there."""

    name: str
    status: str
    labels: Mapping[str, str]
    resources: Resources


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node: what it has for jobs, and what they hold of it at this moment."""

    name: str
    address: str
    schedulable: bool
    labels: Mapping[str, str]
    capacity: Resources
    used: Resources
    pods: Sequence[PodUse] = field(default_factory=tuple)
    taken: Resources = field(default_factory=Resources)  #: by others than this platform
    version: str = ""  #: of the kubelet

    @property
    def idle(self) -> Resources:
        return left_of(self.capacity, self.used + self.taken)


class ClusterView(Protocol):
    """Who knows the nodes of clusters."""

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        """The nodes of this cluster, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One thing that was looked at on a cluster. `needed`: without it no job runs there."""

    what: str
    ok: bool
    message: str
    hint: str
    needed: bool


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """What was found on a cluster."""

    version: str
    endpoint: str
    findings: Sequence[ClusterFinding]


#: Connect to a cluster that is not this machine, and look. Raises when it cannot be reached or does not know us.
CheckCluster = Callable[[Cluster], Awaitable[ClusterCheck]]


class NoNodes:
    """A server without nodes; for tests of other things."""

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        return ()
