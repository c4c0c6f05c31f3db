"""File systems that a client of the machine mounts: what is called, what its refusals mean, and that nothing stays behind.

The clients here are scripts that say what the real ones say; `tests/contract` and `tests/e2e/test_fs_native.py` use a real GlusterFS.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from paddleflow.errors import Forbidden, Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.objects import native
from paddleflow.objects.check import Stage, Unreachable, check
from paddleflow.objects.store import BAD_CREDENTIALS, NOT_SUPPORTED, ObjectStore
from paddleflow.objects.urls import (
    INVALID_PROPERTIES,
    SCHEMES,
    Properties,
    Scheme,
    Url,
    open_mounted,
    open_store,
    parse_url,
)
from tests.ordinary_account import UID, needs_root
from tests.ports import closed_port


class Clients:
    """Programs before those of the machine; the arguments of the last one that ran are in the file `asked`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        self.programs = f"{folder}/bin:{native.PROGRAMS}"

    def __call__(self, name: str, script: str) -> None:
        program = self._folder / "bin" / name
        program.write_text(f'#!/bin/sh\necho "$@" > {self._folder}/asked\n{script}\n')
        program.chmod(0o755)

    def open(self, url: str, **properties: str) -> ObjectStore:
        return open_mounted(parse_url(url), properties, self.programs)


@pytest.fixture
def client(tmp_path: Path) -> Clients:
    return Clients(tmp_path)


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().split()


def bind(tmp_path: Path, number: int) -> str:
    """A client that shows a folder of this machine, at its argument of this number."""
    (tmp_path / "share" / "team").mkdir(parents=True, exist_ok=True)
    return f'exec /bin/mount --bind {tmp_path}/share "${number}"'


@needs_root
def test_nfs_is_mounted_by_the_kernel_and_seen_by_nobody_else(tmp_path: Path, client: Clients) -> None:
    client("mount.nfs4", "")
    client("mount", bind(tmp_path, 6))
    before = Path("/proc/self/mounts").read_text()
    store = client.open("cfs://127.0.0.1:2050/exports/a b")
    words = asked(tmp_path)
    assert words[:3] == ["-t", "nfs4", "-o"]
    assert {"vers=4.1", "sec=sys", "port=2050", "soft", "nosuid", "nodev"} <= set(words[3].split(","))
    assert words[4:6] == ["127.0.0.1:/exports/a", "b"]
    store.write("team/a", b"one")
    assert (tmp_path / "share" / "team" / "a").read_bytes() == b"one"
    assert store.name == "cfs://127.0.0.1:2050/exports/a b"
    assert Path("/proc/self/mounts").read_text() == before
    assert not Path(words[-1]).parent.exists()
    store.close()


@needs_root
@pytest.mark.parametrize(("version", "kind"), [("3", "nfs"), ("4.2", "nfs4")])
def test_nfs_of_another_version(tmp_path: Path, client: Clients, version: str, kind: str) -> None:
    client(f"mount.{kind}", "")
    client("mount", bind(tmp_path, 6))
    client.open("cfs://127.0.0.1/x", version=version, security="krb5p").close()
    words = asked(tmp_path)
    assert words[1] == kind
    assert {f"vers={version}", "sec=krb5p", "port=2049"} <= set(words[3].split(","))


@pytest.mark.parametrize("properties", [{"version": "2"}, {"security": "none,exec"}, {"versoin": "3"}])
def test_properties_of_nfs_that_cannot_be(properties: dict[str, str]) -> None:
    with pytest.raises(Invalid) as raised:
        open_store("cfs://127.0.0.1/x", properties)
    assert raised.value.code == INVALID_PROPERTIES


def test_a_mount_that_does_not_come_back_is_no_matter_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def hang(url: Url, properties: Properties) -> ObjectStore:
        ended.wait()
        raise Unavailable("too late")

    monkeypatch.setitem(cast(dict[str, Scheme], SCHEMES), "cfs", replace(SCHEMES["cfs"], open=hang))
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(Unreachable) as raised:
        check(f"cfs://127.0.0.1:{server.getsockname()[1]}/x", timeout=1.0)
    ended.set()
    assert raised.value.stage is Stage.ANSWER


@needs_root
def test_afs_is_mounted_by_its_own_client(tmp_path: Path, client: Clients) -> None:
    with pytest.raises(Invalid, match="afs_mount is not installed") as raised:
        client.open("afs://host/x", username="ada", password="secret")
    assert raised.value.code == NOT_SUPPORTED
    with pytest.raises(Invalid, match="needs username and password"):
        client.open("afs://host/x", username="ada")
    client("afs_mount", bind(tmp_path, 3))
    store = client.open("afs://host/x", username="ada", password="secret")
    assert [entry.key for entry in store.list_entries()] == ["team"]
    words = asked(tmp_path)
    assert words[:2] == ["--username=ada", "--password=secret"]
    assert words[3] == "afs://host/x"
    store.close()


@needs_root
@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("mount.nfs4: access denied by server while mounting 127.0.0.1:/x", Forbidden),
        ("mount.nfs4: mounting 127.0.0.1:/x failed, reason given by server: No such file or directory", NotFound),
        ("mount.nfs4: Connection timed out", Unavailable),
        ("mount.nfs4: Connection refused", Unavailable),
        ("mount.nfs4: No such device", Invalid),
        ("mount.nfs4: Protocol not supported", Invalid),
        ("mount.nfs: requested NFS version or transport protocol is not supported", Invalid),
        ("mount.nfs: rpc.statd is not running but is required for remote locking.", Invalid),
        ("mount: /x: unknown filesystem type 'nfs4'.", Invalid),
        ("", Unavailable),
    ],
)
def test_what_a_client_says(client: Clients, said: str, meaning: type[PaddleFlowError]) -> None:
    client("mount.nfs4", "")
    client("mount", f'echo "{said}" >&2; exit 32')
    with pytest.raises(meaning) as raised:
        client.open("cfs://127.0.0.1/x")
    assert type(raised.value) is meaning
    assert "cfs://127.0.0.1/x" in raised.value.message


@needs_root
def test_wrong_credentials_are_told_apart(client: Clients) -> None:
    client("afs_mount", 'echo "Authentication failed for user ada" >&2; exit 1')
    with pytest.raises(Forbidden) as raised:
        client.open("afs://host/x", username="ada", password="wrong")
    assert raised.value.code == BAD_CREDENTIALS
    assert "wrong" not in raised.value.message


@needs_root
def test_a_client_that_hangs_is_given_up(client: Clients) -> None:
    client("mount.nfs4", "")
    client("mount", "exec sleep 600")
    with pytest.raises(Unavailable, match=r"not mounted within 0\.2 s"):
        native.open_mount(native.mount_nfs("cfs://h/x", "h", 2049, "x", wait=True), 0.2, client.programs)


@needs_root
def test_a_path_that_leads_out_of_the_mount_is_refused(tmp_path: Path, client: Clients) -> None:
    client("mount.glusterfs", "")
    client("mount", bind(tmp_path, 6))
    (tmp_path / "share" / "out").symlink_to("/etc")
    with pytest.raises(Forbidden):
        client.open("glusterfs://h:v/out")
    with pytest.raises(NotFound, match="no folder 'absent'"):
        client.open("glusterfs://h:v/absent")
    client.open("glusterfs://h:v/team").close()


@pytest.mark.parametrize(
    "url", ["glusterfs://host", "glusterfs://host:", "glusterfs://-o:v", "glusterfs://h:a,b", "cfs://-oexec/x"]
)
def test_names_that_a_program_could_mistake(url: str) -> None:
    with pytest.raises(Invalid) as raised:
        open_store(url)
    assert raised.value.code == "InvalidFileSystemParamsURL"


@needs_root
def test_an_ordinary_account_is_told_to_ask_root() -> None:
    script = f"""
import os
from paddleflow.objects import native
native.shutil.which = lambda *_, **__: "/bin/true"
os.setuid({UID})
try:
    native.open_mount(native.mount_nfs("cfs://h/x", "h", 2049, "x", wait=False))
except native.Forbidden as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "by root only" in done.stdout


def test_the_stage_that_failed() -> None:
    with closed_port() as port, pytest.raises(Unreachable) as raised:
        check(f"cfs://127.0.0.1:{port}/x")
    assert raised.value.stage is Stage.PORT
    with pytest.raises(Unreachable) as raised:
        check("glusterfs://no-such-host.invalid:v")
    assert raised.value.stage is Stage.NAME
    with pytest.raises(Unreachable) as raised:
        check("afs://host/x", {"username": "ada", "password": "secret"})
    assert raised.value.stage is Stage.CLIENT
    assert os.geteuid() != 0 or "afs_mount is not installed" in raised.value.message
