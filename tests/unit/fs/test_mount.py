"""The process of a mount: one mount per cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Unavailable
from paddleflow.fs import device
from paddleflow.fs.background import start_mount
from paddleflow.fs.mount import _lock_folder
from paddleflow.fs.options import MountOptions


@pytest.mark.parametrize(
    ("mounted", "message"), [(True, "in use by the mount on /mnt/a"), (False, "written to the mount on /mnt/a is being uploaded")]
)  # fmt: skip
def test_a_cache_folder_says_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: bool, message: str
) -> None:
    monkeypatch.setattr(device, "is_mounted", lambda folder: mounted)
    _lock_folder(tmp_path, Path("/mnt/a"))
    with pytest.raises(Conflict, match=message):
        _lock_folder(tmp_path, Path("/mnt/b"))


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(Unavailable, match="mounts cannot be made: Not a directory"):
        start_mount(MountOptions("file:///data", tmp_path))
