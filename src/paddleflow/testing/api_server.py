"""An API server inside this process: for tests that need speed or control, and for trying controllers out.

It implements `Transport`, so the real `Client` stands on it, and passes the suite that the real API server passes
(tests/contract/test_kube_client.py): versions, conflicts, watches with bookmarks and forgotten history, pages, status as its
own half, finalizers, owners that take their children along, server-side apply with field owners, merge and JSON patches. It
does not validate what is in a spec, and runs nothing.

What a test may do to it: `refuse` answers instead of it, `drop_watches`, `forget`; `writes` says what was written and
whether it changed anything.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from paddleflow.base.clock import Clock, SystemClock
from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable
from paddleflow.kube import resources
from paddleflow.kube.resources import NAMESPACES, Object, Resource, View
from paddleflow.kube.transport import Request, Response
from paddleflow.testing.managed_fields import OwnershipConflict
from paddleflow.testing.registry import HistoryEntry, Refused, Registry, Stored

KNOWN = [value for value in vars(resources).values() if isinstance(value, Resource)]


@dataclass(frozen=True, slots=True)
class Write:
    """One write as it came, and whether it changed anything."""

    method: str
    path: str
    status: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Target:
    """What a path addresses."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]

    @property
    def status(self) -> bool:
        return self.subresource == "status"


class MemoryApiServer:
    """Implements `Transport` without a network."""

    def __init__(self, clock: Clock | None = None, kinds: Iterable[Resource] = KNOWN) -> None:
        self._registry = Registry(clock or SystemClock())
        self._registry.on_change = self._notify
        self._kinds = {(kind.root, kind.plural): kind for kind in kinds}
        self._watching: set[asyncio.Event] = set()
        self._cut = 0
        self._lists: dict[str, tuple[list[Object], str]] = {}
        self.bookmark_every = 60.0
        self.refuse: Callable[[Request], Response | None] = lambda request: None
        self.writes: list[Write] = []
        self.logs: dict[str, str] = {}  #: of pods, by key
        for space in ("default", "kube-system"):
            self._registry.create(NAMESPACES, "", NAMESPACES.object(space), "memory")

    async def close(self) -> None:
        """What is kept stays: a server outlives its clients."""

    def drop_watches(self) -> None:
        """Every watch breaks."""
        self._cut += 1
        self._notify()

    def forget(self) -> None:
        """History and begun lists are gone; a watch that has read everything goes on."""
        self._registry.forget()
        self._lists.clear()

    def collect(self) -> None:
        """What the garbage collector does every now and then: ends what names only owners that are not there."""
        self._registry.collect()

    def _notify(self) -> None:
        for event in self._watching:
            event.set()

    # ---- one exchange

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0)  # others run while a request is on its way
        instead = self.refuse(request)
        if instead is not None:
            return instead
        before = self._registry.version
        try:
            target = self._target(request)
            status, body = (200, self._kinds_at(request.path)) if target is None else self._response(request, target)
        except Refused as refused:
            status, body = refused.status, refused.body
        if request.method != "GET":
            self.writes.append(Write(request.method, request.path, status, self._registry.version != before))
        if isinstance(body, str):
            return Response(status, {"content-type": "text/plain"}, body.encode())
        return Response(status, {"content-type": "application/json"}, orjson.dumps(body))

    def _response(self, request: Request, target: Target) -> tuple[int, Object | str]:
        body: Object = orjson.loads(request.body) if request.body else {}
        manager = target.query.get("fieldManager", "unknown")
        resource, registry = target.resource, self._registry
        match request.method, bool(target.name):
            case "GET", True if target.subresource == "log":
                registry.get(resource, target.namespace, target.name)
                return 200, self.logs.get(f"{target.namespace}/{target.name}", "")
            case "GET", True:
                return 200, registry.get(resource, target.namespace, target.name).object
            case "GET", False:
                return 200, self._list(target)
            case "POST", True if target.subresource == "binding":
                return 201, self._bind(target, body)
            case "POST", True if target.subresource == "eviction":
                return 201, self._delete(target, body.get("deleteOptions") or {})
            case "POST", False:
                self._check_namespace(target)
                return 201, registry.create(resource, target.namespace, body, manager)
            case "PUT", True:
                kept = registry.get(resource, target.namespace, target.name)
                return 200, registry.replace(resource, kept, body, target.status, manager)
            case "PATCH", True:
                return self._patch(request, target, body, manager)
            case "DELETE", True:
                return 200, self._delete(target, body)
            case _:
                raise Refused(405, "MethodNotAllowed", f"{request} is not something that this server does")

    def _bind(self, target: Target, body: Object) -> Object:
        """Puts a pod on a node, as the API server's binding subresource does."""
        kept = self._registry.get(target.resource, target.namespace, target.name)
        pod = copy.deepcopy(kept.object)
        wanted = body["metadata"].get("uid") or pod["metadata"]["uid"]
        if pod["metadata"]["uid"] != wanted or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            text = f'Operation cannot be fulfilled on pods/binding "{target.name}": pod {target.name} is already assigned to node'
            raise Refused(409, "Conflict", text)
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod = self._registry.replace(target.resource, kept, pod, False, "binding")
        kept = self._registry.get(target.resource, target.namespace, target.name)
        condition = {"type": "PodScheduled", "status": "True"}
        status = _merge_strategically(copy.deepcopy(pod), {"status": {"conditions": [condition]}})
        self._registry.replace(target.resource, kept, status, True, "binding")
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _patch(self, request: Request, target: Target, body: Object, manager: str) -> tuple[int, Object]:
        resource, registry = target.resource, self._registry
        kind = request.content.partition(";")[0]
        if kind == "application/apply-patch+yaml":
            if not registry.has(resource, target.namespace, target.name) and not target.subresource:
                self._check_namespace(target)
                return 201, registry.create(resource, target.namespace, body, manager)
            kept = registry.get(resource, target.namespace, target.name)
            try:
                force = target.query.get("force") == "true"
                return 200, registry.apply(resource, kept, body, target.status, manager, force)
            except OwnershipConflict as conflict:
                count = len(conflict.found)
                causes = {".".join(path): f"conflict with {other!r}" for other, path in conflict.found}
                raise Refused(409, "Conflict", f"Apply failed with {count} conflicts: {conflict}", causes) from conflict
        kept = registry.get(resource, target.namespace, target.name)
        return 200, registry.replace(resource, kept, _patched(kept, kind, body), target.status, manager)

    def _delete(self, target: Target, options: Object) -> Object:
        kept = self._registry.get(target.resource, target.namespace, target.name)
        metadata = kept.object["metadata"]
        wanted = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            if wanted.get(field, metadata[field]) != metadata[field]:
                text = f"the {field} in the precondition ({wanted[field]}) does not match the one in record ({metadata[field]})"
                raise Refused(409, "Conflict", f'{target.resource.plural} "{target.name}": {text}')
        grace = options.get("gracePeriodSeconds")
        left = self._registry.delete(target.resource, target.namespace, target.name, grace)
        return left if left is not None else {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _list(self, target: Target) -> Object:
        query = target.query
        if "continue" in query:
            if query["continue"] not in self._lists:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            found, version = self._lists.pop(query["continue"])
        else:
            found, version = (
                [obj for obj in self._registry.all(target.resource) if _seen(target, obj)],
                str(self._registry.version),
            )
        limit = int(query.get("limit", "0"))
        metadata = {"resourceVersion": version}
        if limit and len(found) > limit:
            token = base64.b64encode(f"{version}/{len(self._lists)}/{len(found)}".encode()).decode()
            self._lists[token] = (found[limit:], version)
            metadata["continue"] = token
            found = found[:limit]
        kind = target.resource
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": found}

    # ---- a watch

    async def stream(self, request: Request, quiet: float) -> AsyncGenerator[Response | bytes, None]:
        instead = self.refuse(request)
        if instead is not None:
            yield instead
            yield instead.body
            return
        try:
            target = self._target(request)
            assert target is not None
            position = int(target.query.get("resourceVersion") or self._registry.version)
        except Refused as refused:
            yield Response(refused.status)
            yield orjson.dumps(refused.body)
            return
        yield Response(200)
        wake = asyncio.Event()
        self._watching.add(wake)
        try:
            async for part in self._follow(target, position, wake):
                yield part
        finally:
            self._watching.discard(wake)

    async def _follow(self, target: Target, position: int, wake: asyncio.Event) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        cut = self._cut
        end = loop.time() + float(target.query.get("timeoutSeconds", "1800"))
        while loop.time() < end:
            if self._cut != cut:
                raise Unavailable("the watch was dropped")
            if position + 1 < self._registry.oldest:
                status = Refused(410, "Expired", f"too old resource version: {position} ({self._registry.oldest})").body
                yield orjson.dumps({"type": "ERROR", "object": status}) + b"\n"
                return
            wake.clear()
            news = [change for change in self._registry.history if change.version > position]
            position = self._registry.version
            for change in news:
                if (kind := _visible(target, change)) is not None:
                    yield orjson.dumps({"type": kind, "object": change.object}) + b"\n"
            if news:
                continue
            try:
                async with asyncio.timeout(min(self.bookmark_every, max(end - loop.time(), 0))):
                    await wake.wait()
            except TimeoutError:
                kind_of = target.resource
                mark = {"kind": kind_of.kind, "metadata": {"resourceVersion": str(position)}}
                yield orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n"

    # ---- paths

    def _target(self, request: Request) -> Target | None:
        """None for the path of a group: what kinds are there."""
        parts = urlsplit(request.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        words = parts.path.strip("/").split("/")
        size = 2 if words[0] == "api" else 3
        root, rest = "/" + "/".join(words[:size]), words[size:]
        if not rest:
            return None
        space = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            space, rest = rest[1], rest[2:]
        resource = self._kinds.get((root, rest[0]))
        if resource is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        name, subresource = (*rest[1:], "", "")[:2]
        return Target(resource, space, name, subresource, query)

    def _kinds_at(self, path: str) -> Object:
        found = [
            {"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced}
            for (root, _), kind in self._kinds.items()
            if root == path
        ]
        if not found:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return {"kind": "APIResourceList", "resources": found}

    def _check_namespace(self, target: Target) -> None:
        if target.namespace and not self._registry.has(NAMESPACES, "", target.namespace):
            raise Refused(404, "NotFound", f'namespaces "{target.namespace}" not found')


def _patched(kept: Stored, kind: str, body: Any) -> Object:
    live = copy.deepcopy(kept.object)
    try:
        if kind == "application/json-patch+json":
            done: Object = json_patch(live, body)
        elif kind == "application/merge-patch+json":
            done = merge_patch(live, body)
        elif kind == "application/strategic-merge-patch+json":
            done = _merge_strategically(live, body)
        else:
            raise Refused(415, "UnsupportedMediaType", f"patches of type {kind} are not taken here")
    except PatchRefused as refused:
        raise Refused(422, "Invalid", str(refused)) from refused
    return done


def _seen(target: Target, obj: Object) -> bool:
    if target.namespace and obj["metadata"].get("namespace") != target.namespace:
        return False
    labels, fields = target.query.get("labelSelector", ""), target.query.get("fieldSelector", "")
    return matches_labels(labels, obj) and matches_fields(fields, obj)


def _visible(target: Target, change: HistoryEntry) -> str | None:
    """How a watch with the target's selectors sees a change: coming into sight is ADDED, leaving it is DELETED."""
    if change.resource != target.resource:
        return None
    now = change.type != "DELETED" and _seen(target, change.object)
    before = change.before is not None and _seen(target, change.before)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


# ---- selectors

_SET = re.compile(r"\s*(?P<name>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^)]*)\)\s*")
_EQUAL = re.compile(r"\s*(?P<name>[^\s!=,()]+)\s*(?P<word>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*")
_EXISTS = re.compile(r"\s*(?P<word>!?)\s*(?P<name>[^\s!=,()]+)\s*")


def matches_labels(selector: str, obj: View) -> bool:
    """``a=b,c!=d,e in (f,g),!h``: all of them hold."""
    labels = obj["metadata"].get("labels") or {}
    return all(_holds(part, labels) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _holds(part: str, labels: View) -> bool:
    if found := _SET.fullmatch(part):
        values = {value.strip() for value in found["values"].split(",")}
        return (labels.get(found["name"]) in values) == (found["word"] == "in")
    if found := _EQUAL.fullmatch(part):
        return (labels.get(found["name"]) == found["value"]) == (found["word"] != "!=")
    if found := _EXISTS.fullmatch(part):
        return (found["name"] in labels) == (not found["word"])
    raise ValueError(f"selector {part!r} is not understood")


def matches_fields(selector: str, obj: View) -> bool:
    """``metadata.name=x,spec.nodeName!=y``: all of them hold; a field that is not there is empty."""
    for part in selector.split(","):
        if not part.strip():
            continue
        found = _EQUAL.fullmatch(part)
        if found is None:
            raise ValueError(f"field selector {part!r} is not understood")
        value: object = obj
        for step in found["name"].split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if (str(value) == found["value"]) == (found["word"] == "!="):
            return False
    return True


# ---- merge patches (RFC 7386) and JSON patches (RFC 6902)


class PatchRefused(Exception):
    """The patch does not fit the object."""


def merge_patch(target: Any, patch: Any) -> Any:
    """The merge patch's result; null takes a field away."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = merge_patch(result.get(field), value)
    return result


def _merge_strategically(live: Object, patch: Object) -> Object:
    """A merge in which conditions are merged by their type: all that callers here ask of this kind of patch."""
    conditions = (patch.get("status") or {}).get("conditions") or []
    known = {each["type"]: each for each in (live.get("status") or {}).get("conditions") or []}
    done: Object = merge_patch(live, patch)
    if conditions:
        for each in conditions:
            known[each["type"]] = {**known.get(each["type"], {}), **each}
        done["status"]["conditions"] = list(known.values())
    return done


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """The operations add, remove, replace and test, one after the other."""
    result = copy.deepcopy(target)
    for operation in operations:
        _operate(result, str(operation.get("op")), _steps(str(operation.get("path", ""))), operation.get("value"))
    return result


def _steps(pointer: str) -> list[str]:
    if not pointer.startswith("/"):
        raise PatchRefused(f"path {pointer!r} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _operate(target: Any, operation: str, steps: Sequence[str], value: Any) -> None:
    here = target
    try:
        for step in steps[:-1]:
            here = here[int(step)] if isinstance(here, list) else here[step]
        last: Any = steps[-1]
        if isinstance(here, list):
            last = len(here) if last == "-" else int(last)
        if operation == "add" and isinstance(here, list):
            here.insert(last, value)
        elif operation == "add":
            here[last] = value
        elif operation == "remove":
            del here[last]
        elif operation == "replace":
            del here[last]  # it must be there
            here.insert(last, value) if isinstance(here, list) else here.__setitem__(last, value)
        elif operation == "test":
            if here[last] != value:
                raise PatchRefused(f"test of /{'/'.join(steps)} failed: found {here[last]!r}, wanted {value!r}")
        else:
            raise PatchRefused(f"operation {operation!r} is not add, remove, replace or test")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PatchRefused(f"/{'/'.join(steps)} does not lead anywhere: {error!r}") from error
