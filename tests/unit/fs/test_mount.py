"""The process of a mount: one mount per cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.errors import Conflict
from paddleflow.fs import device
from paddleflow.fs.mount import _lock_folder


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
