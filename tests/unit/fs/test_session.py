"""A worker that takes a mount over: the order in which it begins."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from paddleflow.fs.device import Device
from paddleflow.fs.posix import PosixTree
from paddleflow.fs.request_lock import RequestLock
from paddleflow.fs.session import Session
from paddleflow.fs.state import State, make_state_files


class _Device(Device):
    """Notes who reads requests at the moment of the resend. Then there is nothing more to read, as when the mount is gone."""

    def __init__(self, fd: int, other: int) -> None:
        super().__init__(fd)
        self._other = other
        self.readers: list[list[str]] = []

    def resend(self) -> None:
        self.readers.append([each.name for each in threading.enumerate() if each.name == "fuse"])
        os.close(self._other)


def test_requests_are_asked_for_again_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is being answered must not be sent a second time."""
    monkeypatch.setenv("HOME", str(tmp_path))
    reader, writer = os.pipe()
    state = State(make_state_files())
    state.agreed.clones, state.agreed.minor = [os.dup(reader)], 40
    device = _Device(reader, writer)
    tree = PosixTree(tmp_path, state)
    Session(tree, device, tmp_path, "x", state, RequestLock(), read_only=False, passthrough=False).serve()
    assert device.readers == [[]]
    os.close(reader)
