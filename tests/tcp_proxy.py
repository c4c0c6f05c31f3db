"""A TCP proxy on loopback that misbehaves on purpose: cuts connections, stops forwarding, forwards slowly, answers itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class TcpProxy:
    """Forwards to a port until it is told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._forward = threading.Event()
        self._forward.set()
        self.accepted = 0  #: connections so far
        self.refusing = False  #: new connections are closed at once
        self.answers = b""  #: what new connections get for their first request, instead of the server's answer
        self.answered = 0  #: connections that got it
        self.bytes_left = -1  #: from the server, after which a connection is cut; -1: never
        self.bytes_taken = (
            -1
        )  #: to the server, which sees the end of the connection then, while the client goes on; -1: all
        self.bytes_a_second = 0.0  #: 0: as fast as it goes
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close every connection; new ones are accepted."""
        with self._lock:
            taken, self._open = self._open, []
        for each in taken:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def stall(self) -> None:
        """Forward nothing any more, and say nothing."""
        self._forward.clear()

    def go_on(self) -> None:
        self._forward.set()

    def close(self) -> None:
        self.go_on()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                if self.refusing:
                    self.accepted += 1
                    near.close()
                    continue
                if self.answers:
                    self.answered += 1
                    threading.Thread(target=self._answer, args=(near,), daemon=True).start()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self._open += [near, far]
            for source, sink, down in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=(source, sink, down), daemon=True).start()

    def _answer(self, near: socket.socket) -> None:
        """As an HTTP server that is in trouble: an answer, and the connection is over."""
        answer = self.answers
        with near, suppress(OSError):
            received = b""
            while b"\r\n\r\n" not in received and (piece := near.recv(65_536)):
                received += piece
            near.sendall(answer)
            near.shutdown(socket.SHUT_WR)
            while near.recv(65_536):  # closing with bytes unread would reset the connection before the answer is read
                pass

    def _pump(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(16_384):
                self._forward.wait()
                if self.bytes_a_second:
                    time.sleep(len(piece) / self.bytes_a_second)
                if down and self.bytes_left >= 0:
                    piece = piece[: self.bytes_left]
                    self.bytes_left -= len(piece)
                if not down and self.bytes_taken == 0:
                    continue
                if not down and self.bytes_taken > 0:
                    piece = piece[: self.bytes_taken]
                    self.bytes_taken -= len(piece)
                sink.sendall(piece)
                if down and self.bytes_left == 0:
                    self.bytes_left = -1
                    break
                if not down and self.bytes_taken == 0:
                    sink.shutdown(socket.SHUT_WR)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def tcp_proxy(target: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
