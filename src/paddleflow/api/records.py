"""Routes of records by name (clusters, flavours, resource pools): create, list, show, change and delete from one table.

A module of routes describes its kind of record by a `RecordKind` and gets the five routes from `record_routes`. Root
writes; `public` says whether everybody reads. A write wakes `topics` of the bus once it is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from paddleflow.access.callers import Caller
from paddleflow.api.paging import Positioned, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Handler, NoBody, NoQuery, Route
from paddleflow.base.values import dataclass
from paddleflow.spec.document import Document
from paddleflow.spec.query import PageQuery
from paddleflow.store.database import Tx

T = TypeVar("T", bound=Positioned)
N = TypeVar("N", bound=Document)
C = TypeVar("C", bound=Document)
Q = TypeVar("Q", bound=PageQuery)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind(Generic[T, N, C, Q]):
    """One kind of record: its words, its documents and its transactions."""

    name: str  #: as the operations are called: ``create_<name>``, ``list_<name>s``
    path: str
    summaries: dict[str, str]  #: of ``create``, ``list``, ``show``, ``change`` and ``delete``
    list_field: str  #: of the answer to a list
    new: type[N]
    changes: type[C]
    query: type[Q]
    create: Callable[[Tx, N, Caller, float], T]
    select: Callable[[Tx, Q], Sequence[T]]  #: up to ``query.limit`` of them behind ``query.after``
    get: Callable[[Tx, str], T]
    change: Callable[[Tx, str, C, float], T]
    delete: Callable[[Tx, str], None]
    view: Callable[[T], object]
    created_view: Callable[[T], object]
    created_answer: type
    answer: type
    list_answer: type
    missing: str  #: the code of a name that there is not
    create_errors: tuple[str, ...]
    change_errors: tuple[str, ...] = ()
    delete_errors: tuple[str, ...] = ()
    public: bool = False
    topics: tuple[str, ...] = ()
    #: Outside of any transaction, before a document is written: look at the world beyond the database, and may fill things in.
    prepare_new: Callable[[Platform, N], Awaitable[N]] | None = None
    prepare_change: Callable[[Platform, T, C], Awaitable[C]] | None = None


def record_routes(kind: RecordKind[T, N, C, Q]) -> tuple[Route, ...]:
    """The five routes of a kind."""

    def wake(platform: Platform) -> None:
        for topic in kind.topics:
            platform.bus.wake(topic)

    async def create(platform: Platform, call: Call[N, NoQuery]) -> object:
        document = call.body if kind.prepare_new is None else await kind.prepare_new(platform, call.body)
        record = await platform.database.write(kind.create, document, call.caller, platform.clock.now())
        wake(platform)
        return kind.created_view(record)

    async def select(platform: Platform, call: Call[NoBody, Q]) -> object:
        found = await platform.database.read(kind.select, call.query)
        shown, truncated, marker = page(found, call.query)
        return {**page_fields(call.query, truncated, marker), kind.list_field: [kind.view(each) for each in shown]}

    async def show(platform: Platform, call: Call[NoBody, NoQuery]) -> object:
        return kind.view(await platform.database.read(kind.get, call.path["name"]))

    async def change(platform: Platform, call: Call[C, NoQuery]) -> object:
        name, document = call.path["name"], call.body
        if kind.prepare_change is not None:
            document = await kind.prepare_change(platform, await platform.database.read(kind.get, name), document)
        record = await platform.database.write(kind.change, name, document, platform.clock.now())
        wake(platform)
        return kind.view(record)

    async def delete(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
        await platform.database.write(kind.delete, call.path["name"])
        wake(platform)

    def route(method: str, handler: Handler, word: str, plural: str = "", **rest: Any) -> Route:
        handler.__name__ = f"{word}_{kind.name}{plural}"  # the operationId
        handler.__annotations__["call"] = Call[rest.get("body", NoBody), rest.get("query", NoQuery)]  # type: ignore[misc]
        handler.__module__ = f"{__package__}.{kind.name}s"  # the tag
        path = kind.path if word in {"create", "list"} else f"{kind.path}/{{name}}"
        return Route(method, path, handler, kind.summaries[word], **rest)

    missing, readers = (kind.missing,), not kind.public
    return (
        route("POST", create, "create", body=kind.new, answer=kind.created_answer, root=True, errors=kind.create_errors),
        route("GET", select, "list", "s", query=kind.query, answer=kind.list_answer, root=readers),
        route("GET", show, "show", answer=kind.answer, errors=missing, root=readers),
        route("PUT", change, "change", body=kind.changes, answer=kind.answer, root=True, errors=missing + kind.change_errors),
        route("DELETE", delete, "delete", root=True, errors=missing + kind.delete_errors),
    )  # fmt: skip
