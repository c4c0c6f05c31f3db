"""Mounts of stores other than S3, and of one store inside another."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.lib.hdfs import MiniCluster
from tests.hdfs_clusters import fresh_folder, hdfs_cluster
from tests.mounts import mounted, needs_fuse
from tests.patience import eventually
from tests.ssh_servers import ssh_server

pytestmark = [needs_fuse, pytest.mark.timeout(300)]
__all__ = ["hdfs_cluster"]


def use(top: Path) -> None:
    """What any store can do, and what one without metadata refuses."""
    (top / "folder").mkdir()
    (top / "folder" / "new\nline").write_bytes(b"one")
    with (top / "folder" / "new\nline").open("ab") as file:
        file.write(b" two")
    (top / "folder" / "new\nline").rename(top / "moved")
    assert (top / "moved").read_bytes() == b"one two"
    assert sorted(each.name for each in top.iterdir()) == ["folder", "moved"]
    with (top / "moved").open("rb") as file:
        (top / "moved").unlink()
        assert file.read() == b"one two"
    (top / "folder").rmdir()
    (top / "large").write_bytes(bytes(range(256)) * 40_000)
    assert (top / "large").read_bytes() == bytes(range(256)) * 40_000
    with pytest.raises(OSError) as raised:
        (top / "link").symlink_to("large")
    assert raised.value.errno == errno.ENOTSUP
    with pytest.raises(OSError) as raised:
        os.setxattr(top / "large", "user.x", b"y")
    assert raised.value.errno == errno.ENOTSUP
    with pytest.raises(OSError) as raised:
        os.mkfifo(top / "fifo")
    assert raised.value.errno == errno.ENOTSUP
    assert [each.name for each in top.iterdir()] == ["large"]


def test_sftp(tmp_path: Path) -> None:
    with ssh_server() as sshd:
        (tmp_path / "key").write_text(sshd.private_key)
        words = ["-o", f"user={sshd.user}", "-o", f"privateKey=@{tmp_path}/key", "-o", f"hostKey={sshd.host_key}"]
        url = f"sftp://127.0.0.1:{sshd.port}{sshd.folder}"
        with mounted(url, *words, "--cache-dir", str(tmp_path / "cache")) as mount:
            use(mount.folder)
            assert (sshd.folder / "large").stat().st_size == 256 * 40_000
            if os.geteuid() == 0:
                fill(sshd.folder / "full", mount.folder / "full")
            assert mount.stats()["internal_errors"] == 0


def fill(there: Path, here: Path) -> None:
    """A disk that is full: the program is told so, and what was there stays."""
    there.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(there)], check=True)
    try:
        eventually(here.exists, "the mount sees the folder")
        (here / "small").write_bytes(b"kept")
        with pytest.raises(OSError) as raised:
            (here / "large").write_bytes(bytes(range(256)) * 12_000)
        assert raised.value.errno == errno.ENOSPC
        assert [each.name for each in there.iterdir()] == ["small"]
        assert (here / "small").read_bytes() == b"kept"
    finally:
        subprocess.run(["umount", "-l", str(there)], check=True)


@pytest.mark.xdist_group("hdfs")
def test_hdfs(hdfs_cluster: MiniCluster, tmp_path: Path) -> None:
    from paddleflow.objects.urls import open_store

    url = f"hdfs://127.0.0.1:{hdfs_cluster.port}/{fresh_folder()}"
    store = open_store(url)
    store.make_folder("x")
    store.remove_folder("x")
    with mounted(url, "--cache-dir", str(tmp_path / "cache")) as mount:
        use(mount.folder)
        assert store.stat("large").size == 256 * 40_000
        with pytest.raises(OSError) as raised:  # a name that HDFS cannot hold
            (mount.folder / "12:00").write_bytes(b"x")
        assert raised.value.errno == errno.EINVAL
        assert [each.name for each in mount.folder.iterdir()] == ["large"]
    store.close()


def test_a_store_inside_another(tmp_path: Path) -> None:
    """A folder with an SFTP server inside: one tree, whose parts stay where they are."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "own").write_bytes(b"own")
    with ssh_server() as sshd:
        (tmp_path / "key").write_text(sshd.private_key)
        (sshd.folder / "there").write_bytes(b"away")
        words = ["-o", f"user={sshd.user}", "-o", f"privateKey=@{tmp_path}/key", "-o", f"hostKey={sshd.host_key}"]
        link = f"sets/away=sftp://127.0.0.1:{sshd.port}{sshd.folder}"
        with mounted(f"file://{host}", "--link", link, *words, "--cache-dir", str(tmp_path / "cache")) as mount:
            top = mount.folder
            assert (top / "sets" / "away" / "there").read_bytes() == b"away"
            (top / "sets" / "away" / "new").write_bytes(b"new")
            assert (sshd.folder / "new").read_bytes() == b"new"
            with pytest.raises(OSError) as raised:
                (top / "own").rename(top / "sets" / "away" / "own")
            assert raised.value.errno == errno.EXDEV
            shutil.move(top / "own", top / "sets" / "away" / "own", copy_function=shutil.copyfile)
            assert (sshd.folder / "own").read_bytes() == b"own"
            assert not (host / "own").exists()
            with pytest.raises(OSError):
                (top / "sets" / "away").rmdir()
            assert mount.stats()["internal_errors"] == 0
