"""A session of `job exec` that breaks tells the client why."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddleflow.api import job_exec
from paddleflow.api.platform import Platform
from paddleflow.errors import Unavailable
from paddleflow.runtimes.exec import STDOUT, ExecSession, Output


class _Broken:
    """Says something, then its node is gone."""

    def __init__(self) -> None:
        self._left: list[Output] = [Output(STDOUT, b"half")]

    async def read(self) -> Output | int:
        if self._left:
            return self._left.pop()
        raise Unavailable("the command's connection ended before it did")


class _Client:
    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send_bytes(self, data: bytes) -> None:
        self.got.append(data)


async def test_what_breaks_a_session_is_raised_alone() -> None:
    platform, client = cast(Platform, SimpleNamespace(closing=asyncio.Event())), _Client()
    with pytest.raises(Unavailable, match="ended before it did"):
        await job_exec._serve(platform, cast(Any, client), cast(ExecSession, _Broken()))
    assert client.got == [bytes([STDOUT]) + b"half"]
