"""Kubernetes objects as job documents: what the local runtime can read of an ``extensionTemplate``.

A Pod gives its first container's command, arguments, environment and resources; the framework objects give one member
per replica spec. What only a cluster can honour (volumes, affinity, probes …) is kept in the job's record untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from paddleflow.errors import Invalid
from paddleflow.spec.document import parse
from paddleflow.spec.job import JobSpec, MemberDocument

S = TypeVar("S", bound=JobSpec)
AddFault = Callable[[str, str], None]

#: kind → (path to the replica specs, role of each key)
REPLICA_SPECS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "PaddleJob": (("spec",), {"ps": "pserver", "worker": "worker"}),
    "PyTorchJob": (("spec", "pytorchReplicaSpecs"), {"master": "master", "worker": "worker"}),
    "TFJob": (("spec", "tfReplicaSpecs"), {"ps": "pserver", "chief": "master", "master": "master", "worker": "worker"}),
    "MPIJob": (("spec", "mpiReplicaSpecs"), {"launcher": "master", "worker": "worker"}),
}


def spec_of_pod(document: S, template: Mapping[str, Any], where: str, fault: AddFault) -> S:
    """`document` with what its Pod template says filled in; the document's own fields win."""
    kind = template.get("kind", "Pod")
    if kind != "Pod":
        fault(f"{where}.kind", f"a single job is described by a Pod, found {str(kind)[:40]}")
        return document
    changes = {k: v for k, v in _container(template, where, fault).items() if not getattr(document, k)}
    return document.model_copy(update=changes)


def members_of_template(template: Mapping[str, Any], fault: AddFault) -> list[MemberDocument]:
    """The members that a framework object describes."""
    kind = str(template.get("kind", ""))
    if kind not in REPLICA_SPECS:
        fault("extensionTemplate.kind", f"kind[{kind[:40]}] is not one of {', '.join(REPLICA_SPECS)}")
        return []
    path, roles = REPLICA_SPECS[kind]
    specs: Any = template
    for part in path:
        specs = specs.get(part) if isinstance(specs, Mapping) else None
    members = []
    for key, spec in specs.items() if isinstance(specs, Mapping) else ():
        role = roles.get(str(key).lower())
        if role is None or not isinstance(spec, Mapping):
            continue
        where = f"extensionTemplate.{'.'.join(path)}.{key}"
        found = _container(spec.get("template") or {}, f"{where}.template", fault)
        try:
            member = parse(MemberDocument, {"role": role, "replicas": spec.get("replicas", 1)})
        except Invalid as error:
            fault(where, error.message)
            continue
        members.append(member.model_copy(update=found))
    return members


def _container(template: Any, where: str, fault: AddFault) -> dict[str, Any]:
    """What a pod template's first container says, as fields of a JobSpec."""
    spec = template.get("spec") if isinstance(template, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], Mapping):
        fault(f"{where}.spec.containers", "must hold at least one container")
        return {}
    container = containers[0]
    env = {
        str(item["name"]): str(item.get("value", ""))
        for item in container.get("env") or []
        if isinstance(item, Mapping) and "name" in item
    }
    requests = (container.get("resources") or {}).get("requests") or {}
    scalars = {str(k): str(v) for k, v in requests.items() if k not in {"cpu", "memory"}}
    data = {
        "image": str(container.get("image", "")),
        "command": [str(word) for word in container.get("command") or []],
        "args": [str(word) for word in container.get("args") or []],
        "env": env,
    }
    if requests:
        flavour = {"cpu": str(requests.get("cpu", "1")), "mem": str(requests.get("memory", "1Gi"))}
        data["flavour"] = {**flavour, "scalarResources": scalars}
    try:
        read = parse(JobSpec, data)
    except Invalid as error:
        fault(where, error.message)
        return {}
    return {name: getattr(read, name) for name in ("image", "command", "args", "env", "flavour") if name in data}
