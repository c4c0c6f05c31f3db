"""Routes of cluster records. All of them are for root. `cluster_nodes` has those that show what runs where."""

from __future__ import annotations

from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Conflict, Invalid
from paddleflow.queues import clusters
from paddleflow.queues.model import Cluster
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.cluster import ClusterChange, ClusterQuery, NewCluster
from paddleflow.store.bus import JOBS


async def create_cluster(platform: Platform, call: Call[NewCluster, NoQuery]) -> wire.Cluster:
    cluster = await platform.database.write(clusters.create_cluster, call.body, platform.clock.now())
    platform.bus.wake(JOBS)
    return cluster_answer(cluster)


async def list_clusters(platform: Platform, call: Call[NoBody, ClusterQuery]) -> wire.ClusterList:
    query = call.query
    found = await platform.database.read(
        clusters.list_clusters, query.after, query.limit, listed(query.cluster_names), query.cluster_status or ""
    )
    rows, truncated, marker = page(found, query)
    shown = [cluster_answer(clusters.cluster_of(row)) for row in rows]
    return {**page_fields(query, truncated, marker), "clusterList": shown}


async def show_cluster(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Cluster:
    return cluster_answer(await platform.database.read(clusters.get_cluster, call.path["name"]))


async def change_cluster(platform: Platform, call: Call[ClusterChange, NoQuery]) -> wire.Cluster:
    name, now = call.path["name"], platform.clock.now()
    cluster = await platform.database.write(clusters.change_cluster, name, call.body, now)
    platform.bus.wake(JOBS)
    return cluster_answer(cluster)


async def delete_cluster(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(clusters.delete_cluster, call.path["name"])
    platform.bus.wake(JOBS)


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


def cluster_answer(cluster: Cluster) -> wire.Cluster:
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


_REFUSED = ("InvalidClusterProperties", "InvalidClusterCredential", "InvalidNamePattern")
_OBJECT = "/cluster/{name}/k8s/object"
_OBJECT_ERRORS = ("ClusterNotFound", "InvalidClusterProperties", "ActionNotAllowed")

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/cluster",
        create_cluster,
        "Record a cluster; its credential is kept and never returned",
        body=NewCluster,
        answer=wire.Cluster,
        root=True,
        errors=("DuplicatedName", *_REFUSED),
    ),
    Route(
        "GET",
        "/cluster",
        list_clusters,
        "List clusters",
        query=ClusterQuery,
        answer=wire.ClusterList,
        root=True,
    ),
    Route(
        "GET",
        "/cluster/{name}",
        show_cluster,
        "Show a cluster",
        answer=wire.Cluster,
        root=True,
        errors=("ClusterNotFound",),
    ),
    Route(
        "PUT",
        "/cluster/{name}",
        change_cluster,
        "Change a cluster",
        body=ClusterChange,
        answer=wire.Cluster,
        root=True,
        errors=("ClusterNotFound", *_REFUSED),
    ),
    Route(
        "DELETE",
        "/cluster/{name}",
        delete_cluster,
        "Delete a cluster that no queue, flavour or pool names",
        root=True,
        errors=("ClusterNotFound", "ActionNotAllowed"),
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
