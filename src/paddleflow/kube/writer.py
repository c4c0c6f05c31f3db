"""Writes that the cache learns of, and that are not repeated for nothing when an answer was lost.

A write that brings `Unavailable` may have been done. Whoever simply does it again later writes for nothing; whoever waits for
the watch may wait for a watch that is broken as well. So a `Writer` remembers the doubt, and reads the object
itself before it touches it again. One for each kind, shared by the workers of a controller.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from paddleflow.errors import NotFound, Unavailable
from paddleflow.kube import resources
from paddleflow.kube.apply import differences
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.resources import Object, View


class Writer:
    """Creates, applies and deletes objects of the kind that a cache follows."""

    def __init__(self, client: Client, cache: Cache[Any]) -> None:
        self._client = client
        self._cache = cache
        self._resource = cache.resource
        self._doubts: set[str] = set()

    async def create(self, wanted: View) -> Object:
        """The object as it is kept; `AlreadyExists` when the name is taken by one that an earlier try of ours did not make."""
        there = await self._resolved(resources.key(wanted))
        if there is not None and not differences(wanted, there):
            return there
        return await self._done(wanted, self._client.create(self._resource, wanted))

    async def apply(self, wanted: View) -> Object:
        """Server-side apply, for callers that found a difference to what the cache has."""
        there = await self._resolved(resources.key(wanted))
        if there is not None and not differences(wanted, there):
            return there
        return await self._done(wanted, self._client.apply(self._resource, wanted))

    async def delete(self, obj: View, *, grace: int | None = None) -> None:
        """Deletes the very object; one that is gone already is no error. `Conflict` when somebody was faster: the object may
        be another one of its name, or the same one in a new version, so the caller must read again."""
        key = resources.key(obj)
        own, uid = resources.name(obj), resources.uid(obj)
        if key in self._doubts:
            there = await self._resolved(key)
            if there is None or resources.uid(there) != uid:
                self._cache.record_delete(obj)
                return
        try:
            left = await self._client.delete(self._resource, own, resources.namespace(obj), uid=uid, grace=grace)
        except NotFound:
            self._cache.record_delete(obj)
        except Unavailable:
            self._doubts.add(key)
            raise
        else:
            if left.get("kind") == self._resource.kind and _held(left):
                self._cache.record_write(left)
            else:
                self._cache.record_delete(obj)

    async def _resolved(self, key: str) -> Object | None:
        """The object itself if it is in doubt whether a write of ours was done; None if it is not, or nothing is there."""
        if key not in self._doubts:
            return None
        space, own = resources.split(key)
        try:
            there = await self._client.get(self._resource, own, space)
        except NotFound:
            self._doubts.discard(key)
            return None
        self._doubts.discard(key)
        self._cache.record_write(there)
        return there

    async def _done(self, wanted: View, write: Awaitable[Object]) -> Object:
        try:
            made = await write
        except Unavailable:
            self._doubts.add(resources.key(wanted))
            raise
        self._cache.record_write(made)
        return made


def _held(obj: View) -> bool:
    """Whether an object that was deleted stays for a while: for its finalizers, or until its node has ended it."""
    metadata = obj["metadata"]
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))
