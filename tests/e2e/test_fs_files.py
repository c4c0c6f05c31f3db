"""`fs ls|cat|put|get|rm|du` on a folder and on a bucket of a real server."""

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
    assert fs("put", str(tmp_path / "file"), f"{url}/deep/").returncode == 0
    assert fs("put", str(tmp_path / "file"), f"{url}/other").returncode == 0
    assert fs("cat", f"{url}/other").stdout == content
    assert fs("get", f"{url}/deep/file", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == content
    listed = json.loads(fs("ls", "--json", url).stdout)
    assert [(row["kind"], row["name"]) for row in listed] == [("folder", "deep"), ("file", "other")]
    (used,) = json.loads(fs("du", "--json", url).stdout)
    assert (used["files"], used["bytes"]) == (2, 20_000_000)
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
        assert (done.returncode, b"hint: write it as" in done.stderr) == (1, True)
    assert fs("rm", "-r", "s3://bucket").returncode == 1
