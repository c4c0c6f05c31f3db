"""The two small HTTP servers of a controller: health for the kubelet, metrics for Prometheus. GET and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from paddleflow.errors import Invalid, Unavailable

REQUEST_TIMEOUT = 5.0  #: seconds that a caller has for its request
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Page = Callable[[], tuple[int, bytes]]


def address(text: str, option: str) -> tuple[str, int]:
    """``:8080`` or ``127.0.0.1:8080`` as (host, port)."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"{option} {text!r} is not an address such as :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def serve_pages(
    text: str, option: str, pages: Mapping[str, Page], *, request_timeout: float = REQUEST_TIMEOUT
) -> AsyncIterator[int]:
    """Serve pages while the block runs; the port, which is chosen by the system for port 0. ``0`` means not at all."""
    if text == "0":
        yield 0
        return
    host, port = address(text, option)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(request_timeout):
                head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].split(b" ")
                status, body = _answered(head, pages)
                reason = _REASONS[status]
                writer.write(
                    f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + (b"" if head[0] == b"HEAD" else body)
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked went away
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host or None, port)
    except OSError as error:
        raise Unavailable(f"{option} {text}: {error.strerror or error}") from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _answered(head: list[bytes], pages: Mapping[str, Page]) -> tuple[int, bytes]:
    if len(head) != 3 or head[0] not in (b"GET", b"HEAD"):
        return 405, b"only GET is answered\n"
    page = pages.get(head[1].decode("latin-1").partition("?")[0])
    return page() if page else (404, b"not found\n")
