"""Volcano's Queue and PodGroup (scheduling.volcano.sh/v1beta1) as the scheduler reads them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.podscheduler.pods import DEFAULT_QUEUE, Pod, moment, resources
from paddleflow.scheduling.model import Queue

View = Mapping[str, Any]
TOGETHER_ANNOTATION = "paddleflow.org/together"  #: of a PodGroup
MOST_LEVELS = 4  #: labels that it may name
_UNLIMITED = 1 << 62
_UNGUARANTEED = ("pods", "ephemeral-storage", "hugepages-")  #: of which a queue gets what its pods take


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A gang: so many pods start together or none."""

    key: str
    uid: str
    queue: str
    min_member: int
    min_tasks: Mapping[str, int] = field(default_factory=dict)
    created_at: float = 0.0
    phase: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    together: str = ""  #: labels of nodes, the narrowest first: its pods go to nodes with one value of it, if they can

    @property
    def wishes(self) -> tuple[str, int, str]:
        """What of it decides how its pods are placed."""
        return self.queue, self.min_member, self.together


def read_group(obj: View) -> PodGroup:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return PodGroup(
        key=f"{metadata.get('namespace', '')}/{metadata['name']}",
        uid=metadata.get("uid", ""),
        queue=spec.get("queue") or DEFAULT_QUEUE,
        min_member=max(1, int(spec.get("minMember") or 1)),
        min_tasks={str(name): int(count) for name, count in (spec.get("minTaskMember") or {}).items()},
        created_at=moment(metadata.get("creationTimestamp")),
        phase=status.get("phase") or "",
        status=status,
        together=_labels((metadata.get("annotations") or {}).get(TOGETHER_ANNOTATION) or ""),
    )


def _labels(text: str) -> str:
    """At most so many labels; what is more is left out."""
    return ",".join([word for part in text.split(",") if (word := part.strip())][:MOST_LEVELS])


def first_pods(waiting: list[Pod], group: PodGroup, needed: int) -> list[Pod]:
    """The pods with which a gang starts: of each task as many as it asks for, then the oldest."""
    ordered = sorted(waiting, key=lambda pod: (pod.created_at, pod.name))
    first: list[Pod] = []
    left: Mapping[str, int] = group.min_tasks
    counts: Counter[str] = Counter()
    for pod in ordered:
        if counts[pod.task] < left.get(pod.task, 0):
            counts[pod.task] += 1
            first.append(pod)
    rest = [pod for pod in ordered if pod not in first]
    return (first + rest)[:needed]


@dataclass(frozen=True, slots=True)
class QueueObject:
    """A Queue of the API server."""

    name: str
    parent: str
    weight: int
    open: bool
    capability: Mapping[str, Any] = field(default_factory=dict)
    deserved: Mapping[str, Any] = field(default_factory=dict)  #: or, without it, the guarantee
    status: Mapping[str, Any] = field(default_factory=dict)
    known: bool = True  #: to the API server

    def queue(self, scalars: Iterable[str], placement: str = "pack") -> Queue:
        """What the core reads: `capability` is the ceiling, and resources that it does not name are not limited; `deserved` is
        what the queue can always get, with as many pods as it takes."""
        ceiling = least = None
        if self.capability:
            named = resources(self.capability)
            ceiling = Resources.of(
                named.cpu if "cpu" in self.capability else _UNLIMITED,
                named.memory if "memory" in self.capability else _UNLIMITED,
                {name: named.scalar(name) if name in self.capability else _UNLIMITED for name in scalars},
            )
        if self.deserved:
            named = resources(self.deserved)
            free = {name: _UNLIMITED for name in scalars if name.startswith(_UNGUARANTEED)}
            least = Resources.of(named.cpu, named.memory, free | dict(named.scalars))
        return Queue(
            self.name,
            ceiling,
            least or Resources(),
            self.open,
            parent=self.parent,
            weight=self.weight,
            placement=placement,
        )


def with_pods(queue: Queue, scalars: Iterable[str]) -> Queue:
    """A queue of the platform that pods wait in too: of what only pods count it has as much as they take."""
    free = {name: _UNLIMITED for name in scalars if name.startswith(_UNGUARANTEED)}
    if queue.ceiling is not None:
        ceiling = Resources.of(queue.ceiling.cpu, queue.ceiling.memory, free | dict(queue.ceiling.scalars))
        queue = replace(queue, ceiling=ceiling)
    if queue.guarantee != Resources():
        least = Resources.of(queue.guarantee.cpu, queue.guarantee.memory, free | dict(queue.guarantee.scalars))
        queue = replace(queue, guarantee=least)
    return queue


def read_queue(obj: View) -> QueueObject:
    name, spec, status = obj["metadata"]["name"], obj.get("spec") or {}, obj.get("status") or {}
    return QueueObject(
        name,
        "" if name == "root" else spec.get("parent") or "root",
        max(1, int(spec.get("weight") or 1)),
        status.get("state") not in ("Closed", "Closing"),
        spec.get("capability") or {},
        spec.get("deserved") or (spec.get("guarantee") or {}).get("resource") or {},
        status,
    )
