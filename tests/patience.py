"""A look at a condition, again and again, with a deadline that only a hang meets: never a wait for time to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
PATIENCE = 90.0  #: seconds
_LONGEST_PAUSE = 0.1


def eventually(look: Callable[[], T], what: str = "it happens", seconds: float = PATIENCE) -> T:
    """What `look` returns once it is true; fails with `what` when the time is over."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return found


async def soon(look: Callable[[], T], what: str = "it happens", seconds: float = PATIENCE) -> T:
    """The same, while the event loop goes on."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return found
