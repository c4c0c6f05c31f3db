"""An attempt as a pod: its name and manifest, and what the status of a pod or a node means. Pure.

The name follows from the attempt, so that creating it twice is refused by the API server instead of happening. A finalizer keeps
the pod, and with it the exit code, until the platform has recorded the end: whoever deletes the pod, and while no server runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources, parse_milli, parse_quantity
from paddleflow.kube.resources import CONFIG_MAPS, PODS, Object, View
from paddleflow.runtimes.runtime import Ended, Launch, Mount, NodeInfo

CLUSTER_LABEL = "paddleflow.org/cluster"  #: on every pod of a runtime; caches select by it
ATTEMPT = "paddleflow.org/attempt"  #: annotation with the attempt's id, and the finalizer
STOPPED = "paddleflow.org/stopped"  #: annotation: why the platform deleted the pod, in words
CONTAINER = "main"
FOLDER = "/paddleflow/jobs"
LOST_AFTER = 30.0  #: seconds after which a pod that should have ended is given up: its node does not answer
#: reasons for which a container waits that rarely go away by themselves
STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")
_LONGEST_NAME = 63
_LABEL = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]?")


def pod_name(attempt: AttemptId) -> str:
    """A DNS label: the attempt's id where that is one but for its dots, else its beginning and a digest."""
    plain = attempt.lower().replace(".", "-")
    is_label = len(plain) <= _LONGEST_NAME and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", plain)
    if is_label and plain == attempt.replace(".", "-"):
        return plain
    digest = hashlib.sha256(attempt.encode()).hexdigest()[:12]
    kept = re.sub(r"[^-a-z0-9]+", "-", plain).strip("-")[: _LONGEST_NAME - 13].rstrip("-") or "attempt"
    return f"{kept}-{digest}"


def job_folder(job: str) -> str:
    return f"{FOLDER}/{job}"


def refusal(launch: Launch, default_image: str) -> str:
    """Why a launch cannot be a pod; empty when it can."""
    if not (launch.image or default_image):
        return "the job names no image, and its cluster has no default one"
    for mount in launch.mounts:
        if not mount.location.startswith("/"):
            return f"storage {mount.storage} cannot be mounted in a pod yet: {mount.location or 'it has no folder'}"
    return ""


def config_map(launch: Launch, namespace: str, cluster: str) -> Object | None:
    """The small files of a launch; None when it has none."""
    if not launch.files:
        return None
    made = CONFIG_MAPS.object(pod_name(launch.attempt), namespace, data=_keyed(launch.files), immutable=True)
    made["metadata"]["labels"] = {CLUSTER_LABEL: cluster}
    return made


def _keyed(files: Mapping[str, str]) -> dict[str, str]:
    return {f"file-{number}": text for number, (_, text) in enumerate(sorted(files.items()))}


def pod(launch: Launch, namespace: str, cluster: str, default_image: str = "") -> Object:
    job = launch.attempt.split(".", 1)[0]
    volumes: list[Object] = [{"name": "work", "emptyDir": {}}]
    mounts: list[Object] = [{"name": "work", "mountPath": job_folder(job)}]
    if launch.files:
        volumes.append({"name": "files", "configMap": {"name": pod_name(launch.attempt)}})
        for number, name in enumerate(sorted(launch.files)):
            mounts.append({"name": "files", "mountPath": f"{job_folder(job)}/{name}", "subPath": f"file-{number}"})
    for number, mount in enumerate(launch.mounts):
        volumes.append({"name": f"storage-{number}", "hostPath": {"path": mount.location, "type": "Directory"}})
        mounts.append(_storage(f"storage-{number}", mount))
    container: Object = {
        "name": CONTAINER,
        "image": launch.image or default_image,
        "command": list(launch.command),
        "env": [{"name": name, "value": value} for name, value in launch.env.items()],
        "workingDir": launch.working_dir or job_folder(job),
        "volumeMounts": mounts,
        "resources": _resources(launch),
    }
    if launch.ports:
        container["ports"] = [{"containerPort": port} for port in launch.ports]
    if launch.ready_port is not None:
        container["readinessProbe"] = {"tcpSocket": {"port": launch.ready_port}, "periodSeconds": 1}
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
    }
    if launch.node:
        spec["nodeName"] = launch.node
    made = PODS.object(pod_name(launch.attempt), namespace, spec=spec)
    made["metadata"] |= {
        "labels": {**{k: v for k, v in launch.labels.items() if _LABEL.fullmatch(v)}, CLUSTER_LABEL: cluster},
        "annotations": {ATTEMPT: launch.attempt},
        "finalizers": [ATTEMPT],
    }
    return made


def _storage(volume: str, mount: Mount) -> Object:
    made: Object = {"name": volume, "mountPath": mount.target, "readOnly": mount.read_only}
    return {**made, "subPath": mount.sub_path} if mount.sub_path else made


def _resources(launch: Launch) -> Object:
    found: Object = {"requests": _amounts(launch.request)}
    if launch.limit is not None:
        found["limits"] = _amounts(launch.limit)
    # An extended resource needs a limit, equal to its request.
    scalars = {name: text for name, text in found["requests"].items() if name not in {"cpu", "memory"}}
    if scalars:
        found["limits"] = {**(found.get("limits") or {}), **scalars}
    return found


def _amounts(amount: Resources) -> dict[str, str]:
    found = {"cpu": f"{amount.cpu}m" if amount.cpu else "", "memory": str(amount.memory) if amount.memory else ""}
    found |= {name: str(value // 1000) for name, value in amount.scalars}
    return {name: text for name, text in found.items() if text}


# ---- what a status means -------------------------------------------------------------------------------------------


def trimmed(obj: Object) -> Object:
    """What a cache stores of a pod."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    kept = ("name", "namespace", "uid", "annotations", "finalizers", "creationTimestamp", "deletionTimestamp")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"nodeName": obj.get("spec", {}).get("nodeName", "")},
        "status": {
            name: status[name]
            for name in ("phase", "reason", "message", "containerStatuses", "conditions")
            if name in status
        },
    }


def trimmed_node(obj: Object) -> Object:
    metadata, status = obj["metadata"], obj.get("status") or {}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {"unschedulable": bool(obj.get("spec", {}).get("unschedulable"))},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "addresses": status.get("addresses") or [],
            "ready": any(
                each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ()
            ),
        },
    }


def attempt_of(found: View) -> AttemptId:
    return AttemptId(str((found["metadata"].get("annotations") or {}).get(ATTEMPT, "")))


def held(found: View) -> bool:
    """Whether the platform has not forgotten it."""
    return ATTEMPT in (found["metadata"].get("finalizers") or ())


def _state(found: View) -> View:
    statuses = (found.get("status") or {}).get("containerStatuses") or ()
    state: View = next((each.get("state") or {} for each in statuses if each.get("name") == CONTAINER), {})
    return state


def started_at(found: View) -> float | None:
    state = _state(found)
    return moment((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def is_ready(found: View, probed: bool) -> bool:
    """Whether others may rely on it; `probed`: it has a readiness probe, whose answer counts."""
    if started_at(found) is None:
        return False
    conditions = found["status"].get("conditions") or ()
    return not probed or any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def stuck(found: View) -> str:
    """Why its container cannot start, if that is known: reason and message."""
    waiting = _state(found).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    return f"{reason}: {waiting.get('message') or ''}".strip(": ") if reason in STUCK else ""


def node_of(found: View) -> str:
    """The node that its pod is bound to; empty when there is none yet."""
    return str(found["spec"].get("nodeName") or "")


def ended(found: View, now: float) -> Ended | None:
    """The end of an attempt, if its pod has ended, or will never say so."""
    metadata, status = found["metadata"], found.get("status") or {}
    attempt, stopped = attempt_of(found), (metadata.get("annotations") or {}).get(STOPPED, "")
    terminated: Mapping[str, Any] = _state(found).get("terminated") or {}
    if terminated and "exitCode" in terminated:
        reason = str(terminated.get("reason") or "")
        message = "its memory limit was reached (OOMKilled)" if reason == "OOMKilled" else status.get("message", "")
        at = moment(terminated.get("finishedAt")) or now
        code, began = int(terminated["exitCode"]), moment(terminated.get("startedAt"))
        return Ended(attempt, at, code, stopped or message, began, node=node_of(found))
    began = started_at(found)
    if status.get("phase") in {"Failed", "Succeeded"}:
        message = f"{status.get('reason') or 'Failed'}: {status.get('message') or 'its pod failed'}"
        return Ended(attempt, now, None, stopped or message, began, node=node_of(found))
    going = moment(metadata.get("deletionTimestamp"))
    if going is None:
        return None
    if not (node := node_of(found)):
        return Ended(attempt, now, None, stopped or "its pod was deleted before it started")
    if now > going + LOST_AFTER:
        return Ended(attempt, now, None, stopped or f"lost: node {node} does not answer", began, node=node)
    return None


def moment(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


def node_info(found: View) -> NodeInfo:
    """A node as the scheduler sees it: what pods may use of it."""
    status = found["status"]
    amounts: Mapping[str, str] = status["allocatable"]
    addresses = {each.get("type"): each.get("address") for each in status["addresses"]}
    scalars = {name: parse_milli(text) for name, text in amounts.items() if "/" in name}
    return NodeInfo(
        name=found["metadata"]["name"],
        address=str(addresses.get("InternalIP") or found["metadata"]["name"]),
        capacity=Resources.of(
            parse_milli(amounts.get("cpu", "0")), parse_quantity(amounts.get("memory", "0")), scalars
        ),
        labels=found["metadata"]["labels"],
        schedulable=status["ready"] and not found["spec"]["unschedulable"],
    )
