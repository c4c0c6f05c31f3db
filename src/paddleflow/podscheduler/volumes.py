"""Claims of volumes: who uses them, where their volumes are or can be had, and what is wrong with them. Pure.

A claim whose class waits for its first consumer is bound by whoever places that consumer, as kube-scheduler does it: a volume that is there
and fits is given to it, the smallest first; otherwise the class's provisioner is told the node (`Preparation`). Until the claim is
bound the pod has its place and no binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from paddleflow.base.quantity import parse_quantity
from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import (
    NodeTerm,
    Requirement,
    Requirements,
    label_selector,
    matches,
    node_terms,
    requirements,
)
from paddleflow.podscheduler.pods import Pod
from paddleflow.scheduling.model import Node

View = Mapping[str, Any]
Terms = tuple[tuple[NodeTerm, ...], ...]  #: of each, one must hold
SELECTED_NODE = "volume.kubernetes.io/selected-node"  #: annotation of a claim: where its volume is to be made
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim."""

    uid: str
    volume: str  #: bound to this PersistentVolume; empty: not bound
    storage_class: str
    modes: frozenset[str]
    lost: bool
    size: int
    volume_mode: str
    selector: Requirements
    selected_node: str

    @property
    def alone(self) -> bool:
        """One pod at a time."""
        return "ReadWriteOncePod" in self.modes


def read_claim(obj: View) -> Claim:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    bound = status.get("phase") == "Bound"
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0"
    return Claim(
        uid=metadata.get("uid", ""),
        volume=spec.get("volumeName") or "" if bound else "",
        storage_class=spec.get("storageClassName") or "",
        modes=frozenset(spec.get("accessModes") or ()),
        lost=status.get("phase") == "Lost",
        size=parse_quantity(asked),
        volume_mode=spec.get("volumeMode") or "Filesystem",
        selector=label_selector(spec.get("selector")) or (),
        selected_node=(metadata.get("annotations") or {}).get(SELECTED_NODE) or "",
    )


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume."""

    terms: Terms  #: where it can be used; none: everywhere
    storage_class: str
    modes: frozenset[str]
    size: int
    volume_mode: str
    labels: Mapping[str, str]
    holder: tuple[str, str]  #: key and uid of the claim that it is kept for; empty: none
    free: bool

    def suits(self, claim: Claim, key: str) -> bool:
        if self.holder[0]:
            return self.holder[0] == key and self.holder[1] in ("", claim.uid)
        return (
            self.free
            and self.storage_class == claim.storage_class
            and self.volume_mode == claim.volume_mode
            and claim.modes <= self.modes
            and claim.size <= self.size
            and matches(claim.selector, self.labels)
        )

    def reaches(self, node: Node) -> bool:
        return all(any(term.matches(node.name, node.labels) for term in terms) for terms in self.terms)


def read_volume(obj: View) -> Volume:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    terms = [node_terms(required.get("nodeSelectorTerms"))] if required else []
    labels = metadata.get("labels") or {}
    for key in _ZONES:
        if key in labels:
            expression = {"key": key, "operator": "In", "values": labels[key].split("__")}
            terms.append((NodeTerm(requirements([expression]), ()),))
    holder = spec.get("claimRef") or {}
    return Volume(
        terms=tuple(terms),
        storage_class=spec.get("storageClassName") or "",
        modes=frozenset(spec.get("accessModes") or ()),
        size=parse_quantity((spec.get("capacity") or {}).get("storage") or "0"),
        volume_mode=spec.get("volumeMode") or "Filesystem",
        labels=labels,
        holder=(f"{holder.get('namespace', '')}/{holder['name']}", holder.get("uid") or "") if holder else ("", ""),
        free=status.get("phase") in ("Available", "Pending", None) and "deletionTimestamp" not in metadata,
    )


@dataclass(frozen=True, slots=True)
class StorageClass:
    """What becomes of claims that are not bound."""

    waits: bool  #: for a pod that uses the claim
    provisions: bool
    topologies: tuple[NodeTerm, ...]  #: one of them must hold where it provisions; none: everywhere


def read_class(obj: View) -> StorageClass:
    topologies = [
        NodeTerm(tuple(Requirement(each["key"], "In", tuple(each.get("values") or ())) for each in expressions), ())
        for term in obj.get("allowedTopologies") or ()
        if (expressions := term.get("matchLabelExpressions"))
    ]
    return StorageClass(
        obj.get("volumeBindingMode") == "WaitForFirstConsumer",
        obj.get("provisioner") != NO_PROVISIONER,
        tuple(topologies),
    )


class Preparation(NamedTuple):
    """What a claim needs before its pod is bound."""

    claim: str  #: its key
    uid: str
    volume: str  #: give it this volume; empty: have one made for the pod's node


class Volumes:
    """All claims, volumes and classes of a cluster, and the keys of the pods that use them."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._users: dict[str, set[str]] = {}  # keys of pods, by claim
        self._given: dict[str, tuple[str, str, str]] = {}  # claims on their way: uid of the pod, its node, the volume

    def put_claim(self, key: str, claim: Claim | None) -> Iterable[str]:
        """The pods for which something has changed."""
        if self._claims.get(key) == claim:
            return ()
        if claim is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = claim
        return self._users.get(key, ())

    def put_volume(self, name: str, volume: Volume | None) -> Iterable[str]:
        """The pods for which something has changed."""
        before = self._volumes.get(name)
        if before == volume:
            return ()
        if volume is None:
            self._volumes.pop(name, None)
        else:
            self._volumes[name] = volume
        classes = {each.storage_class for each in (before, volume) if each is not None}
        return self._users_of(
            lambda claim: claim.volume == name or (not claim.volume and claim.storage_class in classes)
        )

    def put_class(self, name: str, found: StorageClass | None) -> Iterable[str]:
        """The pods for which something has changed."""
        if self._classes.get(name) == found:
            return ()
        if found is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = found
        return self._users_of(lambda claim: not claim.volume and claim.storage_class == name)

    def _users_of(self, means: Callable[[Claim], bool]) -> list[str]:
        return [
            user for key, users in self._users.items() if (c := self._claims.get(key)) and means(c) for user in users
        ]

    def use(self, pod: Pod) -> None:
        for claim in pod.template.claims:
            self._users.setdefault(f"{pod.namespace}/{claim}", set()).add(pod.key)

    def leave(self, pod: Pod) -> list[str]:
        """A pod is gone; the others that use the same claims."""
        left = self.give_back(pod)
        for claim in pod.template.claims:
            key = f"{pod.namespace}/{claim}"
            users = self._users.get(key, set())
            users.discard(pod.key)
            left += users
            if not users:
                self._users.pop(key, None)
        return left

    def terms(self, pod: Pod) -> list[tuple[NodeTerm, ...]]:
        """Where all of its volumes are, or can be had."""
        found: list[tuple[NodeTerm, ...]] = []
        for name in pod.template.claims:
            key = f"{pod.namespace}/{name}"
            claim = self._claims.get(key)
            if claim is None:
                continue
            if claim.volume:
                there = self._volumes.get(claim.volume)
                found += there.terms if there else ()
            elif self._waits(claim):
                found += self._offers(key, claim)
        return found

    def _waits(self, claim: Claim) -> bool:
        storage_class = self._classes.get(claim.storage_class)
        return storage_class is not None and storage_class.waits

    def _offers(self, key: str, claim: Claim) -> list[tuple[NodeTerm, ...]]:
        """Where a claim that waits can have a volume; nothing: everywhere."""
        given = self._given.get(key)
        node = given[1] if given else claim.selected_node
        if node:
            return [(NodeTerm((), (Requirement("metadata.name", "In", (node,)),)),)]
        offers: list[NodeTerm] = []
        for volume in self._free(key, claim).values():
            if not volume.terms:
                return []
            if (
                len(volume.terms) == 1
            ):  # one with labels of zones beside its affinity is looked at when the node is known
                offers += volume.terms[0]
            else:
                offers += [term for terms in volume.terms for term in terms]
        storage_class = self._classes[claim.storage_class]
        if storage_class.provisions:
            if not storage_class.topologies:
                return []
            offers += storage_class.topologies
        return [tuple(sorted(set(offers)))]

    def _free(self, key: str, claim: Claim) -> dict[str, Volume]:
        """Volumes that a claim can be given."""
        taken = {volume for other, (_, _, volume) in self._given.items() if other != key}
        return {
            name: volume for name, volume in self._volumes.items() if name not in taken and volume.suits(claim, key)
        }

    def fault(self, pod: Pod, placed: Callable[[str], bool]) -> str:
        """Why it cannot be placed, whatever the nodes say; `placed` says whether a pod, by its key, has a place or is about to."""
        for name in pod.template.claims:
            key = f"{pod.namespace}/{name}"
            claim = self._claims.get(key)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim.lost:
                return f'persistentvolumeclaim "{name}" has lost its volume'
            if not claim.volume:
                if not self._waits(claim):
                    return f'persistentvolumeclaim "{name}" is not bound to a volume yet'
                provisions = self._classes[claim.storage_class].provisions
                if not provisions and not claim.selected_node and not self._free(key, claim):
                    return (
                        f'persistentvolumeclaim "{name}" finds no free volume of storage class {claim.storage_class} '
                        "that is large enough, and the class makes none"
                    )
            elif claim.volume not in self._volumes:
                return f'persistentvolume "{claim.volume}" not found'
            if claim.alone and any(user != pod.key and placed(user) for user in self._users.get(key, ())):
                return f'persistentvolumeclaim "{name}" is ReadWriteOncePod and in use by another pod'
        return ""

    # ---- claims that wait for their first consumer

    def prepare(self, pod: Pod, node: Node) -> list[Preparation] | None:
        """What its claims need before it is bound to a node; None when another was faster and it cannot have them there."""
        wanted: list[Preparation] = []
        for name in pod.template.claims:
            key = f"{pod.namespace}/{name}"
            claim = self._claims.get(key)
            if claim is None or claim.volume:
                continue
            given = self._given.get(key)
            if given is not None and given[0] != pod.uid:
                if given[1] != node.name:
                    self.give_back(pod)
                    return None
                wanted.append(Preparation(key, claim.uid, given[2]))  # another pod has it prepared on the same node
                continue
            fitting = {} if claim.selected_node else self._free(key, claim)
            here = sorted((each.size, name) for name, each in fitting.items() if each.reaches(node))
            volume = here[0][1] if here else ""
            if not volume and not (claim.selected_node in ("", node.name) and self._provisions(claim, node)):
                self.give_back(pod)
                return None
            self._given[key] = (pod.uid, node.name, volume)
            wanted.append(Preparation(key, claim.uid, volume))
        return wanted

    def _provisions(self, claim: Claim, node: Node) -> bool:
        found = self._classes.get(claim.storage_class)
        if found is None or not found.provisions:
            return False
        return not found.topologies or any(term.matches(node.name, node.labels) for term in found.topologies)

    def give_back(self, pod: Pod) -> list[str]:
        """A pod has no place, or is where it wanted to be: nothing is on its way for it any more. The pods that may have it."""
        classes = set()
        for name in pod.template.claims:
            key = f"{pod.namespace}/{name}"
            if (given := self._given.get(key)) is not None and given[0] == pod.uid:
                del self._given[key]
                classes |= {claim.storage_class for claim in [self._claims.get(key)] if claim and given[2]}
        return self._users_of(lambda claim: not claim.volume and claim.storage_class in classes) if classes else []
