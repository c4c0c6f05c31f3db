"""The CustomResourceDefinition, made from the models: one truth for what an API server lets in and what the operator reads.

A structural schema knows no ``$ref``, no ``null`` alternatives and no ``additionalProperties: false``, so the JSON schema that
the models give is rewritten. Of the pod template the names of its fields are spelled out (`TEMPLATE`) and what the operator
relies on is checked (containers, names, images, restartPolicy); the rest when the first pod is created, and the job then says
what was refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paddleflow.spec.document import Document
from paddleflow.spec.paddlejob.model import LONGEST_NAME, NAME_PATTERN, ROLES, PaddleJobSpec, rule
from paddleflow.spec.paddlejob.status import PaddleJobStatus

GROUP, VERSION, KIND, PLURAL = "batch.paddlepaddle.org", "v1", "PaddleJob", "paddlejobs"

_KEPT = (
    "description", "type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "required", "default",
    "x-kubernetes-validations", "x-kubernetes-int-or-string",
)  # fmt: skip


def _column(name: str, path: str, kind: str, description: str, *, wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


_COLUMNS = [
    _column("Status", ".status.phase", "string", "Phase"),
    _column("Mode", ".status.mode", "string", "PS, Collective or Single"),
    _column("Age", ".metadata.creationTimestamp", "date", "Since its creation"),
    _column("Workers", ".spec.worker.replicas", "integer", "Workers wanted", wide=True),
    _column("Failures", ".status.failures", "integer", "Failures so far", wide=True),
    _column("Message", ".status.message", "string", "The phase in words", wide=True),
]


def definition() -> dict[str, Any]:
    """The CRD as a document to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "paddlejob",
                "shortNames": ["pdj"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.worker.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": _COLUMNS,
                }
            ],
        },
    }


def _root() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A distributed PaddlePaddle training job.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _without_defaults(schema_of(PaddleJobStatus)),
        },
        "x-kubernetes-validations": [
            rule(
                f"size(self.metadata.name) <= {LONGEST_NAME}",
                f"metadata.name is longer than {LONGEST_NAME} characters: the names of its pods would not fit in 63",
            ),
            rule(
                f"self.metadata.name.matches('{NAME_PATTERN}')",
                "metadata.name must be lower-case letters, digits and '-', beginning with a letter: it becomes part of DNS names",
            ),
        ],
    }


def _spec() -> dict[str, Any]:
    found = schema_of(PaddleJobSpec)
    for role in ROLES:
        fields = found["properties"][role]["properties"]
        fields["template"] = spelled_out(fields["template"])
    whole: dict[str, Any] = json.loads(json.dumps(found))  # no part is in it twice: YAML would write references
    return whole


def _without_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """A status says what was seen: an API server that filled in zeros would make each of them differ from what was written."""
    inner = {key: _without_defaults(value) if isinstance(value, dict) else value for key, value in node.items()}
    return {key: value for key, value in inner.items() if key != "default"}


def schema_of(kind: type[Document]) -> dict[str, Any]:
    """The structural schema of a document."""
    raw = kind.model_json_schema(by_alias=True, mode="validation")
    return _structural(raw, raw.get("$defs", {}))


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        named = definitions[node["$ref"].rsplit("/", 1)[-1]]
        node = {**named, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        (only,) = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _structural({**only, **rest}, definitions)
    result = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        result |= {"type": "string", "enum": [node["const"]]}
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    if result.get("type") == "integer":
        result["format"] = "int32" if "seconds" not in node.get("title", "").lower() else "int64"
    if "items" in node:
        result["items"] = _structural(node["items"], definitions)
    if "properties" in node:
        result["properties"] = {name: _structural(inner, definitions) for name, inner in node["properties"].items()}
        if node.get("additionalProperties") is True:
            result["x-kubernetes-preserve-unknown-fields"] = True
    elif node.get("type") == "object":
        values = node.get("additionalProperties")
        if isinstance(values, Mapping):
            result["additionalProperties"] = _structural(values, definitions)
        else:
            result["x-kubernetes-preserve-unknown-fields"] = True
    if result.get("default") in ({}, []):
        del result["default"]
    return result


_ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


def _object(names: str, **inner: dict[str, Any]) -> dict[str, Any]:
    properties = {name: inner.get(name, _ANY) for name in sorted({*names.split(), *inner})}
    return {"type": "object", "nullable": True, "properties": properties}


def _list(names: str, **inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "nullable": True, "items": _object(names, **inner)}


_CONTAINERS = _list(
    "args command image imagePullPolicy lifecycle livenessProbe name readinessProbe resizePolicy restartPolicy "
    "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty "
    "volumeDevices workingDir",
    env=_list("name value valueFrom"),
    envFrom=_list("configMapRef prefix secretRef"),
    ports=_list("containerPort hostIP hostPort name protocol"),
    resources=_object("claims limits requests"),
    volumeMounts=_list("mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr"),
)

#: ephemeral containers are not among them: no pod can be made with one
TEMPLATE = _object(
    "metadata",
    spec=_object(
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC "
        "hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeName nodeSelector os overhead "
        "preemptionPolicy priority priorityClassName readinessGates resourceClaims restartPolicy runtimeClassName "
        "schedulerName schedulingGates securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes",
        containers=_CONTAINERS,
        initContainers=_CONTAINERS,
        resources=_object("claims limits requests"),
    ),
)


def spelled_out(schema: dict[str, Any], names: dict[str, Any] = TEMPLATE) -> dict[str, Any]:
    """A schema that let every name in, with those that there are and no others; what it says about a field stays."""
    if "items" in names:
        return {**schema, "items": spelled_out(schema["items"], names["items"])}
    if "properties" not in names:
        return schema
    said = schema["properties"]
    fields = {
        name: spelled_out(said[name], each) if name in said else each for name, each in names["properties"].items()
    }
    loose = "x-kubernetes-preserve-unknown-fields"
    return {**{key: value for key, value in schema.items() if key != loose}, "properties": fields}
