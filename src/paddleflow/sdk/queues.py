"""Queues and flavours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area
from paddleflow.sdk.records import Page, Record, items, record, table, wire
from paddleflow.sdk.transport import segment

#: Amounts as they are sent: ``{"cpu": "8", "mem": "16Gi", "scalarResources": {"nvidia.com/gpu": "2"}}``.
Amounts = Mapping[str, object]


@record
class Queue(Record):
    """A queue. `used`, `used_together` (with the queues below) and `idle` are known where usage was asked for.

    `warnings` say what a change asked for that cannot be kept as things are.
    """

    id: str = wire()
    name: str = wire()
    namespace: str = wire()
    cluster: str = wire(key="clusterName")
    other_clusters: Sequence[str] = wire(())
    quota_type: str = wire()
    maximum: Mapping[str, Any] = wire({}, key="maxResources")
    minimum: Mapping[str, Any] = wire({}, key="minResources")
    used: Mapping[str, Any] = wire({}, key="usedResources")
    idle: Mapping[str, Any] = wire({}, key="idleResources")
    location: Mapping[str, str] = wire({})  #: a description
    node_selector: Mapping[str, str] = wire({})  #: labels that a node must carry to take its jobs
    scheduling_policy: Sequence[str] = wire(())
    parent: str = wire()
    weight: int = wire(1)
    order: str = wire()
    used_together: Mapping[str, Any] = wire({})
    warnings: Sequence[str] = wire(())
    status: str = wire()
    create_time: str = wire()
    update_time: str = wire()


@record
class Flavour(Record):
    """A named amount of resources."""

    id: str = wire()
    name: str = wire()
    cpu: str = wire()
    mem: str = wire()
    scalars: Mapping[str, str] = wire({}, key="scalarResources")
    cluster: str = wire(key="clusterName")
    create_time: str = wire()
    update_time: str = wire()


def _given(**fields: object) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None}


class Queues(Area):
    """Queues. Making, changing and deleting is for root; others see those granted to them."""

    def create(
        self,
        name: str,
        namespace: str,
        maximum: Amounts,
        *,
        minimum: Amounts | None = None,
        cluster: str | None = None,
        quota_type: str | None = None,
        scheduling_policy: Sequence[str] | None = None,
        location: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        parent: str | None = None,
        weight: int | None = None,
        order: str | None = None,
        other_clusters: Sequence[str] | None = None,
    ) -> Sequence[str]:
        """Makes a queue; answers warnings about what cannot be kept as things are."""
        body = _given(
            name=name,
            namespace=namespace,
            clusterName=cluster,
            quotaType=quota_type,
            maxResources=maximum,
            minResources=minimum,
            schedulingPolicy=scheduling_policy,
            location=location,
            nodeSelector=node_selector,
            parent=parent,
            weight=weight,
            order=order,
            otherClusters=other_clusters,
        )
        return tuple(
            str(text) for text in items(table(self._transport.call("POST", "/queue", body=body)).get("warnings"))
        )

    def update(
        self,
        name: str,
        *,
        maximum: Amounts | None = None,
        minimum: Amounts | None = None,
        scheduling_policy: Sequence[str] | None = None,
        location: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        parent: str | None = None,
        weight: int | None = None,
        order: str | None = None,
        other_clusters: Sequence[str] | None = None,
        status: str | None = None,
    ) -> Queue:
        """A key of location or node selector with an empty value is removed, and so is a policy that ends in ``-``."""
        body = _given(
            maxResources=maximum,
            minResources=minimum,
            schedulingPolicy=scheduling_policy,
            location=location,
            nodeSelector=node_selector,
            parent=parent,
            weight=weight,
            order=order,
            otherClusters=other_clusters,
            status=status,
        )
        return Queue.of(self._transport.call("PUT", f"/queue/{segment(name)}", body=body))

    def get(self, name: str) -> Queue:
        return Queue.of(self._transport.call("GET", f"/queue/{segment(name)}"))

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/queue/{segment(name)}", settled=NotFound)

    def page(
        self, *, max_keys: int = PAGE, marker: str | None = None, name: str | None = None, usage: bool = False
    ) -> Page[Queue]:
        """With `usage`, what jobs hold now is filled in."""
        query = {"name": name, "maxKeys": max_keys, "marker": marker, "usage": "true" if usage else None}
        return self._page("/queue", "queueList", Queue.of, query)

    def list(self, *, name: str | None = None, usage: bool = False) -> Iterator[Queue]:
        return self._pages(lambda marker: self.page(marker=marker, name=name, usage=usage))


class Flavours(Area):
    """Flavours. Making, changing and deleting is for root."""

    def create(
        self,
        name: str,
        cpu: str,
        mem: str,
        *,
        scalars: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> None:
        body = _given(name=name, cpu=cpu, mem=mem, scalarResources=scalars, clusterName=cluster)
        self._transport.call("POST", "/flavour", body=body)

    def update(
        self,
        name: str,
        *,
        cpu: str | None = None,
        mem: str | None = None,
        scalars: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> None:
        body = _given(cpu=cpu, mem=mem, scalarResources=scalars, clusterName=cluster)
        self._transport.call("PUT", f"/flavour/{segment(name)}", body=body)

    def get(self, name: str) -> Flavour:
        return Flavour.of(self._transport.call("GET", f"/flavour/{segment(name)}"))

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/flavour/{segment(name)}", settled=NotFound)

    def page(
        self,
        *,
        max_keys: int = PAGE,
        marker: str | None = None,
        cluster: str | None = None,
        name: str | None = None,
    ) -> Page[Flavour]:
        query = {"clusterName": cluster, "name": name, "maxKeys": max_keys, "marker": marker}
        return self._page("/flavour", "flavourList", Flavour.of, query)

    def list(self, *, cluster: str | None = None, name: str | None = None) -> Iterator[Flavour]:
        return self._pages(lambda marker: self.page(marker=marker, cluster=cluster, name=name))
