"""Queues and flavours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area, body_of, given
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


class QueueShape(TypedDict, total=False):
    """What may be said of a queue when it is made, and changed later. None counts as not given."""

    minimum: Amounts | None  #: what it is guaranteed
    scheduling_policy: Sequence[str] | None
    location: Mapping[str, str] | None
    node_selector: Mapping[str, str] | None
    parent: str | None
    weight: int | None  #: its share of unused resources, relative to its siblings
    order: str | None  #: of jobs of equal priority: fifo, shortest, fair or drf
    other_clusters: Sequence[str] | None  #: in order of preference


class QueueFields(QueueShape, total=False):
    """What may be said of a new queue beside its name, namespace and maximum."""

    cluster: str | None
    quota_type: str | None


class QueueChanges(QueueShape, total=False):
    """What of a queue may be changed."""

    maximum: Amounts | None
    status: str | None  #: open or closed


_KEYS = {"cluster": "clusterName", "maximum": "maxResources", "minimum": "minResources"}


class Queues(Area):
    """Queues. Making, changing and deleting is for root; others see those granted to them."""

    def create(self, name: str, namespace: str, maximum: Amounts, **fields: Unpack[QueueFields]) -> Sequence[str]:
        """Makes a queue; answers warnings about what cannot be kept as things are."""
        rest = body_of(QueueFields, fields, _KEYS)
        body = {"name": name, "namespace": namespace, "maxResources": maximum, **rest}
        answer = table(self._transport.call("POST", "/queue", body=body))
        return tuple(str(text) for text in items(answer.get("warnings")))

    def update(self, name: str, **changes: Unpack[QueueChanges]) -> Queue:
        """A key of location or node selector with an empty value is removed, and so is a policy that ends in ``-``."""
        body = body_of(QueueChanges, changes, _KEYS)
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
        body = {"name": name, "cpu": cpu, "mem": mem, "scalarResources": scalars, "clusterName": cluster}
        self._transport.call("POST", "/flavour", body=given(body))

    def update(
        self,
        name: str,
        *,
        cpu: str | None = None,
        mem: str | None = None,
        scalars: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> None:
        body = {"cpu": cpu, "mem": mem, "scalarResources": scalars, "clusterName": cluster}
        self._transport.call("PUT", f"/flavour/{segment(name)}", body=given(body))

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
