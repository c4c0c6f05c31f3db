"""One ASGI callable from tables of routes: the thin path between a socket and a handler.

For every request, in this order: find the route, authenticate, read and decode body and query, refuse callers who name
another user, run the handler, encode. A refusal is an error of `paddleflow.errors` wherever it comes from; anything else
that is raised is a fault of ours: 500 with the request's id, and the traceback in the log under the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from paddleflow.access.callers import NOBODY, Caller, require_root
from paddleflow.api import answers, codes, health, metrics, openapi, requests
from paddleflow.api.dispatch import Table
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Route, Socket
from paddleflow.errors import Internal, NotFound, PaddleFlowError, TooMany, Unavailable
from paddleflow.spec.document import Document

_log = logging.getLogger("paddleflow.api")

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
        self._limit = platform.settings.server.max_body
        self._loose = platform.settings.server.unknown_fields == "ignore"
        entries = [_entry(route) for route in routes]
        self._table = Table((entry.route.method, entry.path, entry) for entry in entries)
        self._sockets = Table(("GET", socket.prefix + socket.path, socket) for socket in sockets)
        self._times = metrics.RequestTimes(platform.registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        headers = dict(scope["headers"])
        request_id = requests.request_id(headers)
        REQUEST_ID.set(request_id)
        entry: _Entry | None = None
        extra: answers.Headers = []
        try:
            entry, path = self._find(scope)
            result = await self._answer(entry, path, headers, request_id, scope, receive)
            status = entry.route.status
            body = b"" if isinstance(result, Response) else answers.encoded(result)
        except PaddleFlowError as error:
            result, status, body = None, error.status, answers.refusal(error, request_id)
            extra = self._extra(error, scope)
            if status >= 500:  # a full disk needs no traceback, a fault of ours does
                known = isinstance(error, Unavailable)
                level, cause = (logging.WARNING, None) if known else (logging.ERROR, error)
                _log.log(level, "%s %s: %s", scope["method"], scope["path"], error, exc_info=cause)
        except ClientDisconnect:
            return
        except Exception as error:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            result, status, body = None, 500, answers.refusal(_internal(error), request_id)
        if isinstance(result, Response):
            status = result.status_code
            result.headers["x-pf-request-id"] = request_id
            if scope["method"] == "HEAD":
                await send({"type": "http.response.start", "status": status, "headers": result.raw_headers})
                await send({"type": "http.response.body", "body": b""})
            else:
                await result(scope, receive, send)
        else:
            start = {"type": "http.response.start", "status": status}
            start["headers"] = (
                [*answers.headers(body, request_id), *extra] if extra else answers.headers(body, request_id)
            )
            await send(start)
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        self._note(scope, entry, status, (perf_counter() - began) * 1000)

    def _find(self, scope: Scope) -> tuple[_Entry, Mapping[str, str]]:
        method, path, raw_path = scope["method"], scope["path"], scope.get("raw_path") or scope["path"].encode()
        found = self._table.find("GET" if method == "HEAD" else method, path, raw_path)
        if found is not None:
            return found
        allowed = self._allowed(scope)
        if not allowed:
            raise NotFound(f"there is no path {path[:200]!r}", code="PathNotFound", hint="see /openapi.json")
        raise _MethodNotAllowed(f"{path[:200]!r} does not take {method[:20]!r}", hint=f"it takes {', '.join(allowed)}")

    async def _answer(
        self,
        entry: _Entry,
        path: Mapping[str, str],
        headers: requests.RawHeaders,
        request_id: str,
        scope: Scope,
        receive: Receive,
    ) -> object:
        route = entry.route
        caller = NOBODY if route.open else await self._caller(headers)
        if route.root and not caller.root:
            require_root(caller, f"call {route.method} {route.path}")
        body: Any = None
        if route.body is not None:
            raw = await requests.read_body(receive, headers, self._limit)
            body = requests.decode_body(route, raw, ignore_unknown=self._loose)
        query = entry.no_query
        text: bytes = scope["query_string"]
        if text or (route.query is not None and query is None):
            pairs = requests.query_pairs(text)
            if not caller.root and not route.open:
                for key, value in pairs:
                    if key.lower() == "username":
                        requests.refuse_other_user(value, caller.name)
            if route.query is not None:
                query = requests.decode_query(route.query, pairs)
        if entry.user_field and body is not None and not caller.root and not route.open:
            requests.refuse_other_user(getattr(body, entry.user_field) or "", caller.name)
        call = Call(caller, path, body, query, request_id, Request(scope, receive))
        return await route.handler(self._platform, call)

    async def _caller(self, headers: requests.RawHeaders) -> Caller:
        token = requests.token(headers)
        return self._sessions.cached(token) or (await self._sessions.look_up(token)).caller

    def _extra(self, error: PaddleFlowError, scope: Scope) -> answers.Headers:
        """Headers that a status asks for."""
        if error.status == 401:
            return [(b"www-authenticate", b'Bearer realm="paddleflow"')]
        if error.status == 405:
            return [(b"allow", ", ".join(self._allowed(scope)).encode())]
        if isinstance(error, TooMany):
            return [(b"retry-after", b"%d" % error.retry_after)]
        return []

    def _allowed(self, scope: Scope) -> list[str]:
        """The methods of a path. HEAD is GET without the body."""
        methods = self._table.allowed(scope["path"], scope.get("raw_path") or scope["path"].encode())
        return sorted([*methods, "HEAD"]) if "GET" in methods else methods

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
        await found[0].handler(self._platform, caller, websocket)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """The composition root opens and closes everything; there is nothing to do here but to say so."""
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


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


def _internal(error: Exception) -> Internal:
    return Internal(
        f"the server failed to answer: {type(error).__name__}",
        hint="the server's log has the details under this request id",
    )
