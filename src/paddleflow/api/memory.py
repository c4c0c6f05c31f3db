"""Memory that requests took goes back to the system when they are over.

The C library keeps what was freed for later, in an arena for nearly every thread; after large requests that is most of a server's
memory. `limit_arenas` is called before threads start, `trim_for_ever` runs beside the server, and `trim` follows whatever was large.
A C library without these calls keeps its memory.
"""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path

ARENAS = 2
EVERY = 5.0  #: seconds between two looks at the memory of this process
GROWN = 16 * 2**20  #: bytes that it has grown by since it was last trimmed, before it is again
GAIN = 2**20  #: bytes that make it worth the time
LONGEST = 10.0  #: seconds between two looks where it does not
_M_ARENA_MAX = -8
_PAGE = 4096


def limit_arenas() -> None:
    """Threads share few arenas: what one has freed, another takes."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_ARENA_MAX, ARENAS)


def trim() -> None:
    """Give memory that is free back to the system. Takes milliseconds: not for the event loop."""
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(0)


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE
    except (OSError, ValueError):
        return 0


async def trim_for_ever() -> None:
    """Trim in a thread while there is more memory than there was; less often while that gains nothing."""
    least, pause = resident(), EVERY
    while True:
        await asyncio.sleep(pause)
        before = resident()
        least = min(least, before)
        if before < least + GROWN:
            continue
        await asyncio.to_thread(trim)
        after = resident()
        least, pause = min(least, after), EVERY if before - after > GAIN else min(2 * pause, LONGEST)
