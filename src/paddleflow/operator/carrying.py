"""Carries out what a pass wants written, and puts into words what the API server refuses.

A refusal that trying again at once cannot mend (a name that is somebody else's, a quota, a webhook, missing rights, a pod that
is not valid) is answered with an event; everything else is raised, and the controller comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.refusals import AlreadyExists
from paddleflow.kube.resources import (
    CONFIG_MAPS,
    PADDLEJOBS,
    PODGROUPS,
    PODS,
    SERVICES,
    Resource,
    View,
    name,
    namespace,
    owner,
    uid,
)
from paddleflow.operator.paddlejob.writes import Delete, Event, Patch

KINDS: Mapping[str, Resource] = {each.kind: each for each in (PODS, CONFIG_MAPS, SERVICES, PODGROUPS)}
_LONGEST = 700


class Carrier:
    """The hands of the operator. What a write answers goes into the caches at once, so that the next pass knows of it."""

    def __init__(self, client: Client, caches: Mapping[str, Cache[bytes]]) -> None:
        self._client = client
        self._caches = caches

    async def write_status(self, job: View, status: Mapping[str, Any]) -> None:
        metadata = {"name": name(job), "namespace": namespace(job), "uid": uid(job)}
        wish = {"apiVersion": PADDLEJOBS.api_version, "kind": PADDLEJOBS.kind, "metadata": metadata, "status": status}
        try:
            self._caches["PaddleJob"].learn(await self._client.apply_status(PADDLEJOBS, wish))
        except NotFound:
            return  # it was deleted in between

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
        """Make everything; the first refusal, if there was one."""
        refused = await _together([self._create(job, each) for each in objects])
        return next((each for each in refused if each is not None), None)

    async def _create(self, job: View, obj: View) -> Event | None:
        kind = str(obj["kind"])
        try:
            self._caches[kind].learn(await self._client.create(KINDS[kind], obj))
        except AlreadyExists:
            return await self._taken(job, obj)
        except (Forbidden, Invalid, TooLarge, NotFound) as error:
            return refusal(obj, error)
        return None

    async def _taken(self, job: View, obj: View) -> Event | None:
        kind, own, space = str(obj["kind"]), name(obj), namespace(obj)
        try:
            there = await self._client.get(KINDS[kind], own, space)
        except NotFound:
            raise Conflict(f"{kind} {space}/{own} was deleted while it was looked at") from None
        found = owner(there)
        if found is not None and found.uid == uid(job):
            self._caches[kind].learn(there)  # ours: made by a pass whose answer got lost, or still on its way out
            raise Conflict(f"{kind} {space}/{own} is there already")
        whose = f"belongs to {found.kind} {found.key}" if found else "has no owner"
        return Event(
            "NameTaken",
            f"{kind} {space}/{own} exists and is not this job's: it {whose}. Delete it, or give the job another name",
            warning=True,
        )

    async def _delete(self, delete: Delete) -> None:
        obj = delete.obj
        kind = str(obj["kind"])
        grace = 0 if delete.force else None
        try:
            answer = await self._client.delete(KINDS[kind], name(obj), namespace(obj), uid=uid(obj), grace=grace)
        except NotFound:
            self._caches[kind].lose(obj)
            return
        except Conflict:
            return  # another object has its name by now
        if answer.get("kind") == kind and answer["metadata"].get("deletionGracePeriodSeconds"):
            self._caches[kind].learn(answer)
        else:
            self._caches[kind].lose(obj)

    async def _patch(self, patch: Patch) -> None:
        kind = str(patch.obj["kind"])
        try:
            answer = await self._client.patch(KINDS[kind], name(patch.obj), namespace(patch.obj), body=patch.body)
        except NotFound:
            return
        self._caches[kind].learn(answer)


def refusal(obj: View, error: PaddleFlowError) -> Event:
    """A refusal in words, with a reason that scripts can test."""
    what = f"{obj['kind']} {namespace(obj)}/{name(obj)}"
    said = error.message.partition(": ")[2] or error.message
    if "exceeded quota" in said:
        reason = "QuotaExceeded"
    elif "admission webhook" in said:
        reason = "RefusedByWebhook"
    elif isinstance(error, Forbidden):
        reason = "Forbidden"
    elif isinstance(error, NotFound):
        reason, said = "KindMissing", f"{said}. Is {'Volcano' if obj['kind'] == 'PodGroup' else 'the namespace'} there?"
    else:
        reason = "Refused"
    return Event(reason, f"{what} was refused: {said}"[:_LONGEST], warning=True)


async def _together(writes: list[Awaitable[Any]]) -> list[Any]:
    """All at once; every one is tried, then the first error is raised."""
    if len(writes) == 1:
        return [await writes[0]]
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
