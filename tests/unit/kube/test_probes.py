"""The operator's doors: what a kubelet and a Prometheus get, and what those get that are neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddleflow.errors import Invalid, Unavailable
from paddleflow.kube.probes import address, serve_pages

OPTION = "--metrics-bind-address"


def sick() -> tuple[int, bytes]:
    return 503, b"Pod: not listed yet\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serve_pages("127.0.0.1:0", OPTION, {"/healthz": lambda: (200, b"ok\n"), "/readyz": sick}) as port:
        yield port


async def send(port: int, words: bytes) -> bytes:
    """All that is answered; nothing, if the connection is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask(port: int, line: str) -> tuple[str, bytes]:
    """The answer's first line and its body."""
    head, _, body = (await send(port, f"{line}\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    length = next(part for part in head.split(b"\r\n") if part.startswith(b"Content-Length: "))
    assert line.startswith("HEAD") or int(length.split()[1]) == len(body)
    return head.split(b"\r\n")[0].decode(), body


@pytest.mark.parametrize(
    ("line", "status", "body"),
    [
        ("GET /healthz HTTP/1.1", "200 OK", b"ok\n"),
        ("GET /healthz?verbose=1 HTTP/1.0", "200 OK", b"ok\n"),
        ("HEAD /healthz HTTP/1.1", "200 OK", b""),
        ("GET /readyz HTTP/1.1", "503 Service Unavailable", b"Pod: not listed yet\n"),
        ("GET / HTTP/1.1", "404 Not Found", b"not found\n"),
        ("POST /healthz HTTP/1.1", "405 Method Not Allowed", b"only GET is answered\n"),
        ("nonsense", "405 Method Not Allowed", b"only GET is answered\n"),
    ],
)
async def test_what_is_answered(port: int, line: str, status: str, body: bytes) -> None:
    assert await ask(port, line) == (f"HTTP/1.1 {status}", body)


async def test_callers_who_send_nothing_or_too_much_are_let_go(port: int) -> None:
    async with serve_pages("127.0.0.1:0", OPTION, {}, request_timeout=0.05) as impatient:
        assert await send(impatient, b"GET /healthz") == b""
    assert await send(port, b"GET /" + b"x" * 200_000) == b""
    assert (await ask(port, "GET /healthz HTTP/1.1"))[1] == b"ok\n", "others are answered as before"


async def test_a_door_that_is_not_wanted_or_cannot_be_had(port: int) -> None:
    async with serve_pages("0", OPTION, {}) as nothing:
        assert nothing == 0
    with pytest.raises(Unavailable, match=f"{OPTION} 127.0.0.1:{port}: .*in use"):
        async with serve_pages(f"127.0.0.1:{port}", OPTION, {}):
            pass


@pytest.mark.parametrize(
    ("text", "found"),
    [(":8080", ("", 8080)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:65535", ("::1", 65535))],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address(text, OPTION) == found


@given(st.text(max_size=12))
@example("8080")
@example(":")
@example(":65536")
@example(":-1")
@example(":²")
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    try:
        _, port = address(text, OPTION)
    except Invalid as error:
        said = error.message
    else:
        assert 0 <= port <= 65535
        return
    assert OPTION in said
    assert repr(text) in said
