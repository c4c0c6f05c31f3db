"""`fs ls|cat|put|get|cp|rm|du` on a folder and on a bucket of a real server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.objects.s3 import S3Store
from tests.mounts import COMMAND
from tests.s3_servers import KEYS, versitygw
from tests.ssh_servers import ssh_server


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        (tmp_path / "store").mkdir()
        yield f"file://{tmp_path}/store"
        return
    with versitygw() as server:
        bucket = server.bucket()
        store = S3Store(bucket)
        store.make_folder("x")  # so that the prefix is there
        store.remove_folder("x")
        store.close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
        yield f"s3://{bucket.name}/{bucket.prefix}"


def fs(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, "fs", *words], capture_output=True, timeout=60, check=False)


def test_files_by_url(url: str, tmp_path: Path) -> None:
    content = os.urandom(10_000_000)
    (tmp_path / "file").write_bytes(content)
    put = fs("put", str(tmp_path / "file"), f"{url}/deep/")
    assert put.stdout.decode() == f"10000000 bytes uploaded to {url.removeprefix('file://')}/deep/file\n"
    assert fs("put", str(tmp_path / "file"), f"{url}/other").returncode == 0
    assert fs("cat", f"{url}/other").stdout == content
    assert fs("get", f"{url}/deep/file", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == content
    listed = json.loads(fs("ls", "--json", url).stdout)
    assert [(row["kind"], row["name"]) for row in listed] == [("folder", "deep"), ("file", "other")]
    (used,) = json.loads(fs("du", "--json", url).stdout)
    assert (used["files"], used["bytes"]) == (2, 20_000_000)
    for words in (("get", f"{url}/deep", str(tmp_path / "none")), ("put", str(tmp_path), f"{url}/none")):
        refused = fs(*words)
        assert (refused.returncode, b"is a folder\nhint: copy folders with" in refused.stderr) == (1, True)
    refused = fs("rm", f"{url}/deep")
    assert (refused.returncode, b"-r" in refused.stderr) == (1, True)
    assert fs("rm", "-r", f"{url}/deep").returncode == 0
    assert fs("rm", f"{url}/other").returncode == 0
    missing = fs("get", f"{url}/other", str(tmp_path / "none"))
    assert (missing.returncode, b"does not exist" in missing.stderr) == (1, True)
    assert not list(tmp_path.glob("*none*"))


def test_what_is_no_url_is_refused() -> None:
    for wrong in ("/data", "ftp://host/x"):
        done = fs("ls", wrong)
        assert (done.returncode, b"hint: " in done.stderr) == (1, True)
    assert fs("rm", "-r", "s3://bucket").returncode == 1


def test_copies_go_on_where_they_were(tmp_path: Path) -> None:
    """Between a folder and an SFTP server and back; what is there already is left out."""
    (tmp_path / "sets" / "deep").mkdir(parents=True)
    (tmp_path / "sets" / "a b%20").write_bytes(b"one")
    (tmp_path / "sets" / "deep" / "c").write_bytes(b"three")
    with ssh_server() as sshd:
        (tmp_path / "key").write_text(sshd.private_key)
        words = ["-o", f"user={sshd.user}", "-o", f"privateKey=@{tmp_path}/key", "-o", f"hostKey={sshd.host_key}"]
        away = f"sftp://127.0.0.1:{sshd.port}{sshd.folder}/sets"
        assert b"2 copied, 8 bytes; 0 were" in fs("cp", "-r", str(tmp_path / "sets"), away, *words).stdout
        (sshd.folder / "sets" / "deep" / "c").unlink()
        assert b"1 copied, 5 bytes; 1 were" in fs("cp", "-r", str(tmp_path / "sets"), away, *words).stdout
        assert b"2 copied" in fs("cp", "-r", away, str(tmp_path / "back"), *words).stdout
        assert b"deep" in fs("ls", away, *words).stdout
    assert (tmp_path / "back" / "a b%20").read_bytes() == b"one"
    assert (tmp_path / "back" / "deep" / "c").read_bytes() == b"three"


def test_moves(url: str, tmp_path: Path) -> None:
    """Within a store and out of it; an empty folder too."""
    for name in ("sets/a", "sets/deep/b"):
        (tmp_path / "file").write_text(name)
        assert fs("put", str(tmp_path / "file"), f"{url}/{name}").returncode == 0
    assert fs("mv", f"{url}/sets", f"{url}/moved").returncode == 0
    assert fs("ls", f"{url}/sets").returncode == 1
    assert fs("cat", f"{url}/moved/deep/b").stdout == b"sets/deep/b"
    moved = json.loads(fs("mv", "--json", f"{url}/moved/a", f"{url}/one").stdout)
    assert moved == {"moved": 1, "bytes": 6}
    assert fs("mv", f"{url}/moved", str(tmp_path / "here")).returncode == 0
    assert (tmp_path / "here" / "deep" / "b").read_text() == "sets/deep/b"
    listed = json.loads(fs("ls", "--json", url).stdout)
    assert [row["name"] for row in listed] == ["one"]
    refused = fs("mv", f"{url}/one", f"{url}/one/two")
    assert (refused.returncode, b"into itself" in refused.stderr) == (1, True)


def test_sync(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"one")
    (folder / "deep" / "line\nbreak").write_bytes(b"three")
    os.utime(folder / "a", (1, 1))
    assert b"2 copied, 8 bytes; 0 removed; 0 were" in fs("sync", str(folder), f"{url}/sets").stdout
    assert b"0 copied, 0 bytes; 0 removed; 2 were" in fs("sync", str(folder), f"{url}/sets").stdout
    (folder / "a").write_bytes(b"other")
    (folder / "deep" / "line\nbreak").unlink()
    planned = json.loads(fs("sync", "--json", "--delete", "--dry-run", str(folder), f"{url}/sets").stdout)
    top = f"{url.removeprefix('file://')}/sets"
    wanted = [("copy", f"{top}/a"), ("remove", f"{top}/deep/line\nbreak")]
    assert [(row["action"], row["name"]) for row in planned] == wanted
    assert b"1 copied, 5 bytes; 1 removed; 0 were" in fs("sync", "--delete", str(folder), f"{url}/sets").stdout
    assert json.loads(fs("du", "--json", f"{url}/sets").stdout)[0]["files"] == 1
    back = fs("sync", f"{url}/sets", str(tmp_path / "back"))
    assert (back.returncode, back.stderr.decode()) == (0, f"{tmp_path}/back/a  5 bytes\n")
    assert (tmp_path / "back" / "a").read_bytes() == b"other"
    assert b"is a file" in fs("sync", str(folder / "a"), f"{url}/x").stderr
