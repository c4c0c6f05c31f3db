"""The PodGroup by which Volcano starts all pods of a job or none: the wanted one, and the state of the one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.base.quantity import parse_milli
from paddleflow.operator.paddlejob.job import Job, Object, Options
from paddleflow.operator.paddlejob.manifests import VOLCANO, metadata
from paddleflow.spec.paddlejob.model import PaddleJobSpec

_HELD = ("", "Pending")  #: phases in which Volcano has not let the group in


def scheduled_together(spec: PaddleJobSpec, options: Options) -> bool:
    """Whether Volcano schedules this job; a template that names another scheduler keeps it."""
    names = {(role.template.spec.model_extra or {}).get("schedulerName") for role in spec.roles().values()}
    return options.volcano and names <= {None, "", VOLCANO}


def _amounts(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}  # a request defaults to its limit
    return {name: parse_milli(amount) for name, amount in asked.items()}


def _of_pod(body: Mapping[str, Any]) -> dict[str, int]:
    """What the scheduler reckons for one pod: all containers together, or one init container if that asks for more."""
    total: dict[str, int] = {}
    for container in body["containers"]:
        for name, amount in _amounts(container).items():
            total[name] = total.get(name, 0) + amount
    for container in body.get("initContainers") or ():
        for name, amount in _amounts(container).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def _text(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def resources(spec: PaddleJobSpec) -> dict[str, str]:
    """What all pods ask for together."""
    total: dict[str, int] = {}
    for role in spec.roles().values():
        one = _of_pod(role.template.spec.model_dump(by_alias=True, exclude_unset=True))
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount * role.replicas
    return {name: _text(amount) for name, amount in sorted(total.items())}


def pod_group(job: Job) -> dict[str, Any]:
    """The PodGroup as it should be."""
    assert job.spec is not None, "a job with a fault has no gang"
    policy = job.spec.scheduling_policy
    body: dict[str, Any] = {"minMember": (policy and policy.min_available) or job.spec.members}
    if least := (policy and policy.min_resources) or resources(job.spec):
        body["minResources"] = dict(least)
    if policy and policy.queue:
        body["queue"] = policy.queue
    if policy and policy.priority_class:
        body["priorityClassName"] = policy.priority_class
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata(job, job.name),
        "spec": body,
    }


def differs(wanted: Object, found: Object) -> bool:
    """Whether what we want is not what is there; Volcano writes quantities its own way and adds fields of its own."""
    ours, theirs = dict(wanted["spec"]), found.get("spec") or {}
    amounts, present = ours.pop("minResources", {}), theirs.get("minResources") or {}
    if {k: parse_milli(v) for k, v in amounts.items()} != {k: parse_milli(v) for k, v in present.items()}:
        return True
    return any(theirs.get(key) != value for key, value in ours.items())


def admitted(group: Object | None) -> bool:
    """Whether pods may be created: Volcano has let the group in."""
    return group is not None and (group.get("status") or {}).get("phase", "") not in _HELD


def why_held(group: Object | None) -> str:
    """Why Volcano does not let the group in, in its own words."""
    if group is None:
        return "the PodGroup is being made"
    conditions = (group.get("status") or {}).get("conditions") or []
    message = conditions[-1].get("message", "") if conditions else ""
    return message or "Volcano has not looked at the PodGroup yet"
