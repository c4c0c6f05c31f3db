"""The client's side of a websocket (RFC 6455), over a connection that the server has upgraded. Standard library only."""

from __future__ import annotations

import base64
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddleflow.errors import Unavailable

if TYPE_CHECKING:
    from paddleflow.sdk.connection import Connection, Response

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MOST_MESSAGE = 16 * 2**20  #: bytes of a message from the server


def upgrade_headers() -> dict[str, str]:
    """What asks for a websocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}


def frame(kind: int, data: bytes, mask: bytes) -> bytes:
    """A whole message as a client sends it."""
    if len(data) < 126:
        head = bytes([0x80 | kind, 0x80 | len(data)])
    elif len(data) < 2**16:
        head = bytes([0x80 | kind, 0x80 | 126]) + len(data).to_bytes(2, "big")
    else:
        head = bytes([0x80 | kind, 0x80 | 127]) + len(data).to_bytes(8, "big")
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    masked = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(len(data), "big")


class WebSocket:
    """Messages in both directions. One thread reads; any may send."""

    def __init__(self, connection: Connection, response: Response) -> None:
        connection.sock.settimeout(None)
        self._connection = connection
        self._response = response  #: may hold bytes that came with the answer
        self._sending = threading.Lock()

    def send(self, data: str | bytes) -> None:
        kind, content = (TEXT, data.encode()) if isinstance(data, str) else (BINARY, data)
        self._send(kind, content)

    def receive(self) -> str | bytes | None:
        """The next message; None when the server has ended the connection in good order."""
        whole = b""
        kind = 0
        while True:
            first, opcode, data = self._frame()
            if opcode == PING:
                self._send(PONG, data)
            elif opcode == CLOSE:
                self.close()
                return None
            elif opcode != PONG:
                kind, whole = opcode or kind, whole + data
                if len(whole) > MOST_MESSAGE:
                    raise Unavailable(f"the server sent a message of more than {MOST_MESSAGE} bytes")
                if first & 0x80:
                    return whole.decode() if kind == TEXT else whole

    def close(self) -> None:
        with suppress(Unavailable):  # it is closed already
            self._send(CLOSE, b"\x03\xe8")
        self._connection.close()

    def _send(self, kind: int, data: bytes) -> None:
        try:
            with self._sending:
                self._connection.sock.sendall(frame(kind, data, os.urandom(4)))
        except OSError as error:
            raise Unavailable(f"lost the connection: {error}") from error

    def _frame(self) -> tuple[int, int, bytes]:
        first, second = self._read(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
        if size > MOST_MESSAGE:
            raise Unavailable(f"the server sent a message of more than {MOST_MESSAGE} bytes")
        return first, first & 0x0F, self._read(size)

    def _read(self, size: int) -> bytes:
        try:
            data = self._response.read_frame(size)
        except (OSError, ValueError) as error:
            raise Unavailable(f"lost the connection: {error}") from error
        if len(data) < size:
            raise Unavailable("lost the connection to the server")
        return data
