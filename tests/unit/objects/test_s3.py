"""S3 against a real server: credentials, buckets, large content by parts, resumed uploads; and servers that misbehave."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError, TooMany, Unavailable
from paddleflow.objects.connections import Answer, Connections
from paddleflow.objects.s3 import PART, Bucket, S3Store, _clock_hint
from paddleflow.objects.signature import Credentials, Signer
from paddleflow.objects.store import BAD_CREDENTIALS, iterate_content
from paddleflow.objects.urls import bucket_of, parse_url
from tests.ports import closed_port
from tests.s3_servers import KEYS
from tests.tcp_proxy import tcp_proxy


def test_the_signature_is_that_of_the_specification() -> None:
    """Keys, date and region of AWS's own example, with a body that is not signed."""
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    when = datetime(2013, 5, 24, tzinfo=UTC)
    signed = Signer(keys, "us-east-1").sign("GET", "examplebucket.s3.amazonaws.com", "/test.txt", "", {}, when)
    assert signed["x-amz-date"] == "20130524T000000Z"
    assert signed["Authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="
    )
    assert "wJalr" not in repr(keys)


def test_large_content_goes_by_parts(store: S3Store) -> None:
    content = os.urandom(3 * PART + 12_345)
    written = store.write("large", io.BytesIO(content), metadata={"mode": "600"})
    found = store.stat("large")
    assert (found.size, found.tag, found.metadata) == (len(content), written.tag, {"mode": "600"})
    assert found.tag.endswith("-4")
    assert b"".join(iterate_content(store, "large")) == content
    with pytest.raises(Conflict):
        store.write("large", io.BytesIO(content), if_absent=True)


def test_content_that_ends_early_leaves_nothing(store: S3Store) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PART:
                raise OSError("gone")
            return super().read(size)

    with pytest.raises(OSError, match="gone"):
        store.write("large", Breaking(bytes(4 * PART)))
    with pytest.raises(NotFound):
        store.stat("large")


def test_an_upload_is_resumed(store: S3Store, bucket: Bucket) -> None:
    pieces = [os.urandom(5 * 2**20), os.urandom(5 * 2**20), b"end"]
    upload = store.start_upload("large", metadata={"owner": "7"})
    store.write_part("large", upload, 2, pieces[1])
    store.close()
    again = S3Store(bucket)
    arrived = {part.number for part in again.list_parts("large", upload)}
    assert arrived == {2}
    for number, piece in enumerate(pieces, 1):
        if number not in arrived:
            again.write_part("large", upload, number, piece)
    found = again.finish_upload("large", upload, again.list_parts("large", upload))
    assert (found.size, found.metadata) == (10 * 2**20 + 3, {"owner": "7"})
    with pytest.raises(NotFound):
        again.list_parts("large", upload)
    again.abort_upload("large", upload)
    again.close()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda b: replace(b, credentials=Credentials(KEYS.access_key, "wrong")), Forbidden, "secret key"),
        (lambda b: replace(b, credentials=Credentials("nobody", "wrong")), Forbidden, "access key"),
        (lambda b: replace(b, credentials=None), Forbidden, "access key"),
        (lambda b: replace(b, name="no-such-bucket"), Invalid, "no-such-bucket"),
        (lambda b: replace(b, endpoint="http://no-such-host.invalid"), Unavailable, "cannot be resolved"),
    ],
)
def test_what_is_wrong_is_said(
    bucket: Bucket, change: Callable[[Bucket], Bucket], error: type[PaddleFlowError], words: str
) -> None:
    store = S3Store(change(bucket))
    for call in (lambda: store.stat("a"), lambda: store.write("a", b""), lambda: list(store.list_entries())):
        with pytest.raises(error) as raised:
            call()
        assert words in raised.value.message + raised.value.hint
        assert "''" not in raised.value.message, "the store itself has no key"
    store.close()


@pytest.mark.parametrize("seconds", [-86_400.0, 7_200.0])
def test_a_clock_that_is_wrong_is_said(bucket: Bucket, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own refusal, also of a HEAD, whose answer has no words."""
    monkeypatch.setattr("paddleflow.objects.signature.time", lambda: time.time() + seconds)
    store = S3Store(bucket)
    for call in (lambda: store.stat("a"), lambda: store.write("a", b""), lambda: list(store.list_entries())):
        with pytest.raises(Forbidden) as raised:
            call()
        assert raised.value.code == BAD_CREDENTIALS
        assert "set this machine's clock" in raised.value.hint
    store.close()


def test_the_difference_of_the_clocks_is_told() -> None:
    answer = Answer(403, {"date": "Wed, 18 Nov 2026 12:00:00 GMT"}, b"")
    there = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
    assert _clock_hint(answer, there + 7200).endswith("it is 7200 s ahead of the server's")
    assert _clock_hint(answer, there - 60).endswith("it is 60 s behind the server's")
    assert _clock_hint(Answer(403, {}, b""), there) == "set this machine's clock"


def test_nobody_listens(bucket: Bucket) -> None:
    with closed_port() as port:
        store = S3Store(replace(bucket, endpoint=f"http://127.0.0.1:{port}"))
        with pytest.raises(Unavailable, match=f"port {port}"):
            store.stat("a")


def test_urls() -> None:
    given = {"endpoint": "http://s3.example:9000", "accessKey": "a", "secretKey": "s"}
    made = bucket_of(parse_url("s3://data/sets/a"), given)
    assert (made.name, made.prefix, made.endpoint) == ("data", "sets/a", "http://s3.example:9000")
    data = parse_url("s3://data")
    assert bucket_of(data, {"region": "eu-west-1"}).endpoint == "https://s3.eu-west-1.amazonaws.com"
    assert bucket_of(parse_url("bos://data"), {}).endpoint == "https://s3.bj.bcebos.com"
    with pytest.raises(Invalid):
        bucket_of(data, {"accessKey": "a"})
    for wrong in (Bucket("ftp://x", "data"), Bucket("http://x", "No"), Bucket("http://x", "data", "a/../b")):
        with pytest.raises(Invalid):
            S3Store(wrong)


class Scripted:
    """A server that answers each request with the next of some bytes, then closes."""

    def __init__(self, *answers: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answers = answers
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> S3Store:
        self._thread.start()
        self._store = S3Store(Bucket(f"http://127.0.0.1:{self.port}", "data", credentials=KEYS), seconds=20)
        return self._store

    def _run(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65_536)
                connection.sendall(answer)

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._store.close()
        self._listener.close()


def status(line: str, code: str = "") -> bytes:
    body = f"<Error><Code>{code}</Code></Error>" if code else ""
    return f"HTTP/1.1 {line}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", Unavailable),
        (b"HTTP/1.1 206 OK\r\nContent-Length: 100\r\n\r\nshort", Unavailable),
        (b"SSH-2.0-nonsense\r\n\r\n", Unavailable),
        (b"HTTP/1.1 206 OK\r\nContent-Length: many\r\n\r\n", Unavailable),
        (status("503 Slow Down", "SlowDown"), Unavailable),
        (status("500 Oops", "InternalError"), Unavailable),
        (status("502 Bad Gateway"), Unavailable),
        (status("429 Too Many"), TooMany),
        (status("403 No", "RequestTimeTooSkewed"), Forbidden),
        (status("403 No", "ExpiredToken"), Forbidden),
        (status("403 No", "QuotaExceeded"), OverQuota),
        (status("507 Full", "XMinioStorageFull"), OverQuota),
    ],
)
def test_bad_answers(answer: bytes, error: type[PaddleFlowError]) -> None:
    with Scripted(answer) as store, pytest.raises(error):
        store.read("a", size=100)


def test_an_answer_in_chunks_and_a_server_without_ranges() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\n\r\n"
    to_end = b"HTTP/1.0 200 OK\r\n\r\n0123456789"
    with Scripted(chunked, to_end) as store:
        assert store.read("a", offset=2, size=5) == b"23456"
        store._http.close()
        assert store.read("a", offset=2, size=5) == b"23456"


def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    answer = b"HTTP/1.1 206 OK\r\nContent-Length: 1\r\n\r\nx"  # says nothing of closing, and closes
    with Scripted(answer, answer) as store:
        assert store.read("a", size=1) == store.read("a", size=1) == b"x"


def test_connections_are_bounded() -> None:
    pool = Connections("127.0.0.1", 1, tls=False)
    ends = [socket.socketpair() for _ in range(70)]
    for ours, _ in ends:
        pool._give_back(ours, usable=True)
    assert sum(ours.fileno() >= 0 for ours, _ in ends) == 64
    pool.close()
    for _, theirs in ends:
        theirs.close()


@pytest.mark.parametrize("query", [{}, {"partNumber": "1", "uploadId": "…"}])
def test_half_of_a_body_is_not_stored(store: S3Store, bucket: Bucket, query: dict[str, str]) -> None:
    """The connection is cut inside it: some servers would keep what they got."""
    store.write("half", b"old")
    if query:
        query["uploadId"] = store.start_upload("half")
    port = int(bucket.endpoint.rpartition(":")[2])
    content = os.urandom(6 * 2**20)
    with tcp_proxy(port) as proxy:
        proxy.bytes_taken = len(content) // 2
        cut = S3Store(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"))
        with suppress(Unavailable):  # the server may just close its end
            assert cut._ask("PUT", "half", query, None, content).status >= 400
        cut.close()
    if query:
        assert store.list_parts("half", query["uploadId"]) == []
    assert store.read("half", size=10) == b"old"
