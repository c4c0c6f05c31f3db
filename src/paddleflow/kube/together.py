"""Several things at the same time, of which the first error is the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """Do all of it; the first error ends the rest and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            # Waited for inside: a group that begins to end by an error in its exit leaves this task marked as cancelled (until Python 3.13).
            await asyncio.wait([group.create_task(each) for each in work])
    except ExceptionGroup as errors:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # by somebody else meanwhile, which the group forgets
            raise asyncio.CancelledError from errors
        raise errors.exceptions[0] from None
