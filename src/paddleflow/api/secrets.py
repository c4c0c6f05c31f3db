"""Routes of secrets: named values that jobs are given. No route answers a value."""

from __future__ import annotations

from paddleflow.access import secrets
from paddleflow.api.paging import page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import rfc3339
from paddleflow.base.names import SECRET
from paddleflow.errors import Fault, Invalid
from paddleflow.spec import wire
from paddleflow.spec.access import SecretDocument
from paddleflow.spec.query import PageQuery


async def set_secret(platform: Platform, call: Call[SecretDocument, NoQuery]) -> wire.Name:
    """A new one, or another value: jobs that start from now on are given it."""
    name = call.path["name"]
    if fault := SECRET.fault(name):
        raise Invalid.of([Fault("name", fault)], code="InvalidArguments")
    await platform.database.write(
        secrets.seal, platform.keyring, call.caller.name, name, call.body.value, platform.clock.now()
    )
    return {"name": name}


async def list_secrets(platform: Platform, call: Call[NoBody, PageQuery]) -> wire.SecretList:
    """The caller's own, by name."""
    found = await platform.database.read(secrets.list_secrets, call.caller.name)
    return {**page_fields(call.query, False, ""), "secretList": [_secret(secret) for secret in found]}


async def delete_secret(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    """Jobs that run keep what they were given; those that have not started end with words."""
    await platform.database.write(secrets.remove, call.caller.name, call.path["name"])


def _secret(secret: secrets.Secret) -> wire.Secret:
    return {
        "name": secret.name,
        "createTime": rfc3339(secret.created_at),
        "updateTime": rfc3339(secret.updated_at),
    }


ROUTES = (
    Route(
        "PUT", "/secret/{name}", set_secret, "Set a secret: a named value that jobs are given.",
        body=SecretDocument, answer=wire.Name, errors=("400 InvalidArguments", "400 SecretOverQuota"),
    ),
    Route("GET", "/secret", list_secrets, "List one's secrets, without their values.", query=PageQuery, answer=wire.SecretList),
    Route("DELETE", "/secret/{name}", delete_secret, "Delete a secret.", errors=("404 SecretNotFound",)),
)  # fmt: skip
