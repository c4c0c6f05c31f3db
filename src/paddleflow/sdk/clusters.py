"""Clusters, and what they have free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area, body_of, given
from paddleflow.sdk.records import Page, Record, many, record, table, wire
from paddleflow.sdk.transport import segment


@record
class Cluster(Record):
    """A cluster: this machine (type Local) or a Kubernetes."""

    id: str = wire()
    name: str = wire(key="clusterName")
    description: str = wire()
    endpoint: str = wire()
    source: str = wire()
    type: str = wire(key="clusterType")
    version: str = wire()
    status: str = wire()
    credential: str = wire()
    setting: str = wire()
    namespaces: Sequence[str] = wire((), key="namespaceList")
    create_time: str = wire()
    update_time: str = wire()


@record
class NodeRoom(Record):
    """What a node has in all and free."""

    name: str = wire(key="nodeName")
    schedulable: bool = wire(False)
    total: Mapping[str, Any] = wire({})
    idle: Mapping[str, Any] = wire({})


@record
class ClusterResources(Record):
    """What a cluster has in all and free; `error` says why it is not known."""

    summary: Mapping[str, Any] = wire({})
    nodes: Sequence[NodeRoom] = wire((), key="nodeList", read=many(NodeRoom))
    error: str = wire(key="errMsg")


@record
class NodeInfo(Record):
    """A node with what runs on it."""

    name: str = wire(key="nodeName")
    ip: str = wire(key="nodeIP")
    schedulable: bool = wire(False)
    version: str = wire()
    used_by_others: Mapping[str, Any] = wire({})
    pods_count: int = wire(0)
    labels: Mapping[str, str] = wire({})
    used: Mapping[str, Any] = wire({})
    capacity: Mapping[str, Any] = wire({})
    pods: Sequence[Mapping[str, Any]] = wire((), read=tuple)


@record
class ClusterFinding(Record):
    """One thing that was looked at on a cluster. `needed`: without it no job runs there."""

    what: str = wire()
    ok: bool = wire(False)
    message: str = wire()
    hint: str = wire()
    needed: bool = wire(False)


@record
class ClusterCheck(Record):
    """What a cluster lacks for running jobs."""

    name: str = wire(key="clusterName")
    version: str = wire()
    endpoint: str = wire()
    ok: bool = wire(False)
    findings: Sequence[ClusterFinding] = wire((), read=many(ClusterFinding))


class ClusterFields(TypedDict, total=False):
    """What may be said of a cluster beside its name. None counts as not given."""

    endpoint: str | None
    type: str | None
    credential: str | None  #: the kubeconfig in base64
    description: str | None
    source: str | None
    setting: str | None  #: JSON as text
    status: str | None  #: online or offline
    namespaces: Sequence[str] | None  #: those that queues may use
    version: str | None


_KEYS = {"type": "clusterType", "namespaces": "namespaceList"}


class Clusters(Area):
    """Clusters. Making, changing and deleting is for root."""

    def create(self, name: str, **fields: Unpack[ClusterFields]) -> Cluster:
        body = {"clusterName": name, **_body(fields)}
        return Cluster.of(self._transport.call("POST", "/cluster", body=body))

    def update(self, name: str, **fields: Unpack[ClusterFields]) -> Cluster:
        """Only what is given changes."""
        return Cluster.of(self._transport.call("PUT", f"/cluster/{segment(name)}", body=_body(fields)))

    def get(self, name: str) -> Cluster:
        return Cluster.of(self._transport.call("GET", f"/cluster/{segment(name)}"))

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/cluster/{segment(name)}", settled=NotFound)

    def page(
        self,
        *,
        max_keys: int = PAGE,
        marker: str | None = None,
        names: Sequence[str] = (),
        status: str | None = None,
    ) -> Page[Cluster]:
        query = {"clusterNames": ",".join(names), "clusterStatus": status, "maxKeys": max_keys, "marker": marker}
        return self._page("/cluster", "clusterList", Cluster.of, query)

    def list(self, *, names: Sequence[str] = (), status: str | None = None) -> Iterator[Cluster]:
        return self._pages(lambda marker: self.page(marker=marker, names=names, status=status))

    def check(self, name: str) -> ClusterCheck:
        """Connect to a cluster and say what it lacks."""
        return ClusterCheck.of(self._transport.call("GET", f"/cluster/{segment(name)}/check"))

    def resources(self, names: Sequence[str] = ()) -> dict[str, ClusterResources]:
        """What each cluster has in all and free, by cluster name."""
        answer = self._transport.call("GET", "/cluster/resource", query={"clusterNames": ",".join(names)})
        return {name: ClusterResources.of(value) for name, value in table(answer).items()}

    def allocation(
        self,
        *,
        names: Sequence[str] = (),
        queue: str | None = None,
        labels: str | None = None,
        page_no: int | None = None,
        page_size: int | None = None,
    ) -> Mapping[str, Any]:
        """What each node can give and has, by cluster name, as the server answers it."""
        body = {
            "clusterNames": [*names] or None,
            "queueName": queue,
            "labels": labels,
            "pageNo": page_no,
            "pageSize": page_size,
        }
        return table(self._transport.call("POST", "/cluster/resource", body=given(body)))

    def nodes(self, name: str, *, page_no: int | None = None, page_size: int | None = None) -> Sequence[NodeInfo]:
        """The nodes of a cluster, with what runs on them."""
        query = {"pageNo": page_no, "pageSize": page_size}
        answer = self._transport.call("GET", f"/cluster/{segment(name)}/nodeInfos", query=query)
        return many(NodeInfo)(table(answer).get("nodeList"))


def _body(fields: ClusterFields) -> dict[str, object]:
    return body_of(ClusterFields, fields, _KEYS)
