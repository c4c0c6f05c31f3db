"""Routes of grants: what users may use. All of them are for root."""

from __future__ import annotations

from paddleflow.access import grants
from paddleflow.api.paging import page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import rfc3339
from paddleflow.jobs.changes import refuse_waiting
from paddleflow.spec import wire
from paddleflow.spec.access import GrantDocument, GrantKey, GrantQuery
from paddleflow.store.bus import EVENTS, JOBS
from paddleflow.store.database import Tx


async def create_grant(platform: Platform, call: Call[GrantDocument, NoQuery]) -> wire.GrantID:
    body = call.body
    grant_id = await platform.database.write(
        grants.add, body.user_name, body.resource_type, body.resource_id, platform.clock.now()
    )
    return {"grantID": grant_id}


async def delete_grant(platform: Platform, call: Call[NoBody, GrantKey]) -> None:
    """Jobs of the user that wait for it are ended, in parts; the grant goes with the last of them, so that none is forgotten."""
    query, now, rules = call.query, platform.clock.now(), platform.settings.jobs
    key = query.username, query.resource_type, query.resource_id
    await platform.database.read(grants.require, *key)
    while await platform.database.write(refuse_waiting, *key, now, rules):
        pass

    def take_back(tx: Tx) -> None:
        grants.remove(tx, *key)
        while refuse_waiting(tx, *key, now, rules):  # what came meanwhile
            pass

    await platform.database.write(take_back)
    platform.bus.wake(JOBS)
    platform.bus.wake(EVENTS)


async def list_grants(platform: Platform, call: Call[NoBody, GrantQuery]) -> wire.GrantList:
    query = call.query
    found = await platform.database.read(grants.list_grants, query.username, query.after, query.limit)
    shown, truncated, marker = page(found, query)
    return {**page_fields(query, truncated, marker), "grantList": [_grant(grant) for grant in shown]}


def _grant(grant: grants.Grant) -> wire.Grant:
    given = rfc3339(grant.created_at)
    return {
        "grantID": grant.id,
        "userName": grant.user_name,
        "resourceType": grant.resource_type,
        "resourceID": grant.resource_id,
        "createTime": given,
        "updateTime": given,  # a grant is given and taken, never changed
    }


_REFUSED = ("GrantResourceTypeNotFound", "GrantRootActionNotSupport")

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/grant",
        create_grant,
        "Let a user use a queue, user or fs",
        body=GrantDocument,
        answer=wire.GrantID,
        root=True,
        errors=("UserNotExist", "QueueNameNotFound", "FileSystemNotExist", "GrantAlreadyExist", *_REFUSED),
    ),
    Route(
        "DELETE",
        "/grant",
        delete_grant,
        "Take a grant back",
        query=GrantKey,
        root=True,
        errors=("GrantNotFound", *_REFUSED),
    ),
    Route("GET", "/grant", list_grants, "List grants", query=GrantQuery, answer=wire.GrantList, root=True),
)
