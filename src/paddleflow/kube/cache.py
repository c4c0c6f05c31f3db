"""A copy of one kind in this process's memory, kept true by list and watch. Protocol: docs/internals/kube.md.

What it promises once `synced` is set: it holds every object that the API server had a moment ago; every object that came,
changed or went since is reported to the subscribers at least once, however often the watch broke in between, the server was
restarted or its history was forgotten. What happened in between is not replayed: two changes may be reported as one, and one
that was made and deleted while nobody watched not at all. Whoever reacts must read the state, not replay events.

It keeps what `transform` makes of an object and nothing else: a controller of thousands of pods keeps a few fields of each. A change
of which it keeps nothing, such as the heartbeat of a node, is not reported.
Subscribers are given (key, old, new); the key, because what is kept need not know its own name.

A controller reads what it wrote: `record_write` puts the answer of a write into the cache before the watch brings it, so that the
next reconcile does not repeat the write; `record_delete` does the same for a deletion. Both step aside for whatever the watch knows better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from random import Random
from typing import Any, Generic, TypeVar

import orjson

from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.kube import resources
from paddleflow.kube.client import QUIET, Client, WatchEvent
from paddleflow.kube.errors import Gone, Throttled
from paddleflow.kube.queue import Backoff
from paddleflow.kube.resources import Object, Owner, Resource, View

T = TypeVar("T")

RELIST_AFTER = 3  #: failed watches in a row after which the list is read anew, whatever the server says
DELETED_KNOWN = 1024  #: deletions that are remembered, against words about them that come late
STEADY = 5.0  #: seconds after which a watch that ends was a good one, even if nothing happened meanwhile
_log = Log("kube.cache")


def without_managed_fields(obj: Object) -> Object:
    """The object without what nobody here reads, which is about half of it."""
    obj["metadata"].pop("managedFields", None)
    return obj


def packed(transform: Callable[[Object], Object]) -> Callable[[Object], bytes]:
    """A cache's `transform` that keeps what another one leaves over.

    The copy matters: what the encoder returns lies at the beginning of a large buffer, and thousands of those that were cut
    short leave five times as much memory in pieces as they hold.
    """
    return lambda obj: bytes(memoryview(orjson.dumps(transform(obj))))


def unpacked(kept: bytes) -> Object:
    found: Object = orjson.loads(kept)
    return found


def all_unpacked(kept: Iterable[bytes]) -> list[Object]:
    return [unpacked(each) for each in kept]


class _Entry(Generic[T]):
    __slots__ = ("children", "uid", "value", "version")

    def __init__(self, value: T, version: int, uid: str, children: _Children | None) -> None:
        self.value = value
        self.version = version
        self.uid = uid
        self.children = children


class _Children:
    """The children of one owner; one object for all of them."""

    __slots__ = ("keys", "owner")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.keys: dict[str, None] = {}  # half the size of a set


class Cache(Generic[T]):
    """One kind, of one namespace or all, as far as the selectors see it."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        transform: Callable[[Object], T] = without_managed_fields,  # type: ignore[assignment]  # Object, when nobody says what T is
        backoff: Backoff | None = None,
        random: Random | None = None,
        quiet: float = QUIET,
        page: int = 100,  # a page of 500 pods is ten megabytes as dictionaries, which the process never gives back
    ) -> None:
        self._client = client
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._transform = transform
        self._backoff = backoff or Backoff(0.05, 30.0)
        self._random = random or Random()  # noqa: S311  spreading reconnections needs no secrets
        self._quiet = quiet
        self._page = page
        self._entries: dict[str, _Entry[T]] = {}
        self._children: dict[str, _Children] = {}
        self._lost: dict[str, str] = {}  # what `record_delete` took away, uid by key, until the watch confirms it
        self._deleted: dict[
            str, int
        ] = {}  # what the watch said is gone, with the version: an event from before it that comes late is void
        self._listed = -1  # the version of the last list; so is an event from before that
        self._position = ""  # where the next watch begins; empty: list first
        self._known = 0  # the version up to which the server has sent everything
        self._failures = 0  # in a row, without an event in between
        self._subscribers: list[Callable[[str, T | None, T | None], None]] = []
        self._owner_subscribers: list[tuple[str, Callable[[str], None]]] = []
        self.synced = asyncio.Event()
        self._error: PaddleFlowError | None = None
        self._source: Cache[Any] | None = None  # whose list and watch it lives on
        self._fed: list[Cache[Any]] = []  # those that live on this one's
        self.lists = 0
        self.watches = 0

    @property
    def error(self) -> PaddleFlowError | None:
        """Why the copy may be old; until the server's next word."""
        return self._error if self._source is None else self._source.error

    def feed(self, other: Cache[Any]) -> None:
        """`other` keeps something else of the same objects: it gets them from this one's list and watch, from the beginning, and is
        not run itself."""
        assert not self.synced.is_set(), "what has been listed is not listed again"
        other.synced, other._source = self.synced, self
        self._fed.append(other)

    @property
    def fed(self) -> bool:
        """Whether another cache keeps this one true."""
        return self._source is not None

    # ---- reading

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def keys(self) -> list[str]:
        return list(self._entries)

    def all(self) -> list[T]:
        return [entry.value for entry in self._entries.values()]

    def by_owner(self, uid: str) -> list[T]:
        """What the object of this uid controls, in the order of keys."""
        children = self._children.get(uid)
        return [] if children is None else [self._entries[key].value for key in sorted(children.keys)]

    def subscribe(self, callback: Callable[[str, T | None, T | None], None]) -> None:
        """Calls back with (key, old, new) for each change, None for what was or is not there; first for what is there now."""
        self._subscribers.append(callback)
        for key, entry in list(self._entries.items()):
            callback(key, None, entry.value)

    def subscribe_owners(self, kind: str, callback: Callable[[str], None]) -> None:
        """Calls back with the key of the controlling owner of this kind for each change of what it owns."""
        self._owner_subscribers.append((kind, callback))
        for children in list(self._children.values()):
            if children.owner.kind == kind:
                callback(children.owner.key)

    # ---- own writes

    def record_write(self, obj: View) -> None:
        """Takes in an answer of a write, unless the watch has come past it already."""
        version = _number(resources.version(obj))
        if self.synced.is_set() and version > self._known:
            self._put(resources.key(obj), _copied(obj), version)

    def record_delete(self, obj: View) -> None:
        """Takes away what a delete of ours ended at once; nothing that has its name by now."""
        key = resources.key(obj)
        entry = self._entries.get(key)
        if entry is not None and entry.uid == resources.uid(obj):
            self._lost[key] = entry.uid
            self._drop(key)

    # ---- following

    async def run(self) -> None:
        """Keeps the copy true until it is cancelled; an error of the API server is waited out."""
        while True:
            try:
                if not self._position:
                    await self._list()
                before = self._position
                await self._watch()
                self._failures = 0
                if self._position != before:
                    continue  # servers end the watch of a reader that falls behind: catch up, do not fall further behind
            except Gone:
                self._position = ""
            except PaddleFlowError as error:
                self._error = error
                self._failures += 1
                if self._failures % RELIST_AFTER == 0:
                    self._position = ""
                if self._failures & (self._failures - 1) == 0:  # ever more seldom: a kind that is not served stays so
                    _log.warning("watch broken", kind=self.resource.kind, error=error.message, failures=self._failures)
                if isinstance(error, Throttled):
                    await asyncio.sleep(error.retry_after)
            await asyncio.sleep(self._backoff.next())

    async def _list(self) -> None:
        """The state as a whole: what is in no page is gone."""
        self.lists += 1
        seen: set[str] = set()
        version = ""
        before = self._known
        pages = self._client.pages(
            self.resource, self._namespace, labels=self._labels, fields=self._fields, limit=self._page
        )
        fresh: list[tuple[str, Object]] = []
        still_lost: dict[str, str] = {}
        async for page in pages:
            version = page.version
            rewound = _number(version) < before  # the server was put back to an earlier state: believe it, not us
            for item in page.items:
                key = resources.key(item)
                seen.add(key)
                if rewound:
                    fresh.append((key, item))
                elif self._lost.get(key) == resources.uid(item):
                    still_lost[key] = self._lost[key]  # the list was begun before the deletion; the watch will bring it
                else:
                    self._put(key, item, _number(resources.version(item)))
        known = _number(version)
        if known < before:
            for key in self.keys():
                self._drop(key)
            for key, item in fresh:
                self._put(key, item, _number(resources.version(item)))
        for key in [key for key, entry in self._entries.items() if key not in seen and entry.version <= known]:
            self._drop(key)
        self._lost = still_lost
        self._deleted.clear()
        self._listed = self._known = known
        self._position = version
        self._error = None
        self.synced.set()

    async def _watch(self) -> None:
        """Takes in changes until the watch ends by itself."""
        self.watches += 1
        events = self._client.watch(
            self.resource,
            self._namespace,
            version=self._position,
            labels=self._labels,
            fields=self._fields,
            seconds=self._random.randint(240, 480),
            quiet=self._quiet,
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with aclosing(events):
                async for event in events:
                    self._take(event)
        finally:
            if loop.time() - began >= STEADY:
                self._backoff.reset()

    def _take(self, event: WatchEvent) -> None:
        kind, obj = event
        position = resources.version(obj)
        version = _number(position)
        if kind != "BOOKMARK":
            key = resources.key(obj)
            entry = self._entries.get(key)
            if self._lost.get(key) == resources.uid(obj):
                if kind == "DELETED":
                    del self._lost[key]
            elif kind != "DELETED":
                if version > self._deleted.get(key, self._listed):
                    self._put(key, obj, version)
            elif entry is not None and entry.version <= version:
                self._drop(key)
            if kind == "DELETED":
                self._note_deletion(key, version)
        self._position = position
        self._known = max(self._known, version)
        self._failures = 0
        self._error = None
        self._backoff.reset()

    def _note_deletion(self, key: str, version: int) -> None:
        if len(self._deleted) >= DELETED_KNOWN:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[key] = max(version, self._deleted.pop(key, -1))

    # ---- the copy

    def _put(self, key: str, obj: Object, version: int) -> None:
        for other in self._fed:
            other._put(key, obj, version)
        entry = self._entries.get(key)
        if entry is not None and version <= entry.version:
            return
        owner, uid = resources.owner(obj), resources.uid(obj)
        value = self._transform(obj)
        if entry is None:
            children = self._join(owner, key)
            self._entries[key] = _Entry(value, version, uid, children)
            self._notify(key, None, value, children, None)
            return
        old, left = entry.value, entry.children
        moved = (owner.uid if owner else "") != (left.owner.uid if left else "")
        if not moved and uid == entry.uid and value == old:
            entry.version = version  # a heartbeat: nothing that is kept has changed
            return
        if moved:
            self._leave(left, key)
            entry.children = self._join(owner, key)
        entry.value, entry.version, entry.uid = value, version, uid
        self._notify(key, old, value, entry.children, left)

    def _drop(self, key: str) -> None:
        for other in self._fed:
            other._drop(key)
        entry = self._entries.pop(key)
        self._leave(entry.children, key)
        self._notify(key, entry.value, None, entry.children, None)

    def _join(self, owner: Owner | None, key: str) -> _Children | None:
        if owner is None:
            return None
        children = self._children.get(owner.uid)
        if children is None:
            children = self._children[owner.uid] = _Children(owner)
        children.keys[key] = None
        return children

    def _leave(self, children: _Children | None, key: str) -> None:
        if children is not None:
            children.keys.pop(key, None)
            if not children.keys:
                del self._children[children.owner.uid]

    def _notify(
        self, key: str, old: T | None, new: T | None, children: _Children | None, left: _Children | None
    ) -> None:
        for callback in self._subscribers:
            callback(key, old, new)
        if children is not None:
            self._notify_owner(children)
        if left is not None and left is not children:
            self._notify_owner(left)

    def _notify_owner(self, children: _Children) -> None:
        for kind, callback in self._owner_subscribers:
            if kind == children.owner.kind:
                callback(children.owner.key)


def _number(version: str) -> int:
    """Versions of one kind may be compared as numbers; one that is none counts as the oldest, so that it is never kept
    against what the server says."""
    return int(version) if version.isdigit() else 0


def _copied(obj: View) -> Object:
    """Enough of a copy that transforms does not change what the writer holds."""
    return {**obj, "metadata": dict(obj["metadata"])}
