"""Sandboxes without root: in user namespaces, where the kernel lets an ordinary account make them.

All users' jobs have the account's own number, so what separates them is what they see: processes and shared memory of their
sandbox, and a machine that cannot be changed, without the account's home, its sessions and its data folder. The thread of `Restricted`
is of no use here, as a process with two threads may not enter a user namespace: children are forked, one that makes or enters the
namespaces, and by it one that becomes the command and is, by CLONE_PARENT, a child of the keeper all the same. Nothing is used again.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH110, PTH111

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from paddleflow.runtimes.local import seccomp
from paddleflow.runtimes.local.isolation import Account, View
from paddleflow.runtimes.local.mounts import Mount, MountTable
from paddleflow.runtimes.local.namespaces import (
    NEW_IPC,
    NEW_MOUNTS,
    NEW_PROCESSES,
    NEW_USERS,
    become_another,
    call,
    unshare,
)
from paddleflow.runtimes.local.process import Refused
from paddleflow.runtimes.local.sandbox import NewSandbox, Sandbox, detach, mount_proc, pause

_CLONE = {"x86_64": 56, "aarch64": 220}
_SIBLING = 0x8000 | signal.SIGCHLD  #: CLONE_PARENT: a child of our parent
#: Where engines of containers listen, for groups that the account may be in: what they start is not isolated.
ENGINES = ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")


def own_folders() -> list[str]:
    """Where the account has its files and its sessions, which its users must not see."""
    return [os.path.expanduser("~"), f"/run/user/{os.geteuid()}", "/var/spool/cron", "/var/mail"]


class UserSandboxDriver:
    """The same as `sandbox.RootSandboxDriver`, for an ordinary account."""

    def __init__(self) -> None:
        seccomp.architecture()
        self._libc = ctypes.CDLL(None, use_errno=True)

    def make(self, view: View, environment: Mapping[str, str], *, kept: bool) -> NewSandbox:
        reader, keeper = os.pipe()

        def prepare() -> None:
            unshare(users=True, others=NEW_PROCESSES | NEW_IPC)
            self._cover(MountTable(self._libc), view, ())

        def become() -> None:
            mount_proc(MountTable(self._libc))
            seccomp.install(self._libc)
            pause(environment, reader)

        try:
            return NewSandbox(self._fork(prepare, become), keeper=keeper)
        except BaseException:
            os.close(keeper)
            raise
        finally:
            os.close(reader)

    def is_clean(self, sandbox: Sandbox) -> bool:
        """Never: whether it is would cost as much as a new one."""
        return False

    def spawn(
        self,
        sandbox: Sandbox,
        account: Account,
        mounts: Sequence[Mount],
        maps: Mapping[str, int],
        spawn: Callable[[], int],
    ) -> int:
        """The pid of a child in a sandbox that calls `spawn`, which becomes the command and never returns."""
        view = sandbox.view
        assert view is not None, "those of an earlier keeper are not entered"

        def prepare() -> None:
            handle = os.pidfd_open(sandbox.pid)
            call(self._libc, "setns", handle, NEW_USERS)
            call(self._libc, "unshare", NEW_MOUNTS)
            self._cover(MountTable(self._libc), view, mounts)
            call(self._libc, "setns", handle, NEW_PROCESSES | NEW_IPC)

        def become() -> None:
            mount_proc(MountTable(self._libc))
            seccomp.install(self._libc)
            spawn()

        return self._fork(prepare, become)

    def _cover(self, table: MountTable, view: View, mounts: Sequence[Mount]) -> None:
        table.make_private()
        trees = [(mount, detach(table, mount, -1)) for mount in mounts]
        table.make_read_only()
        view.cover(table)
        for socket in ENGINES:
            if os.path.exists(socket):
                table.mount("/dev/null", socket, 1 << 12)
        while trees:
            table.attach_at(*trees.pop(0))
        table.finish()

    def _fork(self, prepare: Callable[[], None], become: Callable[[], None]) -> int:
        """A child of the keeper that becomes something after another child has prepared the namespaces that it is born into."""
        reader, writer = os.pipe()
        first = os.fork()
        if first == 0:
            become_another(writer, lambda: self._prepare(writer, prepare, become))
        os.close(writer)
        try:
            said = b""
            while piece := os.read(reader, 4096):
                said += piece
        finally:
            os.close(reader)
        os.waitpid(first, 0)
        number, _, fault = said.partition(b"\n")
        if not number.isdigit():
            raise Refused(said.decode("utf-8", "replace") or "cannot start: its sandbox cannot be entered")
        if fault:
            os.waitpid(int(number), 0)
            raise Refused(fault.decode("utf-8", "replace"))
        return int(number)

    @staticmethod
    def _prepare(writer: int, prepare: Callable[[], None], become: Callable[[], None]) -> None:
        prepare()
        # It says who it is itself: what comes after it may be said by the next one.
        reader, gate = os.pipe()
        pid = ctypes.PyDLL(None, use_errno=True).syscall(_CLONE[os.uname().machine], _SIBLING, 0, 0, 0, 0)
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if pid == 0:
            os.close(gate)
            os.read(reader, 1)  # until its number is said
            become_another(writer, become)
        os.write(writer, f"{pid}\n".encode())
        os._exit(0)
