"""What is written within one round of the loop is sent at once, in order, and nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from paddleflow.server.transport import AT_MOST, CoalescingTransport


class Recorder(asyncio.Transport):
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append(b"closed")

    def get_extra_info(self, name: str, default: object = None) -> object:
        assert name != "socket", "what it is asked costs a turn of every thread"
        return {"peername": ("::1", 7, 0, 0), "sockname": ("127.0.0.1", 8)}.get(name, default)


async def test_head_and_body_of_an_answer_are_one_piece() -> None:
    recorder = Recorder()
    transport = CoalescingTransport(recorder)
    transport.write(b"head ")
    transport.write(b"body")
    await asyncio.sleep(0)
    transport.write(b"the next answer")
    await asyncio.sleep(0)
    assert recorder.told == [b"head body", b"the next answer"]


async def test_nothing_is_left_behind_by_a_close() -> None:
    recorder = Recorder()
    transport = CoalescingTransport(recorder)
    transport.write(b"last words")
    transport.close()
    await asyncio.sleep(0)
    assert recorder.told == [b"last words", b"closed"]


async def test_what_cannot_be_sent_ends_the_connection() -> None:
    """Its client would wait for an answer that nobody sends again."""

    class Failing(Recorder):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise AssertionError("made to fail")

        def get_extra_info(self, name: str, default: object = None) -> object:
            return None

        def abort(self) -> None:
            self.told.append(b"aborted")

    recorder = Failing()
    transport = CoalescingTransport(recorder)
    transport.write(b"head ")
    with pytest.raises(AssertionError):
        transport._send()
    assert recorder.told == [b"aborted"]


async def test_what_is_large_does_not_wait_and_stays_in_order() -> None:
    """Whoever writes without end must come to feel that the client does not read."""
    recorder = Recorder()
    transport = CoalescingTransport(recorder)
    large = b"x" * AT_MOST
    transport.write(b"head ")
    transport.write(large)
    assert recorder.told == [b"head " + large]
    transport.write(b"tail")
    await asyncio.sleep(0)
    assert recorder.told[1:] == [b"tail"]


async def test_addresses_are_known_without_asking_the_socket() -> None:
    """uvicorn asks for them with every connection, and each system call of the loop may wait for busy threads."""
    transport = CoalescingTransport(Recorder())
    assert get_remote_addr(transport) == ("::1", 7)
    assert get_local_addr(transport) == ("127.0.0.1", 8)
    assert not is_ssl(transport)
