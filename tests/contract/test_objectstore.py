"""What `paddleflow.objects.store` promises, for every store and for stores in wrappers."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Invalid, NotFound, TooLarge
from paddleflow.objects.hdfs import HdfsCluster, HdfsStore
from paddleflow.objects.local import LocalStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.s3 import S3Store
from paddleflow.objects.served import ServedStorage, ServedStore
from paddleflow.objects.store import CHANGED, NOT_SUPPORTED, Kind, ObjectStore, iterate_content, read_whole
from paddleflow.objects.wrappers import Retrying
from scripts.lib.hdfs import MiniCluster
from tests.e2e.conftest import ServerProcess
from tests.given_stores import GIVEN, given_store, is_given
from tests.gluster_servers import GlusterServer, gluster_server, gluster_store
from tests.hdfs_clusters import fresh_folder
from tests.s3_servers import S3Server, seaweedfs, versitygw
from tests.ssh_servers import SshServer, sftp_store, ssh_server

NAMES = ["plain", "with blank", "ünïcode-✓", "new\nline", "tab\there", "per%20cent", "a+b=c&d?e#f", "x" * 255, "-", "~"]


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], S3Server]]:
    """S3 servers, each started when it is first asked for."""
    with ExitStack() as stack:
        started: dict[str, S3Server] = {}

        def get(name: str) -> S3Server:
            if name not in started:
                started[name] = stack.enter_context(versitygw() if name == "versitygw" else seaweedfs())
            return started[name]

        yield get


@pytest.fixture(scope="module")
def sshd() -> Iterator[Callable[[], SshServer]]:
    """OpenSSH's server, started when it is first asked for."""
    with ExitStack() as stack:
        started: list[SshServer] = []

        def get() -> SshServer:
            if not started:
                started.append(stack.enter_context(ssh_server()))
            return started[0]

        yield get


@pytest.fixture(scope="module")
def gluster() -> Iterator[Callable[[], GlusterServer]]:
    """GlusterFS, started when it is first asked for."""
    with ExitStack() as stack:
        started: list[GlusterServer] = []

        def get() -> GlusterServer:
            if not started:
                started.append(stack.enter_context(gluster_server()))
            return started[0]

        yield get


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], ServedStore]]:
    """A folder through a server's file service; the server is started when it is first asked for."""
    started: list[ServerProcess] = []
    numbers = count(1)

    def get(folder: Path) -> ServedStore:
        if not started:
            started.append(ServerProcess(tmp_path_factory.mktemp("served") / "data").start())
        client, name = started[0].connect(), f"some{next(numbers)}"
        client.storages.create(name, f"local://{folder}")
        grant = client.storages.start_mount(name, node="here", folder="/mnt/x", read_only=False)
        host, port = started[0].url.removeprefix("http://").rsplit(":", 1)
        return ServedStore(ServedStorage(host, int(port), grant.storage, grant.id, grant.token))

    yield get
    for server in started:
        server.end()


@pytest.fixture(
    params=[
        "memory",
        "local",
        "wrapped",
        "versitygw",
        "seaweedfs",
        "sftp",
        "served",
        pytest.param("hdfs", marks=pytest.mark.xdist_group("hdfs")),
        pytest.param("glusterfs", marks=pytest.mark.xdist_group("glusterfs")),
        *(kind for kind in GIVEN if is_given(kind)),
    ]
)
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    servers: Callable[[str], S3Server],
    sshd: Callable[[], SshServer],
    gluster: Callable[[], GlusterServer],
    serve: Callable[[Path], ServedStore],
) -> Iterator[ObjectStore]:
    made: ObjectStore
    match request.param:
        case "memory":
            made = MemoryStore()
        case "local":
            made = LocalStore(tmp_path)
        case "wrapped":
            made = Retrying(LocalStore(tmp_path))
        case "sftp":
            made = sftp_store(sshd())
        case "served":
            made = serve(tmp_path)
        case "glusterfs":
            made = gluster_store(gluster())
        case kind if kind in GIVEN:
            made = given_store(kind)
        case "hdfs":
            cluster: MiniCluster = request.getfixturevalue("hdfs_cluster")
            made = HdfsStore(HdfsCluster((f"127.0.0.1:{cluster.port}",), fresh_folder()))
            made.make_folder("x")
            made.remove_folder("x")
        case name:
            made = S3Store(servers(name).bucket())
    yield made
    made.close()
    made.close()


def keys(store: ObjectStore, folder: str = "", *, recursive: bool = False) -> set[str]:
    return {entry.key for entry in store.list_entries(folder, recursive=recursive)}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_server_of_a_type_that_tests_cannot_start(kind: str) -> None:
    """It takes part in all tests below if somebody names one."""
    given_store(kind).close()


def test_what_is_written_is_read(store: ObjectStore) -> None:
    written = store.write("a/b", b"0123456789")
    assert store.read("a/b", size=100) == b"0123456789"
    assert store.read("a/b", offset=3, size=4) == b"3456"
    assert store.read("a/b", offset=8, size=4) == b"89"
    assert store.read("a/b", offset=10, size=4) == b""
    assert store.read("a/b", offset=99, size=4) == b""
    assert store.read("a/b", size=0) == b""
    found = store.stat("a/b")
    assert (found.key, found.kind, found.size, found.tag) == ("a/b", Kind.FILE, 10, written.tag)
    assert found.modified_at > 0
    assert found.tag


def test_content_comes_from_bytes_or_a_stream(store: ObjectStore) -> None:
    large = bytes(range(256)) * 20_000
    store.write("large", io.BytesIO(large))
    assert b"".join(iterate_content(store, "large", chunk=1_000_003)) == large
    store.write("empty", io.BytesIO(b""))
    assert store.read("empty", size=10) == b""
    assert list(iterate_content(store, "empty")) == []


def test_a_write_replaces_and_changes_the_tag(store: ObjectStore) -> None:
    tags = [store.write("a", content).tag for content in (b"one", b"two", b"")]
    assert len(set(tags)) == 3
    assert store.read("a", size=10) == b""
    assert store.stat("a").tag == tags[-1]


def test_a_read_of_a_version_never_gives_another(store: ObjectStore) -> None:
    first = store.write("a", b"one")
    assert store.read("a", size=10, tag=first.tag) == b"one"
    store.write("a", b"two")
    with pytest.raises(Conflict) as raised:
        store.read("a", size=10, tag=first.tag)
    assert raised.value.code == CHANGED


def test_absent_is_not_found(store: ObjectStore) -> None:
    store.write("a/b", b"")
    for key in ("x", "a/x", "a/b/c"):
        with pytest.raises(NotFound):
            store.stat(key)
        with pytest.raises(NotFound):
            store.read(key, size=1)
    with pytest.raises(NotFound):
        store.rename("x", "y")
    with pytest.raises(NotFound):
        store.copy("x", "y")
    assert keys(store, "x") == set()


def test_removing_may_be_done_twice(store: ObjectStore) -> None:
    store.write("a/b", b"x")
    for _ in range(2):
        store.remove("a/b")
        with pytest.raises(NotFound):
            store.stat("a/b")
    store.remove("never/was")


def test_folders(store: ObjectStore) -> None:
    for _ in range(2):
        store.make_folder("f/g")
    assert store.stat("f/g").kind is Kind.FOLDER
    assert store.stat("").kind is store.stat("f/").kind is Kind.FOLDER
    store.write("file", b"")
    with pytest.raises(NotFound):
        store.stat("file/")
    store.remove("file")
    assert keys(store) == {"f"}
    assert keys(store, "f") == {"f/g"}
    assert keys(store, "f", recursive=True) == set()
    if store.capabilities.tree:
        with pytest.raises(Conflict):
            store.remove("f/g")
    with pytest.raises(Conflict):
        store.remove_folder("f")
    for _ in range(2):
        store.remove_folder("f/g")
    store.remove_folder("f")
    assert keys(store) == set()


def test_a_name_is_a_file_or_a_folder(store: ObjectStore) -> None:
    if not store.capabilities.tree:
        pytest.skip("a name may be both here")
    store.write("file", b"x")
    store.make_folder("folder")
    for wrong in ("file/below", "folder"):
        with pytest.raises(Conflict):
            store.write(wrong, b"y")
    with pytest.raises(Conflict):
        store.make_folder("file")
    with pytest.raises(Conflict):
        store.read("folder", size=1)
    assert keys(store) == {"file", "folder"}


def test_listings(store: ObjectStore) -> None:
    written = {key: store.write(key, key.encode()) for key in ("a", "f/b", "f/g/c", "f/g/d", "fx")}
    assert keys(store) == {"a", "f", "fx"}
    assert keys(store, "f") == keys(store, "f/") == {"f/b", "f/g"}
    assert keys(store, recursive=True) == set(written)
    assert keys(store, "f", recursive=True) == {"f/b", "f/g/c", "f/g/d"}
    for entry in store.list_entries("f"):
        if entry.kind is Kind.FILE:
            assert (entry.size, entry.tag) == (3, written["f/b"].tag)
        else:
            assert entry.key == "f/g"


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back(store: ObjectStore, name: str) -> None:
    store.write(f"names/{name}", name.encode())
    assert keys(store, "names") == {f"names/{name}"}
    assert store.read(f"names/{name}", size=1000) == name.encode()


@pytest.mark.parametrize(
    "key",
    ["", "/", "/a", "a/", "a//b", ".", "a/../b", "..", "a/.", "zero\0byte", "x" * 256, "k/" * 600 + "k", "\udcff"],
)
def test_keys_that_no_store_holds(store: ObjectStore, key: str) -> None:
    store.write("a", b"")
    for call in (
        lambda: store.write(key, b"x"),
        lambda: store.read(key, size=1),
        lambda: store.remove(key),
        lambda: store.copy("a", key),
    ):
        with pytest.raises(Invalid):
            call()


def test_negative_ranges_are_refused(store: ObjectStore) -> None:
    store.write("a", b"x")
    for offset, size in ((-1, 1), (0, -1)):
        with pytest.raises(Invalid):
            store.read("a", offset=offset, size=size)


def test_conditions(store: ObjectStore) -> None:
    first = store.write("a", b"one", if_absent=True)
    with pytest.raises(Conflict):
        store.write("a", b"two", if_absent=True)
    second = store.write("a", b"two", if_tag=first.tag)
    for stale in (first.tag, "nonsense"):
        with pytest.raises(Conflict) as raised:
            store.write("a", b"three", if_tag=stale)
        assert raised.value.code == CHANGED
    with pytest.raises(Conflict):
        store.write("absent", b"x", if_tag=second.tag)
    assert store.read("a", size=10) == b"two"
    assert keys(store) == {"a"}


@pytest.mark.parametrize("condition", ["if_absent", "if_tag"])
def test_of_many_conditional_writers_one_wins(store: ObjectStore, condition: str) -> None:
    # Without the capability only writers of one store object are told apart, as these are.
    tag = store.write("tagged", b"").tag
    barrier = threading.Barrier(8)

    def compete(number: int) -> bool:
        barrier.wait()
        try:
            if condition == "if_absent":
                store.write("fresh", b"%d" % number, if_absent=True)
            else:
                store.write("tagged", b"%d" % number, if_tag=tag)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(compete, range(8)))
    assert won.count(True) == 1
    assert store.read("fresh" if condition == "if_absent" else "tagged", size=10) == b"%d" % won.index(True)


def test_copy_and_rename(store: ObjectStore) -> None:
    words = {"mode": "644"} if store.capabilities.metadata else {}
    store.write("a", b"one", metadata=words)
    store.write("f/target", b"old")
    assert store.copy("a", "f/copy").size == 3
    assert store.stat("f/copy").metadata == words
    old = store.stat("f/target").tag
    assert store.rename("a", "f/target").key == "f/target"
    assert keys(store, recursive=True) == {"f/copy", "f/target"}
    assert store.read("f/target", size=10) == store.read("f/copy", size=10) == b"one"
    assert store.stat("f/target").metadata == words
    assert store.stat("f/target").tag != old


def test_metadata_is_kept_or_refused(store: ObjectStore) -> None:
    if not store.capabilities.metadata:
        for call in (
            lambda: store.write("a", b"one", metadata={"mode": "644"}),
            lambda: store.make_folder("f", metadata={"mode": "644"}),
            lambda: store.set_metadata("a", {"mode": "644"}),
        ):
            with pytest.raises(Invalid) as raised:
                call()
            assert raised.value.code == NOT_SUPPORTED
        assert keys(store) == set()
        return
    store.write("a", b"one", metadata={"mode": "644", "owner": "7"})
    assert store.stat("a").metadata == {"mode": "644", "owner": "7"}
    store.set_metadata("a", {"mode": "600"})
    assert store.stat("a").metadata == {"mode": "600"}
    assert store.read("a", size=10) == b"one"
    store.write("a", b"two")
    assert store.stat("a").metadata == {}


def test_metadata_of_folders(store: ObjectStore) -> None:
    if not store.capabilities.metadata:
        pytest.skip("this store keeps no metadata")
    store.make_folder("f", metadata={"mode": "700"})
    assert store.stat("f").metadata == {"mode": "700"}
    store.make_folder("f", metadata={"mode": "755", "text": "ünïcode, per%20cent\n"})
    assert store.stat("f").metadata == {"mode": "755", "text": "ünïcode, per%20cent\n"}
    assert keys(store) == {"f"}


def test_readers_see_one_version_or_the_other(store: ObjectStore) -> None:
    versions = [bytes([letter]) * 200_000 for letter in b"abcd"]
    store.write("a", versions[0])
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            assert store.read("a", size=300_000) in versions

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(40 if store.capabilities.copy else 8):  # HDFS takes 0.3 s for each
                store.write("a", versions[number % 4])
        finally:
            done.set()
        for reader in readers:
            reader.result()


def test_a_bounded_read_refuses_more(store: ObjectStore) -> None:
    store.write("a", b"12345")
    assert read_whole(store, "a", most=5) == b"12345"
    with pytest.raises(TooLarge):
        read_whole(store, "a", most=4)
