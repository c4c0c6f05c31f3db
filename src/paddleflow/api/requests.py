"""From bytes on the socket to documents: body, query, token, request id.

Everything here is refused with words and a code before a handler sees it: bodies over the limit (without reading them
whole), text that no database could keep (NUL, lone surrogates), queries that are not UTF-8, known keys given twice.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from paddleflow.api.routing import Route
from paddleflow.errors import Fault, Forbidden, Invalid, TooLarge, Unauthenticated
from paddleflow.spec.document import Document, parse

D = TypeVar("D", bound=Document)
RawHeaders = Mapping[bytes, bytes]

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
#: escapes of NUL and of surrogates; the latter are fine in pairs
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_MOST_PARAMETERS = 100


def request_id(headers: RawHeaders) -> str:
    """The client's own id when it is printable ASCII of at most 128 characters, otherwise a new UUID."""
    given = headers.get(b"x-pf-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    digits = f"{random.getrandbits(128):032x}"  # to be different is all that it has to be
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def token(headers: RawHeaders) -> str:
    """The token of a request; Unauthenticated when there is none."""
    given = headers.get(b"x-pf-authorization", b"").strip()
    if not given:
        scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
        given = rest.strip() if scheme.lower() == b"bearer" else b""
    if not given:
        raise Unauthenticated(
            "the request carries no token",
            code="AuthWithoutToken",
            hint="send the token of POST /login in the header x-pf-authorization",
        )
    return given.decode("latin-1")


async def read_body(receive: Receive, headers: RawHeaders, limit: int) -> bytes:
    """The whole body; TooLarge as soon as it is known to be more than `limit` bytes."""
    declared = headers.get(b"content-length", b"0")
    if len(declared) > 18 or (declared.isdigit() and int(declared) > limit):
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        body = await _read_rest(receive, body, limit)
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _read_rest(receive: Receive, first: bytes, limit: int) -> bytes:
    chunks, size = [first], len(first)
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if not message.get("more_body", False):
            break
    return b"".join(chunks)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the request body is larger than {limit} bytes",
        code="InvalidHTTPRequest",
        hint="send less at once; the setting server.max_body is the limit",
    )


def decode_body(route: Route, body: bytes, *, ignore_unknown: bool) -> Any:
    """The document in a body, as the route's reader gives it; None only for an optional one that was left out."""
    if route.body_optional and body.strip() in (b"", b"null"):
        return None
    if b"\x00" in body:
        raise Invalid("the request body is not JSON in UTF-8: it holds a NUL byte", code="MalformedJSON")
    if b"\\u" in body and _SUSPECT.search(body):
        _refuse_unstorable(body)
    return route.reader(route.body, body, ignore_unknown=ignore_unknown)


def _refuse_unstorable(body: bytes) -> None:
    """Refuse text that JSON can spell and no database keeps. Only bodies with suspect escapes come here."""
    try:
        rest: list[object] = [json.loads(body)]
    except (ValueError, RecursionError):
        return  # decoding says what is wrong
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            rest.extend(item.keys())
            rest.extend(item.values())
        elif isinstance(item, list):
            rest.extend(item)
        elif isinstance(item, str) and ("\x00" in item or not _encodable(item)):
            shown = item[:40].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\u0000")
            raise Invalid(
                f"text holds a NUL character or half a surrogate pair, which cannot be stored: {shown}",
                code="InappropriateJSON",
            )


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def query_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Keys and values of a query string, without empty values; Invalid when it is not UTF-8 or too long."""
    if not raw:
        return []
    try:
        pairs = parse_qsl(raw.decode("utf-8"), errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise Invalid(
            f"the query is not percent-encoded UTF-8 of at most {_MOST_PARAMETERS} parameters", code="InvalidURI"
        ) from error
    if any("\x00" in key or "\x00" in value for key, value in pairs):
        raise Invalid("the query holds a NUL character", code="InvalidURI")
    return pairs


def decode_query(kind: type[D], pairs: list[tuple[str, str]]) -> D:
    """The query as a document; one Invalid lists every fault."""
    values: dict[str, object] = {}
    known = {name.lower() for name in query_names(kind)}
    seen: set[str] = set()
    twice: list[Fault] = []
    for key, value in pairs:
        lower = key.lower()
        if lower not in known:
            continue
        if lower in seen:
            twice.append(Fault(key, "is given twice"))
        seen.add(lower)
        values[key] = value
    if twice:
        raise Invalid.of(twice, code=kind.code)
    return parse(kind, values, ignore_unknown=True)


def query_names(kind: type[Document]) -> list[str]:
    """The parameters of a query as documented."""
    return [field.alias or name for name, field in kind.model_fields.items()]


def refuse_other_user(named: str, caller: str) -> None:
    """Only root may act in another user's name. Called for callers who are not root."""
    if named and named != caller:
        raise Forbidden(
            f"user[{caller}] may not act in the name of user[{named[:80]}]",
            code="AuthIllegalUser",
            hint="leave userName out, or give your own",
        )
