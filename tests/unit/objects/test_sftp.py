"""SFTP against OpenSSH's server: who is let in, which server is trusted, links, and connections that break."""

from __future__ import annotations

import io
import os
import pwd
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, Unavailable
from paddleflow.objects.check import Stage, Unreachable, check
from paddleflow.objects.sftp import PAGE, SftpServer, SftpStore
from paddleflow.objects.store import BAD_CREDENTIALS, Kind, iterate_content
from paddleflow.objects.urls import open_store
from paddleflow.objects.wrappers import Retrying
from tests.ordinary_account import needs_root
from tests.patience import eventually
from tests.ports import closed_port
from tests.ssh_servers import SshServer, sftp_folder, ssh_server
from tests.tcp_proxy import tcp_proxy

PASSWORD = "right word"
#: as the shadow file keeps it (openssl passwd -6 -salt paddleflow)
PASSWORD_HASH = "$6$paddleflow$QoEjAn6gqIBHjDJLyACm/fhyz9QxgsoI0yuz5LW15hzIaoZ8TYJzq.aE.vMTuvfals6HSqVPfbm3uFFucct/T/"


@pytest.fixture(scope="module")
def sshd() -> Iterator[SshServer]:
    with ssh_server(passwords=True) as made:
        yield made


@pytest.fixture
def place(sshd: SshServer) -> SftpServer:
    return sftp_folder(sshd)


@pytest.fixture
def store(place: SftpServer) -> Iterator[SftpStore]:
    made = SftpStore(place)
    yield made
    made.close()


def refused(place: SftpServer) -> Forbidden:
    store = SftpStore(place)
    try:
        with pytest.raises(Forbidden) as raised:
            store.stat("")
        assert raised.value.code == BAD_CREDENTIALS
        return raised.value
    finally:
        store.close()


def test_an_unknown_server_is_refused_and_its_key_is_shown(sshd: SshServer, place: SftpServer) -> None:
    error = refused(replace(place, host_key=""))
    assert "is not known" in error.message
    assert f"hostKey={sshd.host_key}" in error.hint
    other = "SHA256:" + "A" * 43
    assert "not the one that was given" in refused(replace(place, host_key=other)).message
    for good in (f"{other}, {sshd.host_key}", (sshd.folder.parent / "host.pub").read_text().strip()):
        store = SftpStore(replace(place, host_key=good))
        assert store.stat("").kind is Kind.FOLDER
        store.close()
    store = SftpStore(replace(place, host_key="", verify=False))
    assert store.stat("").kind is Kind.FOLDER
    store.close()


def test_a_server_of_the_known_hosts_file(
    sshd: SshServer, place: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    line = f"[127.0.0.1]:{sshd.port} {(sshd.folder.parent / 'host.pub').read_text()}"
    (tmp_path / ".ssh" / "known_hosts").write_text(line)
    store = SftpStore(replace(place, host_key=""))
    assert store.stat("").kind is Kind.FOLDER
    store.close()


def test_who_is_not_let_in(place: SftpServer, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "word", "-f", str(tmp_path / "other")], check=True)
    other = (tmp_path / "other").read_text()
    assert "with the key" in refused(replace(place, private_key=other, passphrase="word")).message
    assert "with the password" in refused(replace(place, private_key="", password="wrong")).message
    for key in (other, "nonsense", ""):
        with pytest.raises(Invalid):
            SftpStore(replace(place, private_key=key))
    with pytest.raises(Invalid):
        SftpStore(replace(place, user=""))
    assert other not in repr(replace(place, private_key=other))


def administer(*words: str) -> subprocess.CompletedProcess[str]:
    """A program of root; the path of whoever runs the tests may lack its folder."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


@contextmanager
def account() -> Iterator[str]:
    """A new account of this machine whose password is PASSWORD."""
    name = f"pf-sftp-{os.getpid()}"
    administer("userdel", "--force", name)  # of a run that was killed
    words = ("--no-create-home", "--home-dir", "/", "--shell", "/bin/sh", "--password", PASSWORD_HASH, name)
    made = _administer_in_turn("useradd", *words)
    assert made.returncode == 0, made.stderr
    try:
        yield name
    finally:
        _administer_in_turn("userdel", "--force", name)


def _administer_in_turn(*words: str) -> subprocess.CompletedProcess[str]:
    """Again while somebody else changes the table of accounts."""
    done: list[subprocess.CompletedProcess[str]] = []

    def run() -> bool:
        done[:] = [administer(*words)]
        return "cannot lock" not in done[0].stderr

    eventually(run, "the table of accounts is free")
    return done[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="passwords are checked by a server of root only")
def test_a_password(sshd: SshServer, place: SftpServer) -> None:
    with account() as name:
        sshd.folder.parent.chmod(0o755)
        sshd.folder.chmod(0o755)
        os.chown(place.folder, pwd.getpwnam(name).pw_uid, -1)
        store = SftpStore(replace(place, user=name, private_key="", password=PASSWORD))
        assert store.read("a", size=store.write("a", b"one").size) == b"one"
        (Path(place.folder) / "closed").write_bytes(b"x")
        (Path(place.folder) / "closed").chmod(0)
        with pytest.raises(Forbidden, match=name):
            store.read("closed", size=1)
        store.close()


def test_stages_of_a_check(sshd: SshServer, place: SftpServer) -> None:
    given = {"user": place.user, "privateKey": place.private_key, "hostKey": place.host_key}
    url = f"sftp://127.0.0.1:{sshd.port}{place.folder}"
    check(url, given, timeout=60)
    with closed_port() as port:
        wrong = [
            (f"sftp://127.0.0.1:{port}/x", given, Stage.PORT),
            ("sftp://no-such-host.invalid/x", given, Stage.NAME),
            (url, given | {"hostKey": "SHA256:x"}, Stage.CREDENTIALS),
            (url, {**given, "user": "nobody-here"}, Stage.CREDENTIALS),
            (url + "/absent", given, Stage.PATH),
        ]
        for where, properties, stage in wrong:
            with pytest.raises(Unreachable) as raised:
                check(where, properties, timeout=60)
            assert raised.value.stage is stage


def test_links_and_devices(store: SftpStore, place: SftpServer, tmp_path: Path) -> None:
    folder = Path(place.folder)
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "away").symlink_to(tmp_path)
    (folder / "nowhere").symlink_to("absent")
    os.mkfifo(folder / "fifo")
    store.write("file", b"one")
    (folder / "in").symlink_to("file")
    kinds = {entry.key: entry.kind for entry in store.list_entries()}
    other = dict.fromkeys(("out", "away", "nowhere", "fifo"), Kind.OTHER)
    assert kinds == other | {"file": Kind.FILE, "in": Kind.FILE}
    assert store.read("in", size=9) == b"one"
    for key in ("out", "away/secret"):
        with pytest.raises(Forbidden, match="leads out"):
            store.read(key, size=9)
    for key in ("away/new", "away/deeper/new"):
        with pytest.raises(Forbidden, match="leads out"):
            store.write(key, b"x")
    with pytest.raises(Forbidden):
        store.remove("away/secret")
    with pytest.raises(Conflict):
        store.read("fifo", size=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret"]


def test_a_large_folder_comes_in_pages(store: SftpStore, place: SftpServer) -> None:
    for number in range(2 * PAGE + 7):
        (Path(place.folder) / f"{number}").touch()
    assert len({entry.key for entry in store.list_entries()}) == 2 * PAGE + 7
    listing = store.list_entries()
    assert next(listing).kind is Kind.FILE
    listing.close()  # type: ignore[attr-defined]  # a generator, in fact
    assert store.stat("").kind is Kind.FOLDER


def test_nothing_stays_of_a_write_that_fails(store: SftpStore, place: SftpServer) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise RuntimeError("the disk of the caller")

    with pytest.raises(RuntimeError):
        store.write("a", Broken())
    assert list(Path(place.folder).iterdir()) == []


def test_a_cut_connection_is_made_anew(sshd: SshServer, place: SftpServer) -> None:
    with tcp_proxy(sshd.port) as proxy:
        store = Retrying(SftpStore(replace(place, port=proxy.port)), first_pause=0.01)
        content = os.urandom(3_000_000)
        store.write("large", content)
        proxy.cut()
        assert store.stat("large").size == len(content)
        proxy.bytes_left = 1_000_000
        assert b"".join(iterate_content(store, "large", chunk=500_000)) == content
        assert proxy.accepted == 3
        store.close()


def test_a_server_that_falls_silent(sshd: SshServer, place: SftpServer) -> None:
    with tcp_proxy(sshd.port) as proxy:
        store = SftpStore(replace(place, port=proxy.port), seconds=1.0)

        def answers() -> bool:
            with suppress(Unavailable):  # a busy machine may need more than the second
                return store.read("a", size=9) == b"one"
            return False

        try:
            (Path(place.folder) / "a").write_bytes(b"one")
            eventually(answers)
            proxy.stall()
            with pytest.raises(Unavailable, match="no answer in time"):
                store.read("a", size=9)
            proxy.go_on()
            eventually(answers)
        finally:
            store.close()


def test_closed_while_somebody_waits(sshd: SshServer, place: SftpServer) -> None:
    with tcp_proxy(sshd.port) as proxy:
        store = SftpStore(replace(place, port=proxy.port))
        store.write("a", b"one")
        proxy.stall()
        failed: list[Exception] = []
        asked = threading.Event()

        def read() -> None:
            asked.set()
            try:
                store.read("a", size=9)
            except Exception as error:
                failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        asked.wait()
        store.close()
        reader.join()
        assert [type(error) for error in failed] == [Unavailable]


def test_by_url(sshd: SshServer, place: SftpServer) -> None:
    given = {"user": place.user, "privateKey": place.private_key, "hostKey": place.host_key}
    store = open_store(f"sftp://127.0.0.1:{sshd.port}{place.folder}", given)
    store.write("a", b"one")
    assert (Path(place.folder) / "a").read_bytes() == b"one"
    with pytest.raises(NotFound):
        store.stat("b")
    store.close()


@needs_root
def test_a_full_disk_is_over_quota(place: SftpServer) -> None:
    """The protocol says "Failure" of it; trying again would not help."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place.folder], check=True)
    store = SftpStore(place)
    try:
        store.write("small", b"kept")
        with pytest.raises(OverQuota, match="bytes are left"):
            store.write("large", os.urandom(3_000_000))
        assert [entry.key for entry in store.list_entries()] == ["small"]
        assert os.listdir(place.folder) == ["small"]  # noqa: PTH208  as the kernel has it
    finally:
        store.close()
        subprocess.run(["umount", "-l", place.folder], check=True)
