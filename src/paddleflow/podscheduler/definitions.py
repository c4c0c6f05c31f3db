"""The definitions of Queue and PodGroup, for clusters without Volcano: its group, version and fields, so that objects move
between the two unchanged. Pure."""

from __future__ import annotations

from typing import Any

GROUP, VERSION = "scheduling.volcano.sh", "v1beta1"
_AMOUNTS = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_QUEUE = {
    "weight": {"type": "integer", "format": "int32", "minimum": 1, "default": 1},
    "parent": {"type": "string"},
    "capability": _AMOUNTS,
    "deserved": _AMOUNTS,
    "guarantee": {"type": "object", "properties": {"resource": _AMOUNTS}},
    "reclaimable": {"type": "boolean"},
    "priority": {"type": "integer", "format": "int32"},
    "type": {"type": "string"},
}
_PODGROUP = {
    "minMember": {"type": "integer", "format": "int32"},
    "minTaskMember": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
    "queue": {"type": "string", "default": "default"},
    "priorityClassName": {"type": "string"},
    "minResources": _AMOUNTS,
}


def _definition(
    kind: str, plural: str, scope: str, spec: dict[str, Any], columns: list[tuple[str, str, str]], short: list[str]
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": spec, "x-kubernetes-preserve-unknown-fields": True},
            "status": _STATUS,
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": name, "type": type_, "jsonPath": path} for name, type_, path in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
            },
            "scope": scope,
            "versions": [version],
        },
    }


def definitions() -> list[dict[str, Any]]:
    """For `paddleflow scheduler --crd`."""
    age = ("Age", "date", ".metadata.creationTimestamp")
    queue = [("State", "string", ".status.state"), ("Parent", "string", ".spec.parent"), age]
    group = [
        ("Status", "string", ".status.phase"),
        ("minMember", "integer", ".spec.minMember"),
        ("Running", "integer", ".status.running"),
        ("Queue", "string", ".spec.queue"),
        age,
    ]
    return [
        _definition("Queue", "queues", "Cluster", _QUEUE, queue, ["q", "queue-v1beta1"]),
        _definition("PodGroup", "podgroups", "Namespaced", _PODGROUP, group, ["pg", "podgroup-v1beta1"]),
    ]
