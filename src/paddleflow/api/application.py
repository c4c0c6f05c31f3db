"""One ASGI callable from tables of routes: the thin path between a socket and a handler.

`Application.__call__` is the whole way of a request: find the route, authenticate, read and decode query and body, refuse
callers who name another user, run the handler, encode. A refusal is an error of `paddleflow.errors` wherever it comes from; anything else
that is raised is a fault of ours: 500 with the request's id, and the traceback in the log under the same id.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from functools import lru_cache
from time import perf_counter
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from paddleflow.access.audit import AuditEntry
from paddleflow.access.callers import NOBODY, Caller, require_mount, require_root, require_scope
from paddleflow.api import answers, codes, health, metrics, openapi, requests
from paddleflow.api.bodies import Bodies
from paddleflow.api.dispatch import Table
from paddleflow.api.fair_use import READS, WRITES, Seats, UserQueue
from paddleflow.api.peers import FORWARDED
from paddleflow.api.platform import Platform
from paddleflow.api.routing import PREFIX, Call, Route, Socket
from paddleflow.api.sse import EventStream, until_first
from paddleflow.api.storage_files import Unsatisfiable
from paddleflow.base.names import USER
from paddleflow.base.values import dataclass
from paddleflow.errors import Internal, NotFound, PaddleFlowError, TooMany, Unavailable
from paddleflow.spec.document import Document

_log = logging.getLogger("paddleflow.api")

_SHORT_QUERY = 512  #: bytes of a query that is worth remembering
PIECE = 64 * 1024  #: bytes of an answer that are handed to the connection at once

#: The id of the request that is being answered; the log's formatter adds it to every line.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


class _MethodNotAllowed(PaddleFlowError):
    status = 405
    default_code = "MethodNotAllowed"


@dataclass(slots=True)
class _Entry:
    """A route with what can be known before the first request."""

    route: Route
    path: str
    user_field: str  #: the body's field that names a user, if it has one
    no_query: Document | None  #: the query of a URL that has none; None when something in it is required
    series: dict[int, metrics.Series] = field(default_factory=dict)


def build(platform: Platform, groups: Sequence[Sequence[Route]], sockets: Sequence[Socket] = ()) -> ASGIApp:
    """The application of these routes, with health, metrics and ``/openapi.json``; ValueError for a table that lies."""
    routes = [route for group in (health.ROUTES, metrics.ROUTES, *groups) for route in group]
    routes.append(openapi.route(routes, ignore_unknown=platform.settings.server.unknown_fields == "ignore"))
    for route in routes:
        for error in route.errors:
            codes.declared(error)
    return Application(platform, routes, sockets)


class Application:
    """The ASGI callable; made by `build`."""

    def __init__(self, platform: Platform, routes: Sequence[Route], sockets: Sequence[Socket]) -> None:
        self._platform = platform
        self._sessions = platform.sessions
        self._bodies = Bodies(platform.settings.server, platform.computing)
        self._reads, self._writes = UserQueue(READS), UserQueue(WRITES)
        entries = [_entry(route) for route in routes]
        self._table = Table((entry.route.method, entry.path, entry) for entry in entries)
        self._sockets = Table(("GET", socket.prefix + socket.path, socket) for socket in sockets)
        self._times = metrics.RequestTimes(platform.registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await (self._websocket if scope["type"] == "websocket" else self._lifespan)(scope, receive, send)
            return
        seats = Seats()
        try:
            await self._exchange(scope, receive, send, seats)
        finally:
            seats.leave()

    async def _exchange(self, scope: Scope, receive: Receive, send: Send, seats: Seats) -> None:
        """A request and its answer. The seats are held until the client has taken the answer, but for streams, which have small pieces."""
        began = perf_counter()
        headers = dict(scope["headers"])
        request_id = requests.request_id(headers)
        REQUEST_ID.set(request_id)
        entry: _Entry | None = None
        caller = NOBODY
        named = ""  #: who a request without a token says to be, as a login does
        result: object = None
        extra: answers.Headers = []
        try:
            entry, path = self._find(scope)
            route = entry.route
            caller = NOBODY if route.open else await self._caller(headers)
            if route.root and not caller.root:
                require_root(caller, f"call {route.method} {route.path}")
            if route.mounts and caller.storage:
                changes = route.method != "GET" and "/mounts/" not in route.path
                require_mount(caller, changes=changes, what=f"{route.method} {route.path}")
            elif caller.scope != "admin":
                require_scope(caller, route.needed_scope, f"{route.method} {route.path}")
            if route.leader and self._platform.peers is not None and FORWARDED not in headers:
                result = await self._ask_leader(route, path, headers, scope, receive)
            if result is None:
                call = await self._decode(entry, path, headers, caller, request_id, scope, receive, seats)
                if route.open:
                    named = _named(entry, call)
                result = await self._answer(route, call, seats)
            status, content = route.status, b"" if isinstance(result, Response) else answers.encoded(result)
        except PaddleFlowError as error:
            result, status, content = None, error.status, answers.refusal(error, request_id)
            extra = self._extra(error, scope)
            _log_refusal(error, scope)
        except ClientDisconnect:
            return
        except Exception as error:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            result, status, content = None, 500, answers.refusal(_internal(error), request_id)
        if isinstance(result, Response):
            status = result.status_code
            result.headers["x-pf-request-id"] = request_id
            if isinstance(result, EventStream | StreamingResponse):
                seats.leave()
            await self._stream(result, headers, scope, receive, send)
        else:
            start = {"type": "http.response.start", "status": status}
            start["headers"] = [*answers.headers(content, request_id), *extra]
            await send(start)
            await _send_body(send, b"" if scope["method"] == "HEAD" else content)
        self._note(scope, entry, status, (perf_counter() - began) * 1000)
        # Not what was refused because nobody is known or comes too often: anybody could fill the disk with it.
        known = (caller.name or named) and status != TooMany.status
        if known and entry is not None and entry.route.audited and entry.route.method != "GET":
            self._audit(scope, caller.name or named, caller.id, status, request_id)

    async def _decode(
        self,
        entry: _Entry,
        path: Mapping[str, str],
        headers: requests.RawHeaders,
        caller: Caller,
        request_id: str,
        scope: Scope,
        receive: Receive,
        seats: Seats,
    ) -> Call[Any, Any]:
        """What the handler gets: query and body as documents, each naming nobody but the caller unless that is root."""
        route, query, text = entry.route, entry.no_query, scope["query_string"]
        if text or (route.query is not None and query is None):
            query = _query(route, caller, text)
        body = None
        if route.body is not None:
            body = await self._bodies.document(route, headers, receive, caller.name, seats)
            if entry.user_field and body is not None and not caller.root and not route.open:
                requests.refuse_other_user(getattr(body, entry.user_field) or "", caller.name)
        return Call(caller, path, body, query, request_id, Request(scope, receive))

    async def _answer(self, route: Route, call: Call[Any, Any], seats: Seats) -> object:
        """What the handler says, in a seat of this user. Nobody waits for those who have no name: their routes are cheap."""
        if route.open:
            return await route.handler(self._platform, call)
        in_work = self._reads if route.method == "GET" else self._writes
        if await seats.enter(in_work, call.caller.name) and await call.request.is_disconnected():
            raise ClientDisconnect
        return await route.handler(self._platform, call)

    async def _ask_leader(
        self, route: Route, path: Mapping[str, str], headers: requests.RawHeaders, scope: Scope, receive: Receive
    ) -> Response | None:
        """The answer of the server that runs the cluster in question; None when it is to be answered here."""
        peers = self._platform.peers
        assert peers is not None
        holder = await peers.leader(route.leader, path, scope["query_string"])
        if holder is None:
            return None
        body = b"" if route.body is None else await self._bodies.whole(route, headers, receive)
        try:
            return await peers.forward(holder, scope, headers, body)
        except Unavailable:
            if route.leader_only:
                raise
            return None

    async def _stream(
        self, response: Response, headers: requests.RawHeaders, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send a response that the handler made. A stream ends with the token of its caller, and is closed, begun or not.

        What goes wrong after the status has been sent leaves the answer unfinished: the connection is closed, and the client sees it.
        """
        try:
            await self._send_response(response, headers, scope, receive, send)
        except* (PaddleFlowError, OSError, EOFError) as errors:
            _log.warning("%s %s broke off: %s", scope["method"], scope["path"], _first(errors))
        finally:
            if close := getattr(getattr(response, "body_iterator", None), "aclose", None):
                await close()

    async def _send_response(
        self, response: Response, headers: requests.RawHeaders, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
            await send({"type": "http.response.body", "body": b""})
        elif not isinstance(response, EventStream | StreamingResponse):
            await response(scope, receive, send)
        elif not await until_first(
            lambda: response(scope, receive, send), lambda: self._sessions.ended(requests.token(headers))
        ):
            await send({"type": "http.response.body", "body": b""})

    def _find(self, scope: Scope) -> tuple[_Entry, Mapping[str, str]]:
        method, path, raw_path = scope["method"], scope["path"], scope.get("raw_path") or scope["path"].encode()
        found = self._table.find("GET" if method == "HEAD" else method, path, raw_path)
        if found is not None:
            return found
        allowed = self._allowed(scope)
        if not allowed:
            raise NotFound(f"there is no path {path[:200]!r}", code="PathNotFound", hint="see /openapi.json")
        raise _MethodNotAllowed(f"{path[:200]!r} does not take {method[:20]!r}", hint=f"it takes {', '.join(allowed)}")

    async def _caller(self, headers: requests.RawHeaders) -> Caller:
        token = requests.token(headers)
        return self._sessions.cached(token) or (await self._sessions.look_up(token)).caller

    def _extra(self, error: PaddleFlowError, scope: Scope) -> answers.Headers:
        """Headers that a status asks for."""
        if error.status == 401:
            return [(b"www-authenticate", b'Bearer realm="paddleflow"')]
        if error.status == 405:
            return [(b"allow", ", ".join(self._allowed(scope)).encode())]
        if isinstance(error, Unsatisfiable):
            return [(b"content-range", b"bytes */%d" % error.size)]
        if isinstance(error, TooMany):
            return [(b"retry-after", b"%d" % error.retry_after)]
        return []

    def _allowed(self, scope: Scope) -> list[str]:
        """The methods of a path. HEAD is GET without the body."""
        methods = self._table.allowed(scope["path"], scope.get("raw_path") or scope["path"].encode())
        return sorted([*methods, "HEAD"]) if "GET" in methods else methods

    def _audit(self, scope: Scope, user: str, user_id: int, status: int, request_id: str) -> None:
        client = scope.get("client")
        self._platform.audit.record(
            AuditEntry(
                at=self._platform.clock.now(),
                user_name=user,
                user_id=user_id,
                address=client[0] if client else "",
                method=scope["method"],
                path=scope["path"].removeprefix(PREFIX),
                status=status,
                request_id=request_id,
            )
        )

    def _note(self, scope: Scope, entry: _Entry | None, status: int, milliseconds: float) -> None:
        series = entry.series.get(status) if entry is not None else None
        if series is None:
            path = entry.path if entry is not None else "unknown"
            method = entry.route.method if entry is not None else "any"
            series = self._times.series(method, path, status)
            if entry is not None:
                entry.series[status] = series
        metrics.observe(series, milliseconds)
        if _log.isEnabledFor(logging.DEBUG):
            line = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(milliseconds, 2)}
            _log.debug("answered", extra={"fields": line})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = requests.request_id(headers)
        REQUEST_ID.set(request_id)
        websocket = WebSocket(scope, receive, send)
        try:
            found = self._sockets.find("GET", scope["path"], scope.get("raw_path") or scope["path"].encode())
            if found is None:
                raise NotFound(f"there is no websocket at {scope['path'][:200]!r}", code="PathNotFound")
            caller = await self._caller(headers)
        except PaddleFlowError as error:
            if "websocket.http.response" in scope.get("extensions", {}):
                body = answers.refusal(error, request_id)
                await websocket.send_denial_response(Response(body, error.status, media_type="application/json"))
            else:
                await websocket.close(1008, error.message[:100])
            return
        socket, token = found[0], requests.token(headers)
        scope["path_params"] = found[1]
        if not await until_first(
            lambda: socket.handler(self._platform, caller, websocket), lambda: self._sessions.ended(token)
        ):
            with contextlib.suppress(RuntimeError):  # the client has gone
                await websocket.close(1008, "the token has ended")

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The composition root opens and closes everything; there is nothing to do here but to say so."""
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


async def _send_body(send: Send, content: bytes) -> None:
    """In pieces, each when the client has taken those before it."""
    begin = 0
    while begin + PIECE < len(content):
        await send({"type": "http.response.body", "body": content[begin : begin + PIECE], "more_body": True})
        begin += PIECE
    await send({"type": "http.response.body", "body": content[begin:] if begin else content})


def _entry(route: Route) -> _Entry:
    names = (
        {}
        if route.body is None
        else {(item.alias or name).lower(): name for name, item in route.body.model_fields.items()}
    )
    no_query: Document | None = None
    if route.query is not None:
        try:
            no_query = route.query()
        except ValidationError:
            no_query = None
    return _Entry(route, route.prefix + route.path, names.get("username", ""), no_query)


def _named(entry: _Entry, call: Call[Any, Any]) -> str:
    """Whom the body of an open route names, if anybody may have that name."""
    name = getattr(call.body, entry.user_field) if entry.user_field and call.body is not None else ""
    return name if name and not USER.fault(name) else ""


def _query(route: Route, caller: Caller, text: bytes) -> Document | None:
    """The query as the route's document. Only root may name another user in it."""
    users, query = (_read_query if len(text) <= _SHORT_QUERY else _read_query.__wrapped__)(route.query, text)
    if not caller.root and not route.open:
        for user in users:
            requests.refuse_other_user(user, caller.name)
    return query


@lru_cache(maxsize=1024)
def _read_query(kind: type[Document] | None, text: bytes) -> tuple[list[str], Document | None]:
    """The users that a query names, and its document: frozen, so that all who ask the same may share one."""
    pairs = requests.query_pairs(text)
    users = [value for key, value in pairs if key.lower() == "username"]
    return users, None if kind is None else requests.decode_query(kind, pairs)


def _log_refusal(error: PaddleFlowError, scope: Scope) -> None:
    """A fault of ours needs a traceback, a full disk does not, a wrong request needs no line at all."""
    if error.status >= 500:
        known = isinstance(error, Unavailable)
        level, cause = (logging.WARNING, None) if known else (logging.ERROR, error)
        _log.log(level, "%s %s: %s", scope["method"], scope["path"], error, exc_info=cause)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _internal(error: Exception) -> Internal:
    return Internal(
        f"the server failed to answer: {type(error).__name__}",
        hint="the server's log has the details under this request id",
    )
