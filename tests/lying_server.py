"""A server that answers whatever a test likes: it listens on loopback and speaks just enough HTTP to be asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

Answers = Callable[[str], Iterable[bytes]]  #: for the first line of a request
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def lying(answers: Answers) -> Iterator[int]:
    """The port of a server that says what it likes."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        lines: list[socket.socket] = []

        def serve(line: socket.socket) -> None:
            with line, line.makefile("rb") as asked, suppress(OSError):
                while first := asked.readline().decode():
                    while asked.readline() not in (b"\r\n", b""):
                        pass
                    for piece in answers(first):
                        line.sendall(piece)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    lines.append(listener.accept()[0])
                    threading.Thread(target=serve, args=(lines[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
