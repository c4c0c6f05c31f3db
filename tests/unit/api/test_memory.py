"""Memory that requests took goes back to the system: by few arenas, and by trimming while that gains something."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paddleflow.api import memory
from tests.patience import PATIENCE

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps its memory")
MIB = 2**20


def told(script: str) -> str:
    """What a process of its own prints: the C library's memory belongs to all of this one."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout


@glibc
def test_all_threads_share_two_arenas() -> None:
    script = """
import ctypes, threading
from paddleflow.api import memory
{limit}
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together, over = threading.Barrier(9), threading.Event()
def take():
    libc.malloc(ctypes.c_size_t(1000))
    together.wait()
    over.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
together.wait()
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
over.set()
"""
    assert told(script.format(limit="")).count("<heap nr") > memory.ARENAS
    assert told(script.format(limit="memory.limit_arenas()")).count("<heap nr") <= memory.ARENAS


@glibc
def test_what_large_requests_took_is_given_back() -> None:
    """Blocks that are freed below one that is not: the C library itself keeps them."""
    script = """
import asyncio, ctypes
from paddleflow.api import memory
memory.EVERY = 0.01
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
async def main():
    before = memory.resident()
    trimming = asyncio.create_task(memory.trim_for_ever())
    await asyncio.sleep(0)
    blocks = [libc.malloc(ctypes.c_size_t(100_000)) for _ in range(1000)]
    for block in blocks: ctypes.memset(block, 1, 100_000)
    grown = memory.resident() - before
    for block in blocks[:-1]: libc.free(block)
    kept = memory.resident() - before
    async with asyncio.timeout(30):
        while memory.resident() - before > 30 * 2**20:
            await asyncio.sleep(0.01)
    print(grown > 90 * 2**20, kept > 90 * 2**20)
    trimming.cancel()
asyncio.run(main())
"""
    assert told(script).split() == ["True", "True"]


async def test_what_has_not_grown_is_left_alone_and_what_gains_nothing_is_tried_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: Iterator[int] = iter(
        [100 * MIB]  # at the start
        + [110 * MIB]  # not grown by enough
        + [120 * MIB, 101 * MIB]  # before and after a trim that gained 19
        + [120 * MIB, 120 * MIB] * 3  # that gained nothing
    )
    pauses: list[float] = []
    trims: list[int] = []

    class Over(Exception):
        pass

    async def pause(seconds: float) -> None:
        if len(pauses) == 5:
            raise Over
        pauses.append(seconds)

    monkeypatch.setattr(memory, "resident", lambda: next(sizes))
    monkeypatch.setattr(memory, "trim", lambda: trims.append(1))
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(Over):
        await memory.trim_for_ever()
    assert len(trims) == 4
    assert pauses == [memory.EVERY, memory.EVERY, memory.EVERY, memory.LONGEST, memory.LONGEST]
