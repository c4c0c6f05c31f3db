"""What is written within one round of the loop is sent at once, in order, and nothing stays behind."""

from __future__ import annotations

import asyncio

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
