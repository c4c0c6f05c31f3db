"""A folder as a snapshot: what is taken, how it is cut, and that only changes are sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from paddleflow.base.host import host_fingerprint
from paddleflow.errors import Invalid, TooLarge
from paddleflow.jobs.code import CodeStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.sdk import code_snapshot
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.code import git_state
from paddleflow.sdk.code_snapshot import scan
from paddleflow.sdk.ignore import is_ignored, read_rules
from paddleflow.spec.code import unpack_chunks
from tests.client_stub import Stub


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "wanted"),
    [
        ("*.log", "a/b.log", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("/build", "build", True, True),
        ("/build", "src/build", True, False),
        ("out/", "out", False, False),
        ("out/", "a/out", True, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("a/**/z", "a/z", False, True),
        ("doc/*.txt", "doc/x.txt", False, True),
        ("doc/*.txt", "doc/a/x.txt", False, False),
        ("**/tmp", "x/tmp", True, True),
        ("a?c", "abc", False, True),
        ("[ab].py", "b.py", False, True),
        ("[!ab].py", "b.py", False, False),
        ("# a comment", "# a comment", False, False),
        ("\\#odd", "#odd", False, True),
        ("data.*\n", "data.csv", False, True),
    ],
)
def test_the_language_of_ignore_files(rules: str, path: str, is_folder: bool, wanted: bool) -> None:
    assert is_ignored(read_rules(rules), path, is_folder) is wanted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("print(1)")
    (root / "train.py").chmod(0o755)
    (root / "pkg" / "m.py").write_text("x = 1")
    (root / "empty").touch()
    (root / "link").symlink_to("pkg/m.py")
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.log").write_text("no")
    (root / ".paddleflowignore").write_text("data/\n")
    (root / "data").mkdir()
    (root / "data" / "x").write_text("no")
    (root / "env").mkdir()
    (root / "env" / "pyvenv.cfg").touch()
    (root / ".venv").symlink_to("/opt/elsewhere")
    (root / "linked").symlink_to(root / "env")
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").touch()
    os.mkfifo(root / "pipe")
    return root


def paths(folder: Path) -> list[str]:
    return [each.path for each in scan(folder).manifest.files]


def test_what_is_taken(folder: Path) -> None:
    assert paths(folder) == [".gitignore", ".paddleflowignore", "empty", "pkg/m.py", "train.py"]
    manifest = scan(folder).manifest
    assert [link.target for link in manifest.links] == ["pkg/m.py"]
    assert [each.executable for each in manifest.files] == [False, False, False, False, True]


def test_it_unpacks_to_the_same_files(folder: Path, tmp_path: Path) -> None:
    (folder / "large").write_bytes(bytes(range(256)) * 40_000)  # two chunks of its own
    found = scan(folder)
    store = CodeStore(MemoryStore())
    for name, chunk in found.chunks.items():
        store.put_chunk("u", name, chunk.read())
    id = store.put_manifest("u", found.manifest)
    target = tmp_path / "out"
    target.mkdir()
    store.unpack("u", id, target)
    for path in [*paths(folder), "large"]:
        assert (target / path).read_bytes() == (folder / path).read_bytes()
    assert (target / "link").readlink() == Path("pkg/m.py")
    assert os.access(target / "train.py", os.X_OK)
    assert not os.access(target / "pkg" / "m.py", os.X_OK)


def test_the_same_folder_is_the_same_snapshot_and_one_change_is_one_chunk(folder: Path, tmp_path: Path) -> None:
    for number in range(500):
        (folder / "pkg" / f"f{number}.py").write_text(f"value = {number}\n" * 500)
    before = scan(folder, tmp_path / "cache.json")
    assert scan(folder, tmp_path / "cache.json").manifest.id == before.manifest.id
    (folder / "pkg" / "f77.py").write_text("changed")
    after = scan(folder, tmp_path / "cache.json")
    assert len(after.chunks.keys() - before.chunks.keys()) == 1
    assert len(after.chunks) > 2
    assert scan(folder).manifest.id == after.manifest.id, "the cache tells the truth"


def test_a_folder_that_is_too_large_names_its_largest_files(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"x" * 2**20)
    with pytest.raises(TooLarge, match=r"the largest: weights.bin \(1.0 MiB\), "):
        scan(folder, most=10)


def test_a_link_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="the link out → /etc/passwd leads out of the folder"):
        scan(folder)


def test_only_what_is_missing_is_sent(stub: Stub, pf: PaddleFlow, folder: Path) -> None:
    (folder / "large").write_bytes(os.urandom(3 * 2**20))
    found = scan(folder)
    large = next(each.parts[0].chunk for each in found.manifest.files if each.path == "large")
    stub.on("POST /code/missing", {"id": "x", "missing": [large]})
    stub.on("POST /code/chunks", {"stored": 1})
    stub.on("POST /code", {"id": found.manifest.id, "files": 7, "size": found.manifest.size})
    progress: list[Any] = []
    made = pf.code.upload(folder, lambda sent, total: progress.append((sent, total)))
    assert made == {"snapshot": found.manifest.id, "files": 7, "size": found.manifest.size}
    (sent,) = [seen.body for seen in stub.requests if seen.path == "/code/chunks"]
    assert [name for name, _ in unpack_chunks(sent)] == [large]
    assert progress == [(3 * 2**20, 3 * 2**20)]


def test_a_folder_is_looked_at_again_when_a_file_changes(
    stub: Stub, pf: PaddleFlow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editors, compilers and servers write beside the code."""
    names, ids = [], []
    for text in ("print(2)", "print(1)"):
        (folder / "train.py").write_text(text)
        found = scan(folder)
        names.append(next(each.parts[0].chunk for each in found.manifest.files if each.path == "train.py"))
        ids.append(found.manifest.id)
    after, before = names
    looked: list[Path] = []

    def look(where: Path, cache: Path | None = None) -> code_snapshot.Scan:
        found = scan(where, cache)
        if not looked:
            (folder / "train.py").write_text("print(2)")
        looked.append(where)
        return found

    monkeypatch.setattr(code_snapshot, "scan", look)
    stub.on("POST /code/missing", {"missing": [before]}, {"missing": [after]})
    stub.on("POST /code/chunks", {"stored": 1})
    stub.on("POST /code", {"id": ids[0], "files": 7, "size": 1})
    assert pf.code.upload(folder)["snapshot"] == ids[0]
    (sent,) = [seen.body for seen in stub.requests if seen.path == "/code/chunks"]
    assert [name for name, _ in unpack_chunks(sent)] == [after]


def test_a_file_that_keeps_changing_is_named(
    stub: Stub, pf: PaddleFlow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "log").write_bytes(b"x" * (3 * 2**20))
    log = next(each.parts[0].chunk for each in scan(folder).manifest.files if each.path == "log")

    def look(where: Path, cache: Path | None = None) -> code_snapshot.Scan:
        (folder / "log").write_bytes(b"x" * (3 * 2**20))
        found = scan(where, cache)
        (folder / "log").write_bytes(b"y" * (3 * 2**20))
        return found

    monkeypatch.setattr(code_snapshot, "scan", look)
    stub.on("POST /code/missing", *[{"missing": [log]}] * code_snapshot.SCANS)
    with pytest.raises(Invalid, match="log changed while the code was sent"):
        pf.code.upload(folder)


def test_a_server_that_shares_the_files_gets_the_folder_itself(stub: Stub, pf: PaddleFlow, folder: Path) -> None:
    stub.on("GET /whoami", {"name": "root", "host": host_fingerprint()})
    stub.on("POST /job/single", {"id": "j"})
    assert pf.code.reference(folder)["path"] == str(folder)
    pf.jobs.submit(command="true", code=folder)
    assert stub.requests[-1].body["code"]["path"] == str(folder)


def test_git_says_what_ran(tmp_path: Path) -> None:
    assert git_state(tmp_path / "absent") is None
