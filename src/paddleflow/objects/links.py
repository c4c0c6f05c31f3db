"""One store with others at paths inside it: a wrapper that sends each key to the store that it belongs to.

The link's path is a folder, whatever the host store has there: it is listed, cannot be removed, and carries no metadata. Nothing is
moved or copied between stores: `Invalid` with the code `CROSS_STORE`, which a mount answers as EXDEV, so that `mv` copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import BinaryIO

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.objects.store import Capabilities, Entry, Kind, ObjectStore, check_key, not_supported, shorten
from paddleflow.objects.urls import NO_PROPERTIES, Properties, open_store
from paddleflow.objects.wrappers import Retrying

CROSS_STORE = "CrossStore"  #: code of the `Invalid` for a copy or rename from one store to another


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """A store at a path: what a link says."""

    path: str  #: without slashes at its ends
    url: str
    properties: Properties = field(default_factory=dict)


def open_linked(url: str, properties: Properties = NO_PROPERTIES, links: Sequence[LinkTarget] = ()) -> ObjectStore:
    """The store of a URL with its links, each with retries; nothing is asked of a network yet."""
    host = Retrying(open_store(url, properties))
    return (
        LinkedStore(host, {each.path: Retrying(open_store(each.url, each.properties)) for each in links})
        if links
        else host
    )


class LinkedStore:
    """A host store with others inside. Links do not lie in each other."""

    def __init__(self, host: ObjectStore, links: Mapping[str, ObjectStore]) -> None:
        self.name = host.name
        self.host = host
        self.links = {check_key(path): store for path, store in links.items()}
        every = [store.capabilities for store in (host, *links.values())]
        common = {each.name: all(getattr(found, each.name) for found in every) for each in fields(Capabilities)}
        self.capabilities = replace(Capabilities(**common), multipart=False)

    def _route(self, key: str) -> tuple[ObjectStore, str, str]:
        """(store, key in that store, path of the link or empty)."""
        for path, store in self.links.items():
            if key == path or key.startswith(f"{path}/"):
                return store, key[len(path) + 1 :], path
        return self.host, key, ""

    def _inner(self, key: str, what: str) -> tuple[ObjectStore, str, str]:
        """The same for something that is done to a file or folder, which a link itself is not."""
        store, inner, path = self._route(key)
        if path and not inner:
            raise Conflict(f"{shorten(key)} in {self.name} is a link to {store.name}: {what}", code="FolderNotEmpty")
        return store, inner, path

    def stat(self, key: str) -> Entry:
        store, inner, path = self._route(key)
        try:
            found = _at(path, store.stat(inner))
        except NotFound:
            if path or not self._is_above(key.removesuffix("/")):
                raise
            return Entry(key.removesuffix("/"), Kind.FOLDER)
        if path and not inner.strip("/"):
            return Entry(path, Kind.FOLDER, modified_at=found.modified_at)
        return found

    def _is_above(self, key: str) -> bool:
        """Whether a link lies somewhere below: the folders above it are there, whatever the host has."""
        return any(link.startswith(f"{key}/") for link in self.links)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        store, inner, path = self._route(folder.removesuffix("/"))
        if path:
            yield from (_at(path, entry) for entry in store.list_entries(inner, recursive=recursive))
            return
        prefix = f"{inner}/" if inner else ""
        seen = set()
        for entry in store.list_entries(inner, recursive=recursive):
            if not self._route(entry.key)[2]:  # what the host has below a link is not seen
                yield entry
                if self._is_above(entry.key):
                    seen.add(entry.key)
        for link, other in self.links.items():
            if not link.startswith(prefix):
                continue
            if recursive:
                yield from (_at(link, entry) for entry in other.list_entries("", recursive=True))
                continue
            first = prefix + link[len(prefix) :].partition("/")[0]
            if first not in seen:
                seen.add(first)
                yield Entry(first, Kind.FOLDER)

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        store, inner, _ = self._inner(key, "it cannot be read")
        return store.read(inner, size=size, offset=offset, tag=tag)

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        store, inner, path = self._inner(key, "it cannot be written")
        return _at(path, store.write(inner, content, metadata=metadata, if_absent=if_absent, if_tag=if_tag))

    def remove(self, key: str) -> None:
        store, inner, _ = self._inner(key, "unlink it")
        store.remove(inner)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        store, inner, path = self._route(key.removesuffix("/"))
        if path and not inner:
            if metadata is not None:
                raise not_supported(self.name, f"keep attributes of {shorten(key)}, which is a link")
            return
        store.make_folder(inner, metadata=metadata)

    def remove_folder(self, key: str) -> None:
        store, inner, _ = self._inner(key.removesuffix("/"), "unlink it")
        if store is self.host and any(f"{link}/".startswith(f"{inner}/") for link in self.links):
            raise Conflict(f"{shorten(key)} in {self.name} holds a link", code="FolderNotEmpty")
        store.remove_folder(inner)

    def copy(self, source: str, target: str) -> Entry:
        store, from_key, to_key, path = self._both(source, target)
        return _at(path, store.copy(from_key, to_key))

    def rename(self, source: str, target: str) -> Entry:
        store, from_key, to_key, path = self._both(source, target)
        return _at(path, store.rename(from_key, to_key))

    def _both(self, source: str, target: str) -> tuple[ObjectStore, str, str, str]:
        store, from_key, path = self._inner(source, "it cannot be moved")
        _, to_key, other_path = self._inner(target, "it cannot be replaced")
        if path != other_path:
            raise Invalid(
                f"{shorten(source)} and {shorten(target)} lie in different stores",
                code=CROSS_STORE,
                hint="copy it, then remove it",
            )
        return store, from_key, to_key, path

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        store, inner, path = self._inner(key, "it carries no metadata")
        return _at(path, store.set_metadata(inner, metadata))

    def close(self) -> None:
        for store in (self.host, *self.links.values()):
            store.close()


def capabilities_of(store: ObjectStore, key: str) -> Capabilities:
    """What can be done with one key: a linked store and its host may differ, and `LinkedStore.capabilities` has what all of them can."""
    return (store._route(key)[0] if isinstance(store, LinkedStore) else store).capabilities


def _at(path: str, entry: Entry) -> Entry:
    """An entry of a linked store, as it is seen in the host."""
    return replace(entry, key=f"{path}/{entry.key}" if entry.key else path) if path else entry
