"""Mount namespaces for attempts: two ways to spawn in one.

`Namespaces`, as root: the keeper steps into a new one, mounts, spawns, and steps back. What is spawned meanwhile lives in it and
is its only user, so it goes with the attempt. A tenth of a millisecond. Whatever the keeper opens by its path in between must
not be below a target: see `Launcher`.

`fork_into`, everybody: a child of the keeper makes the namespace (and a user namespace, without root), mounts, and becomes the
command; it keeps its user number. About a millisecond.
"""

# The keeper starts without pathlib, so:

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

from paddleflow.runtimes.local.mounts import MountTable
from paddleflow.runtimes.local.process import Refused, reason

NEW_MOUNTS, NEW_USERS, NEW_PROCESSES, NEW_IPC = 0x00020000, 0x10000000, 0x20000000, 0x08000000
View = Callable[[MountTable], None]  #: makes the mounts of a namespace
_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


def call(libc: ctypes.CDLL, name: str, *arguments: object) -> None:
    """A function of the C library; OSError when it fails."""
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Namespaces:
    """In and out, for one keeper. It has one thread, so it may change its own namespace for a moment."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._home = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        self._root = os.open("/", os.O_RDONLY)  # stepping back leads to the namespace's root, which need not be ours

    def are_possible(self) -> bool:
        """Whether it works here, tried by a child: who cannot step back is lost."""

        def attempt() -> None:
            self.enter(lambda table: table.apply(()))
            self.leave()

        return _works(attempt)

    def enter(self, mount: View) -> None:
        """Step into a new namespace and mount there; Refused, and at home, when that cannot be done."""
        call(self._libc, "unshare", NEW_MOUNTS)
        try:
            mount(MountTable(self._libc))
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Step back."""
        call(self._libc, "setns", self._home, NEW_MOUNTS)
        os.fchdir(self._root)
        os.chroot(".")


def unshare(*, users: bool, others: int = 0) -> ctypes.CDLL:
    """Into a new mount namespace, and others; with `users` also into a user namespace in which everybody keeps their numbers."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    call(libc, "unshare", NEW_MOUNTS | others | (NEW_USERS if users else 0))
    if users:
        for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
    return libc


def can_fork_into(*, users: bool) -> bool:
    """Whether this machine allows it, tried by a child."""
    return _works(lambda: MountTable(unshare(users=users)).apply(()))


def fork_into(view: View, streams: Callable[[], None], run: Callable[[], None], *, users: bool) -> int:
    """The pid of a child that opens its streams, makes the namespace and its view, and runs `run`, which becomes the command."""

    def become() -> None:
        streams()
        view(MountTable(unshare(users=users)))
        run()

    return fork_and(become)


def fork_and(become: Callable[[], None]) -> int:
    """The pid of a child that leads a session and becomes another program; Refused says why it could not, and it has ended then."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_another(writer, become)
    os.close(writer)
    try:
        said = b""
        while piece := os.read(reader, 4096):
            said += piece
    finally:
        os.close(reader)
    if said:
        os.waitpid(pid, 0)
        raise Refused(said.decode("utf-8", "replace"))
    return pid


def become_another(writer: int, become: Callable[[], None]) -> None:
    """In the child; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        become()
    except Refused as refusal:
        os.write(writer, str(refusal).encode()[:4000])
    except OSError as error:
        os.write(writer, f"cannot start: {reason(error)}".encode()[:4000])
    except BaseException as error:
        os.write(writer, f"cannot start: {error!r}".encode()[:4000])
    os._exit(125)


def _works(attempt: Callable[[], None]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
