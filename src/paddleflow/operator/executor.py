"""Executes the writes of a reconcile, and turns what the API server refuses into events.

A refusal that trying again at once cannot mend (a name that is somebody else's, a quota, a webhook, missing rights, a pod that
is not valid) is answered with an event; everything else is raised, and the controller comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge, Unavailable
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import PADDLEJOBS, View, key, name, namespace, owner, uid
from paddleflow.kube.writer import Writer
from paddleflow.operator.paddlejob.job import Job
from paddleflow.operator.paddlejob.writes import Delete, Event, Patch

DEFINITION_TOO_OLD = "DefinitionTooOld"
_LONGEST = 700
#: Part of the API server's message → the reason that a script can test. The first match counts.
_REASONS = (
    ("exceeded quota", "QuotaExceeded"),
    ("webhook", "RefusedByWebhook"),
    ("ValidatingAdmissionPolicy", "RefusedByPolicy"),
    ("violates PodSecurity", "RefusedByPolicy"),
    ("is forbidden: User", "Forbidden"),  # … cannot create resource "pods" …: the role lacks it
)


class WriteExecutor:
    """Writes of one operator. Responses go into the caches at once, so that the next reconcile sees its own writes."""

    def __init__(self, client: Client, caches: Mapping[str, Cache[bytes]]) -> None:
        self._client = client
        self._caches = caches
        self._writers = {kind: Writer(client, cache) for kind, cache in caches.items()}

    async def write_status(self, job: View, status: Mapping[str, Any]) -> Event | None:
        """Write it; why the cluster's definition does not keep it, if it does not."""
        metadata = {"name": name(job), "namespace": namespace(job), "uid": uid(job)}
        wish = {"apiVersion": PADDLEJOBS.api_version, "kind": PADDLEJOBS.kind, "metadata": metadata, "status": status}
        try:
            answer = await self._client.apply_status(PADDLEJOBS, wish)
        except NotFound:
            return _too_old("it has no subresource status") if await self._is_there(job) else None
        except Unavailable as error:  # server-side apply drops nothing in silence
            if "field not declared in schema" not in error.message:
                raise
            return _too_old("its status lacks fields")
        self._caches["PaddleJob"].record_write(answer)
        return None

    async def _is_there(self, job: View) -> bool:
        try:
            return uid(await self._client.get(PADDLEJOBS, name(job), namespace(job))) == uid(job)
        except NotFound:
            return False

    async def set_finalizers(self, job: Job, finalizers: list[str]) -> None:
        """Replace the job's finalizers, if nobody wrote the job in between."""
        body = {"metadata": {"uid": job.uid, "resourceVersion": job.version, "finalizers": finalizers}}
        try:
            answer = await self._client.patch(PADDLEJOBS, job.name, job.namespace, body=body)
        except NotFound:
            return
        if answer["metadata"].get("deletionTimestamp") is None:
            self._caches["PaddleJob"].record_write(answer)

    async def expire(self, job: View) -> None:
        try:
            await self._client.delete(PADDLEJOBS, name(job), namespace(job), uid=uid(job))
        except (NotFound, Conflict):
            return

    async def delete(self, deletes: Iterable[Delete]) -> None:
        await _together([self._delete(each) for each in deletes])

    async def patch(self, patches: Iterable[Patch]) -> None:
        await _together([self._patch(each) for each in patches])

    async def create(self, job: View, objects: Iterable[View]) -> Event | None:
        """Create everything, the pods last: without the Service that names them, or their PodGroup, they must not start. The
        first refusal, if there was one; nothing is created after it."""
        for group in _in_order(objects):
            refused: list[Event | None] = await _together([self._create(job, each) for each in group])
            event = next((each for each in refused if each is not None), None)
            if event is not None:
                return event
        return None

    async def _create(self, job: View, obj: View) -> Event | None:
        try:
            await self._writers[obj["kind"]].create(obj)
        except AlreadyExists:
            return await self._taken(job, obj)
        except (Forbidden, Invalid, TooLarge, NotFound) as error:
            return refusal_event(obj, error)
        except Unavailable as error:
            if "failed calling webhook" not in error.message:
                raise
            return refusal_event(obj, error)  # the API server is well: somebody's webhook is not
        return None

    async def _taken(self, job: View, obj: View) -> Event | None:
        kind, own, space = str(obj["kind"]), name(obj), namespace(obj)
        cache = self._caches[kind]
        try:
            there = await self._client.get(cache.resource, own, space)
        except NotFound:
            raise Conflict(f"{kind} {space}/{own} was deleted in the meantime") from None
        found = owner(there)
        if found is not None and found.uid == uid(job):
            cache.record_write(there)  # ours: its create got no response, or it is still terminating
            raise Conflict(f"{kind} {space}/{own} already exists")
        if found is not None and (found.kind, found.key) == (PADDLEJOBS.kind, key(job)):
            # Of an earlier job of this name. The garbage collector takes its time, and forgets it where the new job came
            # while it did not watch.
            await self._client.delete(cache.resource, own, space, uid=uid(there))
            raise Conflict(f"{kind} {space}/{own} of an earlier job is on its way out")
        whose = f"belongs to {found.kind} {found.key}" if found else "has no owner"
        return Event(
            "NameTaken",
            f"{kind} {space}/{own} exists and is not this job's: it {whose}. Delete it, or give the job another name",
            warning=True,
        )

    async def _delete(self, delete: Delete) -> None:
        await self._writers[delete.obj["kind"]].delete(delete.obj, grace=0 if delete.force else None)

    async def _patch(self, patch: Patch) -> None:
        cache = self._caches[patch.obj["kind"]]
        try:
            answer = await self._client.patch(cache.resource, name(patch.obj), namespace(patch.obj), body=patch.body)
        except NotFound:
            return
        cache.record_write(answer)


def refusal_event(obj: View, error: PaddleFlowError) -> Event:
    """A refusal as an event, with a reason that scripts can test."""
    what = f"{obj['kind']} {namespace(obj)}/{name(obj)}"
    message = error.message.partition(": ")[2] or error.message
    reason = next((reason for part, reason in _REASONS if part in message), "Refused")
    if isinstance(error, NotFound):
        reason, message = (
            "KindMissing",
            f"{message}. Is {'Volcano' if obj['kind'] == 'PodGroup' else 'the namespace'} there?",
        )
    return Event(reason, f"{what} was refused: {message}"[:_LONGEST], warning=True)


def _too_old(why: str) -> Event:
    message = f"the cluster's definition of PaddleJob is older than this operator: {why}"
    return Event(
        DEFINITION_TOO_OLD, f"{message}. Apply the one that `paddleflow operator --crd` prints"[:_LONGEST], True
    )


def _in_order(objects: Iterable[View]) -> list[list[View]]:
    every = list(objects)
    groups = [each for each in every if each["kind"] != "Pod"], [each for each in every if each["kind"] == "Pod"]
    return [group for group in groups if group]


async def _together(writes: list[Awaitable[Any]]) -> list[Any]:
    """All at once; every one is tried, then the first error is raised."""
    if len(writes) == 1:
        return [await writes[0]]
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
