"""Request bodies within bounds: how much is read, for how long, from whom, and where it is decoded.

The rules (``docs/internals/limits.md``), held for every route by `Application`:

* Before a caller is known a body has at most ``server.max_open_body`` bytes, afterwards ``server.max_body``, and for the
  routes that say ``bulk`` ``server.max_bulk_body``. A body that is larger is refused without being read.
* A body arrives within ``server.body_timeout`` seconds.
* It holds at most `MOST_VALUES` JSON values: what a value costs to check is far more than its bytes.
* One above `LARGE` bytes is decoded off the event loop, one at a time of each user, and counts against its user: at most
  `LARGE_PER_USER` at once, so that nobody fills the memory of the server. Its memory goes back to the system afterwards.
* One above `HELD` bytes, or of unknown size, is read when fewer than `HELD_PER_USER` of its user are in memory, which they are until they are
  answered. The others stay with their senders meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from paddleflow.api import memory
from paddleflow.api.fair_use import Computing, Seats, UserQueue
from paddleflow.api.routing import Route
from paddleflow.base.user_limit import UserLimit
from paddleflow.errors import Invalid, TimedOut, TooLarge
from paddleflow.settings import ServerSettings

LARGE = 32 * 1024  #: bytes above which a body is decoded by a thread
LARGE_PER_USER = 4  #: large bodies of one user that are read or decoded at once
HELD = 2**20  #: bytes of a body that has a place of its own in memory
HELD_PER_USER = 8  #: such bodies of one user that are in memory at once
MOST_VALUES = 400_000  #: JSON values of one body
_TRIM = 2**20  #: bytes above which memory is given back to the system after decoding

#: escapes of NUL and of surrogates; the latter are fine in pairs
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class Bodies:
    """Reads and decodes the bodies of one application."""

    def __init__(self, settings: ServerSettings, computing: Computing) -> None:
        self._settings = settings
        self._ignore_unknown = settings.unknown_fields == "ignore"
        self._large = UserLimit("large requests", LARGE_PER_USER)
        self._held = UserQueue(HELD_PER_USER)
        self._computing = computing

    async def document(
        self, route: Route, headers: Mapping[bytes, bytes], receive: Receive, user: str, seats: Seats
    ) -> Any:
        """What the route's reader makes of the body; None only for an optional one that was left out."""
        limit = self.limit(route)
        declared = headers.get(b"content-length", b"0")
        if len(declared) > 18 or (declared.isdigit() and int(declared) > limit):
            raise _too_large(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if not more and len(body) <= LARGE:  # nearly all
            return self._decode(route, body, limit)
        if more and not (declared.isdigit() and 0 < int(declared) <= HELD):
            await seats.enter(self._held, user)
        with self._large.counted(user):
            if more:
                body = await self._rest(receive, body, limit)
            if len(body) <= LARGE:
                return self._decode(route, body, limit)
            return await self._computing.run(user, self._decode_large, route, body, limit)

    async def whole(self, route: Route, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The body as it is, to be passed on."""
        declared = headers.get(b"content-length", b"0")
        if len(declared) > 18 or (declared.isdigit() and int(declared) > self.limit(route)):
            raise _too_large(self.limit(route))
        body = await self._rest(receive, b"", self.limit(route))
        if len(body) > self.limit(route):
            raise _too_large(self.limit(route))
        return body

    def limit(self, route: Route) -> int:
        """The largest body of a route, in bytes."""
        settings = self._settings
        if route.open:
            return settings.max_open_body
        return max(settings.max_bulk_body, settings.max_body) if route.bulk else settings.max_body

    async def _rest(self, receive: Receive, first: bytes, limit: int) -> bytes:
        chunks, size = [first], len(first)
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                while size <= limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunk: bytes = message.get("body", b"")
                    chunks.append(chunk)
                    size += len(chunk)
                    if not message.get("more_body", False):
                        break
        except TimeoutError as error:
            raise TimedOut(
                f"the request body did not arrive within {self._settings.body_timeout:g} s",
                hint="the setting server.body_timeout is the limit",
            ) from error
        return b"".join(chunks)

    def _decode_large(self, route: Route, body: bytes, limit: int) -> Any:
        try:
            return self._decode(route, body, limit)
        finally:
            if len(body) > _TRIM:
                del body
                memory.trim()

    def _decode(self, route: Route, body: bytes, limit: int) -> Any:
        if len(body) > limit:
            raise _too_large(limit)
        if route.body_optional and body.strip() in (b"", b"null"):
            return None
        if route.binary:
            return route.reader(route.body, body, ignore_unknown=self._ignore_unknown)
        if b"\x00" in body:
            raise Invalid("the request body is not JSON in UTF-8: it holds a NUL byte", code="MalformedJSON")
        if len(body) > MOST_VALUES and (values := body.count(b",") + body.count(b"[") + body.count(b"{")) > MOST_VALUES:
            raise TooLarge(
                f"the request body holds about {values} values, at most {MOST_VALUES} are taken",
                code="InvalidHTTPRequest",
                hint="send less at once",
            )
        if b"\\u" in body and _SUSPECT.search(body):
            _refuse_unstorable(body)
        return route.reader(route.body, body, ignore_unknown=self._ignore_unknown)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the request body is larger than {limit} bytes",
        code="InvalidHTTPRequest",
        hint="send less at once; the settings server.max_body, max_bulk_body and max_open_body are the limits",
    )


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
