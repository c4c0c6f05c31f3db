"""The pages of lists.

A list route asks the database for ``query.limit`` rows (one more than it shows) beyond ``query.after`` and gives them to
`page`: the row too many tells truly whether there is more. `page_fields` is the part that all lists answer alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from paddleflow.base.ids import encode_marker
from paddleflow.spec import wire
from paddleflow.spec.query import PageQuery, Query, listed

__all__ = ["PageQuery", "Query", "listed", "page", "page_fields"]


class Positioned(Protocol):
    """Something with a position in its list."""

    @property
    def seq(self) -> int: ...


R = TypeVar("R", bound=Positioned)


def page(rows: Sequence[R], query: PageQuery, *, cut: bool = False) -> tuple[Sequence[R], bool, str]:
    """(rows to show, whether there are more, nextMarker or empty) of rows that carry their position as ``seq``. `cut`: there are
    more, although fewer were found than asked for."""
    if len(rows) <= query.max_keys and not cut:
        return rows, False, ""
    shown = rows[: query.max_keys]
    return shown, True, encode_marker(shown[-1].seq)


def page_fields(query: PageQuery, truncated: bool, marker: str) -> wire.Page:
    """``maxKeys, isTruncated, nextMarker``, the last one only when there is one."""
    fields: wire.Page = {"maxKeys": query.max_keys, "isTruncated": truncated}
    if marker:
        fields["nextMarker"] = marker
    return fields
