"""Storages (`fs` on the wire): named places for files that jobs see at a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area
from paddleflow.sdk.records import Page, Record, table, wire
from paddleflow.sdk.transport import segment


@dataclass(frozen=True)
class Storage(Record):
    """A storage of a user."""

    id: str = wire()
    name: str = wire()
    type: str = wire()
    server_address: str = wire()
    sub_path: str = wire()
    user: str = wire(key="username")
    properties: Mapping[str, str] = wire({})


class Storages(Area):
    """Storages. `user` (root only) acts in another user's name."""

    def create(
        self, name: str, url: str, *, properties: Mapping[str, str] | None = None, user: str | None = None
    ) -> str:
        """The id of the new storage; `url` such as ``local:///data/team``."""
        body = {"name": name, "url": url, "properties": properties, "username": user}
        answer = self._transport.call("POST", "/fs", body={k: v for k, v in body.items() if v is not None})
        return str(table(answer).get("fsID", ""))

    def get(self, name: str, *, user: str | None = None) -> Storage:
        return Storage.of(self._transport.call("GET", f"/fs/{segment(name)}", query={"username": user}))

    def delete(self, name: str, *, user: str | None = None) -> None:
        self._transport.call("DELETE", f"/fs/{segment(name)}", query={"username": user}, settled=NotFound)

    def page(
        self,
        *,
        max_keys: int = PAGE,
        marker: str | None = None,
        name: str | None = None,
        user: str | None = None,
    ) -> Page[Storage]:
        query = {"fsName": name, "username": user, "maxKeys": max_keys, "marker": marker}
        return self._page("/fs", "fsList", Storage.of, query)

    def list(self, *, name: str | None = None, user: str | None = None) -> Iterator[Storage]:
        return self._pages(lambda marker: self.page(marker=marker, name=name, user=user))
