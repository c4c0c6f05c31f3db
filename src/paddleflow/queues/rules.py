"""What a document makes of a cluster, queue, flavour or pool: pure, with every fault at once.

Each function takes the document, what is there already, and the moment; it answers the new value or raises `Invalid`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paddleflow.base.ids import new_short_id
from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources
from paddleflow.errors import Invalid
from paddleflow.queues import credentials, tree
from paddleflow.queues.model import (
    DEFAULT_CLUSTER,
    DEFAULT_QUEUE,
    LOCAL,
    QUOTA_KINDS,
    QUOTA_TYPE_KEY,
    Cluster,
    Flavour,
    Pool,
    Queue,
    QueueStatus,
)
from paddleflow.scheduling.quota import ROOT
from paddleflow.spec.cluster import ClusterChange, ClusterSetting, NewCluster
from paddleflow.spec.document import parse
from paddleflow.spec.faults import Faults
from paddleflow.spec.fields import Amounts
from paddleflow.spec.flavour import FlavourChange, NewFlavour
from paddleflow.spec.pool import NewPool, PoolChange
from paddleflow.spec.queue import NewQueue, QueueChange

#: Last segments of routes below /cluster: a cluster of such a name could never be shown.
RESERVED_CLUSTERS = ("resource",)


def new_cluster(document: NewCluster, now: float) -> Cluster:
    blank = Cluster(
        id=new_short_id("cluster"),
        name=document.cluster_name,
        description="",
        endpoint="",
        source="OnPremise",
        cluster_type=document.cluster_type,
        version="",
        status="online",
        credential="",
        setting="",
        namespaces=(),
        created_at=now,
        updated_at=now,
    )
    return changed_cluster(blank, document, now, queues=0)


def changed_cluster(cluster: Cluster, document: ClusterChange, now: float, *, queues: int) -> Cluster:
    """`queues` is how many queues the cluster has: it stays what it is while there are any."""
    faults = Faults(ClusterChange.code)
    given = {
        key: value
        for key in ("description", "endpoint", "source", "cluster_type", "version", "status", "credential", "setting")
        if (value := getattr(document, key)) is not None
    }
    if document.namespace_list is not None:
        given["namespaces"] = tuple(dict.fromkeys(document.namespace_list))
    changed = replace(cluster, **given, updated_at=now)
    if cluster.name in RESERVED_CLUSTERS:
        faults.add("clusterName", f"cluster name[{cluster.name}] is reserved", code="InvalidNamePattern")
    if changed.local != (cluster.name == DEFAULT_CLUSTER):
        hint = f"this machine is cluster {DEFAULT_CLUSTER}, and the only one of type {LOCAL}"
        faults.add("clusterType", f"cluster[{cluster.name}] cannot be of type {changed.cluster_type}", hint)
    elif changed.cluster_type != cluster.cluster_type and queues:
        message = f"cluster[{cluster.name}] has {queues} queues and stays of type {cluster.cluster_type}"
        faults.add("clusterType", message, "delete its queues first")
    if changed.cluster_type == "Kubernetes" and not changed.version:
        faults.add("version", "is needed for a cluster of type Kubernetes", 'such as "version": "1.29"')
    sent = "" if credentials.is_token(changed.credential) else changed.credential
    if sent and (fault := credentials.fault_of(sent)):
        faults.add(
            "credential",
            fault,
            "kubectl config view --flatten --minify prints one; base64 -w0 encodes it",
            "InvalidClusterCredential",
        )
    if changed.setting:
        _check_setting(faults, changed)
    faults.check()
    return changed


def new_queue(
    document: NewQueue,
    cluster: Cluster | None,
    known: Sequence[str],
    now: float,
    queues: Sequence[Queue] = (),
    others: Mapping[str, Cluster | None] | None = None,
) -> Queue:
    """`cluster` is the one that the document names, None when there is none; `known` are the names there are.

    `queues` are those of that cluster, `others` the clusters beside it that the document names.
    """
    faults = Faults(NewQueue.code)
    _check_cluster(faults, document.cluster_name, cluster, known)
    _check_other_clusters(faults, cluster, others or {}, document.parent)
    if cluster and cluster.namespaces and document.namespace not in cluster.namespaces:
        message = f"namespace[{document.namespace}] is not one of cluster[{cluster.name}]"
        faults.add("namespace", message, nearest(document.namespace, cluster.namespaces), "NamespaceNotFound")
    for key in document.max_resources.missing():
        faults.add(f"maxResources.{key}", "is needed", "0 gives the queue none of it")
    kind = document.location.get(QUOTA_TYPE_KEY, QUOTA_KINDS[0])
    if kind not in QUOTA_KINDS:
        faults.add(f"location.{QUOTA_TYPE_KEY}", f"must be one of {', '.join(QUOTA_KINDS)}, found {kind}")
    most = _amounts(faults, "maxResources", document.max_resources, Resources())
    least = _amounts(faults, "minResources", document.min_resources, Resources())
    if not document.max_resources.missing():
        _check_order(faults, "minResources", least, "maxResources", most)
    queue = Queue(
        id=new_short_id("queue"),
        name=document.name,
        namespace=document.namespace,
        cluster=document.cluster_name or DEFAULT_CLUSTER,
        quota_type=document.quota_type,
        most=most,
        least=least,
        location=_merged({}, document.location),
        node_selector=_merged({}, document.node_selector),
        policies=_policies((), document.scheduling_policy),
        status=QueueStatus.OPEN,
        follows=False,
        created_at=now,
        updated_at=now,
        parent=document.parent,
        weight=document.weight,
        order=document.order,
        other_clusters=tuple(others or ()),
    )
    tree.check(faults, queue, queues)
    faults.check()
    return queue


def changed_queue(
    queue: Queue,
    document: QueueChange,
    now: float,
    queues: Sequence[Queue] = (),
    cluster: Cluster | None = None,
    others: Mapping[str, Cluster | None] | None = None,
) -> Queue:
    """A ceiling that followed the machine stays what an administrator made of it. `queues` are those of its cluster, `others` the
    clusters beside it that the document names."""
    faults = Faults(QueueChange.code)
    kind = document.location.get(QUOTA_TYPE_KEY)
    if kind is not None and kind != queue.location.get(QUOTA_TYPE_KEY):
        faults.add(f"location.{QUOTA_TYPE_KEY}", "cannot be changed", "make a new queue of that kind")
    most = _amounts(faults, "maxResources", document.max_resources, queue.most)
    least = _amounts(faults, "minResources", document.min_resources, queue.least)
    _check_order(faults, "minResources", least, "maxResources", most)
    parent = queue.parent if document.parent is None else document.parent
    if queue.name == DEFAULT_QUEUE and parent != ROOT:
        faults.add("parent", f"queue[{queue.name}] stays under {ROOT}", "it is there for everybody")
    other_clusters = queue.other_clusters if document.other_clusters is None else tuple(others or ())
    if document.other_clusters is not None:
        _check_other_clusters(faults, cluster, others or {}, parent)
    elif other_clusters and parent != ROOT:
        faults.add("parent", f"a queue of several clusters stands under {ROOT}, found {parent}")
    changed = replace(
        queue,
        most=most,
        least=least,
        location=_merged(queue.location, document.location),
        node_selector=_merged(queue.node_selector, document.node_selector),
        policies=_policies(queue.policies, document.scheduling_policy),
        status=QueueStatus(document.status) if document.status else queue.status,
        follows=queue.follows and not document.max_resources.model_fields_set,
        updated_at=now,
        parent=parent,
        weight=queue.weight if document.weight is None else document.weight,
        order=queue.order if document.order is None else document.order,
        other_clusters=other_clusters,
    )
    tree.check(faults, changed, queues)
    faults.check()
    return changed


def new_flavour(document: NewFlavour, cluster: Cluster | None, known: Sequence[str], now: float) -> Flavour:
    blank = Flavour(new_short_id("flavour"), document.name, "", Resources(), now, now)
    return changed_flavour(blank, document, cluster, known, now)


def changed_flavour(
    flavour: Flavour, document: FlavourChange, cluster: Cluster | None, known: Sequence[str], now: float
) -> Flavour:
    faults = Faults(FlavourChange.code)
    name = flavour.cluster if document.cluster_name is None else document.cluster_name
    if document.cluster_name:
        _check_cluster(faults, document.cluster_name, cluster, known, online=False)
    each = _amounts(faults, "", document, flavour.each)
    for key, amount in (("cpu", each.cpu), ("mem", each.memory)):
        if amount <= 0:
            faults.add(key, "is needed and must be more than 0", "such as cpu 1 and mem 1Gi")
    faults.check()
    return replace(flavour, cluster=name, each=each, updated_at=now)


def new_pool(document: NewPool, cluster: Cluster | None, known: Sequence[str], creator: str, now: float) -> Pool:
    faults = Faults(NewPool.code)
    _check_cluster(faults, document.cluster_name, cluster, known)
    total = _amounts(faults, "totalResources", document.total_resources, Resources())
    least = _amounts(faults, "minResources", document.min_resources, Resources())
    _check_order(faults, "minResources", least, "totalResources", total)
    faults.check()
    return Pool(
        id=new_short_id("pool"),
        name=document.name,
        namespace=document.namespace,
        pool_type=document.type,
        provider=document.provider,
        org_id=document.org_id,
        creator=creator,
        description=document.description,
        cluster=document.cluster_name or DEFAULT_CLUSTER,
        quota_type=document.quota_type,
        total=total,
        least=least,
        labels=document.labels,
        annotations=_merged({}, document.annotations),
        status=QueueStatus.OPEN.value,
        hybrid=document.is_hybrid,
        created_at=now,
        updated_at=now,
    )


def changed_pool(pool: Pool, document: PoolChange, now: float) -> Pool:
    faults = Faults(PoolChange.code)
    kind = document.annotations.get(QUOTA_TYPE_KEY)
    if kind is not None and kind != pool.annotations.get(QUOTA_TYPE_KEY):
        faults.add(f"annotations.{QUOTA_TYPE_KEY}", "cannot be changed", "make a new pool of that kind")
    total = _amounts(faults, "totalResources", document.total_resources, pool.total)
    _check_order(faults, "minResources", pool.least, "totalResources", total)
    faults.check()
    return replace(
        pool,
        total=total,
        annotations=_merged(pool.annotations, document.annotations),
        status=document.status or pool.status,
        updated_at=now,
    )


def _check_cluster(
    faults: Faults, name: str, cluster: Cluster | None, known: Sequence[str], *, online: bool = True
) -> None:
    shown = name or DEFAULT_CLUSTER
    if cluster is None:
        faults.add("clusterName", f"cluster[{shown}] does not exist", nearest(shown, known), "ClusterNotFound")
    elif online and not cluster.online:
        message = f"cluster[{shown}] is {cluster.status}, it must be online"
        faults.add("clusterName", message, f"paddleflow cluster update {shown} --status online", "InvalidClusterStatus")


def _check_other_clusters(
    faults: Faults, first: Cluster | None, others: Mapping[str, Cluster | None], parent: str
) -> None:
    """Each is there, is none that jobs could tell from the first, and the queue stands alone in all of them."""
    for number, (name, other) in enumerate(others.items()):
        where = f"otherClusters[{number}]"
        if other is None:
            faults.add(where, f"cluster[{name}] does not exist", code="ClusterNotFound")
        elif first is not None and other.name == first.name:
            faults.add(where, f"cluster[{name}] is the queue's clusterName already", "leave it out here")
        elif first is not None and other.local != first.local:
            message = (
                f"cluster[{name}] is of type {other.cluster_type}, cluster[{first.name}] of type {first.cluster_type}"
            )
            faults.add(where, message, "a job must find the same on all of them: images and storages of one kind")
    if others and parent != ROOT:
        faults.add("parent", f"a queue of several clusters stands under {ROOT}, found {parent}")


def _amounts(faults: Faults, where: str, given: Amounts, old: Resources) -> Resources:
    if fault := given.disagree():
        faults.add(where, fault)
    return given.over(old)


def _check_order(faults: Faults, low_name: str, low: Resources, high_name: str, high: Resources) -> None:
    for dimension in low.beyond(high):
        message = f"{low.text(dimension)} is more than the {high.text(dimension)} of {high_name}"
        faults.add(f"{low_name}.{dimension}", message)


def _merged(old: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Given keys replace old ones; a key with an empty value goes."""
    return {key: value for key, value in {**old, **given}.items() if value}


def _policies(old: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Given names are added in their order; a name that ends in ``-`` goes."""
    kept = dict.fromkeys(old)
    for name in given:
        if name.endswith("-"):
            kept.pop(name.removesuffix("-"), None)
        else:
            kept[name] = None
    return tuple(kept)


def _check_setting(faults: Faults, cluster: Cluster) -> None:
    try:
        data = json.loads(cluster.setting)
    except (ValueError, RecursionError):
        faults.add("setting", "is not JSON")
        return
    if not cluster.local and isinstance(data, dict):
        try:
            parse(ClusterSetting, data, ignore_unknown=True)
        except Invalid as error:
            for fault in error.details:
                faults.add(f"setting.{fault.where}", fault.message, fault.hint)


def setting_of(cluster: Cluster) -> ClusterSetting:
    """What a cluster's `setting` says of its pods."""
    try:
        data = json.loads(cluster.setting) if cluster.setting else {}
    except ValueError:
        data = {}
    return parse(ClusterSetting, data if isinstance(data, dict) else {}, ignore_unknown=True)
