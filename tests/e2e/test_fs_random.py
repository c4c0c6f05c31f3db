"""A mount and a plain folder side by side: the same random operations give the same results, bytes and errnos."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

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


def compare(folder: Path, todo: list[Operation]) -> None:
    ours, theirs = Path(tempfile.mkdtemp(dir=folder)), Path(tempfile.mkdtemp())
    try:
        mine, other = Actor(ours), Actor(theirs)
        for number, operation in enumerate(todo):
            assert mine.do(operation) == other.do(operation), f"operation {number}: {operation}"
        assert mine.everything() == other.everything()
    finally:
        shutil.rmtree(ours)
        shutil.rmtree(theirs)
