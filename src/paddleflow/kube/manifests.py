"""Small pieces of objects that every manifest has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paddleflow.kube import resources
from paddleflow.kube.resources import Object, View


def owner_reference(owner: View, *, controller: bool = True, block: bool = True) -> Object:
    """What makes an object the child of `owner`: it goes when the owner goes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": resources.name(owner),
        "uid": resources.uid(owner),
        "controller": controller,
        "blockOwnerDeletion": block,
    }


def metadata(
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: View | None = None,
) -> Object:
    """Without what is empty."""
    found: Object = {"name": name}
    if namespace:
        found["namespace"] = namespace
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    if owner is not None:
        found["ownerReferences"] = [owner_reference(owner)]
    return found


def env(variables: Mapping[str, str]) -> list[Object]:
    """Plain values, in their order."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def field_env(name: str, path: str) -> Object:
    """A variable that the kubelet fills from the pod itself, such as ``status.podIP``."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def selector(labels: Mapping[str, str]) -> str:
    """``a=b,c=d``, as lists and watches take it."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def controlled_by(obj: View, owner: View) -> bool:
    """Whether `owner` itself, not one that had its name, controls the object."""
    found = resources.owner(obj)
    return found is not None and found.uid == resources.uid(owner)


def condition(kind: str, status: bool, reason: str, message: str, at: str, generation: int | None = None) -> Object:
    """One condition of a status; `at` is the moment of the change in RFC 3339."""
    found: Object = {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
    if generation is not None:
        found["observedGeneration"] = generation
    return found


def with_conditions(present: Sequence[View], news: Iterable[View]) -> list[Object]:
    """The conditions after news: one of each type, in their order; the moment changes only with the status."""
    found = {str(each["type"]): dict(each) for each in present}
    for new in news:
        old = found.get(str(new["type"]))
        kept = old is not None and old["status"] == new["status"]
        moment = old["lastTransitionTime"] if kept and old is not None else new["lastTransitionTime"]
        found[str(new["type"])] = {**new, "lastTransitionTime": moment}
    return list(found.values())
