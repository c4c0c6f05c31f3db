"""podman with a store of its own, and an image that has busybox and nothing else: for tests of containers on one machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from paddleflow.settings import LocalSettings

IMAGE = "localhost/paddleflow-test:1"
APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "env",
    "id",
    "touch",
    "ls",
    "pwd",
    "test",
    "tail",
    "head",
    "ps",
    "dd",
    "kill",
    "chmod",
)
#: runc and cgroupfs work on every machine; a test may not raise its own limits, so containers get those that it has.
OPTIONS = "--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"


class ContainerEngine:
    """Containers and images below one folder, seen by nobody else."""

    def __init__(self, folder: Path) -> None:
        self._run = tempfile.mkdtemp(prefix="pf-")  # podman takes no path of more than 50 characters for it
        store = f"--root {folder}/store --runroot {self._run} --tmpdir {self._run}/tmp --storage-driver vfs"
        self.command = f"podman {store} --runtime runc --cgroup-manager cgroupfs"
        self.folder = folder

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [*shlex.split(self.command), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"podman {words}: {done.stderr}"
        return done.stdout

    def names(self) -> list[str]:
        """Of all containers, also those that have ended."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    def settings(self, **more: str) -> LocalSettings:
        given = {"containers": self.command, "container_options": OPTIONS, **more}
        return LocalSettings(**given)  # type: ignore[arg-type]  # all of them are texts

    def remove(self) -> None:
        self("rm", "--all", "--force", "--time", "0")
        self("system", "reset", "--force")
        shutil.rmtree(self._run, ignore_errors=True)


def container_engine(folder: Path) -> ContainerEngine:
    """Skips where podman, runc or busybox is missing, or this account may not use them."""
    for part in ("podman", "runc", "busybox"):
        if shutil.which(part) is None:
            pytest.skip(f"{part} is not installed (Debian: apt-get install podman runc catatonit busybox-static)")
    if os.geteuid() != 0:
        pytest.skip("containers are tried as root")
    engine = ContainerEngine(folder)
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(shutil.which("busybox") or "", "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(made)
    engine("import", "--quiet", "--change", "ENV PATH=/bin", "--change", "ENV FROM_IMAGE=yes", str(archive), IMAGE)
    return engine
