"""Answers as bytes: JSON, the error body, and the headers that every answer carries."""

from __future__ import annotations

from pydantic_core import PydanticSerializationError, to_json

from paddleflow.base.text import as_utf8
from paddleflow.errors import HINT, PaddleFlowError
from paddleflow.spec import wire

REQUEST_ID = b"x-pf-request-id"
_CONTENT_TYPE = (b"content-type", b"application/json")
Headers = list[tuple[bytes, bytes]]


def encoded(result: object) -> bytes:
    """The body of a handler's result: bytes are JSON already, None is an empty body."""
    if type(result) is bytes:
        return result
    if result is None:
        return b""
    try:
        return to_json(result)
    except PydanticSerializationError:  # names of files are any bytes
        return to_json(_as_utf8(result))


def _as_utf8(value: object) -> object:
    match value:
        case str():
            return as_utf8(value)
        case dict():
            return {key: _as_utf8(each) for key, each in value.items()}
        case list() | tuple():
            return [_as_utf8(each) for each in value]
    return value


def headers(body: bytes, request_id: str) -> Headers:
    return [_CONTENT_TYPE, (b"content-length", b"%d" % len(body)), (REQUEST_ID, request_id.encode("ascii"))]


def refusal(error: PaddleFlowError, request_id: str) -> bytes:
    """The error body of the reference, plus hint and details where there are any.

    The hint ends the message too, for clients that show nothing else; ours take it off again (`errors.HINT`).
    """
    message = as_utf8(error.message)
    body: wire.ErrorBody = {"requestID": request_id, "code": error.code, "message": message or error.code}
    if error.hint:
        body["hint"] = error.hint
        body["message"] += HINT.format(error.hint)
    if error.details:
        body["details"] = [_detail(fault.where, fault.message, fault.hint) for fault in error.details]
    return to_json(body, inf_nan_mode="strings", serialize_unknown=True)


def _detail(where: str, message: str, hint: str) -> wire.FaultDetail:
    detail: wire.FaultDetail = {"where": as_utf8(where), "message": as_utf8(message)}
    if hint:
        detail["hint"] = hint
    return detail
