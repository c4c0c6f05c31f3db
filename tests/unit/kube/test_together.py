"""Several things at the same time: one error, as it is, and nothing left running."""

from __future__ import annotations

import asyncio

import pytest

from paddleflow.errors import Unavailable
from paddleflow.kube.together import together


async def test_the_first_error_ends_the_rest_and_is_raised_as_it_is() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        await together(wait(), fail())
    assert ended == ["wait"]


async def test_a_time_limit_around_it_holds() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await together(asyncio.Event().wait(), asyncio.Event().wait())


async def test_a_cancellation_that_meets_an_error_is_not_forgotten() -> None:
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise Unavailable("away")

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outer.cancel()  # while the group ends by the error
            await asyncio.sleep(0)
            raise

    async def work() -> None:
        try:
            await together(fail(), linger())
        except Unavailable:
            ended.append("error")

    async with asyncio.TaskGroup() as group:
        outer = group.create_task(work())
        await asyncio.wait([outer])
    assert outer.cancelled()
    assert not ended
