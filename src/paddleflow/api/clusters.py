"""Routes of cluster records. All of them are for root. `cluster_nodes` has those that show what runs where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from paddleflow.api.paging import listed
from paddleflow.api.platform import Platform
from paddleflow.api.records import RecordKind, record_routes
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Conflict, Fault, Invalid
from paddleflow.queues import clusters, credentials, rules
from paddleflow.queues.model import Cluster
from paddleflow.queues.queues import queue_namespaces
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.cluster import ClusterChange, ClusterQuery, NewCluster
from paddleflow.store.bus import CLUSTERS, JOBS
from paddleflow.store.database import Tx

D = TypeVar("D", bound=ClusterChange)


async def write_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def show_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def change_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def _refuse_object(platform: Platform, name: str) -> None:
    """Objects of a cluster are kubectl's business; the routes say so instead of not being there."""
    cluster = await platform.database.read(clusters.get_cluster, name)
    if cluster.local:
        raise Invalid(
            f"cluster[{cluster.name}] is of type {cluster.cluster_type} and has no Kubernetes objects",
            code="InvalidClusterProperties",
        )
    raise Conflict(
        f"cluster[{cluster.name}]: this server does not connect people to Kubernetes objects", hint="use kubectl"
    )


async def prepare_new(platform: Platform, document: NewCluster) -> NewCluster:
    return await _prepare(platform, None, document, document.cluster_name, rules.new_cluster)


async def prepare_change(platform: Platform, cluster: Cluster, document: ClusterChange) -> ClusterChange:
    def changed(trial: ClusterChange, now: float) -> Cluster:
        return rules.changed_cluster(cluster, trial, now, queues=0)

    return await _prepare(platform, cluster, document, cluster.name, changed)


async def _prepare(
    platform: Platform, cluster: Cluster | None, document: D, name: str, outcome: Callable[[D, float], Cluster]
) -> D:
    """Connect before a cluster is recorded or changed; the credential leaves this function encrypted.

    A change that has nothing to do with the connection is not held up by a cluster that is away, and one that sets it offline neither.
    """
    sent = document.credential
    if sent and credentials.is_token(sent):
        raise Invalid("credential " + credentials.fault_of(sent), code="InvalidClusterCredential")
    kept = None if sent is None else credentials.encrypt(platform.keyring, name, sent)
    version = document.version
    if platform.check_cluster is not None and version is None and (cluster is None or not cluster.version):
        version = "unknown"  # until the cluster says it
    wanted = outcome(document.model_copy(update={"version": version}), platform.clock.now())
    document = document.model_copy(update={"credential": kept, "version": version})
    touched = cluster is None or any(getattr(document, name) is not None for name in _CONNECTION)
    if platform.check_cluster is None or wanted.local or not wanted.online or not touched:
        return document
    found = await platform.check_cluster(replace(wanted, credential=kept if kept is not None else wanted.credential))
    if lacking := [each for each in found.findings if each.needed and not each.ok]:
        raise Invalid.of(
            [Fault(each.what, each.message, each.hint) for each in lacking], code="InvalidClusterProperties"
        )
    if document.version in (None, "unknown"):
        document = document.model_copy(update={"version": found.version})
    return document


MOST_NAMESPACES = 20  #: of queues that are looked at in one check


async def check(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.ClusterCheck:
    cluster = await platform.database.read(clusters.get_cluster, call.path["name"])
    if cluster.local or platform.check_cluster is None:
        raise Invalid(
            f"cluster[{cluster.name}] is of type {cluster.cluster_type}: there is nothing to connect to",
            code="InvalidClusterProperties",
            hint="paddleflow cluster resource shows its nodes",
        )
    if not cluster.namespaces:  # then it is those of its queues that must be there
        spaces = await platform.database.read(queue_namespaces, cluster.name)
        cluster = replace(cluster, namespaces=tuple(sorted(set(spaces.values()))[:MOST_NAMESPACES]))
    found = await platform.check_cluster(cluster)
    return {
        "clusterName": cluster.name,
        "version": found.version,
        "endpoint": found.endpoint,
        "ok": all(each.ok for each in found.findings if each.needed),
        "findings": [
            {"what": each.what, "ok": each.ok, "message": each.message, "hint": each.hint, "needed": each.needed}
            for each in found.findings
        ],
    }


def not_connected(cluster: Cluster) -> str:
    """Why nothing can be said of a cluster that is not this machine."""
    return f"cluster[{cluster.name}] is recorded only: this server does not connect to {cluster.cluster_type} clusters"


def cluster_view(cluster: Cluster) -> wire.Cluster:
    return {
        "id": cluster.id,
        "clusterName": cluster.name,
        "description": cluster.description,
        "endpoint": cluster.endpoint,
        "source": cluster.source,
        "clusterType": cluster.cluster_type,
        "version": cluster.version,
        "status": cluster.status,
        "credential": "",
        "setting": cluster.setting,
        "namespaceList": list(cluster.namespaces),
        "createTime": local_text(cluster.created_at),
        "updateTime": local_text(cluster.updated_at),
    }


def select(tx: Tx, query: ClusterQuery) -> list[Cluster]:
    names, status = listed(query.cluster_names), query.cluster_status or ""
    return clusters.list_clusters(tx, query.after, query.limit, names, status)


#: Fields that say how a cluster is reached.
_CONNECTION = ("credential", "endpoint", "cluster_type", "status", "setting", "namespace_list")
_REFUSED = ("InvalidClusterProperties", "InvalidClusterCredential", "InvalidNamePattern")
_OBJECT = "/cluster/{name}/k8s/object"
_OBJECT_ERRORS = ("ClusterNotFound", "InvalidClusterProperties", "ActionNotAllowed")

ROUTES: tuple[Route, ...] = (
    *record_routes(
        RecordKind(
            name="cluster",
            path="/cluster",
            summaries={
                "create": "Record a cluster; its credential is kept and never returned",
                "list": "List clusters",
                "show": "Show a cluster",
                "change": "Change a cluster",
                "delete": "Delete a cluster that no queue, flavour or pool names",
            },
            list_field="clusterList",
            new=NewCluster,
            changes=ClusterChange,
            query=ClusterQuery,
            create=lambda tx, document, caller, now: clusters.create_cluster(tx, document, now),
            select=select,
            get=clusters.get_cluster,
            change=clusters.change_cluster,
            delete=clusters.delete_cluster,
            view=cluster_view,
            created_view=cluster_view,
            created_answer=wire.Cluster,
            answer=wire.Cluster,
            list_answer=wire.ClusterList,
            missing="ClusterNotFound",
            create_errors=("DuplicatedName", *_REFUSED),
            change_errors=_REFUSED,
            delete_errors=("ActionNotAllowed",),
            topics=(CLUSTERS, JOBS),
            prepare_new=prepare_new,
            prepare_change=prepare_change,
        )
    ),
    Route(
        "GET",
        "/cluster/{name}/check",
        check,
        "Connect to a cluster and say what it lacks for running jobs",
        answer=wire.ClusterCheck,
        root=True,
        errors=("ClusterNotFound", "InvalidClusterProperties", "InvalidClusterCredential"),
    ),
    *(
        Route(
            method,
            _OBJECT,
            handler,
            f"{what} a Kubernetes object: always refused; use kubectl",
            root=True,
            errors=_OBJECT_ERRORS,
        )
        for method, handler, what in (
            ("POST", write_object, "Create or delete"),
            ("GET", show_object, "Show"),
            ("PUT", change_object, "Change"),
        )
    ),
)
