"""What a route is, and what its handler gets.

A route module says ``ROUTES: tuple[Route, ...]`` and contains handlers of the shape::

    async def create_queue(platform: Platform, call: Call[QueueDocument, NoQuery]) -> wire.Name: ...

A handler returns a plain dict (its TypedDict is `Route.answer`), ``None`` for an empty body, ``bytes`` that are JSON
already (hot lists), or a Starlette `Response` (streams). It refuses by raising an error of `paddleflow.errors`. Before
it runs, the application has authenticated the caller, read and decoded body and query with all faults at once, and
refused callers who name another user without being root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.websockets import WebSocket

from paddleflow.access.callers import Caller
from paddleflow.api.platform import Platform
from paddleflow.base.values import dataclass
from paddleflow.spec.document import Document, decode

__all__ = ["PREFIX", "Call", "Caller", "Handler", "NoBody", "NoQuery", "Route", "Socket"]

PREFIX = "/api/paddleflow/v1"

B = TypeVar("B")
Q = TypeVar("Q")

NoBody: TypeAlias = None  #: ``Call[NoBody, …]``: the route takes no body
NoQuery: TypeAlias = None  #: ``Call[…, NoQuery]``: the route takes no query


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One request, decoded."""

    caller: Caller
    path: Mapping[str, str]  #: the parameters of the route's path, percent-decoded
    body: B  #: the document; None when the route has none, or when it is optional and was left out
    query: Q
    request_id: str
    request: Request  #: for headers and disconnects; its body has been read already


Handler: TypeAlias = Callable[[Platform, Call[Any, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. OpenAPI is generated from these fields, so they must tell the truth."""

    method: str
    path: str  #: below `prefix`; ``{name}`` takes one whole segment, and static segments win over it
    handler: Handler
    summary: str
    body: type[Document] | None = None
    reader: Callable[..., Any] = decode  #: from the body's bytes to what the handler gets
    query: type[Document] | None = None
    answer: type | None = None  #: TypedDict of the answer; None: empty body
    status: int = 200
    open: bool = False  #: needs no token
    root: bool = False  #: only for root: others get 403 OnlyRootAllowed
    scope: str = ""  #: of the token that it needs; empty: read for GET, admin where root is needed, submit otherwise
    mounts: bool = False  #: also for the token of a mount, which is good for the files of one storage
    audited: bool = True  #: whether a call that may change something is noted in the audit log
    errors: tuple[str, ...] = ()  #: codes beyond the usual ones; ``"409 SomeCode"`` where `codes.STATUS` says otherwise
    body_optional: bool = False
    binary: bool = False  #: the body is bytes for the route's reader, not JSON
    bulk: bool = False  #: the body may be large: a batch, a pipeline (`server.max_bulk_body`)
    media_type: str = "application/json"  #: of the answer, when the handler returns a Response of its own
    prefix: str = PREFIX
    #: Answered by the server that runs a cluster: ``job``, that of the job ``{id}``; ``query``, that of
    #: the job ``jobID``; ``cluster``, the default one
    leader: str = ""
    leader_only: bool = False  #: no other server can answer it from the rows of the database

    @property
    def needed_scope(self) -> str:
        if self.scope or self.open:
            return self.scope or "read"
        return "read" if self.method == "GET" else "admin" if self.root else "submit"


@dataclass(frozen=True, slots=True)
class Socket:
    """A websocket. The handler accepts it; the caller is authenticated before, as for a route."""

    path: str
    handler: Callable[[Platform, Caller, WebSocket], Awaitable[None]]
    summary: str
    prefix: str = PREFIX
