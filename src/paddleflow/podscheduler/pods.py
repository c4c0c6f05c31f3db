"""A pod as the scheduler reads it. Pure.

What pods of one template have in common is read once (`Template`): a controller makes thousands of them, and each comes back
with every change of its status.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from paddleflow.base.quantity import Resources, parse_milli, parse_quantity
from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import (
    NodeTerm,
    PodTerm,
    Spread,
    Toleration,
    node_terms,
    pod_term,
    spread,
    tolerations,
)
from paddleflow.runtimes.kubernetes.pods import ATTEMPT, CLUSTER_LABEL, JOB_LABEL, QUEUE, SCHEDULER

View = Mapping[str, Any]
Port = tuple[str, str, int]  #: protocol, address of the node, number

PODS = "pods"  #: the resource of which each pod takes one
GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
QUEUE_ANNOTATIONS = (QUEUE, "volcano.sh/queue-name")
TASK_ANNOTATION = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"
EVERYWHERE = "0.0.0.0"  # noqa: S104  what pods ask for, not an address to listen on
_UNCOUNTED = ("attachable-volumes-",)
_TEMPLATES = 4096  #: kept at a time


class Preference(NamedTuple):
    """A wish: so much more, or less, for a node of this kind."""

    weight: int
    term: NodeTerm


class Attraction(NamedTuple):
    """A wish to be near certain pods, or with a negative weight away from them."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """What pods made from one template have in common."""

    request: Resources
    ports: tuple[Port, ...]
    node_selector: tuple[tuple[str, str], ...]
    node_affinity: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    spreads: tuple[Spread, ...]  #: those that must be kept
    preferences: tuple[Preference, ...]
    attractions: tuple[Attraction, ...]
    soft_spreads: tuple[Spread, ...]
    claims: tuple[str, ...]  #: names of PersistentVolumeClaims
    resource_claims: bool  #: devices by DRA, which is not read here

    @property
    def plain(self) -> bool:
        """Whether only room decides between the nodes that are admitted."""
        return not (
            self.ports
            or self.affinity
            or self.anti_affinity
            or self.spreads
            or self.preferences
            or self.attractions
            or self.soft_spreads
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """One pod."""

    key: str
    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    template: Template
    request: Resources
    node: str  #: empty while it is not bound
    priority: int
    preempts: bool
    queue: str  #: empty: that of its group, or the default one
    group: str  #: the PodGroup's name; empty: none
    task: str
    created_at: float
    gated: bool
    deleting: bool
    ended: bool
    ours: bool  #: names this scheduler
    attempt: str  #: of the platform's job that it is a member of; empty: none of this platform's
    waits: str  #: the message of its PodScheduled=False condition

    @property
    def group_key(self) -> str:
        return f"{self.namespace}/{self.group}" if self.group else ""


def moment(text: str | None) -> float:
    """A moment of the API server; 0 for none."""
    return _moment(text) if text else 0.0


@lru_cache(maxsize=4096)
def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _amounts(found: View | None) -> dict[str, int]:
    """Quantities of a resource list: memory and storage in bytes, cpu in thousandths, others in thousandths too."""
    return {
        name: parse_quantity(amount) if name == "memory" else parse_milli(amount)
        for name, amount in (found or {}).items()
        if not name.startswith(_UNCOUNTED)
    }


def resources(found: View | None) -> Resources:
    """A resource list as an amount."""
    return _resources(tuple((found or {}).items()))


@lru_cache(maxsize=4096)  # machines are bought by the dozen, and each sends its own again with every heartbeat
def _resources(found: tuple[tuple[str, Any], ...]) -> Resources:
    amounts = _amounts(dict(found))
    cpu, memory = amounts.pop("cpu", 0), amounts.pop("memory", 0)
    return Resources.of(cpu, memory, amounts)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


def _asked(container: View) -> dict[str, int]:
    return _amounts((container.get("resources") or {}).get("requests"))


def pod_request(spec: View, statuses: Mapping[str, View] | None = None) -> Resources:
    """What a pod takes: its containers together or the largest moment of its initialisation, pod-level resources instead of
    both where they are given, the overhead, and one of the node's pods. A container that was resized takes the more of what
    it wants and what it has (`statuses`)."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        asked = _asked(container)
        status = (statuses or {}).get(container.get("name", ""))
        if status is not None:
            _raise(asked, _amounts((status.get("resources") or {}).get("requests")))
        _add(total, asked)
    beside: dict[str, int] = {}  # init containers that go on
    first: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(beside, asked)
            _raise(first, beside)
        else:
            _add(asked, beside)
            _raise(first, asked)
    _raise(total, first)
    whole = _amounts((spec.get("resources") or {}).get("requests"))
    total |= {
        name: amount for name, amount in whole.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    _add(total, _amounts(spec.get("overhead")))
    total[PODS] = 1000
    cpu, memory = total.pop("cpu", 0), total.pop("memory", 0)
    return Resources.of(cpu, memory, total)


def _ports(spec: View) -> tuple[Port, ...]:
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    ports = [port for each in (*(spec.get("containers") or ()), *sidecars) for port in each.get("ports") or ()]
    found = {
        (port.get("protocol") or "TCP", port.get("hostIP") or EVERYWHERE, int(port["hostPort"]))
        for port in ports
        if port.get("hostPort")
    }
    return tuple(sorted(found))


def ports_collide(one: Port, other: Port) -> bool:
    return one[0] == other[0] and one[2] == other[2] and (one[1] == other[1] or EVERYWHERE in (one[1], other[1]))


def _claims(spec: View, name: str) -> tuple[str, ...]:
    found = []
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append(claim["claimName"])
        elif volume.get("ephemeral"):
            found.append(f"{name}-{volume['name']}")
    return tuple(found)


def read_template(spec: View, namespace: str, labels: Mapping[str, str], name: str = "") -> Template:
    affinity = spec.get("affinity") or {}
    nodes, near, away = (affinity.get(part) or {} for part in ("nodeAffinity", "podAffinity", "podAntiAffinity"))
    required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"  # fmt: skip
    selector = nodes.get(required)
    spreads = [spread(each, labels) for each in spec.get("topologySpreadConstraints") or ()]
    preferences = [
        Preference(int(each.get("weight") or 0), *node_terms([each.get("preference") or {}]))
        for each in nodes.get(preferred) or ()
    ]
    attractions = [
        Attraction(sign * int(each.get("weight") or 0), pod_term(each.get("podAffinityTerm") or {}, namespace, labels))
        for sign, part in ((1, near), (-1, away))
        for each in part.get(preferred) or ()
    ]
    return Template(
        request=pod_request(spec),
        ports=_ports(spec),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        node_affinity=None if selector is None else node_terms(selector.get("nodeSelectorTerms")),
        tolerations=tolerations(spec.get("tolerations")),
        affinity=tuple(pod_term(each, namespace, labels) for each in near.get(required) or ()),
        anti_affinity=tuple(pod_term(each, namespace, labels) for each in away.get(required) or ()),
        spreads=tuple(each for each in spreads if each.hard),
        preferences=tuple(preferences),
        attractions=tuple(attractions),
        soft_spreads=tuple(each for each in spreads if not each.hard),
        claims=_claims(spec, name),
        resource_claims=bool(spec.get("resourceClaims")),
    )


def sample_pod(text: str, job: str) -> Pod:
    """A pod of a platform's job as it will be, from the text that `jobs.neighbour_rules` keeps of it."""
    kept = json.loads(text)
    labels = {**kept["labels"], JOB_LABEL: job}
    obj = {"metadata": {"name": "", "namespace": kept["namespace"], "labels": labels}, "spec": kept["spec"]}
    return PodReader().read(obj)


class PodReader:
    """Reads pods, and remembers the templates that it has read."""

    def __init__(self, scheduler: str = SCHEDULER, platform: str = "") -> None:
        """`platform`: the value of `CLUSTER_LABEL` on pods that a server's own engine places and counts."""
        self._scheduler = scheduler
        self._platform = platform
        self._templates: dict[bytes, Template] = {}

    def read(self, obj: View) -> Pod:
        metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        labels = metadata.get("labels") or {}
        annotations = metadata.get("annotations") or {}
        template = self._template(spec, namespace, labels, name)
        return Pod(
            key=f"{namespace}/{name}",
            uid=metadata.get("uid", ""),
            namespace=namespace,
            name=name,
            labels=labels,
            template=template,
            request=_resized(spec, status, template),
            node=spec.get("nodeName") or "",
            priority=int(spec.get("priority") or 0),
            preempts=spec.get("preemptionPolicy") != "Never",
            queue=next((annotations[each] for each in QUEUE_ANNOTATIONS if annotations.get(each)), ""),
            group=next((annotations[each] for each in GROUP_ANNOTATIONS if annotations.get(each)), ""),
            task=annotations.get(TASK_ANNOTATION, ""),
            created_at=moment(metadata.get("creationTimestamp")),
            gated=bool(spec.get("schedulingGates")),
            deleting="deletionTimestamp" in metadata,
            ended=status.get("phase") in ("Succeeded", "Failed"),
            ours=spec.get("schedulerName") == self._scheduler,
            attempt=annotations.get(ATTEMPT, "")
            if self._platform and labels.get(CLUSTER_LABEL) == self._platform
            else "",
            waits=_message(status.get("conditions")),
        )

    def _template(self, spec: View, namespace: str, labels: Mapping[str, str], name: str) -> Template:
        constraints = spec.get("topologySpreadConstraints")
        ephemeral = any(volume.get("ephemeral") for volume in spec.get("volumes") or ())
        by_labels = any(each.get("matchLabelKeys") for each in constraints or ())
        parts = [
            namespace,
            [[each.get("resources"), each.get("ports")] for each in spec.get("containers") or ()],
            [[each.get("resources"), each.get("ports"), each.get("restartPolicy")] for each in spec.get("initContainers") or ()],
            [spec.get(part) for part in ("overhead", "resources", "nodeSelector", "affinity", "tolerations")],
            constraints,
            labels if by_labels else None,
            _claims(spec, name),
            name if ephemeral else "",
            bool(spec.get("resourceClaims")),
        ]  # fmt: skip
        key = marshal.dumps(parts)
        found = self._templates.get(key)
        if found is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            found = self._templates[key] = read_template(spec, namespace, labels, name)
        return found


def _resized(spec: View, status: View, template: Template) -> Resources:
    """The template's request, unless a container has other resources at the moment than it asks for."""
    statuses = status.get("containerStatuses")
    if not statuses:
        return template.request
    has = {each.get("name", ""): each for each in statuses if (each.get("resources") or {}).get("requests")}
    for container in spec.get("containers") or () if has else ():
        wants = (container.get("resources") or {}).get("requests") or {}
        there = (has.get(container.get("name", "")) or {}).get("resources") or {}
        if there and there.get("requests") != wants:
            return pod_request(spec, has)
    return template.request


def _message(conditions: Iterable[View] | None) -> str:
    for each in conditions or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or "")
    return ""
