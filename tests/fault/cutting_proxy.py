"""A TCP proxy that cuts the line at a chosen moment: the only way to lose an answer at exactly that place."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class CuttingProxy:
    """Forwards to a port of this machine. Once `cut_at` was set, the first message from a client that contains it ends
    that connection, before or after the server was given the message."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.cut_at = b""
        self.cut_next = b""  #: what `cut_at` becomes after the cut
        self.deliver = True  #: whether the server still gets the message; its answer is lost either way
        self.cuts = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            answers = threading.Thread(target=_pour, args=(server, client), daemon=True)
            answers.start()
            with contextlib.suppress(OSError):
                while data := client.recv(65536):
                    if self.cut_at and self.cut_at in data:
                        self.cut_at, self.cut_next = self.cut_next, b""
                        self.cuts += 1
                        client.shutdown(socket.SHUT_RDWR)
                        if self.deliver:
                            server.sendall(data)
                        break
                    server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)  # the server still reads what it was given, then ends
            answers.join(30)


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
