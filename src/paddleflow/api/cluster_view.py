"""What the routes of clusters ask of those who know the nodes: the runtime and the engine.

The composition root gives an implementation as ``Platform.clusters``. It is asked only for clusters of type Local.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paddleflow.base.quantity import Resources


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


class ClusterView(Protocol):
    """Who knows the nodes of clusters."""

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        """The nodes of this cluster, in a fixed order."""
        ...


class NoNodes:
    """A server without nodes; for tests of other things."""

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        return ()
