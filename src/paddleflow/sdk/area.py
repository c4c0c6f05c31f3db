"""What the areas of the client share: a transport, pages, and lists that fetch their pages by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from paddleflow.sdk.records import Page, camel_case, items, table
from paddleflow.sdk.transport import Query, Transport

T = TypeVar("T")
PAGE = 500  #: rows asked for at once by lists that page by themselves


def page_of(answer: object, rows: str, make: Callable[[object], T]) -> Page[T]:
    """The page in an answer, or in a part of one."""
    found = table(answer)
    marker = found.get("nextMarker")
    # Storage lists say `truncated`, the others `isTruncated`; a marker after the last row would loop.
    more = found.get("isTruncated", found.get("truncated", bool(marker)))
    return Page([make(row) for row in items(found.get(rows))], str(marker) if marker and more else None)


def narrowed_by(filters: Mapping[str, object], marker: str | None, max_keys: int) -> Query:
    """The query of a page, with filters as the routes of pipelines and runs call them: ``userFilter`` for `user`."""
    return {f"{name}Filter": value for name, value in filters.items()} | {"marker": marker, "maxKeys": max_keys}


def given(fields: Mapping[str, T | None]) -> dict[str, T]:
    """The fields that have a value: None stands for "not given", and is not sent."""
    return {name: value for name, value in fields.items() if value is not None}


def known(kind: type, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords if `kind` has them all: a server passes over a filter that it does not know, and would list everything."""
    for name in keywords.keys() - kind.__annotations__.keys():
        raise TypeError(f"keyword[{name}] is not one of {', '.join(kind.__annotations__)}")
    return keywords


def body_of(kind: type, fields: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The fields under their keys on the wire: camelCase, unless `keys` says otherwise."""
    return {keys.get(name) or camel_case(name): value for name, value in given(known(kind, fields)).items()}


class Area:
    """A part of the API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _page(self, path: str, rows: str, make: Callable[[object], T], query: Query) -> Page[T]:
        return page_of(self._transport.call("GET", path, query=query), rows, make)

    def _pages(self, page: Callable[[str | None], Page[T]]) -> Iterator[T]:
        """All rows of a list, page after page, each fetched when it is reached."""
        marker: str | None = None
        while True:
            found = page(marker)
            yield from found
            if found.next_marker is None:
                return
            marker = found.next_marker
