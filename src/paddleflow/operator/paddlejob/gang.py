"""The PodGroup by which Volcano starts all pods of a job or none: the wanted one, and the state of the one that is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddleflow.base.quantity import parse_milli
from paddleflow.operator.paddlejob.job import Job, Object, OperatorOptions
from paddleflow.operator.paddlejob.manifests import metadata
from paddleflow.operator.paddlejob.pods import JOB_LABEL
from paddleflow.spec.paddlejob.model import PaddleJobSpec

_HELD = ("", "Pending")  #: phases in which Volcano has not let the group in
ADOPTED = "paddle-adopted"  #: annotation of a PodGroup that a person made: what they wrote stays


def scheduled_together(spec: PaddleJobSpec, options: OperatorOptions) -> bool:
    """Whether the gang scheduler schedules this job; a template that names another scheduler keeps it."""
    names = {(role.template.spec.model_extra or {}).get("schedulerName") for role in spec.roles().values()}
    return options.volcano and names <= {None, "", options.gang_scheduler}


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


def adoption(job: Job, found: Object) -> dict[str, Any]:
    """The patch by which a PodGroup that a person made for the job becomes the job's own; its spec stays."""
    present = found["metadata"]
    return {
        "metadata": {
            "uid": present["uid"],
            "labels": {JOB_LABEL: job.name},
            "annotations": {ADOPTED: "true"},
            "ownerReferences": [*(present.get("ownerReferences") or ()), job.owner()],
        }
    }


def required_spec(job: Job, found: Object, *, adopted: bool) -> dict[str, Any]:
    """The spec that a PodGroup must have. One that was adopted keeps what its author wrote, unless the job itself asks for
    something else or has fewer members than the gang."""
    wanted: dict[str, Any] = pod_group(job)["spec"]
    if not (adopted or ADOPTED in (found["metadata"].get("annotations") or {})):
        return wanted
    assert job.spec is not None, "a job with a fault has no gang"
    policy = job.spec.scheduling_policy
    theirs = found.get("spec") or {}
    if not (policy and policy.min_available):
        wanted["minMember"] = min(int(theirs.get("minMember") or job.spec.members), job.spec.members)
    if not (policy and policy.min_resources):
        wanted.pop("minResources", None)
    return wanted


def differs(wanted: Mapping[str, Any], found: Object) -> bool:
    """Whether what we want is not what is there; Volcano writes quantities its own way and adds fields of its own."""
    ours, theirs = dict(wanted), found.get("spec") or {}
    amounts, present = ours.pop("minResources", None), theirs.get("minResources") or {}
    if amounts is not None and {k: parse_milli(v) for k, v in amounts.items()} != {
        k: parse_milli(v) for k, v in present.items()
    }:
        return True
    return any(theirs.get(key) != value for key, value in ours.items())


def admitted(group: Object | None) -> bool:
    """Whether pods may be created: Volcano has let the group in."""
    return group is not None and (group.get("status") or {}).get("phase", "") not in _HELD


def held_reason(events: Iterable[Object]) -> str:
    """Volcano's reason for holding a PodGroup back, of the PodGroup's events: the latest one that names a cause. That no pod
    exists yet, which Volcano reports beside it, is what the operator waits for and no cause."""
    found = [each for each in events if each.get("reason") == "Unschedulable" and each.get("message")]
    found.sort(key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
    causes = [str(each["message"]) for each in found if not str(each["message"]).startswith("0/0 tasks in gang")]
    return causes[-1] if causes else ""


def why_held(group: Object | None, reason: str) -> str:
    """Why Volcano does not let the group in; `reason` is what it said in an event."""
    if group is None:
        return "the PodGroup is being made"
    if reason:
        return reason
    conditions = (group.get("status") or {}).get("conditions") or []
    message = conditions[-1].get("message", "") if conditions else ""
    if message or not (group.get("status") or {}).get("phase"):
        return message or "Volcano has not seen the PodGroup yet"
    return f"Volcano holds it back without a reason; see kubectl describe podgroup {group['metadata']['name']}"
