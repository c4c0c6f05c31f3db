"""Write coalescing: what is written to a connection within one iteration of the loop is sent by one system call.

uvicorn writes the head of an answer and its body one after the other, and each would go out by itself: twice the cost of
sending, and a client that is woken for a head. The protocol also keeps the limits of `connections`; `listener` gives it to uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paddleflow.server.connections import MOST_HEAD, Connections, Deadline

AT_MOST = 65536  #: bytes that wait for the end of the iteration


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that coalesces, within the limits of `connections`. See `bounded`."""

    bounds: ClassVar[Connections]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        inner = cast(asyncio.Transport, transport)  # uvloop's are not of that class
        self._wrapper = CoalescingTransport(inner, self._hand_over)
        self._deadline = Deadline(self._wrapper)  #: of the head, or of a client that does not read
        self._head = 0  #: bytes of the head that is being received; -1 while there is none
        super().connection_made(self._wrapper)
        peer = inner.get_extra_info("peername")
        if self.bounds.add(self._wrapper, str(peer[0]) if peer else ""):
            self._deadline.start(self.bounds.head_timeout)
        else:
            self._wrapper.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head >= 0:
            self._head += len(data)
        super().data_received(data)
        if self._head >= 0:  # not whole yet
            self._deadline.start(self.bounds.head_timeout)
            if self._head > MOST_HEAD:
                self._wrapper.abort()

    def on_headers_complete(self) -> None:
        self._head = -1
        self._deadline.stop()
        self.bounds.begin(self._wrapper)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._head = 0
        self.bounds.end(self._wrapper)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._deadline.start(self.bounds.write_timeout)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._deadline.stop()
        super().resume_writing()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        """A websocket takes the connection over: it stays counted until it is closed, and its client must read."""
        lost, pause, resume = protocol.connection_lost, protocol.pause_writing, protocol.resume_writing

        def connection_lost(exc: Exception | None) -> None:
            self._lost()
            lost(exc)

        def pause_writing() -> None:
            self._deadline.start(self.bounds.write_timeout)
            pause()

        def resume_writing() -> None:
            self._deadline.stop()
            resume()

        protocol.connection_lost = connection_lost  # type: ignore[method-assign]  # the only place that learns of it
        protocol.pause_writing = pause_writing  # type: ignore[method-assign]
        protocol.resume_writing = resume_writing  # type: ignore[method-assign]

    def _lost(self) -> None:
        self._deadline.stop()
        self.bounds.remove(self._wrapper)


def bounded(connections: Connections) -> type[BoundedProtocol]:
    """The protocol of a server; uvicorn makes one for each connection."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": connections})


class CoalescingTransport(asyncio.Transport):
    """A transport as uvicorn and its websockets use one."""

    def __init__(
        self, transport: asyncio.Transport, hand_over: Callable[[asyncio.Protocol], None] = lambda protocol: None
    ) -> None:
        """`hand_over` is called with another protocol that takes the connection over."""
        super().__init__()
        self._hand_over = hand_over
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
            pieces, self._pieces, self._size = self._pieces, [], 0
            try:
                self._transport.write(b"".join(pieces))
            except BaseException:
                self.abort()  # nobody would tell the client that there is no answer
                raise

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Reset the connection: the kernel keeps nothing for a client that does not read."""
        line = self._transport.get_extra_info("socket")
        if line is not None:
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._hand_over(cast(asyncio.Protocol, protocol))
        self._transport.set_protocol(protocol)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses as uvicorn takes them: host and port, and not from the socket.

        It would ask the socket, by two system calls that each hand the interpreter to another thread: while threads are busy,
        every new connection would hold the loop up for their turns.
        """
        if name == "socket":
            return default
        found = self._transport.get_extra_info(name, default)
        return found[:2] if name in ("peername", "sockname") and isinstance(found, tuple) else found
