"""Storages by fsspec, through a real server: what programs that read files by URL do."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import fsspec  # type: ignore[import-untyped]  # it has no types
import pytest

from paddleflow.sdk.files import PART
from paddleflow.sdk.pfs import PfsFileSystem
from tests.e2e.conftest import ServerProcess


def test_storages_by_fsspec(server: ServerProcess, tmp_path: Path) -> None:
    """One server for all that follows: its start is what costs."""
    folder = tmp_path / "team"
    folder.mkdir()
    server.connect().storages.create("team", f"local://{folder}")
    files = fsspec.filesystem("pfs", server=server.url, token=server.token, skip_instance_cache=True)
    assert isinstance(files, PfsFileSystem)
    for check in (_files_by_url, _many_ranges_at_once, _errors_are_those_of_files, _a_file_that_changes):
        check(files, folder)


def _files_by_url(files: PfsFileSystem, folder: Path) -> None:
    content = os.urandom(2 * PART + 12_345)
    with files.open("pfs://team/a/large", "wb") as file:
        file.write(content)
    assert (folder / "a" / "large").read_bytes() == content
    with files.open("pfs://team/a/large", "rb") as file:
        file.seek(PART - 5)
        assert file.read(10) == content[PART - 5 : PART + 5]
        file.seek(-3, io.SEEK_END)
        assert file.read() == content[-3:]
    assert files.cat_file("team/a/large", 5, 9) == content[5:9]
    assert files.cat_file("team/a/large", -4) == content[-4:]
    assert files.info("team/a/large")["size"] == len(content)
    assert files.ls("team", detail=False) == ["team/a"]
    assert files.find("pfs://team") == ["team/a/large"]
    assert "team" in files.ls("", detail=False)
    files.pipe({"team/b/1.csv": b"x\n1\n", "team/b/2.csv": b"x\n2\n"})
    assert files.glob("team/b/*.csv") == ["team/b/1.csv", "team/b/2.csv"]
    files.mv("team/b/1.csv", "team/c.csv")
    assert files.cat("team/c.csv") == b"x\n1\n"
    files.rm("team/b", recursive=True)
    assert not files.exists("team/b")


def _many_ranges_at_once(files: PfsFileSystem, folder: Path) -> None:
    (folder / "f").write_bytes(bytes(range(256)))
    copy = pickle.loads(pickle.dumps(files))
    found = copy.cat_ranges(["team/f"] * 20 + ["team/absent"], [*range(0, 200, 10), 0], [*range(5, 205, 10), 5])
    assert found[:20] == [bytes(range(at, at + 5)) for at in range(0, 200, 10)]
    assert isinstance(found[20], FileNotFoundError)


def _errors_are_those_of_files(files: PfsFileSystem, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.cat("team/absent")
    with pytest.raises(FileNotFoundError):
        files.info("nothing/of/this")
    files.makedirs("team/folder")
    with pytest.raises(IsADirectoryError):
        files.open("team/folder", "rb")
    files.pipe_file("team/f", b"x")
    with pytest.raises(FileExistsError):
        files.pipe_file("team/f", b"y", mode="create")
    half = files.open("team/half", "wb")
    half.write(b"half")
    half.__exit__(RuntimeError)
    assert not (folder / "half").exists()


def _a_file_that_changes(files: PfsFileSystem, folder: Path) -> None:
    (folder / "f").write_bytes(b"old" * 1000)
    with files.open("team/f", "rb", block_size=100) as file:
        assert file.read(3) == b"old"
        (folder / "f").write_bytes(b"new" * 1000)
        file.seek(2000)
        with pytest.raises(OSError, match="changed"):
            file.read(3)
