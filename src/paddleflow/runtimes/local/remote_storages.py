"""What the local runtime needs from the code that mounts storages that are URLs, not folders of this machine.

The runtime knows neither stores nor the file system; `engine.job_storages` does, and is handed in by the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from paddleflow.runtimes.runtime import Launch


def is_remote(launch: Launch) -> bool:
    """Whether something must be mounted or copied before it can start."""
    return any("://" in mount.location for mount in launch.mounts)


class RemoteStorages(Protocol):
    """Called on the event loop; nothing here blocks it."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background, as long as the server runs."""
        ...

    async def prepare(self, launch: Launch, folder: str, report: Callable[[str], None]) -> Launch:
        """The launch with folders of this machine as locations; copies go to `folder`. Raises in words for the job's user."""
        ...

    def has_copies(self, folder: str) -> bool:
        """Whether `finish` has something to do."""
        ...

    async def finish(self, folder: str, report: Callable[[str], None]) -> None:
        """Store what an attempt made. May be repeated. Raises in words for the job's user."""
        ...

    async def discard(self, folder: str) -> None:
        """Remove the copies of an attempt."""
        ...
