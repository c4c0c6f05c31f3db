"""A mount and a plain folder side by side: the same random operations give the same results, bytes and errnos."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from paddleflow.errors import PaddleFlowError
from tests.fs_operations import Actor, Operation, operations
from tests.mounts import Mount, mounted, needs_fuse

pytestmark = needs_fuse


@pytest.fixture(scope="module", params=["passthrough", "kept"])
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    options = [] if request.param == "passthrough" else ["--no-passthrough"]
    with mounted(f"file://{tmp_path_factory.mktemp('source')}", *options) as made:
        yield made


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=operations())
def test_a_mount_is_like_a_folder(mount: Mount, todo: list[Operation]) -> None:
    compare(mount.folder, todo)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=operations())
def test_a_mount_is_like_a_folder_while_its_workers_are_killed(mount: Mount, todo: list[Operation]) -> None:
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.1):
            with suppress(PaddleFlowError, ProcessLookupError):
                os.kill(mount.stats()["worker"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        compare(mount.folder, todo)
    finally:
        ended.set()
        killer.join()


def compare(folder: Path, todo: list[Operation], trouble: Callable[[int], None] = lambda number: None) -> None:
    """Do the same on both sides; `trouble` is called before each operation."""
    ours, theirs = Path(tempfile.mkdtemp(dir=folder)), Path(tempfile.mkdtemp())
    try:
        mine, other = Actor(ours), Actor(theirs)
        for number, operation in enumerate(todo):
            trouble(number)
            assert mine.do(operation) == other.do(operation), f"operation {number}: {operation}"
        assert mine.everything() == other.everything()
    finally:
        shutil.rmtree(ours)
        shutil.rmtree(theirs)
