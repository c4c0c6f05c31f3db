"""Label selectors and node selectors of the Kubernetes API, as values that can be compared and asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Labels = Mapping[str, str]
NO_LABELS: Labels = {}
View = Mapping[str, Any]


class Requirement(NamedTuple):
    """One condition on one label."""

    key: str
    operator: str  #: In, NotIn, Exists, DoesNotExist, and on nodes Gt, Lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and _compares(value, self.operator, self.values)
        return False  # an operator of a later Kubernetes: nothing is known about it, so nothing is promised


def _compares(value: str, operator: str, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(value), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


Requirements = tuple[Requirement, ...]


def requirements(expressions: Iterable[View] | None) -> Requirements:
    return tuple(
        Requirement(each["key"], each.get("operator", ""), tuple(each.get("values") or ()))
        for each in expressions or ()
    )


def label_selector(selector: View | None) -> Requirements | None:
    """What a LabelSelector asks; None for an absent one, which matches nothing. An empty one matches everything."""
    if selector is None:
        return None
    exact = tuple(
        Requirement(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    return exact + requirements(selector.get("matchExpressions"))


def matches(selector: Requirements | None, labels: Labels) -> bool:
    return selector is not None and all(requirement.matches(labels) for requirement in selector)


class NodeTerm(NamedTuple):
    """One term of a node selector: all its conditions hold."""

    labels: Requirements
    fields: Requirements  #: on metadata.name, the only field that nodes have

    def matches(self, name: str, labels: Labels) -> bool:
        if not self.labels and not self.fields:
            return False  # by the API's own rule
        named = {"metadata.name": name}
        return all(each.matches(labels) for each in self.labels) and all(each.matches(named) for each in self.fields)


def node_terms(terms: Iterable[View] | None) -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(requirements(term.get("matchExpressions")), requirements(term.get("matchFields")))
        for term in terms or ()
    )


class Toleration(NamedTuple):
    """What a pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        if self.effect and self.effect != effect:
            return False
        if self.key and self.key != key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and bool(self.key) and self.value == value

    def __str__(self) -> str:
        """In the words of `scheduling.taints`, where ``*`` stands for anything."""
        key = self.key or "*"
        value = "" if not self.key else "=*" if self.operator == "Exists" else f"={self.value}" if self.value else ""
        return f"{key}{value}:{self.effect or '*'}"


class Taint(NamedTuple):
    """What a node keeps pods away with."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def tolerations(found: Iterable[View] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            each.get("key") or "", each.get("operator") or "Equal", each.get("value") or "", each.get("effect") or ""
        )
        for each in found or ()
    )


def taints(found: Iterable[View] | None) -> tuple[Taint, ...]:
    return tuple(Taint(each["key"], each.get("value") or "", each.get("effect") or "") for each in found or ())


class PodTerm(NamedTuple):
    """Which pods an affinity term means, and within which domain."""

    topology_key: str
    selector: Requirements | None
    namespaces: tuple[str, ...]  #: by name
    namespace_selector: Requirements | None  #: and by labels; None: by name only

    def matches(self, namespace: str, labels: Labels, namespace_labels: Mapping[str, Labels]) -> bool:
        if namespace not in self.namespaces and not (
            self.namespace_selector is not None
            and matches(self.namespace_selector, namespace_labels.get(namespace, {}))
        ):
            return False
        return matches(self.selector, labels)


def pod_term(term: View, namespace: str, labels: Labels = NO_LABELS) -> PodTerm:
    """A term of a pod of this namespace, which is meant where the term names none, with these labels."""
    names = tuple(sorted(term.get("namespaces") or ()))
    own = label_selector(term.get("labelSelector"))
    if own is not None:
        own += _of_own(term.get("matchLabelKeys"), "In", labels) + _of_own(
            term.get("mismatchLabelKeys"), "NotIn", labels
        )
    selector = label_selector(term.get("namespaceSelector"))
    if not names and selector is None:
        names = (namespace,)
    return PodTerm(term.get("topologyKey") or "", own, names, selector)


def _of_own(keys: Iterable[str] | None, operator: str, labels: Labels) -> Requirements:
    """Requirements with the values that the pod itself has."""
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys or () if key in labels)


class Spread(NamedTuple):
    """One topology spread constraint."""

    topology_key: str
    max_skew: int
    selector: Requirements | None
    hard: bool
    min_domains: int
    honors_affinity: bool  #: only nodes that the pod's selector and affinity admit are counted
    honors_taints: bool  #: only nodes whose taints the pod tolerates are counted


def spread(constraint: View, labels: Labels) -> Spread:
    """A constraint of a pod with these labels."""
    selector = label_selector(constraint.get("labelSelector"))
    if selector is not None:
        selector += _of_own(constraint.get("matchLabelKeys"), "In", labels)
    return Spread(
        constraint["topologyKey"],
        int(constraint.get("maxSkew") or 1),
        selector,
        constraint.get("whenUnsatisfiable") != "ScheduleAnyway",
        int(constraint.get("minDomains") or 1),
        constraint.get("nodeAffinityPolicy") != "Ignore",
        constraint.get("nodeTaintsPolicy") == "Honor",
    )
