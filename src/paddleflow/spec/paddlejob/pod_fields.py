"""The names of a pod template's fields, so that an API server refuses a misspelt one when the job is applied.

Names, not values: those are checked by the API server that makes the pod, and so are names further inside. The names are those
of the newest Kubernetes that we test with, where a test compares them; an older one refuses what it does not know when the pod is
made. Why not the whole schema: docs/decisions/0021-names-of-a-template.md.
"""

from __future__ import annotations

from typing import Any

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
