"""What the in-memory API server stores: objects, their versions, and the history that watches read. No HTTP; used by `api_server`.

Every change raises one version that all kinds share, as in etcd. `Refused` is an error response.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.values import dataclass
from paddleflow.kube.resources import Object, Resource, View
from paddleflow.testing.managed_fields import Owners

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: kinds whose status is written by its own subresource only
WITH_STATUS = {"pods", "services", "nodes", "namespaces", "podgroups", "paddlejobs", "customresourcedefinitions"}


class Refused(Exception):
    """An answer of 400 or more."""

    def __init__(self, status: int, reason: str, message: str, causes: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: Object = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status,
            "details": {"causes": [{"field": where, "message": what} for where, what in (causes or {}).items()]},
        }  # fmt: skip


@dataclass(slots=True)
class HistoryEntry:
    """One line of history. `before` lets a watch with a selector see what left its sight."""

    version: int
    type: str
    resource: Resource
    object: Object
    before: Object | None = None


@dataclass(slots=True)
class Stored:
    """One object with the owners of its fields."""

    object: Object
    owners: Owners = field(default_factory=Owners)


class Registry:
    """All objects of one API server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[Resource, dict[tuple[str, str], Stored]] = {}
        self.history: list[HistoryEntry] = []
        self.version = 1
        self.oldest = 1  #: versions before it are forgotten
        self.on_change: Callable[[], None] = lambda: None  #: called after each change

    def all(self, resource: Resource) -> list[Object]:
        """In the order of namespace and name."""
        found = self._objects.get(resource, {})
        return [found[place].object for place in sorted(found)]

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        kept = self._objects.get(resource, {}).get((namespace, name))
        if kept is None:
            where = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            raise Refused(404, "NotFound", f'{where} "{name}" not found')
        return kept

    def has(self, resource: Resource, namespace: str, name: str) -> bool:
        return (namespace, name) in self._objects.get(resource, {})

    def create(self, resource: Resource, namespace: str, obj: Object, manager: str) -> Object:
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        name = str(metadata.get("name", ""))
        _check(resource, obj, name)
        if self.has(resource, namespace, name):
            raise Refused(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        if resource.plural in WITH_STATUS:
            obj.pop("status", None)
            metadata["generation"] = 1
        if resource.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._time()
        kept = Stored({})
        kept.owners.written({}, obj, manager)
        self._objects.setdefault(resource, {})[(namespace, name)] = kept
        return self._keep(resource, kept, obj, "ADDED")

    def replace(self, resource: Resource, kept: Stored, obj: Object, status: bool, manager: str) -> Object:
        """The object after a write of either half of it; as it was when nothing changes."""
        wanted = self._fixed(resource, kept, obj, status)
        if wanted == kept.object:
            return kept.object
        kept.owners.written(kept.object, wanted, manager)
        return self._settle(resource, kept, wanted)

    def apply(self, resource: Resource, kept: Stored, obj: Object, status: bool, manager: str, force: bool) -> Object:
        """Server-side apply to an object that is there."""
        before = copy.deepcopy(kept.owners.sets)
        try:
            merged = kept.owners.apply(kept.object, _half(resource, obj, status), manager, force=force)
        except BaseException:
            kept.owners.sets = before
            raise
        wanted = self._fixed(resource, kept, merged, status)
        if wanted == kept.object and kept.owners.sets == before:
            return kept.object
        return self._settle(resource, kept, wanted)

    def delete(self, resource: Resource, namespace: str, name: str, grace: int | None) -> Object | None:
        """None when it is gone; otherwise the object that waits for its finalizers or its node."""
        kept = self.get(resource, namespace, name)
        metadata = kept.object["metadata"]
        runs = resource.plural == "pods" and kept.object.get("spec", {}).get("nodeName") and grace != 0
        if not metadata.get("finalizers") and not runs:
            self._remove(resource, kept)
            return None
        if "deletionTimestamp" in metadata:
            return kept.object
        going = copy.deepcopy(kept.object)
        going["metadata"]["deletionTimestamp"] = self._time()
        if runs:
            going["metadata"]["deletionGracePeriodSeconds"] = 30 if grace is None else grace
        return self._keep(resource, kept, going, "MODIFIED")

    def forget(self) -> None:
        """As etcd does after a while: whoever asks for earlier versions must list again."""
        self.history.clear()
        self.version += 1
        self.oldest = self.version

    def collect(self) -> None:
        """Deletes what names only owners that are not there."""
        there = {kept.object["metadata"]["uid"] for found in self._objects.values() for kept in found.values()}
        for resource, found in list(self._objects.items()):
            for (namespace, name), kept in list(found.items()):
                references = kept.object["metadata"].get("ownerReferences") or []
                if references and not any(reference["uid"] in there for reference in references):
                    self.delete(resource, namespace, name, None)

    def _settle(self, resource: Resource, kept: Stored, wanted: Object) -> Object:
        """Keeps a changed object, or removes one whose last finalizer went."""
        metadata = wanted["metadata"]
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and "finalizers" in kept.object["metadata"]
        ):
            self._remove(resource, kept)
            return wanted
        return self._keep(resource, kept, wanted, "MODIFIED")

    def _fixed(self, resource: Resource, kept: Stored, obj: Object, status: bool) -> Object:
        """A written object with what the writer has no say in; `Refused` when it is about another state or object."""
        live = kept.object
        wanted = copy.deepcopy(obj)
        metadata = wanted.setdefault("metadata", {})
        name = live["metadata"]["name"]
        if metadata.get("resourceVersion") not in {None, "", live["metadata"]["resourceVersion"]}:
            text = "the object has been modified; please apply your changes to the latest version and try again"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource.plural} "{name}": {text}')
        if metadata.get("uid") not in {None, "", live["metadata"]["uid"]}:
            raise Refused(409, "Conflict", f'{resource.plural} "{name}": the UID in the precondition does not match')
        if resource.plural in WITH_STATUS:
            if status:
                wanted = {**copy.deepcopy(live), "status": wanted.get("status")}
                if wanted["status"] is None:
                    del wanted["status"]
                return wanted
            wanted.pop("status", None)
            if "status" in live:
                wanted["status"] = live["status"]
        for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "managedFields"):
            if name in live["metadata"]:
                metadata[name] = live["metadata"][name]
            else:
                metadata.pop(name, None)
        metadata["name"] = live["metadata"]["name"]
        if resource.namespaced:
            metadata["namespace"] = live["metadata"]["namespace"]
        _check(resource, wanted, metadata["name"])
        if resource.plural in WITH_STATUS and _body(wanted) != _body(live):
            metadata["generation"] = live["metadata"]["generation"] + 1
        return wanted

    def _keep(self, resource: Resource, kept: Stored, obj: Object, kind: str) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        obj["metadata"]["managedFields"] = kept.owners.managed_fields()
        before = kept.object or None
        kept.object = obj
        self.history.append(HistoryEntry(self.version, kind, resource, obj, before))
        self.on_change()
        return obj

    def _remove(self, resource: Resource, kept: Stored) -> None:
        obj = copy.deepcopy(kept.object)
        metadata = obj["metadata"]
        del self._objects[resource][(metadata.get("namespace", ""), metadata["name"])]
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.history.append(HistoryEntry(self.version, "DELETED", resource, obj, kept.object))
        self.on_change()
        for child, below in list(self._dependents(metadata["uid"])):
            below_metadata = below.object["metadata"]
            self.delete(child, below_metadata.get("namespace", ""), below_metadata["name"], None)

    def _dependents(self, uid: str) -> Iterator[tuple[Resource, Stored]]:
        """Objects that name nobody else as their owner: they go with it, as the garbage collector sees to."""
        for resource, found in self._objects.items():
            for kept in list(found.values()):
                references = kept.object["metadata"].get("ownerReferences") or []
                if references and all(reference["uid"] == uid for reference in references):
                    yield resource, kept

    def _time(self) -> str:
        return rfc3339(self._clock.now())[:19] + "Z"


def _half(resource: Resource, obj: View, status: bool) -> Object:
    """What an apply to the object or to its status may speak of."""
    if resource.plural not in WITH_STATUS:
        return dict(obj)
    if status:
        return {"status": obj.get("status")} if obj.get("status") is not None else {}
    return {name: value for name, value in obj.items() if name != "status"}


def _body(obj: View) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in {"metadata", "status"}}


def _check(resource: Resource, obj: View, name: str) -> None:
    found = (obj.get("apiVersion", resource.api_version), obj.get("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        raise Refused(
            400, "BadRequest", f"the object is {found[0]} {found[1]}, expected {resource.api_version} {resource.kind}"
        )
    if not _NAME.fullmatch(name):
        what = "a lowercase RFC 1123 subdomain is required" if name else "name or generateName is required"
        message = f'{resource.kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": {what}'
        raise Refused(422, "Invalid", message, {"metadata.name": what})
