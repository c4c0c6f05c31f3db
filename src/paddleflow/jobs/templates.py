"""Kubernetes objects as job documents: what the local runtime can read of an ``extensionTemplate``.

A Pod gives its first container's command, arguments, environment and resources; the framework objects give one member
per replica spec. What only a cluster can honour (volumes, affinity, probes, values from secrets …) is kept in the job's
record untouched. A template may hold any JSON: what is not as it should be becomes a fault, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid
from paddleflow.spec.document import parse
from paddleflow.spec.job import FlavourChoice, JobSpec, MemberDocument

S = TypeVar("S", bound=JobSpec)


class AddFault(Protocol):
    """Takes one fault: where, what, and what would be right."""

    def __call__(self, where: str, message: str, hint: str = "", /) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """Where an object of one kind has its replica specs, and which role each of them is."""

    framework: str
    path: tuple[str, ...]
    roles: Mapping[str, str]  #: key in lower case → role
    others: bool = False  #: the replica specs stand among other fields


_PADDLE = {"ps": "pserver", "master": "pserver", "worker": "worker"}
KINDS: Mapping[str, tuple[ReplicaKind, ...]] = {
    "PaddleJob": (
        ReplicaKind("paddle", ("spec", "paddleReplicaSpecs"), _PADDLE),  # kubeflow's
        ReplicaKind("paddle", ("spec",), {"ps": "pserver", "worker": "worker"}, others=True),  # paddle's own
    ),
    "PyTorchJob": (ReplicaKind("pytorch", ("spec", "pytorchReplicaSpecs"), {"master": "master", "worker": "worker"}),),
    "TFJob": (
        ReplicaKind(
            "tensorflow",
            ("spec", "tfReplicaSpecs"),
            {"ps": "pserver", "chief": "master", "master": "master", "worker": "worker"},
        ),
    ),
    "MPIJob": (ReplicaKind("mpi", ("spec", "mpiReplicaSpecs"), {"launcher": "master", "worker": "worker"}),),
}


def spec_of_pod(document: S, template: Mapping[str, Any], fault: AddFault) -> S:
    """`document` with what its Pod template says filled in; the document's own fields win."""
    kind = template.get("kind", "Pod")
    if kind != "Pod":
        fault("extensionTemplate.kind", f"a single job is described by a Pod, found {_shown(kind)}")
        return document
    return _filled(document, _container(template, "extensionTemplate", fault))


def members_of_template(framework: str, template: Mapping[str, Any], fault: AddFault) -> list[MemberDocument]:
    """The members that a framework object describes."""
    name = template.get("kind", "")
    kinds = KINDS.get(name, ()) if isinstance(name, str) else ()
    if not kinds or kinds[0].framework != framework:
        known = [word for word, found in KINDS.items() if found[0].framework == framework]
        hint = f"framework {framework} is described by {known[0]}" if known else "name the members instead"
        fault("extensionTemplate.kind", f"kind[{_shown(name)}] cannot be read for framework {framework}", hint)
        return []
    for kind in kinds:
        specs = _inside(template, kind.path)
        if specs is not None:
            return _members(specs, kind, fault)
    fault("extensionTemplate.spec", f"a {name} without {'.'.join(kinds[0].path)} describes no member")
    return []


def _inside(template: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any] | None:
    found: Any = template
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _members(specs: Mapping[str, Any], kind: ReplicaKind, fault: AddFault) -> list[MemberDocument]:
    members = []
    for key, spec in specs.items():
        where = f"extensionTemplate.{'.'.join(kind.path)}.{key[:80]}"
        role = kind.roles.get(key.lower())
        if role is None:
            if not kind.others:
                fault(where, f"is none of the roles {', '.join(kind.roles)}")
        elif not isinstance(spec, Mapping):
            fault(where, f"must be an object, found {_shown(spec)}")
        else:
            found = _container(spec.get("template"), f"{where}.template", fault)
            try:
                member = parse(MemberDocument, {"role": role, "replicas": spec.get("replicas", 1)})
            except Invalid as error:
                _pass_on(error, where, fault)
                continue
            members.append(_filled(member, found))
    return members


def _filled(document: S, found: Mapping[str, Any]) -> S:
    """What the template says, where the document says nothing; variables are taken from both."""
    nothing = FlavourChoice()
    changes = {name: value for name, value in found.items() if getattr(document, name) in ("", [], {}, nothing)}
    if "env" in found:
        changes["env"] = {**found["env"], **document.env}
    return document.model_copy(update=changes)


def _container(template: Any, where: str, fault: AddFault) -> dict[str, Any]:
    """What a pod template's first container says, as fields of a JobSpec."""
    containers = _inside(template, ("spec",)) if isinstance(template, Mapping) else None
    found = containers.get("containers") if containers is not None else None
    if not isinstance(found, list) or not found or not isinstance(found[0], Mapping):
        fault(f"{where}.spec.containers", "must hold at least one container")
        return {}
    container, at_pod, where = found[0], f"{where}.spec.resources", f"{where}.spec.containers[0]"
    data = {key: container[key] for key in ("image", "command", "args") if container.get(key) is not None}
    data["env"] = _env(container.get("env"), f"{where}.env", fault)
    whole = containers.get("resources") if containers is not None else None
    if whole is None:
        data |= _flavours(container.get("resources"), f"{where}.resources", fault)
    else:
        data |= _flavours(_of_pod(container.get("resources"), whole), at_pod, fault)
    try:
        read = parse(JobSpec, data)
    except Invalid as error:
        _pass_on(error, where, fault)
        return {}
    names = {"limitFlavour": "limit_flavour"}
    return {names.get(key, key): getattr(read, names.get(key, key)) for key in data}


def _env(value: Any, where: str, fault: AddFault) -> dict[str, Any]:
    """Variables that are written out; those that come from elsewhere are a cluster's business."""
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(item, Mapping) and "name" in item for item in value):
        fault(where, "must be a list of objects with name and value")
        return {}
    return {str(item["name"]): item.get("value") or "" for item in value if "valueFrom" not in item}


def _of_pod(own: Any, whole: Any) -> Any:
    """Pod-level resources count instead of the containers'; what they do not name is the container's."""
    if not isinstance(own, Mapping) or not isinstance(whole, Mapping):
        return whole
    kinds = [kind for kind in ("requests", "limits") if own.get(kind) or whole.get(kind)]
    both = {kind: (own.get(kind) or {}, whole.get(kind) or {}) for kind in kinds}
    if not all(isinstance(each, Mapping) for pair in both.values() for each in pair):
        return whole
    return {kind: {**of_own, **of_pod} for kind, (of_own, of_pod) in both.items()}


def _flavours(value: Any, where: str, fault: AddFault) -> dict[str, Any]:
    """requests as the flavour, limits as its limit; limits alone stand for both, as in a cluster."""
    value = {} if value is None else value
    amounts = {key: value.get(key) or {} for key in ("requests", "limits")} if isinstance(value, Mapping) else {}
    if not amounts or not all(isinstance(amount, Mapping) for amount in amounts.values()):
        fault(where, "must be an object with requests and limits")
        return {}
    requests, limits = amounts["requests"], amounts["limits"]
    if not limits:
        return {"flavour": _flavour(requests)} if requests else {}
    if not requests:
        return {"flavour": _flavour(limits)}
    return {"flavour": _flavour(requests), "limitFlavour": _flavour({**requests, **limits})}


def _flavour(amount: Mapping[str, Any]) -> dict[str, Any]:
    """Only resources with a domain are counted by queues; storage and huge pages are left to the cluster."""
    scalars = {name: value for name, value in amount.items() if "/" in name}
    return {"cpu": amount.get("cpu", "1"), "mem": amount.get("memory", "1Gi"), "scalarResources": scalars}


def _pass_on(error: Invalid, where: str, fault: AddFault) -> None:
    for found in error.details:
        fault(f"{where}.{found.where}", found.message, found.hint)


def _shown(value: Any) -> str:
    return value[:40] if isinstance(value, str) else type(value).__name__
