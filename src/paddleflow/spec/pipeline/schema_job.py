"""The part of the JSON Schema that describes the `job` block: the words of the job API."""

from __future__ import annotations

from typing import Any

from paddleflow.spec.pipeline.jobs import MOST_REPLICAS, PRIORITIES

_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_AMOUNT: dict[str, Any] = {"type": ["string", "number"]}
_WORDS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]}

_FLAVOUR: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "cpu": _AMOUNT,
                "mem": _AMOUNT,
                "memory": _AMOUNT,
                "scalarResources": _TEXTS,
            },
            "additionalProperties": False,
        },
    ]
}
_MOUNT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "mountPath": {"type": "string"},
        "subPath": {"type": "string"},
        "readOnly": {"type": "boolean"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_POLICY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "queue": {"type": "string"},
        "priority": {"enum": [*PRIORITIES, *(word.lower() for word in PRIORITIES)]},
    },
    "additionalProperties": False,
}
_SPEC: dict[str, Any] = {
    "name": {"type": "string"},
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "schedulingPolicy": _POLICY,
    "scheduling_policy": _POLICY,
    "flavour": _FLAVOUR,
    "limitFlavour": _FLAVOUR,
    "fs": _MOUNT,
    "extraFS": {"type": "array", "items": _MOUNT},
    "image": {"type": "string"},
    "env": _TEXTS,
    "command": _WORDS,
    "args": _WORDS,
    "port": {"type": "integer", "minimum": 0, "maximum": 65534},
    "extensionTemplate": {"type": "object"},
}

JOB_DEFINITIONS: dict[str, Any] = {
    "job": {
        "type": "object",
        "properties": {
            "framework": {"type": "string", "description": "paddle, pytorch, tensorflow, mpi, ray, spark, mxnet"},
            "members": {"type": "array", "items": {"$ref": "#/$defs/member"}},
            **_SPEC,
        },
        "additionalProperties": False,
    },
    "member": {
        "type": "object",
        "properties": {
            "role": {"type": "string", "description": "worker, pserver, master, driver, executor"},
            "replicas": {"type": "integer", "minimum": 1, "maximum": MOST_REPLICAS},
            **_SPEC,
        },
        "required": ["role"],
        "additionalProperties": False,
    },
}
