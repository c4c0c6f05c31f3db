"""Sandboxes: the namespaces that the members of one isolated job share on this machine, each held by a process that only waits.

As in a pod: the first process of a sandbox, `pause`, does nothing but take in orphans, and when it is killed the kernel kills
everything inside. A sandbox has its own processes, shared memory, `/proc`, `/tmp` and view of the machine, with the folders of its
jobs; a member with storages has, on top of that, a mount namespace of its own. Making a sandbox costs a few times what a launch
costs, so the next job of the same user gets it if the last one left nothing in it: no process, no file, no shared memory.

The next keeper finds the sandboxes of a killed one by the environment of `pause`: those in which an attempt lives are kept until it
has ended, the others are killed. Where none comes, `pause` ends by itself when it is alone: it waits at a pipe that the keeper holds.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH108, PTH120, PTH208

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from paddleflow.runtimes.local import process, procfs
from paddleflow.runtimes.local.isolation import PRIVATE, Account, Restricted, View
from paddleflow.runtimes.local.mounts import Mount, MountTable, open_source
from paddleflow.runtimes.local.namespaces import NEW_IPC, NEW_MOUNTS, NEW_PROCESSES, call, fork_and
from paddleflow.runtimes.local.process import Refused, reason

MOST_KEPT = 32  #: sandboxes that may be used again: each holds descriptors of the keeper
MOST_USES = 100  #: jobs of a user that one sandbox serves: their folders stay mounted in it
IDLE = 10.0  #: seconds; what nobody wanted between two checks goes
SHELL = "/bin/bash"
#: Without the keeper, look every second whether there is anybody else. No process is started for that: its user may be at a limit.
PAUSE = (SHELL, "-pc", "read -r; exec <>/proc/self/fd/0; while kill -0 -- -1; do read -rt 1; done")
PLAIN_PAUSE = ("sleep", "2147483647")  #: on machines without that shell: it stays until the next keeper
_INSIDE = NEW_MOUNTS | NEW_PROCESSES | NEW_IPC
_SHARED_MEMORY = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")
_PRIVATE_MOUNTS = (1 << 14) | (1 << 18)
_PROC_FLAGS = 2 | 4 | 8  #: no set-user-ID programs, devices or programs at all
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  #: on every architecture
_SET_STRING, _CREATE, _CLOSE_ON_EXEC = 1, 6, 1

Later = Callable[[float, Callable[[], None]], None]


class NewSandbox(NamedTuple):
    """A new sandbox."""

    pid: int  #: of its first process
    root: int = -1  #: a descriptor of its root folder; -1: it cannot be looked at, and is not used again
    memory: tuple[int, ...] = ()  #: descriptors of what tells its shared memory
    keeper: int = -1  #: a descriptor by which it knows that its keeper lives


class SandboxDriver(Protocol):
    """How sandboxes are made, entered and checked."""

    def make(self, view: View, environment: Mapping[str, str], *, kept: bool) -> NewSandbox: ...

    def is_clean(self, sandbox: Sandbox) -> bool: ...

    def spawn(
        self,
        sandbox: Sandbox,
        account: Account,
        mounts: Sequence[Mount],
        maps: Mapping[str, int],
        spawn: Callable[[], int],
    ) -> int: ...


class Sandbox:
    """One of them."""

    __slots__ = (
        *("attempts", "child", "dying", "folder", "job", "left", "made", "pid"),
        *("round", "ticks", "uid", "uses", "view"),
    )

    def __init__(self, made: NewSandbox, uid: int, view: View | None) -> None:
        self.made = made
        self.pid = made.pid  #: of its first process
        self.folder = ""  #: of its job, when that is mounted
        self.ticks = 0  #: when that began, where it is not our child
        self.uid = uid
        self.view = view  #: None: that of an earlier keeper
        self.child = view is not None
        self.job = ""  #: whose it is; empty: nobody's
        self.attempts: set[str] = set()
        self.uses = 0
        self.round = 0  #: of `Sandboxes`, when its last job ended
        self.left = False  #: an attempt has ended while others run
        self.dying = False

    def close(self) -> None:
        """Give its descriptors back."""
        for each in (self.made.root, *self.made.memory, self.made.keeper):
            if each >= 0:
                os.close(each)
        self.made = NewSandbox(self.pid)


class RootSandboxDriver:
    """Steps of the restricted thread in and out of sandboxes. As root."""

    def __init__(self, restricted: Restricted) -> None:
        self._restricted = restricted
        self._libc = restricted.libc
        self._home = [(os.open(f"/proc/self/ns/{name}", os.O_RDONLY), flag) for name, flag in _NAMES.items()]
        self._root = os.open("/", os.O_RDONLY)
        self._private = [os.path.realpath(folder) for folder in PRIVATE]  # no link may lead out of a sandbox's root
        self._is_quick = restricted.run(self._can_be_quick)

    def make(self, view: View, environment: Mapping[str, str], *, kept: bool) -> NewSandbox:
        """A new sandbox; one that may be kept can be looked at."""
        return self._restricted.run(lambda: self._make(view, environment, kept))

    def _make(self, view: View, environment: Mapping[str, str], kept: bool) -> NewSandbox:
        pid, (reader, keeper) = 0, os.pipe()
        try:
            call(self._libc, "unshare", _INSIDE)
            table = MountTable(self._libc)
            table.mount("none", "/", _PRIVATE_MOUNTS)
            view.cover(table)
            os.chdir("/")
            if self._is_quick:
                streams = [(os.POSIX_SPAWN_DUP2, reader, 0), *SILENT[1:]]
                pid = os.posix_spawn(SHELL, PAUSE, environment, file_actions=streams, setsid=True, setsigmask=())
                self._mount_proc(table, pid)
            else:
                pid = fork_and(partial(_become_pause, table, environment, reader))
            return self._inspectable(pid, keeper) if kept else NewSandbox(pid, keeper=keeper)
        except BaseException:
            os.close(keeper)
            if pid:
                os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(reader)
            self._leave()

    @staticmethod
    def _inspectable(pid: int, keeper: int) -> NewSandbox:
        """From inside: what tells shared memory tells that of whoever opens it."""
        opened = []
        try:
            opened.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
            opened += (os.open(file, os.O_RDONLY | os.O_CLOEXEC) for file in _SHARED_MEMORY)
        except OSError:  # too few descriptors, or a kernel without them
            for each in opened:
                os.close(each)
            return NewSandbox(pid, keeper=keeper)
        return NewSandbox(pid, opened[0], tuple(opened[1:]), keeper)

    def _can_be_quick(self) -> bool:
        """Whether a sandbox can be made without a fork: Linux 6.17, and the shell, which waits for children that nobody else does."""
        context = self._open_proc(os.getpid())
        if context < 0:
            return False
        os.close(context)
        return os.access(SHELL, os.X_OK)

    def _open_proc(self, pid: int) -> int:
        """A file system with the processes that one of them sees; negative where only they can mount it."""
        context: int = self._libc.syscall(_FSOPEN, b"proc", _CLOSE_ON_EXEC)
        path = f"/proc/{pid}/ns/pid".encode()
        if context >= 0 and self._libc.syscall(_FSCONFIG, context, _SET_STRING, b"pidns", path, 0) < 0:
            os.close(context)
            return -1
        return context

    def _mount_proc(self, table: MountTable, pid: int) -> None:
        context = self._open_proc(pid)
        try:
            if self._libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0) < 0:
                raise OSError(ctypes.get_errno(), "cannot make /proc")
            table.attach(self._libc.syscall(_FSMOUNT, context, _CLOSE_ON_EXEC, _PROC_FLAGS), "/proc")
        finally:
            os.close(context)

    def _leave(self) -> None:
        for namespace, flag in self._home:
            call(self._libc, "setns", namespace, flag)
        os.fchdir(self._root)
        os.chroot(".")

    def _enter(self, sandbox: Sandbox, which: int) -> None:
        handle = os.pidfd_open(sandbox.pid)
        try:
            call(self._libc, "setns", handle, which)
        finally:
            os.close(handle)

    def is_clean(self, sandbox: Sandbox) -> bool:
        """Whether a job that has ended left nothing. Without stepping in, which would cost more than the look."""
        view, (_, root, memory, _) = sandbox.view, sandbox.made
        if view is None or root < 0:
            return False
        try:
            return (
                not any(name.isdigit() and name != "1" for name in _names(root, "/proc"))
                and all(
                    set(_names(root, real)) <= view.leads_from(folder)
                    for folder, real in zip(PRIVATE, self._private, strict=True)
                )
                and all(os.pread(file, 4096, 0).count(b"\n") <= 1 for file in memory)
            )
        except OSError:
            return False

    def spawn(
        self,
        sandbox: Sandbox,
        account: Account,
        mounts: Sequence[Mount],
        maps: Mapping[str, int],
        spawn: Callable[[], int],
    ) -> int:
        """What `spawn` gives, called as the user inside a sandbox with these mounts; Refused names one that is not possible."""
        return self._restricted.run(lambda: self._spawn(sandbox, account, mounts, maps, spawn))

    def _spawn(
        self,
        sandbox: Sandbox,
        account: Account,
        mounts: Sequence[Mount],
        maps: Mapping[str, int],
        spawn: Callable[[], int],
    ) -> int:
        table = MountTable(self._libc)
        trees: list[tuple[Mount, int]] = []
        job, *others = mounts
        wanted = others if sandbox.folder == job.target else mounts
        try:
            # Out here: inside, what they are copies of is hidden.
            trees += ((mount, detach(table, mount, maps.get(mount.source, -1))) for mount in wanted)
            self._enter(sandbox, _INSIDE)
            if sandbox.folder != job.target:
                self._attach_job(table, *trees.pop(0))
                sandbox.folder = job.target
            if trees:
                call(self._libc, "unshare", NEW_MOUNTS)
                view = sandbox.view
                table.own((*PRIVATE, *(view.hidden if view is not None else ())))
                while trees:
                    table.attach_at(*trees.pop(0))
                table.finish()
            self._restricted.become(account)
            return spawn()
        finally:
            self._restricted.return_to_root()
            for _, tree in trees:
                os.close(tree)
            self._leave()

    @staticmethod
    def _attach_job(table: MountTable, job: Mount, tree: int) -> None:
        """In what the view covers, where nobody but root can put anything."""
        try:
            for folder in (os.path.dirname(job.target), job.target):
                with suppress(FileExistsError):
                    os.mkdir(folder)
        except BaseException:
            os.close(tree)
            raise
        table.attach(tree, job.target)


def _names(root: int, folder: str) -> list[str]:
    """What lies in a folder of a sandbox, seen from outside."""
    opened = os.open(folder[1:], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        return os.listdir(opened)
    finally:
        os.close(opened)


_NAMES = {"mnt": NEW_MOUNTS, "pid": NEW_PROCESSES, "ipc": NEW_IPC}
SILENT = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]


def mount_proc(table: MountTable) -> None:
    """The processes of the sandbox, by one of them."""
    table.mount("proc", "/proc", _PROC_FLAGS, "proc")


def _become_pause(table: MountTable, environment: Mapping[str, str], reader: int) -> None:
    """In a child that is the first process of its namespace."""
    mount_proc(table)
    pause(environment, reader)


def pause(environment: Mapping[str, str], reader: int) -> None:
    """Become it, at the reading end of the keeper's pipe. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what nobody else waits for is gone at once
    process.apply(SILENT)
    os.dup2(reader, 0)
    command = PAUSE if os.access(SHELL, os.X_OK) else PLAIN_PAUSE
    process.execute(command[0], list(command), environment, "/", "")


def detach(table: MountTable, mount: Mount, users: int) -> int:
    source = open_source(mount)
    try:
        tree, mapped = table.detach(source, users=users, read_only=mount.read_only)
        if not mapped and os.fstat(source).st_mode & 0o005 != 0o005:
            os.close(tree)
            raise Refused(
                f"cannot mount {mount.source} at {mount.target} for an isolated job: its file system cannot show files as those "
                f"of another user, and the mode {os.fstat(source).st_mode & 0o777:o} of the folder keeps others out"
            )
        return tree
    except OSError as error:
        raise Refused(f"cannot mount {mount.source} at {mount.target}: {reason(error)}") from error
    finally:
        os.close(source)


class Sandboxes:
    """Those of one keeper: which job has which."""

    def __init__(self, keeper: str, sign: str, later: Later) -> None:
        self._sign = sign  #: a file that is there as long as there may be sandboxes
        self.driver: SandboxDriver | None = None  #: None: jobs are not isolated, or in another way
        self._keeper = keeper
        self._later = later
        self._all: dict[int, Sandbox] = {}  #: by their first process, until that is gone
        self._of: dict[str, Sandbox] = {}  #: by attempt
        self._jobs: dict[str, Sandbox] = {}
        self._idle: dict[int, list[Sandbox]] = {}  #: by user
        self._round = 0
        self._scheduled = False

    def lease(self, attempt: str, job: str, uid: int, view: View) -> Sandbox:
        """The sandbox of a job, for one more of its attempts."""
        sandbox = self._jobs.get(job)
        if sandbox is None or sandbox.dying or sandbox.uid != uid:
            sandbox = self._take_idle(uid, view) or self._make(uid, view)
            sandbox.job = job
            sandbox.uses += 1
            self._jobs[job] = sandbox
        sandbox.attempts.add(attempt)
        self._of[attempt] = sandbox
        return sandbox

    def _take_idle(self, uid: int, view: View) -> Sandbox | None:
        waiting = self._idle.get(uid, [])
        while waiting:
            sandbox = waiting.pop()
            if sandbox.view == view and not sandbox.dying:
                return sandbox
            self._kill(sandbox)
        self._idle.pop(uid, None)
        return None

    def environment(self, uid: int) -> dict[str, str]:
        return {procfs.KEEPER: self._keeper, procfs.SANDBOX: str(uid), "PATH": "/usr/bin:/bin"}

    def sign(self) -> None:
        """From now on the next keeper searches for sandboxes of this one."""
        os.close(os.open(self._sign, os.O_WRONLY | os.O_CREAT, 0o600))

    def _make(self, uid: int, view: View) -> Sandbox:
        assert self.driver is not None, "only where it was found possible"
        if not self._all:
            self.sign()
        made = self.driver.make(view, self.environment(uid), kept=len(self._all) < MOST_KEPT)
        sandbox = self._all[made.pid] = Sandbox(made, uid, view)
        return sandbox

    def leave(self, attempt: str) -> bool:
        """An attempt has ended; whether nothing of its sandbox has to die before that can be said."""
        sandbox = self._of.get(attempt)
        if sandbox is None:
            return True
        sandbox.attempts.discard(attempt)
        sandbox.left = bool(sandbox.attempts)
        if not sandbox.attempts and not sandbox.dying:
            self._jobs.pop(sandbox.job, None)
            sandbox.job = ""
            if not self._keep(sandbox):
                self._kill(sandbox)
        if sandbox.dying and not self._is_gone(sandbox):
            return False
        del self._of[attempt]
        return True

    def drop(self, attempt: str) -> None:
        """It takes too long to die."""
        self._of.pop(attempt, None)

    def _keep(self, sandbox: Sandbox) -> bool:
        if self.driver is None or not sandbox.child or sandbox.uses >= MOST_USES or not self.driver.is_clean(sandbox):
            return False
        sandbox.round = self._round
        self._idle.setdefault(sandbox.uid, []).append(sandbox)
        if not self._scheduled:
            self._scheduled = True
            self._later(IDLE, self._expire)
        return True

    def _expire(self) -> None:
        """Kill what nobody wanted since the last check."""
        self._scheduled = False
        for uid, waiting in list(self._idle.items()):
            for sandbox in [each for each in waiting if each.round < self._round]:
                waiting.remove(sandbox)
                self._kill(sandbox)
            if not waiting:
                del self._idle[uid]
        self._round += 1
        if self._idle:
            self._scheduled = True
            self._later(IDLE, self._expire)

    def _kill(self, sandbox: Sandbox) -> None:
        sandbox.dying = True
        sandbox.close()
        with suppress(OSError):
            os.kill(sandbox.pid, signal.SIGKILL)

    def _is_gone(self, sandbox: Sandbox) -> bool:
        if sandbox.child:
            return sandbox.pid not in self._all
        seen = procfs.stat(sandbox.pid)
        return seen is None or seen.ticks != sandbox.ticks or seen.state in "ZX"

    def is_dying(self, attempt: str) -> bool:
        """Whether the end of an attempt waits for its sandbox."""
        sandbox = self._of.get(attempt)
        return sandbox is not None and sandbox.dying and not self._is_gone(sandbox)

    def reaped(self, pid: int) -> None:
        """A child of the keeper has ended."""
        sandbox = self._all.pop(pid, None)
        if sandbox is not None:
            sandbox.dying = True
            sandbox.close()

    def orphans(self) -> list[int]:
        """Processes whose parents have ended, in sandboxes that other members still use."""
        shared = [sandbox.pid for sandbox in self._all.values() if sandbox.left]
        return [child for pid in shared for child in procfs.children(pid)]

    def recover(self, living: Mapping[str, int]) -> None:
        """Take over from a keeper that was killed; `living` are the main processes of attempts that still run."""
        if not os.path.lexists(self._sign):
            return
        homes = {name: procfs.namespace(pid) for name, pid in living.items()}
        for seen, uid in procfs.sandboxes(self._keeper):
            mine = procfs.namespace(seen.pid)
            attempts = {name for name, home in homes.items() if home is not None and home == mine}
            if not attempts:
                with suppress(OSError):
                    os.kill(seen.pid, signal.SIGKILL)
                continue
            sandbox = self._all[seen.pid] = Sandbox(NewSandbox(seen.pid), uid, None)
            sandbox.ticks = seen.ticks
            sandbox.attempts |= attempts
            self._of |= dict.fromkeys(attempts, sandbox)

    def close(self) -> None:
        for waiting in self._idle.values():
            for sandbox in waiting:
                self._kill(sandbox)
        self._idle.clear()
        with suppress(OSError):
            os.unlink(self._sign)
