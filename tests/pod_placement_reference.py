"""Which nodes may a pod have, by the letter of the Kubernetes documentation: full scans over plain objects, nothing shared
with the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

View = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SUFFIX = {"m": Decimal("0.001"), "Ki": Decimal(1024), "Mi": Decimal(1024**2), "Gi": Decimal(1024**3)}


def amount(text: object) -> Decimal:
    shown = str(text)
    for suffix, factor in _SUFFIX.items():
        if shown.endswith(suffix):
            return Decimal(shown[: -len(suffix)]) * factor
    return Decimal(shown)


def request(pod: View) -> dict[str, Decimal]:
    """What a pod takes."""
    spec = pod["spec"]
    found: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for name, value in container.get("resources", {}).get("requests", {}).items():
            found[name] = found.get(name, Decimal(0)) + amount(value)
    first: dict[str, Decimal] = {}  # the most that is taken at once before the containers start
    beside: dict[str, Decimal] = {}  # init containers that go on
    for container in spec.get("initContainers", ()):
        asked = {name: amount(value) for name, value in container.get("resources", {}).get("requests", {}).items()}
        if container.get("restartPolicy") == "Always":
            beside = {name: beside.get(name, Decimal(0)) + asked.get(name, Decimal(0)) for name in {*beside, *asked}}
            asked = {}
        for name in {*beside, *asked}:
            now = beside.get(name, Decimal(0)) + asked.get(name, Decimal(0))
            first[name] = max(first.get(name, Decimal(0)), now)
    for name, value in beside.items():
        found[name] = found.get(name, Decimal(0)) + value
    for name, value in first.items():
        found[name] = max(found.get(name, Decimal(0)), value)
    for name, value in spec.get("resources", {}).get("requests", {}).items():
        found[name] = amount(value)
    for name, value in spec.get("overhead", {}).items():
        found[name] = found.get(name, Decimal(0)) + amount(value)
    found["pods"] = Decimal(1)
    return found


def holds(expression: View, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or not labels[key].lstrip("-").isdigit():
        return False
    return int(labels[key]) > int(values[0]) if operator == "Gt" else int(labels[key]) < int(values[0])


def selected(selector: View | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(holds(each, labels) for each in selector.get("matchExpressions", ()))


def labels_of(obj: View) -> Mapping[str, str]:
    found: Mapping[str, str] = obj["metadata"].get("labels", {})
    return found


def by_affinity(pod: View, node: View) -> bool:
    spec, labels = pod["spec"], labels_of(node)
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED)
    if required is None:
        return True
    for term in required["nodeSelectorTerms"]:
        expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
        named = {"metadata.name": node["metadata"]["name"]}
        fits = all(holds(each, labels) for each in expressions) and all(holds(each, named) for each in fields)
        if fits and (expressions or fields):
            return True
    return False


def tolerated(pod: View, node: View) -> bool:
    taints = [each for each in node["spec"].get("taints", ()) if each["effect"] in ("NoSchedule", "NoExecute")]
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for taint in taints:
        for each in pod["spec"].get("tolerations", ()):
            effect = each.get("effect") in (None, taint["effect"])
            key = not each.get("key") or each["key"] == taint["key"]
            same = each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", "")
            if effect and key and same:
                break
        else:
            return False
    return True


class World:
    """Nodes, pods on them, namespaces."""

    def __init__(self, nodes: Sequence[View], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.namespaces = namespaces
        self.placed: list[tuple[View, str]] = []

    def place(self, pod: View, node: str) -> None:
        self.placed.append((pod, node))

    def allowed(self, pod: View) -> set[str]:
        return {name for name in self.nodes if not self.refusal(pod, name)}

    def refusal(self, pod: View, name: str) -> str:
        node = self.nodes[name]
        if not by_affinity(pod, node):
            return "affinity"
        if not tolerated(pod, node):
            return "taints"
        here = [other for other, on in self.placed if on == name]
        free = {key: amount(value) for key, value in node["status"]["allocatable"].items()}
        for other in here:
            for key, value in request(other).items():
                free[key] = free.get(key, Decimal(0)) - value
        for key, value in request(pod).items():
            if value > 0 and value > free.get(key, Decimal(0)):
                return f"room: {key}"
        if any(_collide(one, two) for one in _ports(pod) for other in here for two in _ports(other)):
            return "ports"
        return self._neighbours(pod, node) or self._spread(pod, node)

    def _meant(self, term: View, owner: View, pod: View) -> bool:
        names, selector = term.get("namespaces", []), term.get("namespaceSelector")
        own = pod["metadata"]["namespace"]
        if not names and selector is None:
            inside = own == owner["metadata"]["namespace"]
        else:
            inside = own in names or (selector is not None and selected(selector, self.namespaces.get(own, {})))
        return inside and selected(term.get("labelSelector"), labels_of(pod))

    def _domain(self, name: str, key: str) -> str | None:
        return labels_of(self.nodes[name]).get(key) if name in self.nodes else None

    def _neighbours(self, pod: View, node: View) -> str:
        labels, affinity = labels_of(node), pod["spec"].get("affinity", {})
        for term in affinity.get("podAntiAffinity", {}).get(_REQUIRED, ()):
            value = labels.get(term["topologyKey"])
            if value is not None and any(
                self._meant(term, pod, other) and self._domain(on, term["topologyKey"]) == value
                for other, on in self.placed
            ):
                return "anti-affinity"
        for other, on in self.placed:
            for term in other["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(_REQUIRED, ()):
                value = self._domain(on, term["topologyKey"])
                if value is not None and labels.get(term["topologyKey"]) == value and self._meant(term, other, pod):
                    return "anti-affinity of others"
        terms = affinity.get("podAffinity", {}).get(_REQUIRED, ())
        if not terms:
            return ""
        if any(term["topologyKey"] not in labels for term in terms):
            return "affinity: no such domain"
        near = [on for other, on in self.placed if all(self._meant(term, pod, other) for term in terms)]
        anywhere = any(self._domain(on, term["topologyKey"]) is not None for on in near for term in terms)
        if not anywhere and all(self._meant(term, pod, pod) for term in terms):
            return ""
        fine = all(
            any(self._domain(on, term["topologyKey"]) == labels[term["topologyKey"]] for on in near) for term in terms
        )
        return "" if fine else "affinity: nobody there"

    def _spread(self, pod: View, node: View) -> str:
        hard = [
            each
            for each in pod["spec"].get("topologySpreadConstraints", ())
            if each["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = [each["topologyKey"] for each in hard]
        for each in hard:
            key = each["topologyKey"]
            if key not in labels_of(node):
                return "spread: no such domain"
            counts: Counter[str] = Counter()
            for name, other in self.nodes.items():
                if any(one not in labels_of(other) for one in keys):
                    continue
                if each.get("nodeAffinityPolicy", "Honor") == "Honor" and not by_affinity(pod, other):
                    continue
                if each.get("nodeTaintsPolicy", "Ignore") == "Honor" and not tolerated(pod, other):
                    continue
                counts[labels_of(other)[key]] += sum(
                    1
                    for neighbour, on in self.placed
                    if on == name
                    and neighbour["metadata"]["namespace"] == pod["metadata"]["namespace"]
                    and selected(each.get("labelSelector"), labels_of(neighbour))
                )
            least = min(counts.values(), default=2**31) if len(counts) >= each.get("minDomains", 1) else 0
            itself = 1 if selected(each.get("labelSelector"), labels_of(pod)) else 0
            if counts[labels_of(node)[key]] + itself - least > each["maxSkew"]:
                return "spread"
        return ""


def _ports(pod: View) -> list[tuple[str, str, int]]:
    return [
        (port.get("protocol", "TCP"), port.get("hostIP", "0.0.0.0"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port.get("hostPort")
    ]


def _collide(one: tuple[str, str, int], two: tuple[str, str, int]) -> bool:
    everywhere = "0.0.0.0" in (one[1], two[1])
    return one[0] == two[0] and one[2] == two[2] and (one[1] == two[1] or everywhere)
