"""An attempt as an object of somebody else's operator: an Argo Workflow, a PyTorchJob, a SparkApplication. Pure.

`as_pod` shows such an object as if it were a pod, so that the rest of the runtime has one way to follow what it started: the object's
status, whatever its operator calls things, becomes the state of one container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddleflow.base.ids import parse_attempt
from paddleflow.base.values import dataclass
from paddleflow.kube.resources import Object, Resource, View
from paddleflow.runtimes.kubernetes import templates
from paddleflow.runtimes.kubernetes.pods import (
    ATTEMPT,
    CLUSTER_LABEL,
    CONTAINER,
    JOB_LABEL,
    QUEUE,
    SCHEDULER,
    PodSettings,
    object_name,
)
from paddleflow.runtimes.kubernetes.status import CUSTOM
from paddleflow.runtimes.runtime import Launch
from paddleflow.spec.operator_kinds import OperatorKind, kind_of

FOREGROUND = "foregroundDeletion"  #: finalizer: what the object owns is being deleted first


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an object is: `pending`, `running`, `succeeded` or `failed`."""

    phase: str = "pending"
    message: str = ""


def is_custom(launch: Launch) -> bool:
    """Whether a launch is an object of an operator instead of a pod."""
    return bool(launch.template.get("kind", "Pod") != "Pod")


def refusal(launch: Launch, kind: OperatorKind | None, resource: Resource | None) -> str:
    """Why a launch cannot be an object of an operator; empty when it can."""
    if kind is None:
        return f"the cluster cannot run {launch.template.get('apiVersion')} {launch.template.get('kind')} as a job"
    if resource is None:
        name = f"{kind.kind} ({kind.plural}.{kind.group})"
        return f"the cluster has no {name}, or we may not list it: is {kind.operator} installed?"
    if asked := templates.refused(launch.template, scheduler=SCHEDULER):
        return f"{asked} is not allowed in jobs of this cluster"
    return ""


def resource_of(kind: OperatorKind, version: str) -> Resource:
    return Resource(kind.group, version, kind.plural, kind.kind)


def manifest(launch: Launch, settings: PodSettings, resource: Resource) -> Object:
    """The object as its user wrote it, with a name and labels by which it is found again; its pods name the job's queue."""
    job, _, _ = parse_attempt(launch.attempt)
    kind = kind_of(launch.template)
    ours = kind is not None and kind.group == "batch.paddlepaddle.org"
    given: Mapping[str, Any] = launch.template.get("metadata") or {}
    made = resource.object(object_name(launch.attempt), launch.namespace or settings.namespace)
    made |= {
        key: _charged(value, launch.queue, ours)
        for key, value in launch.template.items()
        if key not in {"apiVersion", "kind", "metadata", "status"}
    }
    made["metadata"] |= {
        "labels": {**(given.get("labels") or {}), **launch.labels, JOB_LABEL: job, CLUSTER_LABEL: settings.label},
        "annotations": {**(given.get("annotations") or {}), **launch.annotations, ATTEMPT: launch.attempt},
        "finalizers": [ATTEMPT],
    }
    return made


def _charged(found: Any, queue: str, ours: bool) -> Any:
    """The same with the queue named in pod templates, for the engine that places such pods: those that name its scheduler, and those of
    our own operator, which names it. Pods of other schedulers are left alone, for a queue of the platform is none of theirs."""
    if isinstance(found, list):
        return [_charged(each, queue, ours) for each in found]
    if not isinstance(found, Mapping):
        return found
    spec = found.get("spec")
    if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
        scheduler = spec.get("schedulerName") or (SCHEDULER if ours else "")
        if scheduler != SCHEDULER:
            return found
        metadata = found.get("metadata") or {}
        return {**found, "metadata": {**metadata, "annotations": {QUEUE: queue, **(metadata.get("annotations") or {})}}}
    return {key: _charged(value, queue, ours) for key, value in found.items()}


def as_pod(obj: Object) -> Object:
    """What a cache keeps of an object: the view of a pod, as `status` reads it."""
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "annotations", "finalizers", "creationTimestamp", "deletionTimestamp")
    found, status = progress(obj), obj.get("status") or {}
    began = status.get("startTime") or status.get("startedAt") or metadata.get("creationTimestamp")
    state: Object = {}
    shown: Object = {"phase": "Pending"}
    if found.phase == "succeeded":
        ended = status.get("completionTime") or status.get("finishedAt") or status.get("endTime")
        state = {"terminated": {"exitCode": 0, "startedAt": began, "finishedAt": ended}}
    elif found.phase != "pending":
        state = {"running": {"startedAt": began}}
    if found.phase == "failed":
        shown = {
            "phase": "Failed",
            "reason": f"{obj.get('kind')} failed",
            "message": found.message or "it says no reason",
        }
    elif metadata.get("deletionTimestamp") and FOREGROUND not in (metadata.get("finalizers") or ()):
        shown = {"phase": "Failed", "reason": "Deleted", "message": f"its {obj.get('kind')} was deleted"}
    shown["containerStatuses"] = [{"name": CONTAINER, "state": state}] if state else []
    return {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {CUSTOM: True},
        "status": shown,
    }


def progress(obj: View) -> Progress:
    """What an operator's status says."""
    kind, status = kind_of(obj), obj.get("status")
    if kind is None or not isinstance(status, Mapping):
        return Progress()
    return _READERS[kind.group](status)


def _by_conditions(status: Mapping[str, Any]) -> Progress:
    """Kubeflow's: the last true condition of a few kinds."""
    true = {
        str(each.get("type")): str(each.get("message") or "")
        for each in status.get("conditions") or ()
        if isinstance(each, Mapping) and each.get("status") == "True"
    }
    for name, phase in (
        ("Failed", "failed"),
        ("Succeeded", "succeeded"),
        ("Running", "running"),
        ("Restarting", "running"),
    ):
        if name in true:
            return Progress(phase, true[name])
    return Progress("pending", true.get("Created", ""))


def _by_word(*path: str, message: tuple[str, ...], words: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Progress]:
    """One word somewhere in the status."""

    def read(status: Mapping[str, Any]) -> Progress:
        return Progress(words.get(_text(status, path), "pending"), _text(status, message))

    return read


def _text(status: Mapping[str, Any], path: tuple[str, ...]) -> str:
    found: Any = status
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return str(found or "")


def _of_ray(status: Mapping[str, Any]) -> Progress:
    said = str(status.get("message") or "")
    if status.get("jobDeploymentStatus") == "Failed":
        return Progress("failed", said or str(status.get("reason") or ""))
    words = {"RUNNING": "running", "SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "failed"}
    return Progress(words.get(str(status.get("jobStatus") or ""), "pending"), said)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Progress]] = {
    "kubeflow.org": _by_conditions,
    "ray.io": _of_ray,
    "argoproj.io": _by_word(
        "phase",
        message=("message",),
        words={"Running": "running", "Succeeded": "succeeded", "Failed": "failed", "Error": "failed"},
    ),
    "batch.paddlepaddle.org": _by_word(
        "phase",
        message=("message",),
        words={
            "Running": "running", "Restarting": "running", "Scaling": "running", "Completing": "running", "Completed": "succeeded", "Succeed": "succeeded",
            "Failed": "failed", "Aborted": "failed", "Terminated": "failed",
        },
    ),
    "sparkoperator.k8s.io": _by_word(
        "applicationState", "state",
        message=("applicationState", "errorMessage"),
        words={
            "RUNNING": "running", "SUCCEEDING": "running", "PENDING_RERUN": "running", "FAILING": "running",
            "COMPLETED": "succeeded", "FAILED": "failed", "SUBMISSION_FAILED": "failed", "INVALIDATING": "running",
        },
    ),
}  # fmt: skip
