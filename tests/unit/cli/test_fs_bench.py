"""`fs bench` on a folder: every operation is measured, nothing is left, and what has no room is not begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from paddleflow.cli import fs_bench
from paddleflow.cli.main import root


@pytest.fixture(autouse=True)
def _kept_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cache of the machine belongs to others, too."""
    monkeypatch.setattr(fs_bench, "_drop_cache", lambda: "kept")


def bench(folder: Path, *words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(root, ["fs", "bench", str(folder), *words])
    return found.exit_code, found.stdout, found.stderr


def test_every_operation_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    code, out, err = bench(
        tmp_path, "--size", "2500Ki", "--files", "7", "--file-size", "3Ki", "--threads", "2", "--json"
    )
    assert (code, err) == (0, "")
    rows = {row["operation"]: row for row in json.loads(out)}
    amounts = {name: row["amount"] for name, row in rows.items() if name != "random read 4 KiB"}
    assert amounts == {
        "write": 2500 * 1024, "read": 2500 * 1024, "write small files": 7, "stat": 7, "list": 7, "read small files": 7,
        "remove": 7,
    }  # fmt: skip
    assert rows["random read 4 KiB"]["amount"] > 0
    assert all(row["rate"] > 0 for row in rows.values())
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_what_has_no_room_is_not_begun(tmp_path: Path) -> None:
    code, _, err = bench(tmp_path, "--size", "900Ti")
    assert code == 1
    assert f"are free in {tmp_path}\nhint: choose less with --size or --files\n" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fs_bench, "_measure", full)
    code, _, err = bench(tmp_path, "--size", "1Ki", "--files", "1")
    assert (code, f"{tmp_path} cannot be measured: No space left on device" in err) == (1, True)
    assert list(tmp_path.iterdir()) == []
