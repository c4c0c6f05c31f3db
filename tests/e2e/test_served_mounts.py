"""`paddleflow fs mount NAME DIR`: a storage of any type through the server, with a token for its files and nothing else."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import paddleflow
from paddleflow.errors import Conflict, Forbidden, NotFound, Unauthenticated
from paddleflow.fs import device, sidecar
from paddleflow.objects.s3 import Bucket, S3Store
from paddleflow.objects.served import PART, ServedStorage, ServedStore
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.storages import MountGrant
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.e2e.test_job_storages import access, url_of
from tests.mounts import needs_fuse
from tests.patience import eventually
from tests.s3_servers import S3Server, versitygw


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with versitygw() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("served") / "data").start()
    yield made
    made.end()


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    return s3.bucket()


@pytest.fixture
def fs(server: ServerProcess, bucket: Bucket) -> str:
    name = bucket.prefix.rpartition("-")[2]
    server.connect().storages.create(f"far{name}", url_of(bucket), properties=access(bucket))
    return f"far{name}"


@pytest.fixture(scope="module")
def guest(server: ServerProcess) -> PaddleFlow:
    root = server.connect()
    root.users.create("guest", "guest-password-1")
    client = paddleflow.connect(server.url)
    client.login("guest", "guest-password-1")
    return client


def store_of(server: ServerProcess, grant: MountGrant) -> ServedStore:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    return ServedStore(ServedStorage(host, int(port), grant.storage, grant.id, grant.token))


def grant_of(client: PaddleFlow, fs: str, *, read_only: bool = False) -> MountGrant:
    return client.storages.start_mount(fs, node="here", folder="/mnt/x", read_only=read_only)


def test_a_storage_as_a_store(server: ServerProcess, fs: str, bucket: Bucket) -> None:
    client = server.connect()
    store = store_of(server, grant_of(client, fs))
    large = os.urandom(PART + 1_000)
    for key, content in (("small", b"words"), ("deep/large", large), ("new\nline", b"")):
        entry = store.write(key, content)
        assert (entry.key, entry.size) == (key, len(content))
        assert S3Store(bucket).read(key, size=len(content)) == content
    assert (
        store.read("deep/large", offset=PART - 3, size=10, tag=store.stat("deep/large").tag)
        == large[PART - 3 : PART + 7]
    )
    assert sorted(entry.key for entry in store.list_entries(recursive=True)) == ["deep/large", "new\nline", "small"]
    store.rename("small", "deep/renamed")
    store.make_folder("empty")
    assert sorted(entry.key for entry in store.list_entries()) == ["deep", "empty", "new\nline"]
    with pytest.raises(Conflict):
        store.remove_folder("deep")
    store.remove_folder("empty")
    store.remove("deep/renamed")
    store.remove("deep/renamed")
    with pytest.raises(NotFound):
        store.stat("deep/renamed")
    with pytest.raises(Conflict):
        store.write("new\nline", b"", if_absent=True)
    (mount,), _ = client.storages.mounts(fs)
    assert (mount.node, mount.folder, mount.user) == ("here", "/mnt/x", "root")
    with pytest.raises(Conflict, match="here:/mnt/x"):
        client.storages.delete(fs)
    store.close()
    client.storages.delete(fs)


def test_a_token_is_for_one_storage(server: ServerProcess, fs: str, guest: PaddleFlow, bucket: Bucket) -> None:
    root = server.connect()
    with pytest.raises(NotFound):
        grant_of(guest, f"fs-root-{fs}")
    root.grants.create("guest", f"fs-root-{fs}", resource_type="fs")
    grant = grant_of(guest, f"fs-root-{fs}", read_only=True)
    S3Store(bucket).write("in", b"x")
    store = store_of(server, grant)
    assert store.read("in", size=1) == b"x"
    with pytest.raises(Forbidden, match="read-only mount"):
        store.write("out", b"y")
    narrow = paddleflow.connect(server.url, token=grant.token)
    for call in (lambda: list(narrow.storages.list()), lambda: narrow.jobs.submit(command="true")):
        with pytest.raises(Forbidden, match="token is for a mount"):
            call()
    of_root = grant_of(root, fs)
    root.storages.create("other", f"local://{server.data.parent}")
    with pytest.raises(Forbidden, match="not for fs"):
        store_of(server, replace(of_root, storage="fs-root-other")).stat("")
    root.grants.delete("guest", f"fs-root-{fs}", resource_type="fs")
    with pytest.raises(NotFound):
        store.read("in", size=1)


@contextmanager
def mounted(server: ServerProcess, fs: str, tmp_path: Path, *options: str) -> Iterator[Path]:
    folder = tmp_path / "mnt"
    folder.mkdir()
    environment = {**server.environment, "HOME": str(tmp_path), "PADDLEFLOW_TOKEN": server.token}
    words = [PADDLEFLOW, "--server", server.url, "fs", "mount", fs, str(folder), *options]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no key of the store" in done.stdout + done.stderr
    try:
        yield folder
    finally:
        if device.is_mounted(folder):
            device.unmount(folder, force=True)


@needs_fuse
def test_a_bucket_is_mounted_through_the_server(server: ServerProcess, fs: str, bucket: Bucket, tmp_path: Path) -> None:
    large = os.urandom(PART * 2)
    S3Store(bucket).write("in/large", large)
    client = server.connect()
    with mounted(server, fs, tmp_path) as folder:
        assert (folder / "in" / "large").read_bytes() == large
        (folder / "new").mkdir()
        (folder / "new" / "out").write_bytes(b"made")
        (folder / "new" / "out").rename(folder / "moved")
        assert S3Store(bucket).read("moved", size=10) == b"made"
        with pytest.raises(OSError) as raised:
            (folder / "link").symlink_to("moved")
        assert raised.value.errno == errno.EOPNOTSUPP
        assert len(client.storages.mounts(fs)[0]) == 1
        device.unmount(folder)
        eventually(lambda: not client.storages.mounts(fs)[0], "the server knows that it was unmounted")
    ended = grant_of(client, fs)
    store = store_of(server, ended)
    store.stat("")
    store.close()
    with pytest.raises(Unauthenticated):
        paddleflow.connect(server.url, token=ended.token).storages.mounts(fs)


def test_a_container_that_starts_again_has_its_storages_until_it_gives_them_back(
    server: ServerProcess, fs: str, bucket: Bucket, tmp_path: Path
) -> None:
    S3Store(bucket).write("in", b"data")
    client = server.connect()
    grant = grant_of(client, fs)
    (tmp_path / "seen").mkdir()
    storage = {
        "storage": grant.storage,
        "folder": str(tmp_path / "seen"),
        "url": f"pfs://{server.url.removeprefix('http://')}/{grant.storage}",
        "properties": {"token": grant.token, "mount": grant.id, "keep": "true"},
        "subPath": "",
        "readOnly": False,
        "inputs": ["in"],
        "outputs": [],
    }
    asked = sidecar.read_document(
        json.dumps({"way": "copy", "home": str(tmp_path), "ready": str(tmp_path / "ready"), "storages": [storage]})
    )
    for _ in range(2):
        copies = sidecar.Copies(asked)
        copies.fetch()
        copies.close()
    assert (tmp_path / "seen" / "in").read_bytes() == b"data"
    assert [each.id for each in client.storages.mounts(fs)[0]] == [grant.id]
    sidecar.end_mounts(asked)
    assert client.storages.mounts(fs)[0] == []
    with pytest.raises(Forbidden, match="the mount was ended by the server"):
        sidecar.Copies(asked).fetch()
