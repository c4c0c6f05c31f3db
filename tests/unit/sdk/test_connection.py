"""The HTTP/1.1 of the client, against answers byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from paddleflow.errors import Invalid
from paddleflow.sdk.connection import MOST_HEADERS, BadAnswer, Connection, Response

Serve = Callable[..., Connection]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers the requests of one connection with the given bytes, in turn, and then closes it."""
    opened: list[Connection] = []
    threads: list[threading.Thread] = []

    def started(*answers: bytes, requests: list[bytes] | None = None) -> Connection:
        listener = socket.create_server(("127.0.0.1", 0))

        def answer() -> None:
            with listener, listener.accept()[0] as peer:
                for content in answers:
                    seen = peer.recv(65536)
                    if requests is not None:
                        requests.append(seen)
                    peer.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        threads.append(thread)
        connection = Connection("127.0.0.1", listener.getsockname()[1], timeout=60)
        opened.append(connection)
        return connection

    yield started
    for connection in opened:
        connection.close()
    for thread in threads:
        thread.join()


def get(connection: Connection) -> Response:
    return connection.exchange("GET", "/", {"Host": "here"}, None)


def test_a_body_of_known_length_leaves_the_connection_usable(serve: Serve) -> None:
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Name:  value \r\n\r\nhello"
    connection = serve(one, b"HTTP/1.1 204 No Content\r\n\r\n")
    first = get(connection)
    assert (first.status, first.reason, first.headers["x-name"], first.will_close) == (200, "OK", "value", False)
    assert (first.read(2), first.read(), first.read()) == (b"he", b"llo", b"")
    second = get(connection)
    assert (second.status, second.read(), second.will_close) == (204, b"", False)


def test_chunks_come_one_by_one_and_trailers_are_read(serve: Serve) -> None:
    body = b"3;name=x\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n"
    connection = serve(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, b"HTTP/1.1 304 same\r\n\r\n")
    response = get(connection)
    assert response.read1(65536) == b"abc"
    assert response.read(4) == b"0123"
    assert response.read() == b"456789"
    assert response.read1(10) == b""
    assert not response.will_close
    assert get(connection).status == 304


def test_a_body_without_length_ends_with_the_connection(serve: Serve) -> None:
    response = get(serve(b"HTTP/1.0 200 OK\r\n\r\nall of it"))
    assert response.will_close
    assert response.read() == b"all of it"


def test_what_comes_before_the_answer_is_skipped(serve: Serve) -> None:
    response = get(serve(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"))
    assert (response.status, response.read()) == (201, b"")


def test_bytes_behind_an_upgrade_are_kept(serve: Serve) -> None:
    response = get(serve(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"))
    assert response.status == 101
    assert response.read_frame(4) == b"\x81\x02hi"
    assert response.read_frame(1) == b""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "without an answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not the beginning"),
        (b"HTTP/1.1 OK\r\n\r\n", "not the beginning"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * MOST_HEADERS + b"\r\n", "more than 200 headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "5 bytes before the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nwords\r\n", "not the size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "not the size of a chunk"),
    ],
)
def test_what_is_no_answer_is_said(serve: Serve, answer: bytes, said: str) -> None:
    with pytest.raises(BadAnswer, match=said):
        get(serve(answer)).read()


def test_a_request_says_how_long_its_body_is(serve: Serve) -> None:
    requests: list[bytes] = []
    done = b"HTTP/1.1 204 No Content\r\n\r\n"
    connection = serve(done, done, requests=requests)
    connection.exchange("POST", "/a?b=c", {"Host": "here"}, None)
    connection.exchange("PUT", "/d", {"Host": "here"}, b"body")
    assert requests == [
        b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
        b"PUT /d HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody",
    ]


def test_a_header_cannot_smuggle_in_another(serve: Serve) -> None:
    connection = serve()
    with pytest.raises(Invalid, match="line break"):
        connection.exchange("GET", "/", {"x-pf-authorization": "a\r\nX-Other: b"}, None)


def test_a_proxy_that_opens_no_tunnel_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with listener.accept()[0] as peer:
                assert peer.recv(65536).startswith(b"CONNECT inner:443 HTTP/1.1\r\nHost: inner:443\r\n")
                peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(OSError, match="the proxy answered 403 Forbidden"):
            Connection("127.0.0.1", listener.getsockname()[1], timeout=60, secure=True, tunnel=("inner", 443, {}))
        thread.join()


def test_closing_ends_a_thread_that_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection("127.0.0.1", listener.getsockname()[1], timeout=60)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            response = get(connection)
            read: list[object] = []

            def wait() -> None:
                try:
                    read.append(response.read())
                except (OSError, ValueError) as error:  # the latter: closed before it began
                    read.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            connection.close()
            thread.join()
            assert isinstance(read[0], OSError | ValueError)
