"""The pods of a job: their names and labels, and what a pod's status means for its member.

A pod with a deletion timestamp is terminating and counts for nothing, whatever its phase is. Every pod carries the
number of its *formation*: the members that share one list of endpoints. A pod of an earlier formation is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.operator.paddlejob.job import Job, Object, moment
from paddleflow.spec.paddlejob.model import ROLES

JOB_LABEL, NAME_LABEL, ROLE_LABEL = "paddle-job-name", "paddle-res-name", "paddle-res-type"
ROLE_ANNOTATION, FORMATION, NOTIFIED = "paddle-resource", "paddle-formation", "paddle-notified"

#: A pod that ended like this did so for reasons outside of it.
_OUTSIDE = ("Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError")


def pod_name(job: Job, role: str, index: int) -> str:
    return f"{job.name}-{role}-{index}"


def selector(job: Job) -> str:
    return f"{JOB_LABEL}={job.name},{ROLE_LABEL}=worker"


@dataclass(frozen=True, slots=True)
class Pod:
    """A member that exists."""

    name: str
    uid: str
    role: str
    index: int
    original: bool  #: made by the original operator, and not taken over yet
    formation: int
    phase: str
    address: str
    scheduled: bool
    deleting_until: float | None  #: None: it is not terminating
    notified: int  #: the formation whose ConfigMap it was notified of
    training: Mapping[str, Any]  #: status of the training container: the first one of the template
    state: str  #: as the job's status counts it: pending, starting, running, failed, succeeded or unknown
    obj: Object

    @property
    def living(self) -> bool:
        return self.deleting_until is None

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def waits_for(self) -> tuple[str, str]:
        """Reason and message of what it waits for, if a container or the scheduler reports it."""
        status = self.obj.get("status", {})
        for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return waiting["reason"], waiting.get("message", "")
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return condition.get("reason", ""), condition.get("message", "")
        return "", ""

    @property
    def restarts(self) -> int:
        return int(self.training.get("restartCount", 0))

    @property
    def disrupted(self) -> bool:
        """Whether it failed without a fault of its program."""
        status = self.obj.get("status", {})
        reason = status.get("reason") or ""
        if reason in _OUTSIDE or reason.startswith(("OutOf", "Node")):
            return True
        conditions = status.get("conditions") or ()
        return any(c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in conditions)


def read_pod(obj: Object, job_name: str) -> Pod | None:
    """The member that a pod of a job is, or None for one whose name is not a member's."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    role, _, index = metadata["name"].removeprefix(f"{job_name}-").rpartition("-")
    if role not in ROLES or not index.isdigit():
        return None
    phase, address, training = status.get("phase", "Pending"), status.get("podIP", ""), _training(obj)
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        role=role,
        index=int(index),
        original=JOB_LABEL not in labels,
        formation=_number(annotations.get(FORMATION)),
        phase=phase,
        address=address,
        scheduled=bool(obj.get("spec", {}).get("nodeName")),
        deleting_until=moment(metadata["deletionTimestamp"]) or 0.0 if "deletionTimestamp" in metadata else None,
        notified=_number(annotations.get(NOTIFIED)),
        training=training,
        state=_state(phase, address, training.get("state") or {}),
        obj=obj,
    )


def _training(obj: Object) -> Mapping[str, Any]:
    containers = obj.get("spec", {}).get("containers") or [{}]
    name = containers[0].get("name")
    statuses: Sequence[Mapping[str, Any]] = obj.get("status", {}).get("containerStatuses") or ()
    return next((status for status in statuses if status.get("name") == name), {})


def _state(phase: str, address: str, container: Mapping[str, Any]) -> str:
    if phase in ("Succeeded", "Failed", "Unknown"):
        return phase.lower()
    if phase == "Running":
        # A container that has just ended well still counts as running: the pod's phase follows in a moment.
        done = (container.get("terminated") or {}).get("exitCode") == 0
        return "running" if not container or "running" in container or done else "starting"
    return "starting" if address else "pending"


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def read_pods(objects: Iterable[Object], job_name: str) -> list[Pod]:
    """The members, by role and rank."""
    found = [pod for obj in objects if (pod := read_pod(obj, job_name))]
    return sorted(found, key=lambda pod: (ROLES.index(pod.role), pod.index))


def wanted(job: Job) -> list[tuple[str, int]]:
    """Every member that the job should have."""
    assert job.spec is not None, "a job with a fault has no members"
    return [(role, index) for role, entry in job.spec.roles().items() for index in range(entry.replicas)]
