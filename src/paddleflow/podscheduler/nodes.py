"""A node as the scheduler reads it, and which nodes a pod may have whoever else is there. Pure.

The filters are those of kube-scheduler: node name, unschedulable, taints, node selector and affinity, volumes' node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import NodeTerm, Taint, Toleration, taints
from paddleflow.podscheduler.pods import Template, resources
from paddleflow.scheduling.model import Node
from paddleflow.scheduling.taints import untolerated

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class KubeNode(Node):
    """A node with its taints as Kubernetes has them; `unschedulable` is a taint too, as it can be tolerated like one."""

    repels: tuple[Taint, ...] = ()


def read_node(obj: Mapping[str, Any]) -> KubeNode:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = taints(spec.get("taints"))
    if spec.get("unschedulable"):
        found = (*(each for each in found if each.key != UNSCHEDULABLE.key), UNSCHEDULABLE)
    return KubeNode(
        name=obj["metadata"]["name"],
        capacity=resources(status.get("allocatable") or status.get("capacity")),
        labels=dict(obj["metadata"].get("labels") or {}),
        numbered=False,
        repels=found,
    )


class PodFilter(NamedTuple):
    """Which nodes a pod may have, whoever else is there. Equal ones share a pool of nodes."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()  #: of each volume, the terms of which one must hold

    def admits(self, node: Node) -> bool:
        return not self.refusal(node)

    def refusal(self, node: Node) -> str:
        """Why not, in kube-scheduler's words; empty when it is admitted."""
        if not self.selects(node):
            return "didn't match Pod's node affinity/selector"
        taint = self.untolerated(node, HARD)
        if taint is not None:
            return "were unschedulable" if taint is UNSCHEDULABLE else f"had untolerated taint {{{taint}}}"
        for terms in self.volumes:
            if not any(term.matches(node.name, node.labels) for term in terms):
                return "had volume node affinity conflict"
        return ""

    def selects(self, node: Node) -> bool:
        """Whether node selector and affinity name it."""
        labels = node.labels
        if not all(labels.get(key) == value for key, value in self.node_selector):
            return False
        return self.affinity is None or any(term.matches(node.name, labels) for term in self.affinity)

    def untolerated(self, node: Node, effects: tuple[str, ...]) -> Taint | None:
        for taint in node.repels if isinstance(node, KubeNode) else ():
            if taint.effect in effects and not any(each.tolerates(*taint) for each in self.tolerations):
                return taint
        return None


class RoleFilter(NamedTuple):
    """Which nodes members of one role of a platform's job may have: by the server's word on nodes, and by their own template."""

    pod: PodFilter

    def admits(self, node: Node) -> bool:
        return node.schedulable and not untolerated(node.taints, self._tolerates()) and self.pod.selects(node)

    def _tolerates(self) -> tuple[str, ...]:
        return tuple(str(each) for each in self.pod.tolerations)


class AnyFilter(NamedTuple):
    """Nodes that suit one of several templates, for gangs whose members differ."""

    parts: tuple[PodFilter, ...]

    def admits(self, node: Node) -> bool:
        return any(part.admits(node) for part in self.parts)


def filter_of(template: Template, volumes: Iterable[tuple[NodeTerm, ...]] = ()) -> PodFilter:
    return PodFilter(template.node_selector, template.node_affinity, template.tolerations, tuple(sorted(set(volumes))))
