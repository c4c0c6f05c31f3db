"""What a pod takes over from the `extensionTemplate` of its job, and what none may ask for. Pure.

The job's own fields (command, image, variables, resources) were read from the first container when the job was submitted. Left are
fields that only pods have: they are taken over as they were written, unless they give rights on the node or in the cluster, which the
platform's users do not have by submitting a job. Those end the attempt with words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paddleflow.kube.resources import Object

Template = Mapping[str, Any]
#: fields of a pod that are taken over
_OF_POD = (
    "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName", "runtimeClassName", "imagePullSecrets",
    "terminationGracePeriodSeconds", "dnsConfig", "dnsPolicy", "hostAliases", "activeDeadlineSeconds",
)  # fmt: skip
#: fields of its first container
_OF_CONTAINER = (
    "imagePullPolicy", "lifecycle", "livenessProbe", "startupProbe", "terminationMessagePath", "terminationMessagePolicy",
)  # fmt: skip
_VOLUMES = ("name", "emptyDir", "persistentVolumeClaim", "ephemeral", "downwardAPI", "configMap")
_ON_THE_NODE = ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostPath", "hostPort", "procMount")
_IDENTITY = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken", "schedulerName", "nodeName")
_CONTAINER_RIGHTS = ("privileged", "allowPrivilegeEscalation")
_OWN_USER = ("runAsUser", "runAsGroup")
NO_CAPABILITIES: Mapping[str, Any] = {"capabilities": {"drop": ["ALL"]}}


def refused(template: Template, *, scheduler: str = "") -> str:
    """The first thing in a template that a job may not ask for, as a path; empty when there is none. `scheduler` may be named."""
    return next(_privileges(template, "extensionTemplate", scheduler), "")


def _privileges(found: Any, where: str, scheduler: str) -> Iterator[str]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            at = f"{where}.{key}"
            wanted = value not in (None, False, "", 0) and not (key == "schedulerName" and value == scheduler)
            if wanted and key in {*_ON_THE_NODE, *_IDENTITY, *_CONTAINER_RIGHTS}:
                yield at
            elif key == "capabilities" and isinstance(value, Mapping) and value.get("add"):
                yield f"{at}.add"
            elif key in {"runAsUser", "runAsGroup"} and value == 0 and not isinstance(value, bool):
                yield at
            else:
                yield from _privileges(value, at, scheduler)
    elif isinstance(found, list):
        for number, each in enumerate(found):
            yield from _privileges(each, f"{where}[{number}]", scheduler)


def unsupported_volume(template: Template) -> str:
    """A volume of a kind that is not taken over, as a path."""
    for number, volume in enumerate(_pod_spec(template).get("volumes") or ()):
        if isinstance(volume, Mapping) and (strange := sorted(set(volume) - set(_VOLUMES))):
            return f"extensionTemplate.spec.volumes[{number}].{strange[0]}"
    return ""


def fill(spec: Object, template: Template, *, root: bool) -> None:
    """Put what a template says into the spec of a pod; `root`: its containers may be root's, and otherwise have no capabilities."""
    for each in () if root else (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["securityContext"].get("runAsUser") != 0:
            each["securityContext"] |= NO_CAPABILITIES
    given = _pod_spec(template)
    if not given:
        return
    for name in _OF_POD:
        if given.get(name):
            own = spec.get(name)
            spec[name] = [*own, *given[name]] if isinstance(own, list) else given[name]
    if given.get("shareProcessNamespace") is False:  # for images whose program must be the first process
        spec["shareProcessNamespace"] = False
    containers = [each for each in given.get("containers") or () if isinstance(each, Mapping)]
    container = spec["containers"][0]
    if containers:
        first = containers[0]
        container |= {name: first[name] for name in _OF_CONTAINER if first.get(name)}
        container["volumeMounts"] = [*container["volumeMounts"], *(first.get("volumeMounts") or ())]
        _add_resources(container, first)
    user = spec["securityContext"].get("runAsUser")
    spec["containers"] += [_restricted(each, user, root) for each in containers[1:]]
    before = [_restricted(each, user, root) for each in given.get("initContainers") or () if isinstance(each, Mapping)]
    if before:
        spec["initContainers"] = [*(spec.get("initContainers") or ()), *before]
    spec["volumes"] = [*spec["volumes"], *(given.get("volumes") or ())]


def _restricted(container: Template, user: int | None, root: bool) -> Object:
    """A container beside the job's: what it says of its rights cannot make more of them than the job's own has."""
    said = container.get("securityContext")
    given = said if isinstance(said, Mapping) else {}
    kept = ("readOnlyRootFilesystem", *(_OWN_USER if user is None else ()))
    rights: Object = {name: given[name] for name in kept if given.get(name) is not None}
    rights |= {"allowPrivilegeEscalation": False, **({} if root else NO_CAPABILITIES)}
    return {**container, "securityContext": rights}


def _add_resources(container: Object, first: Template) -> None:
    """What queues do not count: ephemeral storage, huge pages."""
    for kind, amounts in (first.get("resources") or {}).items():
        if isinstance(amounts, Mapping) and kind in {"requests", "limits"}:
            extra = {name: text for name, text in amounts.items() if name not in {"cpu", "memory"} and "/" not in name}
            container["resources"][kind] = {**extra, **(container["resources"].get(kind) or {})}


def _pod_spec(template: Template) -> Template:
    found = template.get("spec")
    return found if isinstance(found, Mapping) else {}
