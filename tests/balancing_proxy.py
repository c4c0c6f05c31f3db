"""A TCP proxy in front of several servers, as a load balancer is: each new connection goes to the next one that accepts."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit


class BalancingProxy:
    """Forwards to ports of this machine; `targets` may change at any time."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = list(targets)  #: URLs
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._turn = itertools.count()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            turn = next(self._turn)
            for number in range(len(self.targets)):
                target = urlsplit(self.targets[(turn + number) % len(self.targets)])
                try:
                    server = socket.create_connection((str(target.hostname), target.port or 80), timeout=5)
                except OSError:
                    continue
                server.settimeout(None)
                with server:
                    back = threading.Thread(target=_pour, args=(server, client), daemon=True)
                    back.start()
                    _pour(client, server)
                    back.join()
                return


def _pour(source: socket.socket, sink: socket.socket) -> None:
    """From one to the other until either ends; then both end."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def balancing_proxy(targets: Sequence[str]) -> Iterator[BalancingProxy]:
    proxy = BalancingProxy(targets)
    try:
        yield proxy
    finally:
        proxy.close()
