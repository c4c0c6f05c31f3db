"""A server in which a function fails as soon as a file is there, and which has little patience with its own end, for
``tests/fault/test_failing_server.py``: ``python -m tests.fault.failing_server MODULE:NAME FILE paddleflow server …``"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from paddleflow.cli.main import main
from paddleflow.server import main as server


def fail_in(place: str, sign: Path) -> None:
    """Let a function, or the task that a coroutine function makes, raise from then on."""
    module, _, name = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, last = name.split(".")
    for each in classes:
        owner = getattr(owner, each)
    inner = getattr(owner, last)

    async def follow(*args: Any, **kwargs: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(inner(*args, **kwargs))
            while not task.done():
                await asyncio.wait([task], timeout=0.05)
                assert not sign.exists(), "made to fail"
        return task.result()

    def call(*args: Any, **kwargs: Any) -> Any:
        assert not sign.exists(), "made to fail"
        return inner(*args, **kwargs)

    setattr(owner, last, follow if inspect.iscoroutinefunction(inner) else call)


if __name__ == "__main__":
    fail_in(sys.argv[1], Path(sys.argv[2]))
    server.ENDS = 1.0
    sys.argv[1:4] = []
    main()
