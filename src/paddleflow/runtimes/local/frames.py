"""Messages between server and keeper: four bytes of length, then JSON. Both sides import this; it does no I/O."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 1 << 30  #: a longer frame is not ours: the other side is something else

Message = dict[str, Any]

#: Made once: `json.dumps` makes one a call.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().raw_decode


def encode(message: Message) -> bytes:
    body = _encode(message).encode("ascii")
    return len(body).to_bytes(4, "big") + body


def line(values: list[Any]) -> bytes:
    """One line of the journal."""
    return _encode(values).encode("ascii") + b"\n"


class Inbox:
    """Puts frames together from pieces of a stream."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes | memoryview) -> list[Message]:
        """The messages that are whole now; ValueError when this is no stream of ours."""
        self._bytes += piece
        messages = []
        start = 0
        while len(self._bytes) - start >= 4:
            length = int.from_bytes(self._bytes[start : start + 4], "big")
            if length > LARGEST:
                raise ValueError(f"a frame of {length} bytes is not one of ours")
            if len(self._bytes) - start - 4 < length:
                break
            messages.append(_decode(self._bytes[start + 4 : start + 4 + length].decode())[0])
            start += 4 + length
        del self._bytes[:start]
        return messages


class Outbox:
    """Bytes that wait for a socket that takes them; both sides write without blocking."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, message: Message) -> None:
        self._bytes += encode(message)

    def take(self) -> bytes:
        """What to try to send now."""
        return bytes(self._bytes[: 1 << 18])

    def sent(self, count: int) -> None:
        del self._bytes[:count]
