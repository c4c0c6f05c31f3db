"""Which nodes the pod templates of a job's members admit: node selector, required node affinity, tolerations. Pure.

The scheduler must know them before it places a job: a pod that is bound to a node which its own template excludes is refused by the
kubelet. The scheduler decides for a job as a whole, so that of members that differ only what all of them say is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import NodeTerm, node_terms, tolerations
from paddleflow.scheduling.model import Node
from paddleflow.scheduling.taints import untolerated

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What a template says, as it is kept with the job."""

    labels: tuple[tuple[str, str], ...] = ()
    tolerates: tuple[str, ...] = ()  #: in the words of `scheduling.taints`
    affinity: tuple[NodeTerm, ...] = ()  #: one of these terms must hold
    near: str = ""  #: what `neighbour_rules` keeps of the template

    def json(self) -> list[Any]:
        terms = [[list(term.labels), list(term.fields)] for term in self.affinity]
        return [dict(self.labels), list(self.tolerates), terms, *([self.near] if self.near else [])]


ANY_NODE = NodeRules()


class RequiredAffinity(NamedTuple):
    """`NodeFilter` of jobs with a required node affinity; labels are the selector's matter."""

    terms: tuple[NodeTerm, ...]
    tolerates: tuple[str, ...]

    def admits(self, node: Node) -> bool:
        if not node.schedulable or untolerated(node.taints, self.tolerates):
            return False
        return any(term.matches(node.name, node.labels) for term in self.terms)


def rules_of_template(template: Json | None) -> NodeRules:
    """The rules of a Pod template. What cannot be read is left to the API server, which refuses the pod with its own words."""
    given = template or {}
    spec = given.get("spec")
    if given.get("kind", "Pod") != "Pod" or not isinstance(spec, Mapping):
        return ANY_NODE
    try:
        selector = {str(key): str(value) for key, value in (spec.get("nodeSelector") or {}).items()}
        found = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        terms = node_terms(found["nodeSelectorTerms"]) if found else ()
        accepted = tuple(sorted({str(each) for each in tolerations(spec.get("tolerations"))}))
    except (AttributeError, KeyError, TypeError):
        return ANY_NODE
    return NodeRules(tuple(sorted(selector.items())), accepted, terms)


def read_rules(data: Sequence[Any]) -> NodeRules:
    """The opposite of `NodeRules.json`."""
    labels, tolerates, terms, *near = data
    affinity = node_terms(
        {
            name: [{"key": key, "operator": operator, "values": values} for key, operator, values in conditions]
            for name, conditions in zip(("matchExpressions", "matchFields"), term, strict=True)
        }
        for term in terms
    )
    return NodeRules(tuple(sorted(labels.items())), tuple(tolerates), affinity, *near)


def common_rules(members: Sequence[NodeRules]) -> NodeRules:
    """What all members of a job say."""
    first, *others = members
    if all(each == first for each in others):
        return first
    labels = set(first.labels).intersection(*(each.labels for each in others))
    tolerates = set(first.tolerates).intersection(*(each.tolerates for each in others))
    same = all(each.affinity == first.affinity for each in others)
    return NodeRules(tuple(sorted(labels)), tuple(sorted(tolerates)), first.affinity if same else ())
