"""Routes of API tokens, which scripts use instead of a password, and of the audit log."""

from __future__ import annotations

from paddleflow.access import audit, tokens
from paddleflow.api.paging import page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import rfc3339
from paddleflow.spec import wire
from paddleflow.spec.access import AuditQuery, TokenDocument
from paddleflow.spec.query import PageQuery


async def create_token(platform: Platform, call: Call[TokenDocument, NoQuery]) -> wire.TokenMade:
    """Shown once: only its hash is kept."""
    wanted, now = call.body, platform.clock.now()
    token = await platform.database.write(
        tokens.issue, call.caller.name, now, wanted.hours, name=wanted.name, scope=wanted.scope
    )
    return {"name": wanted.name, "token": token, "scope": wanted.scope, "expires": rfc3339(now + wanted.hours * 3600)}


async def list_tokens(platform: Platform, call: Call[NoBody, PageQuery]) -> wire.TokenList:
    """The caller's own, without those that a login made."""
    found = await platform.database.read(tokens.list_tokens, call.caller.name, platform.clock.now())
    shown = [_token(token) for token in found]
    return {**page_fields(call.query, False, ""), "tokenList": shown}


async def delete_token(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(tokens.revoke, call.caller.name, call.path["name"])
    platform.sessions.forget()


async def list_audit(platform: Platform, call: Call[NoBody, AuditQuery]) -> wire.AuditList:
    """Newest first. Submissions of jobs and runs are not in it: jobs and runs themselves tell who made them."""
    query = call.query
    await platform.audit.flush()
    found = await platform.database.read(audit.list_audit, query.user, query.after, query.limit)
    shown, truncated, marker = page(found, query)
    return {**page_fields(query, truncated, marker), "auditList": [_entry(entry) for entry in shown]}


def _token(token: tokens.Token) -> wire.Token:
    return {
        "name": token.name,
        "scope": token.scope,
        "createTime": rfc3339(token.created_at),
        "expires": rfc3339(token.expires_at),
    }


def _entry(entry: audit.AuditEntry) -> wire.AuditEntry:
    return {
        "time": rfc3339(entry.at),
        "userName": entry.user_name,
        "userID": entry.user_id,
        "address": entry.address,
        "method": entry.method,
        "path": entry.path,
        "status": entry.status,
        "requestID": entry.request_id,
    }


ROUTES = (
    Route(
        "POST", "/token", create_token, "Make a token for a script, with a name, a scope and an end.",
        body=TokenDocument, answer=wire.TokenMade, scope="admin", errors=("409 DuplicatedName", "400 InvalidArguments"),
    ),
    Route("GET", "/token", list_tokens, "List one's tokens for scripts.", query=PageQuery, answer=wire.TokenList),
    Route("DELETE", "/token/{name}", delete_token, "Revoke a token.", scope="admin", errors=("404 TokenNotFound",)),
    Route(
        "GET", "/audit", list_audit, "Who changed what, newest first.",
        query=AuditQuery, answer=wire.AuditList, root=True,
    ),
)  # fmt: skip
