"""The answers about clusters, queues, flavours and resource pools, as `wire` has them for the rest."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from paddleflow.spec.wire import Name, Page


class Resources(TypedDict):
    """Amounts as quantities."""

    cpu: Annotated[str, "cores, such as 4 or 500m"]
    memory: Annotated[str, "such as 20Gi"]
    scalarResources: NotRequired[Annotated[dict[str, str], "further resources, such as nvidia.com/gpu"]]


class Cluster(TypedDict):
    id: str
    clusterName: str
    description: str
    endpoint: str
    source: str
    clusterType: str
    version: str
    status: str
    credential: Annotated[str, "always empty: a credential is kept and never returned"]
    setting: str
    namespaceList: list[str]
    createTime: str
    updateTime: str


class ClusterFinding(TypedDict):
    """One thing that was looked at."""

    what: str
    ok: bool
    message: str
    hint: str
    needed: Annotated[bool, "without it no job runs"]


class ClusterCheck(TypedDict):
    """What was found on a cluster."""

    clusterName: str
    version: str
    endpoint: str
    ok: Annotated[bool, "nothing is lacking that jobs need"]
    findings: list[ClusterFinding]


class ClusterList(Page):
    clusterList: list[Cluster]


class NodeTotals(TypedDict):
    """One node of GET /cluster/resource."""

    nodeName: str
    schedulable: bool
    total: Resources
    idle: Resources


class Summary(TypedDict):
    total: Resources
    idle: Resources


class ClusterTotals(TypedDict):
    """What a cluster has and what is idle."""

    summary: Summary
    nodeList: list[NodeTotals]
    errMsg: Annotated[str, "why there are no numbers; empty when there are"]


class ClusterNodes(TypedDict):
    """One cluster of POST /cluster/resource; the maps go by the node's name."""

    allocatable: Annotated[dict[str, dict[str, str]], "what is idle now"]
    capacity: dict[str, dict[str, str]]
    labels: dict[str, dict[str, str]]
    clusterName: str
    clusterSource: str
    queueName: str
    errMsg: Annotated[str, "why there are no numbers; empty when there are"]


class Pod(TypedDict):
    """One member of a job on a node."""

    podName: str
    status: str
    labels: dict[str, str]
    resources: Resources


class Node(TypedDict):
    nodeName: str
    nodeIP: str
    schedulable: bool
    version: Annotated[str, "of the kubelet; empty on this machine"]
    usedByOthers: Annotated[Resources, "by pods that this platform did not make"]
    podsCount: int
    labels: dict[str, str]
    used: Resources
    capacity: Resources
    pods: list[Pod]


class NodeInfos(TypedDict):
    totalCount: int
    nodeList: list[Node]
    errMsg: Annotated[str, "why there are no numbers; empty when there are"]


class Queue(TypedDict):
    id: str
    name: str
    namespace: str
    clusterName: str
    otherClusters: Annotated[list[str], "clusters beside it that jobs may go to, in order of preference"]
    quotaType: str
    minResources: Resources
    maxResources: Resources
    location: dict[str, str]
    nodeSelector: Annotated[dict[str, str], "labels that a node must carry to take its jobs"]
    schedulingPolicy: list[str]
    parent: Annotated[str, "the queue that it stands under; root: none"]
    weight: Annotated[int, "its part of what its siblings leave over"]
    order: Annotated[str, "who goes first among jobs of one priority: fifo, shortest, fair or drf"]
    status: str
    createTime: str
    updateTime: str
    warnings: NotRequired[Annotated[list[str], "after a change: what was accepted and cannot be kept as things are"]]


class QueueUse(Queue):
    """A queue with what its jobs hold at this moment."""

    usedResources: Annotated[Resources, "by its own jobs"]
    usedTogether: Annotated[Resources, "by its jobs and those of all queues below it"]
    idleResources: Annotated[Resources, "maxResources less usedTogether, never below 0"]


class QueueMade(Name):
    warnings: NotRequired[Annotated[list[str], "what was accepted and cannot be kept as things are"]]


class QueueList(Page):
    queueList: Annotated[list[Queue | QueueUse], "with usage=true each as GET /queue/{name} shows it"]


class Flavour(TypedDict):
    id: str
    name: str
    cpu: str
    mem: str
    scalarResources: dict[str, str]
    clusterName: Annotated[str, "empty: for all clusters"]
    createTime: str
    updateTime: str


class FlavourList(Page):
    flavourList: list[Flavour]


class Pool(TypedDict):
    id: str
    name: str
    namespace: str
    type: str
    provider: str
    orgID: str
    creator: str
    description: str
    clusterName: str
    quotaType: str
    minResources: Resources
    totalResources: Resources
    labels: dict[str, str]
    annotations: dict[str, str]
    status: str
    isHybrid: Annotated[int, "0 or 1"]
    createTime: str
    updateTime: str


class PoolList(Page):
    resourcePoolList: list[Pool]
