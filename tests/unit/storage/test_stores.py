"""Files of a storage that clients name: read, or refused in words, and never anything outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddleflow.errors import Forbidden, Invalid
from paddleflow.storage.model import Place, Storage
from paddleflow.storage.stores import Stores
from paddleflow.store.encryption import Keyring


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "deep").mkdir(parents=True)
    (folder / "run.yaml").write_bytes(b"name: a\n")
    (folder / "deep" / "b.yaml").write_bytes(b"name: b\n")
    (tmp_path / "secret").write_bytes(b"no")
    return folder


def storage(folder: Path) -> Storage:
    return Storage("fs-root-s", "s", "root", Place("local", "", str(folder)), {}, False, False, 0.0, 0.0)


def test_paths_are_relative_to_the_storage(folder: Path) -> None:
    for path in ("./run.yaml", "run.yaml", "/run.yaml"):
        assert Stores(folder, Keyring.random()).read_document(storage(folder), path) == b"name: a\n"
    assert Stores(folder, Keyring.random()).read_document(storage(folder), "deep/b.yaml") == b"name: b\n"


def test_links_may_stay_inside(folder: Path) -> None:
    (folder / "link.yaml").symlink_to("deep/b.yaml")
    assert Stores(folder, Keyring.random()).read_document(storage(folder), "link.yaml") == b"name: b\n"


@pytest.mark.parametrize("path", ["../secret", "deep/../../secret", "", "/", ".", "a\x00b"])
def test_paths_that_leave_are_refused(folder: Path, path: str) -> None:
    with pytest.raises(Invalid, match="must name a file inside") as refused:
        Stores(folder, Keyring.random()).read_document(storage(folder), path)
    assert refused.value.code == "ReadYamlFileFailed"


def test_links_that_leave_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "out.yaml").symlink_to(tmp_path / "secret")
    (folder / "far").symlink_to(tmp_path)
    for path in ("out.yaml", "far/secret"):
        with pytest.raises(Forbidden, match="leads out of the storage"):
            Stores(folder, Keyring.random()).read_document(storage(folder), path)


def test_what_is_no_file_of_a_bearable_size_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "big").write_bytes(b"x" * 101)
    for path, fault in (
        ("none.yaml", "No such file"),
        ("deep", "is not a file"),
        ("pipe", "is not a file"),
        ("big", "more than 100 bytes"),
    ):
        with pytest.raises(Invalid, match=fault):
            Stores(folder, Keyring.random()).read_document(storage(folder), path, most=100)
