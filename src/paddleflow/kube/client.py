"""The API server's verbs, for plain JSON objects. One `Client` per process: it is cheap to share and knows no state but its
connections.

What a caller may rely on: errors are those of `refusals`, with the request named; a write is sent once, and when it brings
`Unavailable` it may have been done nevertheless; a fence, if one is set, is asked before every write, so that a process that
lost its lease writes nothing any more. Every write carries the one field owner of this process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlencode

import orjson

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound, Unavailable
from paddleflow.kube.errors import Gone, api_error
from paddleflow.kube.resources import PODS, Object, Resource, View, name, namespace
from paddleflow.kube.transport import HttpTransport, Request, Response, Transport
from paddleflow.kube.websocket import NoUpgrade, WebSocket

MANAGER = "paddleflow"  #: the field owner, unless the process has a name of its own
QUIET = 150.0  #: seconds without a byte after which a watch is given up; bookmarks come about once a minute

#: v5 can end a command's input; API servers older than 1.30 know v4 only
EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class WatchEvent(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED, or BOOKMARK, whose object has nothing but a resourceVersion."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `version` is where a watch goes on; `rest` is empty on the last page."""

    items: Sequence[Object]
    version: str
    rest: str = ""


class Client:
    """An API server as seen by one field owner."""

    def __init__(self, wire: Transport, *, manager: str = MANAGER, fence: Callable[[], None] | None = None) -> None:
        self._transport = wire
        self.manager = manager
        self.fence = fence  #: raises when this process may not write any more

    async def close(self) -> None:
        await self._transport.close()

    # ---- reading

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return await self._call("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "") -> Page:
        """Everything, read in pages; consistent with `version`."""
        items: list[Object] = []
        page = Page((), "")
        async for page in self.pages(resource, namespace, labels=labels, fields=fields):
            items.extend(page.items)
        return Page(items, page.version)

    async def pages(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", limit: int = 500
    ) -> AsyncIterator[Page]:
        """The list page by page. A server that forgets the list in the middle is asked again for all of it at once, so a
        page may bring what an earlier one had."""
        query: dict[str, str | int] = {"labelSelector": labels, "fieldSelector": fields, "limit": limit}
        path = resource.path(namespace)
        page = Page((), "")
        while True:
            try:
                page = _page(await self._call("GET", path, query), resource)
            except Gone:
                if not query.pop("continue", ""):
                    raise
                query["limit"] = 0
                page = _page(await self._call("GET", path, query), resource)
            yield page
            if not page.rest:
                return
            query["continue"] = page.rest

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 300,
        quiet: float = QUIET,
    ) -> AsyncGenerator[WatchEvent, None]:
        """What happened after `version`, until the server ends it (after `seconds` at the latest).

        `Gone` when the history is forgotten: list again. `Unavailable` when the line broke: watch again from the version
        of the last event.
        """
        query: dict[str, str | int] = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        request = Request("GET", resource.path(namespace) + _query(query))
        begun: Response | None = None
        rest = b""
        async with aclosing(self._transport.stream(request, quiet)) as parts:
            async for part in parts:
                if isinstance(part, Response):
                    begun = part
                elif begun is not None and begun.status >= 400:
                    rest += part
                else:
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        yield _event(line, request)
        if begun is not None and begun.status >= 400:
            begun.body = rest
            raise _refused(begun, request)

    async def log(
        self, pod: str, namespace: str, *, container: str = "", lines: int = 20, previous: bool = False
    ) -> str:
        """The last lines that a container wrote; of the one before it was restarted with `previous`."""
        query: dict[str, str | int] = {"container": container, "tailLines": lines, "limitBytes": 1 << 20}
        if previous:
            query["previous"] = "true"
        request = Request("GET", PODS.path(namespace, pod, "log") + _query(query))
        answer = await self._transport.send(request)
        if answer.status >= 400:
            raise _refused(answer, request)
        return answer.body.decode("utf-8", "replace")

    async def follow_log(
        self, pod: str, namespace: str, *, container: str = "", quiet: float = 3600.0
    ) -> AsyncGenerator[bytes, None]:
        """The whole log of a container, as it grows, until the container ends; first an empty part, when it can be had."""
        query: dict[str, str | int] = {"container": container, "follow": "true"}
        request = Request("GET", PODS.path(namespace, pod, "log") + _query(query))
        begun: Response | None = None
        body = b""
        async with aclosing(self._transport.stream(request, quiet)) as parts:
            async for part in parts:
                if isinstance(part, Response):
                    begun = part
                    if begun.status < 400:
                        yield b""
                elif begun is not None and begun.status >= 400:
                    body += part
                else:
                    yield part
        if begun is not None and begun.status >= 400:
            begun.body = body
            raise _refused(begun, request)

    async def raw(self, path: str) -> Object:
        """The JSON at a path that is no object of a kind, such as a node's statistics."""
        return await self._call("GET", path)

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server knows the kind in this version: a definition may be missing or older."""
        try:
            found = await self._call("GET", resource.root)
        except NotFound:
            return False
        return any(each["name"] == resource.plural for each in found.get("resources", ()))

    async def server_time(self) -> float:
        """What the API server's clock says, in whole seconds."""
        request = Request("GET", "/version")
        answer = await self._transport.send(request)
        if answer.status >= 400:
            raise _refused(answer, request)
        try:
            return parsedate_to_datetime(answer.headers["date"]).timestamp()
        except (KeyError, ValueError) as error:
            raise Unavailable(f"{request}: the answer has no date") from error

    # ---- writing

    async def create(self, resource: Resource, obj: View) -> Object:
        """The object as the server keeps it; `AlreadyExists` when its name is taken, `Invalid` when it has a field that the
        server does not know: it would be dropped without a word otherwise."""
        query = {"fieldManager": self.manager, "fieldValidation": "Strict"}
        return await self._write("POST", resource.path(namespace(obj)), obj, query)

    async def update(self, resource: Resource, obj: View, *, subresource: str = "") -> Object:
        """Replaces the object; `Conflict` when somebody wrote since the resourceVersion that it carries."""
        return await self._write("PUT", resource.path(namespace(obj), name(obj), subresource), obj)

    async def apply(
        self, resource: Resource, obj: View, *, field_manager: str = "", force: bool = True, subresource: str = ""
    ) -> Object:
        """Server-side apply: creates the object, or makes the fields that `obj` names true and takes away those that an
        earlier apply of the same owner named and this one does not. Without `force` a field of another owner is a
        `Conflict`."""
        query = {"fieldManager": field_manager or self.manager, "force": "true" if force else "false"}
        path = resource.path(namespace(obj), name(obj), subresource)
        return await self._write("PATCH", path, obj, query, _PATCHES["apply"])

    async def apply_status(
        self, resource: Resource, obj: View, *, field_manager: str = "", force: bool = True
    ) -> Object:
        return await self.apply(resource, obj, field_manager=field_manager, force=force, subresource="status")

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        body: object,
        kind: str = "merge",
        subresource: str = "",
    ) -> Object:
        """A merge, json or strategic patch."""
        return await self._write("PATCH", resource.path(namespace, name, subresource), body, None, _PATCHES[kind])

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> Object:
        """The object while it is being taken down, or the server's `Status` when it is gone at once.

        With `uid` only the very object is deleted: `Conflict` when another one has its name by now.
        """
        options: Object = {"propagationPolicy": propagation}
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        if preconditions:
            options["preconditions"] = preconditions
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._write("DELETE", resource.path(namespace, name), options, {})

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        """Puts a pod on a node; `Conflict` when it has one already, or another pod has its name by now."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid},
            "target": target,
        }
        await self._write("POST", PODS.path(namespace, pod, "binding"), body)

    async def execute(
        self, pod: str, namespace: str, command: Sequence[str], *, container: str, tty: bool = False
    ) -> WebSocket:
        """Starts a command in a container. The first byte of every message is its channel: input, output, errors, the end
        (a Status), another size of the terminal."""
        if self.fence is not None:
            self.fence()
        if not isinstance(self._transport, HttpTransport):
            raise Unavailable("this API server speaks no websockets")
        words = [("command", word) for word in command]
        flags = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", str(not tty).lower())]
        path = f"{PODS.path(namespace, pod, 'exec')}?{urlencode([*words, *flags, ('tty', str(tty).lower())])}"
        opened = await self._transport.websocket(path, EXEC_PROTOCOLS)
        if isinstance(opened, NoUpgrade):
            answer = Response(opened.status, dict(opened.headers), opened.body)
            raise _refused(answer, Request("GET", path))
        return opened

    async def evict(self, pod: str, namespace: str, uid: str) -> None:
        """Deletes a pod with its grace period if its PodDisruptionBudgets allow it; `TooMany` while they do not."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._write("POST", PODS.path(namespace, pod, "eviction"), body)

    # ---- one request

    async def _write(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        if self.fence is not None:
            self.fence()
        return await self._call(method, path, {"fieldManager": self.manager} if query is None else query, body, content)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        content: str = "application/json",
    ) -> Object:
        payload = b"" if body is None else orjson.dumps(body)
        request = Request(method, path + _query(query or {}), payload, content)
        answer = await self._transport.send(request)
        if answer.status >= 300:
            raise _refused(answer, request)
        return _decoded(answer.body, request)


def _page(found: Object, resource: Resource) -> Page:
    metadata = found["metadata"]
    items: list[Object] = found.get("items") or []
    for item in items:  # lists leave out what is the same for all their items
        item.setdefault("apiVersion", resource.api_version)
        item.setdefault("kind", resource.kind)
    return Page(items, metadata.get("resourceVersion", ""), metadata.get("continue", ""))


def _event(line: bytes, request: Request) -> WatchEvent:
    found = _decoded(line, request)
    if found["type"] == "ERROR":
        status = found["object"]
        raise api_error(status.get("code", 500), status, what=str(request))
    return WatchEvent(found["type"], found["object"])


def _decoded(body: bytes, request: Request) -> Object:
    try:
        found: Object = orjson.loads(body)
    except ValueError as error:
        raise Unavailable(f"{request}: the answer is not JSON: {body[:80]!r}") from error
    return found


def _refused(answer: Response, request: Request) -> Exception:
    try:
        body = orjson.loads(answer.body)
    except ValueError:
        body = {"message": answer.body[:300].decode("utf-8", "replace").strip()}
    status = body if isinstance(body, dict) else {}
    return api_error(answer.status, status, what=str(request), retry_after=answer.headers.get("retry-after", ""))


def _query(values: Mapping[str, str | int]) -> str:
    return _encoded(tuple(values.items()))


@lru_cache(maxsize=64)  # writes have one of a few
def _encoded(values: tuple[tuple[str, str | int], ...]) -> str:
    given = [(key, value) for key, value in values if value != "" and value != 0]
    return "?" + urlencode(given) if given else ""
