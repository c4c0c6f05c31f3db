"""The store of code snapshots, and the program that unpacks one before a command."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, NotFound, OverQuota
from paddleflow.jobs.checkout import check_out
from paddleflow.jobs.code import KEPT_UNUSED, LEAST_COUNTED, CodeStore, checkout_command
from paddleflow.objects.local import LocalStore
from paddleflow.spec.code import CodeFile, CodeLink, Manifest, Part

CONTENT = b"#!/bin/sh\necho $PWD $1\ndata"
NAME = hashlib.sha256(CONTENT).hexdigest()
SNAPSHOT = Manifest(
    (CodeFile("bin/run.sh", 23, True, (Part(NAME, 0, 23),)), CodeFile("d", 4, False, (Part(NAME, 23, 4),))),
    (CodeLink("link", "bin/run.sh"),),
)


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    (tmp_path / "code").mkdir()
    return CodeStore(LocalStore(tmp_path / "code"))


def filled(store: CodeStore, user: str = "bob") -> str:
    store.put_chunk(user, NAME, CONTENT)
    return store.put_manifest(user, SNAPSHOT)


def test_a_snapshot_is_kept_when_it_is_whole(store: CodeStore) -> None:
    assert store.missing("bob", SNAPSHOT.chunks) == [NAME]
    with pytest.raises(Conflict, match="1 chunks of the code are not here"):
        store.put_manifest("bob", SNAPSHOT)
    id = filled(store)
    assert (id, store.missing("bob", SNAPSHOT.chunks)) == (SNAPSHOT.id, [])
    assert store.manifest("bob", id) == SNAPSHOT


def test_users_do_not_see_each_other(store: CodeStore) -> None:
    id = filled(store)
    assert store.missing("eve", SNAPSHOT.chunks) == [NAME]
    for user in ("eve", "../bob", "bob/../bob"):
        with pytest.raises(NotFound):
            store.manifest(user, id)


def test_the_tar_file_holds_the_same(store: CodeStore) -> None:
    id = filled(store)
    with tarfile.open(fileobj=io.BytesIO(b"".join(store.tar("bob", id)))) as archive:
        assert archive.getnames() == ["bin/run.sh", "d", "link"]
        found = archive.extractfile("d")
        assert found is not None
        assert found.read() == b"data"
        assert archive.getmember("link").linkname == "bin/run.sh"


def test_a_large_file_is_never_in_memory_as_a_whole(store: CodeStore) -> None:
    """One chunk may be most of a file many times over: half a gigabyte costs its sender a few hundred bytes a part."""
    content = bytes(2**20)
    name = hashlib.sha256(content).hexdigest()
    store.put_chunk("eve", name, content)
    length = len(content) - 1
    many = CodeFile("large", 64 * length, False, (Part(name, 1, length),) * 64)
    id = store.put_manifest("eve", Manifest((many,)))
    tracemalloc.start()
    try:
        assert sum(map(len, store.tar("eve", id))) > 64 * length
        assert tracemalloc.get_traced_memory()[1] < 8 * len(content)
    finally:
        tracemalloc.stop()


def test_unpacking_happens_once(store: CodeStore, tmp_path: Path) -> None:
    id = filled(store)
    folder = tmp_path / "job" / "code"
    check_out(f"file://{tmp_path}/code", "bob", id, folder)
    (folder / "d").write_text("changed by the job")
    check_out(f"file://{tmp_path}/code", "bob", id, folder)
    assert (folder / "d").read_text() == "changed by the job"


def test_half_an_unpacked_folder_is_made_anew(store: CodeStore, tmp_path: Path) -> None:
    id = filled(store)
    (tmp_path / "job" / "code.part").mkdir(parents=True)
    (tmp_path / "job" / "code.part" / "left").touch()
    check_out(f"file://{tmp_path}/code", "bob", id, tmp_path / "job" / "code")
    assert sorted(path.name for path in (tmp_path / "job" / "code").iterdir()) == ["bin", "d", "link"]


def checked_out(tmp_path: Path, id: str, workdir: str, *command: str) -> subprocess.CompletedProcess[str]:
    before = checkout_command(sys.executable, f"file://{tmp_path}/code", "bob", id, f"{tmp_path}/job/code", workdir)
    return subprocess.run([*before, *command], capture_output=True, text=True, check=False)


def test_the_command_runs_in_the_code(store: CodeStore, tmp_path: Path) -> None:
    id = filled(store)
    done = checked_out(tmp_path, id, "bin", "./run.sh", "x")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/job/code/bin x\n")


def test_what_goes_wrong_is_in_the_log(store: CodeStore, tmp_path: Path) -> None:
    filled(store)
    done = checked_out(tmp_path, "0" * 64, "", "true")
    assert done.returncode == 1
    assert "the code of this job cannot be unpacked: code snapshot[000" in done.stderr
    done = checked_out(tmp_path, SNAPSHOT.id, "", "no-such-program")
    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_space_is_made_by_what_was_not_used_for_long(store: CodeStore, tmp_path: Path) -> None:
    id = filled(store)
    now = time.time()
    limit = 2 * LEAST_COUNTED + 100
    store.make_space("bob", 100, limit, now)
    with pytest.raises(OverQuota, match=r"have 131,072 bytes, 101 more are over the limit of 131,172"):
        store.make_space("bob", 101, limit, now)
    assert store.manifest("bob", id) == SNAPSHOT, "it was used a moment ago"
    store.make_space("bob", 101, limit - LEAST_COUNTED + 1, now + KEPT_UNUSED + 1, kept=[NAME])
    assert store.missing("bob", SNAPSHOT.chunks) == [], "they were asked for"
    filled(store)
    store.make_space("bob", 101, 101, now + KEPT_UNUSED + 1)
    with pytest.raises(NotFound):
        store.manifest("bob", id)
    assert store.missing("bob", SNAPSHOT.chunks) == [NAME]


def test_a_chunk_that_is_being_sent_stays(store: CodeStore) -> None:
    store.put_chunk("bob", NAME, CONTENT)
    with pytest.raises(OverQuota):
        store.make_space("bob", 1, 1, time.time())
    assert store.missing("bob", [NAME]) == []
