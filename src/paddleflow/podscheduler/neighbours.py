"""Who is on which node, and what follows from it for pods that come: affinity, anti-affinity, spread, host ports. Pure.

The rules are those of kube-scheduler's InterPodAffinity, PodTopologySpread and NodePorts. Pods that were placed a moment ago and
are not bound yet count like all others. How many pods a term means is counted once for each distinct term and kept up
from then on (`Tally`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import Labels, PodTerm, Requirements, Spread, matches
from paddleflow.podscheduler.nodes import HARD, KubeNode, PodFilter
from paddleflow.podscheduler.pods import Pod, Template, ports_collide

TALLIES = 512  #: distinct terms whose pods are counted at a time
_ELIGIBLE = 256  #: sets of nodes that spread constraints count on, kept at a time
Terms = tuple[PodTerm, ...]


class Tally:
    """How many pods of one description are on each node."""

    __slots__ = ("_domains", "namespace", "on", "selector", "terms")

    def __init__(self, terms: Terms, namespace: str, selector: Requirements | None) -> None:
        self.terms = terms  #: all of which mean the pod; or, if empty:
        self.namespace = namespace  #: it is of this namespace
        self.selector = selector  #: and has these labels, and is not about to end
        self.on: Counter[str] = Counter()
        self._domains: dict[str, Counter[str]] = {}

    def means(self, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
        if self.terms:
            return all(term.matches(pod.namespace, pod.labels, namespaces) for term in self.terms)
        return pod.namespace == self.namespace and not pod.deleting and matches(self.selector, pod.labels)

    def count(self, node: str, by: int) -> None:
        self.on[node] += by
        if not self.on[node]:
            del self.on[node]
        self._domains.clear()

    def domains(self, key: str, nodes: Mapping[str, KubeNode]) -> Counter[str]:
        """How many there are in each domain of a topology."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Counter()
            for name, number in self.on.items():
                node = nodes.get(name)
                value = node.labels.get(key) if node else None
                if value is not None:
                    found[value] += number
        return found

    def moved(self) -> None:
        """Nodes have other labels now."""
        self._domains.clear()


@dataclass(slots=True)
class Outlook:
    """What the pods that are there mean for one pod that comes, by domain, so that a node is judged by a few lookups."""

    avoided: list[tuple[str, frozenset[str] | set[str]]] = field(
        default_factory=list
    )  #: existing pods keep it away from these
    unwanted: list[tuple[str, set[str]]] = field(default_factory=list)  #: it keeps itself away from these
    wanted: list[tuple[str, Counter[str]]] | None = (
        None  #: it must be where these are; None: it is the first of its kind
    )
    keys: tuple[str, ...] = ()  #: topology labels that a node must have for affinity
    spreads: list[tuple[Spread, Counter[str], int, int]] = field(default_factory=list)  #: counts, least, itself

    def refusal(self, labels: Labels) -> str:
        """Why not on a node with these labels, in kube-scheduler's words; empty if nothing is against it."""
        for spread, counts, least, itself in self.spreads:
            value = labels.get(spread.topology_key)
            if value is None:
                return "didn't match pod topology spread constraints (missing required label)"
            if counts.get(value, 0) + itself - least > spread.max_skew:
                return "didn't match pod topology spread constraints"
        if any(key not in labels for key in self.keys):
            return "didn't match pod affinity rules"
        for key, values in self.wanted or ():
            if not values.get(labels[key]):
                return "didn't match pod affinity rules"
        if any(labels.get(key) in unwanted for key, unwanted in self.unwanted):
            return "didn't match pod anti-affinity rules"
        if any(labels.get(key) in avoided for key, avoided in self.avoided):
            return "didn't satisfy existing pods anti-affinity rules"
        return ""


class Neighbours:
    """All pods that are on nodes or on their way there."""

    def __init__(self) -> None:
        self.nodes: dict[str, KubeNode] = {}
        self.namespaces: dict[str, Labels] = {}
        self.on: dict[str, dict[str, Pod]] = {}  #: by node, then by uid
        self.softly_tainted: list[KubeNode] = []
        self.version = 0  #: grows when nodes or namespaces change
        self._where: dict[str, str] = {}
        self._repelled: dict[PodTerm, Counter[str]] = {}  # required anti-affinity of pods on nodes: domains, by term
        self._tallies: OrderedDict[tuple[object, ...], Tally] = OrderedDict()
        self._eligible: dict[tuple[object, ...], list[tuple[str, str]]] = {}

    # ---- what happens

    def set_nodes(self, nodes: Iterable[KubeNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.softly_tainted = [
            node for node in self.nodes.values() if any(taint.effect == "PreferNoSchedule" for taint in node.repels)
        ]
        self._eligible.clear()
        for tally in self._tallies.values():
            tally.moved()
        self._repelled.clear()
        for name, pods in self.on.items():
            for pod in pods.values():
                self._repel(pod, name, 1)
        self.version += 1

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self._tallies.clear()
        self.version += 1

    def put(self, pod: Pod, node: str) -> None:
        """A pod is there, or has other labels than before."""
        self.put_as(pod.uid, pod, node)

    def put_as(self, uid: str, pod: Pod, node: str) -> None:
        """One like this pod is there, known by `uid`."""
        self.drop(uid)
        self.on.setdefault(node, {})[uid] = pod
        self._where[uid] = node
        self._count(pod, node, 1)

    def drop(self, uid: str) -> None:
        node = self._where.pop(uid, None)
        if node is not None:
            pod = self.on[node].pop(uid)
            if not self.on[node]:
                del self.on[node]
            self._count(pod, node, -1)

    def _count(self, pod: Pod, node: str, by: int) -> None:
        for tally in self._tallies.values():
            if tally.means(pod, self.namespaces):
                tally.count(node, by)
        if pod.template.anti_affinity:
            self._repel(pod, node, by)

    def _repel(self, pod: Pod, name: str, by: int) -> None:
        node = self.nodes.get(name)
        for term in pod.template.anti_affinity if node else ():
            value = node.labels.get(term.topology_key) if node else None
            if value is not None:
                domains = self._repelled.setdefault(term, Counter())
                domains[value] += by
                if domains[value] <= 0:
                    del domains[value]
                    if not domains:
                        del self._repelled[term]

    # ---- questions

    def repels(self, terms: Iterable[PodTerm]) -> bool:
        """Whether pods with one of these terms of anti-affinity are anywhere."""
        return any(term in self._repelled for term in terms)

    def outlook(self, pod: Pod, filter: PodFilter) -> Outlook:
        template, found = pod.template, Outlook()
        for term, domains in self._repelled.items():
            if term.matches(pod.namespace, pod.labels, self.namespaces):
                found.avoided.append((term.topology_key, set(domains)))
        for term in template.anti_affinity:
            found.unwanted.append((term.topology_key, set(self._tally((term,)).domains(term.topology_key, self.nodes))))
        if template.affinity:
            self._attract(pod, found)
        keys = tuple(spread.topology_key for spread in template.spreads)
        for spread in template.spreads:
            counts = self.spread_counts(pod, filter, spread, keys)
            least = min(counts.values(), default=1 << 30) if len(counts) >= spread.min_domains else 0
            found.spreads.append((spread, counts, least, int(matches(spread.selector, pod.labels))))
        return found

    def _attract(self, pod: Pod, found: Outlook) -> None:
        terms = pod.template.affinity
        tally = self._tally(terms)
        found.keys = tuple(term.topology_key for term in terms)
        wanted = [(term.topology_key, tally.domains(term.topology_key, self.nodes)) for term in terms]
        first = not any(domains for _, domains in wanted)
        if not (first and all(term.matches(pod.namespace, pod.labels, self.namespaces) for term in terms)):
            found.wanted = wanted

    def spread_counts(self, pod: Pod, filter: PodFilter, spread: Spread, keys: tuple[str, ...]) -> Counter[str]:
        """The pods that a constraint means, in each domain that it counts, empty ones too."""
        on = self._tally((), pod.namespace, spread.selector).on
        counts: Counter[str] = Counter()
        for name, value in self._counted_nodes(filter, spread, keys):
            counts[value] += on.get(name, 0)
        return counts

    def _counted_nodes(self, filter: PodFilter, spread: Spread, keys: tuple[str, ...]) -> list[tuple[str, str]]:
        key = (filter, spread.topology_key, spread.honors_affinity, spread.honors_taints, keys)
        found = self._eligible.get(key)
        if found is None:
            if len(self._eligible) >= _ELIGIBLE:
                self._eligible.clear()
            found = self._eligible[key] = [
                (node.name, node.labels[spread.topology_key])
                for node in self.nodes.values()
                if all(each in node.labels for each in keys)
                and (not spread.honors_affinity or filter.selects(node))
                and (not spread.honors_taints or filter.untolerated(node, HARD) is None)
            ]
        return found

    def domain_counts(self, term: PodTerm) -> Counter[str]:
        """How many pods a term means, in each domain."""
        return self._tally((term,)).domains(term.topology_key, self.nodes)

    def ports_free(self, template: Template, node: str) -> bool:
        for port in template.ports:
            for pod in self.on.get(node, {}).values():
                if any(ports_collide(port, other) for other in pod.template.ports):
                    return False
        return True

    def _tally(self, terms: Terms, namespace: str = "", selector: Requirements | None = None) -> Tally:
        meaning = tuple((term.selector, term.namespaces, term.namespace_selector) for term in terms)
        key = (meaning, namespace, selector)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= TALLIES:
                self._tallies.popitem(last=False)
            tally = self._tallies[key] = Tally(terms, namespace, selector)
            for node, pods in self.on.items():
                number = sum(tally.means(pod, self.namespaces) for pod in pods.values())
                if number:
                    tally.count(node, number)
        else:
            self._tallies.move_to_end(key)
        return tally
