"""What the API server refuses, as leaves of the one error tree. `code` is the API's reason, the word to test.

    status  reason                   class
    400     BadRequest …             Invalid
    401     Unauthorized             Unauthenticated
    403     Forbidden                Forbidden       RBAC, quota, a webhook: the message says which
    404     NotFound                 NotFound        the object, or the whole kind when its definition is missing
    409     AlreadyExists            AlreadyExists   a Conflict
    409     Conflict                 Conflict        somebody wrote in between, or owns the field that is applied
    410     Expired, Gone            Gone            the history asked for is forgotten: list again
    413     RequestEntityTooLarge    TooLarge
    422     Invalid                  Invalid         `details` has every cause with its field
    429     TooManyRequests          Throttled       `retry_after` seconds
    5xx, and no answer at all        Unavailable     asking again may help

A write that got no answer may have been done: `Unavailable` never says that it was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.errors import (
    Conflict,
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    PaddleFlowError,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
)


class AlreadyExists(Conflict):
    """An object of this name is there."""

    default_code = "AlreadyExists"


class Gone(PaddleFlowError):
    """The resource version or page that was asked for is forgotten."""

    status = 410
    default_code = "Expired"


class Throttled(TooMany):
    """The API server asks for `retry_after` seconds of patience."""

    default_code = "TooManyRequests"


_BY_STATUS: Mapping[int, type[PaddleFlowError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    429: Throttled,
}


def api_error(status: int, body: Mapping[str, Any], *, what: str, retry_after: str = "") -> PaddleFlowError:
    """The error that an answer of 400 or more, or an ERROR event of a watch, stands for. `what` names the request."""
    reason = str(body.get("reason") or "")
    details: Mapping[str, Any] = body.get("details") or {}
    kind = _BY_STATUS.get(status) or (Unavailable if status >= 500 else Invalid)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    message = str(body.get("message") or f"the API server answered {status}")
    faults = [
        Fault(str(cause.get("field") or ""), str(cause.get("message") or cause.get("reason") or ""))
        for cause in details.get("causes") or ()
    ]
    error = kind(f"{what}: {message}", code=reason, details=faults)
    if isinstance(error, Throttled):
        asked = retry_after or str(details.get("retryAfterSeconds") or "")
        error.retry_after = max(int(asked), 1) if asked.isdigit() else 1
    return error
