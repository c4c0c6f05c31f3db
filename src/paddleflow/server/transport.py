"""Write coalescing: what is written to a connection within one iteration of the loop is sent by one system call.

uvicorn writes the head of an answer and its body one after the other, and each would go out by itself: twice the cost of
sending, and a client that is woken for a head. `listener` gives uvicorn this protocol.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

AT_MOST = 65536  #: bytes that wait for the end of the iteration


class CoalescingProtocol(HttpToolsProtocol):
    """uvicorn's, on a transport that coalesces."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(
            CoalescingTransport(cast(asyncio.Transport, transport))
        )  # uvloop's are not of that class


class CoalescingTransport(asyncio.Transport):
    """A transport as uvicorn and its websockets use one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > AT_MOST:
            self._send()

    def _send(self) -> None:
        if self._pieces:
            self._transport.write(b"".join(self._pieces))
            self._pieces, self._size = [], 0

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
