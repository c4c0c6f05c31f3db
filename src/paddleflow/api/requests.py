"""From the head of a request to values: query, token, request id. (`bodies` reads what follows it.)

Everything here is refused with words and a code before a handler sees it: queries that are not UTF-8, known keys given
twice, callers who name another user.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

from paddleflow.errors import Fault, Forbidden, Invalid, Unauthenticated
from paddleflow.spec.document import Document, parse

D = TypeVar("D", bound=Document)
RawHeaders = Mapping[bytes, bytes]

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
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
