"""An in-process client of the application: calls the ASGI callable directly, and holds every refusal against what its
route declares, so that the description at ``/openapi.json`` is checked by every API test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from starlette.types import ASGIApp, Message

from paddleflow.api.dispatch import Table
from paddleflow.api.openapi import declared_errors
from paddleflow.api.routing import PREFIX, Route
from paddleflow.errors import Invalid
from tests.api.answer_contract import faults


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def ok(self, status: int = 200) -> Any:
        """The JSON of a good answer (None for an empty one)."""
        assert self.status == status, f"{self.status}: {self.body.decode()}"
        return json.loads(self.body) if self.body else None

    def refused(self, status: int, code: str) -> Any:
        """The JSON of a refusal with this status and code."""
        assert (self.status, self.json.get("code")) == (status, code), f"{self.status}: {self.body.decode()}"
        return self.json


class Api:
    """Calls as one user (or nobody). Paths are below the prefix unless they are called ``absolute``."""

    def __init__(self, app: ASGIApp, routes: Sequence[Route], token: str = "") -> None:
        self.app = app
        self.token = token
        self._routes = routes
        self._table: Table[Route] = Table((route.method, route.prefix + route.path, route) for route in routes)

    def with_token(self, token: str) -> Api:
        return Api(self.app, self._routes, token)

    async def login(self, name: str, password: str) -> Api:
        """The same API as another user."""
        answer = await self.post("/login", {"username": name, "password": password})
        return self.with_token(answer.ok()["authorization"])

    async def get(self, path: str, /, **query: object) -> Answer:
        return await self.call("GET", path, query=query)

    async def post(self, path: str, /, body: object = None, **query: object) -> Answer:
        return await self.call("POST", path, body, query=query)

    async def put(self, path: str, /, body: object = None, **query: object) -> Answer:
        return await self.call("PUT", path, body, query=query)

    async def delete(self, path: str, /, body: object = None, **query: object) -> Answer:
        return await self.call("DELETE", path, body, query=query)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        absolute: bool = False,
        chunks: AsyncIterator[bytes] | None = None,
        sent: list[Message] | None = None,
    ) -> Answer:
        """One request. A `body` that is bytes goes as it is, None sends none; `chunks` sends it in pieces.

        What comes back is added to `sent` as it comes, for streams. The client stays until the answer is whole.
        """
        scope, raw = self._scope(method, path if absolute else PREFIX + path, body, query, headers)
        sent = [] if sent is None else sent
        whole: list[bytes] = [raw]

        async def receive() -> Message:
            if chunks is not None:
                chunk = await anext(chunks, None)
                return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}
            if not whole:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": whole.pop(), "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        answer = _answer(sent)
        self._check(scope, answer)
        return answer

    async def leave(self, method: str, path: str, leave: asyncio.Event) -> Sequence[Message]:
        """One request of a client that disconnects at this event; what was sent to it."""
        scope, body = self._scope(method, PREFIX + path, None, None, None)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent

    def _scope(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, object] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[dict[str, Any], bytes]:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"content-length": str(len(raw)), "host": "test"}
        if self.token:
            given["x-pf-authorization"] = self.token
        given |= {key.lower(): value for key, value in (headers or {}).items()}
        parts = urlsplit(path)
        raw_path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._").encode()
        scope = {
            "type": "http",
            "method": method,
            "path": parts.path,
            "raw_path": raw_path,
            "query_string": (parts.query or urlencode(dict(query or {}))).encode(),
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in given.items()],
            "extensions": {},
        }
        return scope, raw

    def _check_keys(self, scope: Mapping[str, Any], answer: Answer) -> None:
        found = self._table.find(scope["method"], scope["path"], scope["raw_path"])
        route = None if found is None else found[0]
        ours = route is not None and route.handler.__module__.startswith("paddleflow.")  # not one made up by a test
        if (
            not ours
            or not answer.body
            or route is None
            or route.answer is None
            or answer.headers.get("content-type") != "application/json"
        ):
            return
        wrong = faults(route.answer, answer.json)
        assert not wrong, f"{scope['method']} {scope['path']}: {'; '.join(wrong[:5])}"

    def _check(self, scope: Mapping[str, Any], answer: Answer) -> None:
        assert answer.headers["x-pf-request-id"]
        if scope["method"] == "HEAD":  # like GET, without the body
            assert not answer.body
            return
        if "content-length" in answer.headers:
            assert int(answer.headers["content-length"]) == len(answer.body)
        if answer.status < 400:
            self._check_keys(scope, answer)
            return
        assert answer.headers["content-type"] == "application/json"
        assert {"requestID", "code", "message"} <= answer.json.keys() <= _ERROR_KEYS
        assert answer.json["requestID"] == answer.headers["x-pf-request-id"]
        if answer.json["code"] in {"PathNotFound", "MethodNotAllowed"}:
            return
        try:
            found = self._table.find(scope["method"], scope["path"], scope["raw_path"])
        except Invalid:
            return  # the path itself was refused
        assert found is not None
        declared = declared_errors(found[0])
        assert answer.json["code"] in declared.get(answer.status, ()), (
            f"{found[0].method} {found[0].path} answered {answer.status} {answer.json['code']}, which its route does not"
            f" declare: add '{answer.status} {answer.json['code']}' to Route.errors"
        )


_ERROR_KEYS = {"requestID", "code", "message", "hint", "details"}


def _answer(sent: Sequence[Message]) -> Answer:
    start = sent[0]
    assert start["type"] == "http.response.start"
    headers = {key.decode(): value.decode() for key, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))
