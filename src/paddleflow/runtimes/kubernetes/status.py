"""What the status of a pod or a node means for the platform. Pure."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources, format_bytes, parse_milli, parse_quantity, total
from paddleflow.base.values import dataclass
from paddleflow.kube.resources import Object, View
from paddleflow.runtimes.kubernetes import environments, storages
from paddleflow.runtimes.kubernetes.pods import ATTEMPT, CLUSTER_LABEL, CODE_CONTAINER, CONTAINER, DISK, SENT_CODE
from paddleflow.runtimes.runtime import Ended, NodeInfo

STOPPED = "paddleflow.org/stopped"  #: annotation: why the platform deleted the pod, in words
ROOT_IMAGE = (
    "its image runs as root, or as a user without a number, which its queue does not allow: give the image a USER with a number; "
    "who looks after the cluster can set runAsUser, or name the queue in rootQueues"
)
CUSTOM = "custom"  #: field of a view of something that is no pod (`custom_objects`)
LOST_AFTER = 30.0  #: seconds after which a pod that should have ended is given up: its node does not answer
#: reasons for which a container waits that rarely go away by themselves
STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")
_NOT_FOUND = (
    "ContainerStatusUnknown"  #: never started, or lost from sight: the exit code with it is the kubelet's invention
)
_NEVER_RAN = ("StartError", "ContainerCannotRun")  #: reasons of containers whose program could not be started
SIGNAL_NAMES = {int(each): each.name for each in signal.Signals}
_OF_NODES = (
    "NodeShutdown",
    "NodeLost",
    "Terminated",
    "Shutdown",
    "Preempting",
)  #: reasons of pods that their node gave up
_KEEPS_AWAY = ("NoSchedule", "NoExecute")  #: effects of taints
_OVER = ("Succeeded", "Failed")  #: phases in which a pod holds nothing


@dataclass(frozen=True, slots=True)
class OtherPod:
    """A pod that this platform did not make: what it takes of its node."""

    node: str
    request: Resources


def kept(cluster: str) -> Callable[[Object], Object | OtherPod]:
    """What the cache of all pods keeps of each: much of our own, little of all others."""

    def transform(obj: Object) -> Object | OtherPod:
        if (obj["metadata"].get("labels") or {}).get(CLUSTER_LABEL) == cluster:
            return trimmed(obj)
        over = (obj.get("status") or {}).get("phase") in _OVER
        node = "" if over else str(obj.get("spec", {}).get("nodeName") or "")
        return OtherPod(node, requested(obj.get("spec") or {}) if node else Resources())

    return transform


def trimmed(obj: Object) -> Object:
    """What a cache stores of a pod of ours."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    names = ("name", "namespace", "uid", "annotations", "finalizers", "creationTimestamp", "deletionTimestamp")
    containers = obj.get("spec", {}).get("containers") or ()
    limits: Mapping[str, Any] = next(
        ((each.get("resources") or {}).get("limits") or {} for each in containers if each.get("name") == CONTAINER), {}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"nodeName": obj.get("spec", {}).get("nodeName", ""), "memory": limits.get("memory", "")},
        "status": {
            name: status[name]
            for name in ("phase", "reason", "message", "containerStatuses", "initContainerStatuses", "conditions")
            if name in status
        },
    }


def requested(spec: View) -> Resources:
    """What a pod holds of its node, as Kubernetes counts it: its containers and those that run beside them, or its largest step
    before them, or what is said of the pod as a whole; and its overhead."""
    beside = Resources()
    most = Resources()
    for each in spec.get("initContainers") or ():
        own = _amount((each.get("resources") or {}).get("requests"))
        if each.get("restartPolicy") == "Always":
            beside = beside + own
            most = _larger(most, beside)
        else:
            most = _larger(most, beside + own)
    running = total(_amount((each.get("resources") or {}).get("requests")) for each in spec.get("containers") or ())
    found = _larger(most, running + beside)
    whole = (spec.get("resources") or {}).get("requests") or {}
    if whole:
        own = _amount(whole)
        found = Resources(
            own.cpu if "cpu" in whole else found.cpu, own.memory if "memory" in whole else found.memory, found.scalars
        )
    return found + _amount(spec.get("overhead"))


def _amount(amounts: Mapping[str, Any] | None) -> Resources:
    given = amounts or {}
    scalars = {name: _number(parse_milli, text) for name, text in given.items() if "/" in name or name == DISK}
    return Resources.of(
        _number(parse_milli, given.get("cpu", "0")), _number(parse_quantity, given.get("memory", "0")), scalars
    )


def _number(parse: Callable[[str], int], text: object) -> int:
    """An amount that somebody else wrote; one that cannot be read counts as nothing, instead of stopping the watch."""
    try:
        return parse(str(text))
    except ValueError:
        return 0


def _larger(one: Resources, other: Resources) -> Resources:
    names = {name for name, _ in (*one.scalars, *other.scalars)}
    return Resources.of(
        max(one.cpu, other.cpu),
        max(one.memory, other.memory),
        {name: max(one.scalar(name), other.scalar(name)) for name in names},
    )


# ---- pods of ours --------------------------------------------------------------------------------------------------


def attempt_of(found: View) -> AttemptId:
    return AttemptId(str((found["metadata"].get("annotations") or {}).get(ATTEMPT, "")))


def held(found: View) -> bool:
    """Whether the platform has not forgotten it."""
    return ATTEMPT in (found["metadata"].get("finalizers") or ())


def _states(found: View) -> Iterable[View]:
    """The states of the step before the container, and of the container itself."""
    status = found.get("status") or {}
    for name in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(name) or ():
            yield each.get("state") or {}


def _state(found: View) -> View:
    statuses = (found.get("status") or {}).get("containerStatuses") or ()
    state: View = next((each.get("state") or {} for each in statuses if each.get("name") == CONTAINER), {})
    return state


def started_at(found: View) -> float | None:
    state = _state(found)
    if (state.get("terminated") or {}).get("reason") in _NEVER_RAN:
        return None
    return moment((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def is_ready(found: View, probed: bool) -> bool:
    """Whether others may rely on it; `probed`: it has a readiness probe, whose answer counts."""
    if started_at(found) is None:
        return False
    conditions = found["status"].get("conditions") or ()
    return not probed or any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def permanent_failure(found: View) -> str:
    """Why its container will never start, in words; empty when it may."""
    if started_at(found) is not None:
        return ""
    for state in _states(found):
        if "runAsNonRoot" in str((state.get("waiting") or {}).get("message") or ""):
            return ROOT_IMAGE
    why, final = storages.failure(found)
    return why if final else ""


def stuck(found: View) -> str:
    """Why its container cannot start, if that is known: reason and message."""
    for state in _states(found):
        waiting = state.get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason in STUCK:
            return f"{reason}: {waiting.get('message') or ''}".strip(": ")
    return storages.failure(found)[0] if started_at(found) is None else ""


def waits_to_start(found: View, now: float) -> float | None:
    """For how many seconds a pod has been there that should run and does not; None for all others."""
    made = moment(found["metadata"].get("creationTimestamp"))
    if started_at(found) is not None or made is None or "deletionTimestamp" in found["metadata"]:
        return None
    return None if storages.preparing(found) else now - made  # a sidecar gives up by itself


def waits_for_code(found: View) -> tuple[str, str] | None:
    """The user and the snapshot that its pod waits for, if it does."""
    asked = (found["metadata"].get("annotations") or {}).get(SENT_CODE)
    if not asked:
        return None
    for each in (found.get("status") or {}).get("initContainerStatuses") or ():
        if each.get("name") == CODE_CONTAINER and (each.get("state") or {}).get("running"):
            user, snapshot = json.loads(asked)
            return str(user), str(snapshot)
    return None


def node_of(found: View) -> str:
    """The node that its pod is bound to; empty when there is none yet."""
    return str(found["spec"].get("nodeName") or "")


def ended(found: View, now: float) -> Ended | None:
    """The end of an attempt, if its pod has ended, or will never say so."""
    metadata, status = found["metadata"], found.get("status") or {}
    attempt, stopped = attempt_of(found), (metadata.get("annotations") or {}).get(STOPPED, "")
    taken = "" if stopped else disruption(found)
    terminated: Mapping[str, Any] = _state(found).get("terminated") or {}
    if terminated.get("reason") in _NEVER_RAN:
        return Ended(attempt, now, None, _not_started(str(terminated.get("message") or "")))
    going = moment(metadata.get("deletionTimestamp"))
    if terminated and "exitCode" in terminated:
        if storages.at_work(found) and not (going is not None and now > going + LOST_AFTER):
            return None  # what the program wrote is on its way
        at = moment(terminated.get("finishedAt")) or now
        code, began = int(terminated["exitCode"]), moment(terminated.get("startedAt"))
        failed, _ = storages.failure(found)
        message = stopped or taken or failed or _why(found, terminated)
        unknown = terminated.get("reason") == _NOT_FOUND and code
        left = None if unknown else code or None if failed else code
        return Ended(attempt, at, left, message, began, node=node_of(found), disrupted=bool(taken and code))
    began, node = started_at(found), node_of(found)
    if status.get("phase") in _OVER:
        message = (
            _failed_before(found) or f"{status.get('reason') or 'Failed'}: {status.get('message') or 'its pod failed'}"
        )
        message = stopped or taken or message
        return Ended(attempt, now, None, message, began, node=node, disrupted=bool(taken))
    if going is None or CUSTOM in found["spec"]:  # what an operator's object owns goes before it
        return None
    if not node:
        message = stopped or "its pod was deleted before it started"
        return Ended(attempt, now, None, message, disrupted=not stopped)
    if now > going + LOST_AFTER:
        message = stopped or f"lost: node {node} does not answer"
        return Ended(attempt, now, None, message, began, node=node, disrupted=not stopped)
    return None


def disruption(found: View) -> str:
    """What the cluster did to a pod that is no fault of its program; empty when nothing."""
    status = found.get("status") or {}
    if CUSTOM in found["spec"]:
        return ""
    for each in status.get("conditions") or ():
        if each.get("type") != "DisruptionTarget" or each.get("status") != "True":
            continue
        said = str(each.get("message") or each.get("reason") or "")
        if "exceed" in said or "exceed" in str(status.get("message") or ""):
            return ""  # it used more than it asked for
        return f"taken away from node {node_of(found)}: {said}"
    if status.get("reason") in _OF_NODES:
        return f"taken away from node {node_of(found)}: {status.get('message') or status['reason']}"
    return "its pod was deleted by somebody" if found["metadata"].get("deletionTimestamp") else ""


def _not_started(message: str) -> str:
    """The words of container runtimes about a program that cannot be started, as those of one machine."""
    found = re.search(r'exec: "([^"]*)":? ?(?:stat [^:]*: )?([a-z ]+)', message)
    if found is None:
        return f"its container cannot start: {message}"
    program, why = found[1], found[2].strip()
    if "not found" in why or "no such file" in why:
        return f"command not found: {program}"
    return f"cannot execute {program}: {why}"


def _why(found: View, terminated: Mapping[str, Any]) -> str:
    """What is to be said of an end beside its exit code."""
    status = found.get("status") or {}
    if terminated.get("reason") == "OOMKilled":
        limit = found["spec"].get("memory")
        which = f" of {format_bytes(_number(parse_quantity, limit))}" if limit else ""
        return f"memory limit{which} exceeded"
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message') or ''}".strip(": ")
    if name := SIGNAL_NAMES.get(int(terminated["exitCode"]) - 128):
        return f"ended by {name}"
    return str(status.get("message") or "")


def _failed_before(found: View) -> str:
    """What a step before the container died of."""
    for each in (found.get("status") or {}).get("initContainerStatuses") or ():
        terminated = (each.get("state") or {}).get("terminated") or {}
        code, said = terminated.get("exitCode"), str(terminated.get("message") or "").strip()
        if not code:
            continue
        if each.get("name") == storages.CONTAINER:
            return storages.failure(found)[0]
        if each.get("name") == CODE_CONTAINER:
            return f"its code could not be unpacked (exit code {code}): the image must have /bin/sh and tar {said}".rstrip()
        name = str(each.get("name") or "")
        return environments.failure(name, code, said) or f"its init container {name} ended with {code} {said}".rstrip()
    return ""


def moment(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


# ---- nodes ---------------------------------------------------------------------------------------------------------


def trimmed_node(obj: Object) -> Object:
    metadata, status, spec = obj["metadata"], obj.get("status") or {}, obj.get("spec") or {}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {
            "unschedulable": bool(spec.get("unschedulable")),
            "taints": [each for each in spec.get("taints") or () if each.get("effect") in _KEEPS_AWAY],
        },
        "status": {
            "allocatable": status.get("allocatable") or {},
            "addresses": status.get("addresses") or [],
            "version": (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
            "ready": any(
                each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ()
            ),
        },
    }


def node_info(found: View, taken: Resources, tolerations: Sequence[Mapping[str, str]] = ()) -> NodeInfo:
    """A node as the scheduler sees it: what pods may use of it, and what others' pods hold."""
    status = found["status"]
    addresses = {each.get("type"): each.get("address") for each in status["addresses"]}
    return NodeInfo(
        name=found["metadata"]["name"],
        address=str(addresses.get("InternalIP") or found["metadata"]["name"]),
        capacity=_amount(status["allocatable"]),
        labels=found["metadata"]["labels"],
        schedulable=status["ready"] and not found["spec"]["unschedulable"],
        taken=taken,
        taints=tuple(
            _taint(each)
            for each in found["spec"]["taints"]
            if not _is_state(each) and not any(_tolerates(toleration, each) for toleration in tolerations)
        ),
        version=status["version"],
    )


def _taint(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _is_state(taint: Mapping[str, str]) -> bool:
    """Kubernetes marks nodes that are cordoned or not ready by taints too; `schedulable` says that already."""
    return str(taint.get("key", "")) in {
        "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
    }  # fmt: skip


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    same = toleration["key"] == taint.get("key")
    return same and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
