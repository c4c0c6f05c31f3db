"""A job's members as neighbours of other pods: their labels, and what their templates ask of the pods beside them. Pure.

Affinity, spread constraints and preferred nodes of the templates are kept as text with the job (`NodeRules.near`), and the labels in any case,
because pods of others may keep away from them. The scheduler of a cluster with pods reads the text as it reads a pod, and everywhere else it means
nothing. `TemplateRules` is what a request carries; whoever places pods gives it its meaning (`Cluster.interpret`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paddleflow.scheduling.model import Assignment
from paddleflow.scheduling.nodes import Cluster, Pool
from paddleflow.scheduling.placement import Shortfall, SizeGroup, place

JOB_LABEL = "paddleflow-job-id"  #: of the labels of a pod, the one that no two jobs share
_READ = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
_TEXTS = frozenset(
    ("key", "operator", "value", "effect", "topologyKey", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy")
)
_NUMBERS = frozenset(("weight", "maxSkew", "minDomains", "tolerationSeconds"))
_LISTS = frozenset(("values", "namespaces", "matchLabelKeys", "mismatchLabelKeys"))
Json = Mapping[str, Any]


def pod_labels(labels: Mapping[str, str], job: str, framework: str, queue: str, role: str) -> dict[str, str]:
    """The labels of a member's pod."""
    return {
        **labels,
        "owner": "paddleflow",
        JOB_LABEL: job,
        "paddleflow-job-framework": framework,
        "volcano.sh/queue-name": queue,
        "paddleflow/role": role,
    }


def near_text(template: Json | None, namespace: str, labels: Mapping[str, str]) -> str:
    """What the scheduler must know of a member's pods. The job's own label is left out: equal jobs have equal texts. A template that is no
    document of the API is left to the API server, which refuses the pod with its own words."""
    spec = {name: found for name in _READ if (found := _spec(template).get(name))}
    if not all(_sound(name, found) for name, found in spec.items()):
        spec = {}
    kept = {name: value for name, value in labels.items() if name != JOB_LABEL}
    return json.dumps({"namespace": namespace, "labels": kept, "spec": spec}, sort_keys=True, separators=(",", ":"))


def _sound(name: str, value: Any) -> bool:
    """Whether everything in it has the type that the API gives it."""
    if value is None:
        return True
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _NUMBERS:
        return isinstance(value, int) and not isinstance(value, bool)
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if name in ("matchLabels", "nodeSelector"):
        return isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
    if isinstance(value, list):
        return all(isinstance(each, Mapping) and _sound("", each) for each in value)
    return isinstance(value, Mapping) and all(_sound(key, each) for key, each in value.items())


def _spec(template: Json | None) -> Json:
    given = template or {}
    spec = given.get("spec")
    return spec if given.get("kind", "Pod") == "Pod" and isinstance(spec, Mapping) else {}


class TemplateRules(NamedTuple):
    """`Constraint` of a job: a value, so that equal jobs are placed alike and a request can travel."""

    parts: tuple[tuple[str, str], ...]  #: role and `near_text`
    job: str = ""  #: its id, where a rule names the label of a single job

    @classmethod
    def of(cls, parts: Sequence[tuple[str, str]], job: str) -> TemplateRules | None:
        """Nothing where no member has such rules."""
        if not any(text for _, text in parts):
            return None
        return cls(tuple(parts), job if any(JOB_LABEL in text for _, text in parts) else "")

    def by_room(self, cluster: Cluster) -> bool:
        found = cluster.interpret(self)
        return found is None or found.by_room(cluster)

    def place(self, cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
        return place(cluster, pool, sizes, cluster.interpret(self))

    def started(self, cluster: Cluster, job: str, assignments: tuple[Assignment, ...]) -> None:
        found = cluster.interpret(self)
        if found is not None:
            found.started(cluster, job, assignments)
