"""Storages (`fs` on the wire): named places for files that jobs see at a path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from paddleflow.errors import Invalid, NotFound
from paddleflow.sdk.area import PAGE, Area, given
from paddleflow.sdk.records import Page, Record, items, record, table, wire
from paddleflow.sdk.transport import segment


@record
class Storage(Record):
    """A storage of a user."""

    id: str = wire()
    name: str = wire()
    type: str = wire()
    server_address: str = wire()
    sub_path: str = wire()
    user: str = wire(key="username")
    properties: Mapping[str, str] = wire({})


@record
class Link(Record):
    """Another store at a path inside a storage."""

    storage: str = wire(key="fsName")
    path: str = wire(key="fsPath")
    type: str = wire()
    server_address: str = wire()
    sub_path: str = wire()
    user: str = wire(key="username")
    properties: Mapping[str, str] = wire({})


@record
class CacheSettings(Record):
    """How mounts of a storage cache."""

    storage: str = wire(key="fsName")
    user: str = wire(key="username")
    cache_dir: str = wire()
    quota: int = wire(0)
    meta_driver: str = wire()
    clean_cache: bool = wire(False)


@record
class MountGrant(Record):
    """The right to the files of a storage, for a client that mounts it."""

    id: str = wire(key="mountID")
    storage: str = wire(key="fsID")
    type: str = wire()
    token: str = wire()


@record
class Mounted(Record):
    """A storage that a client mounts."""

    id: str = wire(key="mountID")
    user: str = wire(key="username")
    node: str = wire()
    folder: str = wire()
    seen_time: str = wire()


@record
class NodeCache(Record):
    """How much of a storage a node holds."""

    node: str = wire()
    cached_bytes: int = wire(0)
    seen_time: str = wire()


class Storages(Area):
    """Storages. `user` (root only) acts in another user's name."""

    def create(
        self, name: str, url: str, *, properties: Mapping[str, str] | None = None, user: str | None = None
    ) -> str:
        """The id of the new storage; `url` such as ``local:///data/team``."""
        body = {"name": name, "url": url, "properties": properties, "username": user}
        answer = self._transport.call("POST", "/fs", body=given(body))
        return str(table(answer).get("fsID", ""))

    def update(
        self,
        name: str,
        *,
        url: str | None = None,
        properties: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        """Change a storage. `properties` replace all that there are; a secret given as ``******`` stays."""
        body = {"name": name, "url": url, "properties": properties, "username": user}
        self._transport.call("PUT", "/fs", body=given(body))

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

    # ---- links ----

    def link(
        self, name: str, path: str, url: str, *, properties: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        """Another store at a path inside a storage."""
        body = {"fsName": name, "fsPath": path, "url": url, "properties": properties, "username": user}
        self._transport.call("POST", "/link", body=given(body))

    def unlink(self, name: str, path: str, *, user: str | None = None) -> None:
        query = {"fsPath": path, "username": user}
        self._transport.call("DELETE", f"/link/{segment(name)}", query=query, settled=NotFound)

    def link_page(
        self,
        name: str,
        *,
        path: str | None = None,
        max_keys: int = PAGE,
        marker: str | None = None,
        user: str | None = None,
    ) -> Page[Link]:
        query = {"fsPath": path, "username": user, "maxKeys": max_keys, "marker": marker}
        return self._page(f"/link/{segment(name)}", "linkList", Link.of, query)

    def links(self, name: str, *, user: str | None = None) -> Iterator[Link]:
        return self._pages(lambda marker: self.link_page(name, marker=marker, user=user))

    # ---- mounts ----

    def start_mount(
        self, name: str, *, node: str, folder: str, read_only: bool = False, user: str | None = None
    ) -> MountGrant:
        """A token for the files of a storage, which counts as long as the mount reports."""
        body = {"node": node, "folder": folder, "readOnly": read_only}
        answer = self._transport.call("POST", f"/fs/{segment(name)}/mounts", query={"username": user}, body=body)
        return MountGrant.of(answer)

    def mounts(self, name: str, *, user: str | None = None) -> tuple[Sequence[Mounted], Sequence[NodeCache]]:
        """Who mounts a storage, and which nodes hold how much of it."""
        answer = table(self._transport.call("GET", f"/fs/{segment(name)}/mounts", query={"username": user}))
        return (
            [Mounted.of(each) for each in items(answer.get("mountList"))],
            [NodeCache.of(each) for each in items(answer.get("cacheList"))],
        )

    # ---- how mounts cache ----

    def create_cache(self, name: str, options: Mapping[str, object], *, user: str | None = None) -> None:
        """`options` as the REST API has them: ``cacheDir``, ``quota``, ``metaDriver`` …"""
        self._transport.call("POST", "/fsCache", body=_cache_body(name, options, user))

    def update_cache(self, name: str, options: Mapping[str, object], *, user: str | None = None) -> None:
        self._transport.call("PUT", "/fsCache", body=_cache_body(name, options, user))

    def get_cache(self, name: str, *, user: str | None = None) -> CacheSettings:
        answer = self._transport.call("GET", f"/fsCache/{segment(name)}", query={"username": user})
        return CacheSettings.of(answer)

    def delete_cache(self, name: str, *, user: str | None = None) -> None:
        self._transport.call("DELETE", f"/fsCache/{segment(name)}", query={"username": user}, settled=NotFound)


#: Options of a cache that are no texts, for callers who have texts: ``-o debug=true``.
_TYPED = ("blockSize", "debug", "cleanCache", "resource", "nodeTaintToleration", "extraConfig")


def _cache_body(name: str, options: Mapping[str, object], user: str | None) -> dict[str, object]:
    body = {"fsName": name, "username": user, **options}
    for key in _TYPED:
        value = body.get(key)
        if isinstance(value, str):
            try:
                body[key] = json.loads(value)
            except ValueError as error:
                raise Invalid(f"{key}: {value[:80]!r} is not a value, such as true, 4096 or a JSON object") from error
    return given(body)
