"""What clusters, queues, flavours and resource pools are, inside the platform."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.quota import ROOT
from paddleflow.store.database import Row

DEFAULT_CLUSTER = "default-cluster"
DEFAULT_QUEUE = "default-queue"
LOCAL = "Local"
KUBERNETES = ("Kubernetes", "K3S")  #: types of clusters that are the same to us
COUNTER = "queues"  #: bumped by every change of a cluster or queue
CAPABILITY_QUOTA = "volcanoCapabilityQuota"

#: Key of a queue's location that existing clients know: which kind of quota it is.
QUOTA_TYPE_KEY = "volcano.sh/quota-type"
QUOTA_KINDS = ("logical", "physical")


class QueueStatus(StrEnum):
    """The states of a queue. A queue of this machine is only ever open or closed; the others belong to clusters."""

    CREATING = "creating"
    OPEN = "open"
    UPDATING = "updating"
    CLOSING = "closing"
    CLOSED = "closed"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A place where jobs run. `credential` never leaves the server."""

    id: str
    name: str
    description: str
    endpoint: str
    source: str
    cluster_type: str
    version: str
    status: str
    credential: str
    setting: str
    namespaces: tuple[str, ...]
    created_at: float
    updated_at: float
    seq: int = 0  #: position in lists; 0 before it is stored
    owner: str = ""  #: the server whose machine it is; empty: any server may run it

    @property
    def local(self) -> bool:
        return self.cluster_type == LOCAL

    @property
    def online(self) -> bool:
        return self.status == "online"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: `most` is the ceiling of its jobs together, `least` what it is guaranteed."""

    id: str
    name: str
    namespace: str
    cluster: str
    quota_type: str
    most: Resources
    least: Resources
    location: Mapping[str, str]  #: a description
    policies: tuple[str, ...]
    status: QueueStatus
    follows: bool
    created_at: float
    updated_at: float
    parent: str = ROOT  #: the queue of the same cluster that it stands under
    weight: int = 1
    order: str = "fifo"  #: who goes first inside, among equal priorities
    other_clusters: tuple[str, ...] = ()  #: where jobs may go beside `cluster`, in order of preference
    node_selector: Mapping[str, str] = field(default_factory=dict)  #: labels that a node must carry to take its jobs
    seq: int = 0  #: position in lists; 0 before it is stored

    @property
    def open(self) -> bool:
        return self.status is QueueStatus.OPEN

    @property
    def clusters(self) -> tuple[str, ...]:
        """All its clusters, the preferred one first."""
        return (self.cluster, *self.other_clusters)

    @property
    def ceiling(self) -> Resources | None:
        """None for a capability queue of nothing at all, which stands for "no ceiling"."""
        return None if self.quota_type == CAPABILITY_QUOTA and self.most == Resources() else self.most


@dataclass(frozen=True, slots=True)
class Flavour:
    """A named size of one member of a job; `cluster` is empty when it is meant for all."""

    id: str
    name: str
    cluster: str
    each: Resources
    created_at: float
    updated_at: float
    seq: int = 0  #: position in lists; 0 before it is stored


@dataclass(frozen=True, slots=True)
class Pool:
    """A record of who may count on which part of a cluster."""

    id: str
    name: str
    namespace: str
    pool_type: str
    provider: str
    org_id: str
    creator: str
    description: str
    cluster: str
    quota_type: str
    total: Resources
    least: Resources
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    status: str
    hybrid: bool
    created_at: float
    updated_at: float
    seq: int = 0  #: position in lists; 0 before it is stored


def amounts(row: Row, prefix: str = "") -> Resources:
    """The three columns of an amount, as one value."""
    return Resources.of(row[f"{prefix}cpu"], row[f"{prefix}memory"], json.loads(row[f"{prefix}scalars"]))


def columns(prefix: str, value: Resources) -> dict[str, str | int]:
    """An amount as its three columns."""
    return {
        f"{prefix}cpu": value.cpu,
        f"{prefix}memory": value.memory,
        f"{prefix}scalars": json.dumps(dict(value.scalars)),
    }
