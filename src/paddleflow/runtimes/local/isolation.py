"""Isolation of the platform's users from each other on one machine, when the server is root.

A job of anybody but the platform's root runs under a user number of that user alone, cannot gain privileges, and lives in a
mount namespace in which it sees its own job's folder and storages, but not the data folder, `/home`, other users' processes, or
anybody else's `/tmp` and `/dev/shm`. Files of its storages keep their owner on the disk: a storage is mounted with its owner
mapped to the user's number (an id-mapped mount, Linux 5.12). A child of the keeper does all that before it becomes the command.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH103, PTH116

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import NamedTuple

from paddleflow.runtimes.local.mounts import MountTable
from paddleflow.runtimes.local.namespaces import NEW_USERS, call

PRIVATE = ("/tmp", "/dev/shm")  # noqa: S108 — these are what it replaces
HIDDEN = ("/home",)
_NO_NEW_PRIVILEGES = 38
_PROC_FLAGS = 2 | 4 | 8  #: no set-user-ID programs, devices or programs at all


class Isolation(NamedTuple):
    """Of one launch."""

    uid: int  #: also its group
    data: str  #: the keeper's data folder, which it must not see
    folder: str  #: the job's folder in it, which it must
    processes: int  #: that the user may have at once; 0: as many as the machine allows

    def cover(self, table: MountTable) -> None:
        """Hide what is others', and show the job's folder."""
        folder = os.open(self.folder, os.O_PATH | os.O_CLOEXEC)
        closed = closed_parent(self.data)
        try:
            for private in PRIVATE:
                table.cover(private, b"mode=1777", writable=True)
            for hidden in (*HIDDEN, closed):  # what was below a private folder is gone already
                table.cover(hidden, b"mode=0755,size=1m")
            os.makedirs(self.folder, exist_ok=True)
            table.bind(folder, self.folder)
        finally:
            os.close(folder)
        table.mount("proc", "/proc", _PROC_FLAGS, "proc", b"hidepid=2")

    def become(self) -> None:
        """The user, for good."""
        if self.processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (self.processes, self.processes))
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def closed_parent(data: str) -> str:
    """The data folder, or the uppermost folder above it that others may not enter: their way to the job's folder."""
    real = os.path.realpath(data)
    parts = real.split("/")
    for count in range(2, len(parts)):
        above = "/".join(parts[:count])
        if not os.stat(above).st_mode & 0o001:
            return above
    return real


class IdMaps:
    """User namespaces that map an owner on the disk to a user number, one for each pair; at most `MOST` stay open."""

    MOST = 64

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._open: dict[tuple[int, int], int] = {}

    def get(self, owner: int, uid: int) -> int:
        """A descriptor of the namespace; OSError when this machine has none."""
        key = owner, uid
        if key not in self._open:
            if len(self._open) >= self.MOST:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[key] = self._make(owner, uid)
        return self._open[key]

    def _make(self, owner: int, uid: int) -> int:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                call(self._libc, "unshare", NEW_USERS)
                os.write(writer, b"x")
                signal.pause()
            finally:
                os._exit(1)
        try:
            os.close(writer)
            os.read(reader, 1)
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{pid}/{name}", "w") as file:
                    file.write(f"{owner} {uid} 1")
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(reader)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
