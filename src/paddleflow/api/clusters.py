"""Routes of cluster records. All of them are for root. `cluster_nodes` has those that show what runs where."""

from __future__ import annotations

from paddleflow.api.paging import listed
from paddleflow.api.platform import Platform
from paddleflow.api.records import RecordKind, record_routes
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Conflict, Invalid
from paddleflow.queues import clusters
from paddleflow.queues.model import Cluster
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.cluster import ClusterChange, ClusterQuery, NewCluster
from paddleflow.store.bus import CLUSTERS, JOBS
from paddleflow.store.database import Tx


async def write_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def show_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def change_object(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await _refuse_object(platform, call.path["name"])


async def _refuse_object(platform: Platform, name: str) -> None:
    """This server talks to no Kubernetes; the routes say so instead of not being there."""
    cluster = await platform.database.read(clusters.get_cluster, name)
    if cluster.local:
        raise Invalid(
            f"cluster[{cluster.name}] is of type {cluster.cluster_type} and has no Kubernetes objects",
            code="InvalidClusterProperties",
        )
    raise Conflict(not_connected(cluster), hint="use kubectl for now")


def not_connected(cluster: Cluster) -> str:
    """Why nothing can be said of a cluster that is not this machine."""
    return (
        f"cluster[{cluster.name}] is recorded only: this server does not connect to {cluster.cluster_type} clusters yet"
    )


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
        )
    ),
    *(
        Route(
            method,
            _OBJECT,
            handler,
            f"{what} a Kubernetes object: always refused, since this server does not connect to Kubernetes yet",
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
