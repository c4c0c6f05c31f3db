"""Threads in which jobs wait for stores: each user has some of them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

from paddleflow.base.clock import SystemClock
from paddleflow.engine.shared_mounts import EACH, SharedMounts
from paddleflow.settings import LocalSettings
from paddleflow.storage.stores import Stores
from paddleflow.store.database import Database
from tests.patience import PATIENCE


async def test_jobs_that_wait_for_a_silent_store_hold_only_threads_of_their_user(tmp_path: Path) -> None:
    nothing = cast(Any, None)
    mounts = SharedMounts(
        cast(Database, nothing), SystemClock(), cast(Stores, nothing), LocalSettings(), tmp_path, "node", nothing
    )
    held, release = threading.Semaphore(0), threading.Event()

    def stuck() -> None:
        held.release()
        release.wait()

    works = [asyncio.ensure_future(mounts.in_thread(stuck, "mallory")) for _ in range(300)]
    for _ in range(EACH):
        assert await asyncio.to_thread(held.acquire, timeout=PATIENCE)
    assert await asyncio.wait_for(mounts.in_thread(lambda: 7, "alice"), PATIENCE) == 7
    assert await asyncio.wait_for(mounts.in_thread(lambda: 8), PATIENCE) == 8
    assert not held.acquire(blocking=False)
    release.set()
    await asyncio.gather(*works)
