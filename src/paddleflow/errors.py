"""The one error tree.

    PaddleFlowError                  code, message, hint, details
    ├── Invalid           400        the request or document is wrong; details lists every fault
    ├── Unauthenticated   401        no token, or one that does not count
    ├── Forbidden         403        known, but not allowed
    ├── NotFound          404        the thing named is not there
    ├── Conflict          409        it exists already, or is in a state that does not allow this
    ├── TooLarge          413        more than the stated limit
    ├── OverQuota         400        more than the queue, node or user may have
    ├── TooMany           429        slow down; hint says for how long
    ├── Unavailable       503        this server cannot answer now; asking again may help
    ├── Internal          500        a fault of ours
    └── LoopError                    for the loops that move rows forward
        ├── Temporary                try again later, with back-off
        └── Permanent                the row says so, in words for a person

`code` is the word that the REST API answers and scripts test (reference codes such as ``QueueNameNotFound``). A message
names the thing, the value seen and the value wanted. The SDK raises the same class again from the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

HINT = " (hint: {})"  #: how the message of a refusal ends on the wire, for clients that show nothing else
MOST_FAULTS = 100  #: faults of one document that are listed
MOST_WHERE, MOST_MESSAGE = 200, 1000  #: characters of the place and of the words of one fault


def shorten(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a document: where, what, and what would be right."""

    where: str
    message: str
    hint: str = ""

    def shortened(self) -> Fault:
        """The same, with nothing in it so long that a hundred of them would not fit into an answer."""
        if len(self.where) <= MOST_WHERE and len(self.message) <= MOST_MESSAGE:
            return self
        return replace(self, where=shorten(self.where, MOST_WHERE), message=shorten(self.message, MOST_MESSAGE))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class PaddleFlowError(Exception):
    """Root of all errors that people or programs are meant to read."""

    status: ClassVar[int] = 500
    default_code: ClassVar[str] = "InternalError"
    #: Filled in by the SDK from the answer: what to name to whoever reads the server's log.
    request_id: str = ""

    def __init__(self, message: str, *, code: str = "", hint: str = "", details: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint
        self.details = tuple(details)
        if hint:
            self.add_note(f"hint: {hint}")  # a traceback, in a script or notebook, ends with it


class Invalid(PaddleFlowError):
    status = 400
    default_code = "InvalidArguments"

    @classmethod
    def of(cls, faults: Sequence[Fault], *, code: str = "", more: int = 0) -> Invalid:
        """One error for all faults, readable by itself: the first `MOST_FAULTS` of them, and how many there are beyond
        these, with `more` that the caller only counted."""
        listed = [fault.shortened() for fault in faults[:MOST_FAULTS]]
        more += len(faults) - len(listed)
        if more:
            listed.append(Fault("", f"… and {more:,} more"))
        hint = next((fault.hint for fault in listed if fault.hint), "")
        return cls("; ".join(map(str, listed)), code=code, hint=hint, details=listed)


class Unauthenticated(PaddleFlowError):
    status = 401
    default_code = "AuthInvalidToken"


class Forbidden(PaddleFlowError):
    status = 403
    default_code = "AccessDenied"


class NotFound(PaddleFlowError):
    status = 404
    default_code = "ResourceNotFound"


class Conflict(PaddleFlowError):
    status = 409
    default_code = "ActionNotAllowed"


class TooLarge(PaddleFlowError):
    status = 413
    default_code = "InvalidHTTPRequest"


class TimedOut(PaddleFlowError):
    status = 408
    default_code = "InvalidHTTPRequest"


class OverQuota(PaddleFlowError):
    status = 400
    default_code = "InvalidArguments"


class TooMany(PaddleFlowError):
    status = 429
    default_code = "AuthFailed"
    retry_after: int = 1  #: seconds after which trying again makes sense


class Unavailable(PaddleFlowError):
    status = 503
    default_code = "InternalError"


class Internal(PaddleFlowError):
    status = 500
    default_code = "InternalError"


class LoopError(PaddleFlowError):
    """Raised inside the engine's loops; never reaches a REST client."""


class Temporary(LoopError):
    """Trying again later may help."""


class Permanent(LoopError):
    """Trying again will not help: the row ends, and says why."""


#: For clients: which class an HTTP status stands for.
BY_STATUS: dict[int, type[PaddleFlowError]] = {
    error.status: error
    for error in (
        Invalid,
        Unauthenticated,
        Forbidden,
        NotFound,
        Conflict,
        TimedOut,
        TooLarge,
        TooMany,
        Unavailable,
        Internal,
    )
}
