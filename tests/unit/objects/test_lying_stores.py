"""Stores that lie: a user may name any server as a store, so what it answers is bounded in memory and time, whatever it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import count, repeat

import pytest

from paddleflow.errors import Forbidden, Invalid, PaddleFlowError, Unavailable
from paddleflow.objects import addresses, connections
from paddleflow.objects.addresses import refuse_metadata_service
from paddleflow.objects.check import Unreachable, check
from paddleflow.objects.connections import Connections
from paddleflow.objects.s3 import MOST_EMPTY_PAGES, Bucket, S3Store, _word
from paddleflow.objects.store import Kind, is_below
from paddleflow.objects.urls import check_properties
from tests.lying_server import HEAD, Answers, lying


@contextmanager
def asked(answers: Answers, seconds: float = 60.0) -> Iterator[Connections]:
    with lying(answers) as port:
        made = Connections("127.0.0.1", port, tls=False, seconds=seconds)
        yield made
        made.close()


@contextmanager
def bucket(answers: Answers) -> Iterator[S3Store]:
    with lying(answers) as port:
        store = S3Store(Bucket(f"http://127.0.0.1:{port}", "bucket"))
        yield store
        store.close()


def whole(body: bytes) -> Iterable[bytes]:
    return [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body]


def listing(*parts: str) -> Iterable[bytes]:
    return whole(f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode())


def entry(key: str, size: str = "1", at: str = "2026-01-01T00:00:00Z") -> str:
    return f"<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{at}</LastModified></Contents>"


@pytest.mark.parametrize(
    "head",
    [
        b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",  # one chunk of 16 TB
        b"Transfer-Encoding: chunked\r\n\r\n",  # a chunk that never says its size: `x` without end
        b"Content-Length: 99999999999999\r\n\r\n",
        b"\r\n",  # until the connection is closed, which it never is
    ],
)
def test_an_answer_without_end_is_cut(head: bytes) -> None:
    with asked(lambda _: (HEAD + head if number == 0 else b"x" * 65_536 for number in count())) as server:
        with suppress(Unavailable):
            assert len(server.request("GET", "/", {}, most=2**20).body) == 2**20
        assert not server._idle, "what may still come is no answer to the next request"


def test_a_head_without_end_is_refused() -> None:
    with (
        asked(lambda _: (HEAD if number == 0 else b"x: y\r\n" for number in count())) as server,
        pytest.raises(Unavailable, match="head of more than"),
    ):
        server.request("GET", "/", {}, most=99)


@pytest.mark.parametrize(
    "head", [b"Content-Length: 99999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", b""]
)
def test_a_byte_at_a_time_is_no_answer(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, all together do not."""
    monkeypatch.setattr(connections, "monotonic", map(float, count(0, 10_000)).__next__)

    def drops(_: str) -> Iterable[bytes]:
        return (HEAD + head if number == 0 else b"x" for number in count())

    with asked(drops) as server, pytest.raises(Unavailable, match="no answer in time"):
        server.request("GET", "/", {}, most=2**20)


def test_chunks_are_put_together() -> None:
    body = b"3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n"
    pieces = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *(body[at : at + 1] for at in range(len(body)))]
    with asked(lambda _: pieces) as server:
        assert server.request("GET", "/", {}, most=99).body == b"abcdefgh"
        assert len(server._idle) == 1
        assert server.request("GET", "/", {}, most=4).body == b"abcd"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb"])
def test_nothing_ends_a_line_of_a_request(value: str) -> None:
    """Neither in what is sent, nor in the properties of a store, of which some become headers."""
    with asked(lambda _: whole(b"")) as server, pytest.raises(Invalid, match="end of a line"):
        server.request("GET", "/", {"Authorization": value}, most=99)
    with pytest.raises(Invalid, match="control character"):
        check_properties("s3", {"region": value})
    check_properties("sftp", {"privateKey": "-----BEGIN\nkey\n"})


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "169.254.0.1", "fe80::1%eth0", "::ffff:169.254.169.254", "100.100.100.200", "fd00:ec2::254"],
)
def test_metadata_services_are_told_nothing(address: str) -> None:
    with pytest.raises(Forbidden, match="never connected to"):
        refuse_metadata_service(address)


def test_a_name_that_leads_to_a_metadata_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a name led to when it was checked, the connection's own address counts."""
    said: list[str] = []

    def answer(line: str) -> Iterable[bytes]:
        said.append(line)
        return whole(b"")

    monkeypatch.setattr(addresses, "METADATA", {ip_address("127.0.0.1")})
    with bucket(answer) as store, pytest.raises(Forbidden, match="never connected"):
        store.stat("key")
    with lying(answer) as port, pytest.raises(Unreachable, match="never connected"):
        check("s3://bucket", {"endpoint": f"http://127.0.0.1:{port}"})
    assert said == []


def test_pages_without_entries_come_to_an_end() -> None:
    numbers = count()

    def empty(_: str) -> Iterable[bytes]:
        return listing(f"<IsTruncated>true</IsTruncated><NextContinuationToken>{next(numbers)}</NextContinuationToken>")

    with bucket(empty) as store, pytest.raises(Unavailable, match="pages without an entry"):
        list(store.list_entries(recursive=True))
    assert next(numbers) == MOST_EMPTY_PAGES


def test_parts_of_an_upload_come_to_an_end() -> None:
    page = "<IsTruncated>true</IsTruncated>" + "<Part><PartNumber>1</PartNumber></Part>" * 1000
    with bucket(lambda _: listing(page)) as store, pytest.raises(Unavailable, match="more than 10000 parts"):
        store.list_parts("key", "upload")
    with bucket(lambda _: listing("<IsTruncated>true</IsTruncated>")) as store:
        assert store.list_parts("key", "upload") == []


def test_a_listing_names_nothing_outside_of_what_was_asked_for() -> None:
    names = [
        "in/a",
        "../../.ssh/authorized_keys",
        "in/../../x",
        "in//b",
        "out",
        "in/./c",
        "/etc/cron.d/x",
        "in/d/e",
        "in/..",
    ]
    folders = "".join(
        f"<CommonPrefixes><Prefix>{name}/</Prefix></CommonPrefixes>" for name in ("in/f", "in/..", "../g")
    )
    with bucket(lambda _: listing(*map(entry, names), folders)) as store:
        found = [(each.key, each.kind) for each in store.list_entries("in", recursive=True)]
    assert found == [("in/a", Kind.FILE), ("in/d/e", Kind.FILE), ("in/f", Kind.FOLDER)]
    assert not is_below("in/a\0b", "in/")


@pytest.mark.parametrize(
    "made",
    [
        entry("a", size="-1"),
        entry("a", size="9" * 5000),
        entry("a", size="x"),
        entry("a", at="then"),
        entry("a", at="0001-01-01T00:00"),
    ],
)
def test_an_entry_that_cannot_be(made: str) -> None:
    with bucket(lambda _: listing(made)) as store, pytest.raises(Unavailable, match="cannot be read"):
        list(store.list_entries())


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><x>&b;</x>",
        "<?xml version='1.0' encoding='UTF-16'?><!DOCTYPE x [<!ENTITY a 'a'>]><x>&a;</x>".encode("utf-16"),
        b"<x>" + b"<a/>" * 300_000 + b"</x>",
        b"<x " + b" ".join(b'a%d=""' % number for number in range(300_000)) + b"/>",
        b"<x>" + b"a" * (9 * 2**20) + b"</x>",
        b"root:x:0:0:root:/root:/bin/bash\n",
    ],
)
def test_xml_that_takes_more_memory_than_it_has_bytes(body: bytes) -> None:
    """And one that is none: what some other service answered is not shown to who named it."""
    with bucket(lambda _: whole(body)) as store, pytest.raises(Unavailable, match="XML") as raised:
        list(store.list_entries())
    assert "root" not in str(raised.value)


def test_the_words_of_an_error_are_found_in_one_pass() -> None:
    """A pattern that begins anew at each `<Code` would take hours, in which no thread of the server does anything."""
    assert _word(b"<Error><Code a='b'>Slow</Code></Error>", "Code") == "Slow"
    text = b"<Code" * 3_000_000
    assert _word(text, "Code") == ""
    assert re.search(rb"<Code[^<>]*>([^<]*)<", text) is None, "linear, however much is searched"


@pytest.mark.parametrize("header", ["Content-Length: x", "Content-Length: -5", f"Content-Length: {'9' * 30}"])
def test_heads_that_make_no_sense(header: str) -> None:
    with bucket(lambda _: [HEAD + header.encode() + b"\r\n\r\n"]) as store, pytest.raises(PaddleFlowError):
        store.stat("key")


@pytest.mark.parametrize(
    ("text", "found"), [(b"[" * 9000, {}), (b"[1]", {}), (b"7", {}), (b"%7B%22a%22:1%7D", {"a": "1"})]
)
def test_metadata_that_is_none_is_left_out(text: bytes, found: dict[str, str]) -> None:
    kind = b"Content-Type: application/x-directory; metadata="
    with bucket(lambda _: [HEAD + kind + text + b"\r\nContent-Length: 0\r\n\r\n"]) as store:
        assert store.stat("folder/").metadata == found


def test_redirects_are_not_followed() -> None:
    asked_for: list[str] = []

    def answer(line: str) -> Iterable[bytes]:
        asked_for.append(line)
        return [b"HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"]

    with bucket(answer) as store, pytest.raises(PaddleFlowError):
        store.read("key", size=9)
    assert len(asked_for) == 1


def test_packed_content_is_not_unpacked() -> None:
    bomb = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x1f\x8b0000000"
    with asked(lambda _: repeat(bomb, 1)) as server:
        assert server.request("GET", "/", {}, most=99).body.startswith(b"\x1f\x8b")
