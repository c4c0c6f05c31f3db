"""What the caches store of an object: the few fields that a reconcile reads, because an operator of thousands of pods holds them all.

They are stored packed (`kube.cache.packed`): a pod takes half a kilobyte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.kube.resources import Object
from paddleflow.operator.paddlejob.gang import ADOPTED
from paddleflow.operator.paddlejob.pods import FORMATION, JOB_LABEL, NOTIFIED

_POD_STATUS = ("phase", "podIP", "reason", "message")
#: conditions that are read; that a pod is scheduled shows in its node's name
_CONDITIONS = {("PodScheduled", "False"), ("DisruptionTarget", "True")}
_LISTS = ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_HETER_ENDPOINTS")


def job(obj: Object) -> Object:
    """A job is read whole, but for the history of its fields."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "generation", "deletionTimestamp", "resourceVersion", "finalizers")
    obj["metadata"] = {key: metadata[key] for key in kept if key in metadata}
    return obj


def pod(obj: Object) -> Object:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    first = (spec.get("containers") or [{}])[0]
    kept: Object = {"containers": [{"name": first.get("name", "")}]}
    if node := spec.get("nodeName"):
        kept["nodeName"] = node
    seen = {key: status[key] for key in _POD_STATUS if status.get(key)}
    for key in ("initContainerStatuses", "containerStatuses"):
        if found := [_container(entry) for entry in status.get(key) or ()]:
            seen[key] = found
    if found := [_condition(entry) for entry in status.get("conditions") or () if _says_something(entry)]:
        seen["conditions"] = found
    return {**_head(obj), "spec": kept, "status": seen}


def config_map(obj: Object) -> Object:
    data = obj.get("data") or {}
    return {**_head(obj), "data": {key: data[key] for key in _LISTS if key in data}}


def child(obj: Object) -> Object:
    """A Service: that it is there."""
    return _head(obj)


def pod_group(obj: Object) -> Object:
    head = _head(obj)
    if references := obj["metadata"].get("ownerReferences"):
        head["metadata"]["ownerReferences"] = references
    return {**head, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


def _head(obj: Object) -> Object:
    metadata = obj["metadata"]
    kept: Object = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata["uid"],
    }
    if "deletionTimestamp" in metadata:
        kept["deletionTimestamp"] = metadata["deletionTimestamp"]
    if label := (metadata.get("labels") or {}).get(JOB_LABEL):
        kept["labels"] = {JOB_LABEL: label}
    annotations = metadata.get("annotations") or {}
    if marks := {key: annotations[key] for key in (FORMATION, NOTIFIED, ADOPTED) if key in annotations}:
        kept["annotations"] = marks
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept}


def _container(entry: Mapping[str, Any]) -> Object:
    kept: Object = {"name": entry.get("name", "")}
    if entry.get("restartCount"):
        kept["restartCount"] = entry["restartCount"]
    state = entry.get("state") or {}
    kept["state"] = {"running": {}} if "running" in state else state
    if (last := entry.get("lastState") or {}) and "terminated" in last:
        kept["lastState"] = last
    return kept


def _says_something(entry: Mapping[str, Any]) -> bool:
    return (entry.get("type"), entry.get("status")) in _CONDITIONS


def _condition(entry: Mapping[str, Any]) -> Object:
    return {key: entry[key] for key in ("type", "status", "reason", "message") if entry.get(key)}
