"""A server that asks for twenty attempts and then waits to be killed, for ``tests/fault/test_keeper.py``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.runtime import Launch
from paddleflow.settings import LocalSettings


def launches(folder: Path) -> list[Launch]:
    """Each says that it ran; every second one ends at once."""
    return [
        Launch(
            attempt=AttemptId(f"job-{i}.w-0.1"),
            command=("sh", "-c", f"echo x >> {folder}/{i}.ran; exec sleep {1000 if i % 2 else 0}"),
            env={"PATH": "/usr/bin:/bin"},
            working_dir=str(folder),
        )
        for i in range(20)
    ]


async def serve(folder: Path) -> None:
    runtime = LocalRuntime(LocalSettings(), folder / "data", SystemClock())
    await runtime.open()
    await runtime.start(launches(folder))
    print("asked", flush=True)
    async for _ in runtime.observe():
        pass


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
