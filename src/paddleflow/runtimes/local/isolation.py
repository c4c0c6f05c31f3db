"""What isolates the jobs of the platform's users from each other on one machine.

`View` is what their sandboxes show of the machine, `Account` who they are there. `Restricted` is a thread of the keeper that has
given up what isolated jobs must not have and steps into their sandboxes: what it spawns inherits all of that, for the price of a
`posix_spawn`. `IdMaps` let the files of a storage belong to the job's user inside and to the storage's owner on the disk.
`sandbox` puts them together.
"""

# The keeper starts without pathlib and threading, so:
# ruff: noqa: PTH100, PTH103, PTH112, PTH116, PTH120

from __future__ import annotations

import _thread
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar, cast

from paddleflow.runtimes.local import seccomp
from paddleflow.runtimes.local.mounts import IN_MEMORY, MountTable
from paddleflow.runtimes.local.namespaces import NEW_USERS, call

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 — these are what it replaces
HIDDEN = ("/home", "/root")
#: Nothing works without them: a storage that is one of them, or above one, is not hidden.
ESSENTIAL = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/run", "/var", "/tmp")  # noqa: S108
MOST_HIDDEN = 256  #: folders; when there are more, those above them are hidden
_SKELETON = b"mode=0755,size=16m"
_NEW_FOLDER = 0x200  #: CLONE_FS: a working directory and root of one's own
_JOIN_SESSION_KEYRING = 1
T = TypeVar("T")


class Account(NamedTuple):
    """Who an isolated job is."""

    uid: int  #: also its group
    processes: int  #: that the user may have at once; 0: as many as the machine allows


class View(NamedTuple):
    """What isolated jobs see of the machine: all but this."""

    data: str  #: the keeper's data folder, of which each sees its job's folder
    hidden: tuple[str, ...]
    shown: tuple[str, ...]  #: below what is hidden, and needed: the Python that prepares code and packages

    @classmethod
    def of(cls, data: str, storages: Iterable[str], shown: Iterable[str]) -> View:
        """By what the machine has now. Folders that others may not enter are hidden where something below them is shown."""
        data = os.path.realpath(data)
        storages = {os.path.realpath(folder) for folder in storages}
        if len(storages) > MOST_HIDDEN:
            storages = {os.path.dirname(folder) for folder in storages}
        usable = {folder for folder in storages if not _is_above(folder, ESSENTIAL)}
        wanted = sorted({path for each in shown for path in (os.path.abspath(each), os.path.realpath(each))})
        hidden = sorted({*HIDDEN, closed_parent(data), *usable, *map(closed_parent, wanted)} - {*PRIVATE, *wanted})
        # What lies below another one is hidden with it.
        outermost = [
            path for path in hidden if not any(path != up and _is_above(up, [path]) for up in (*PRIVATE, *hidden))
        ]
        below = (*PRIVATE, *outermost)
        inside = tuple(path for path in wanted if any(_is_above(each, [path]) for each in below))
        return cls(data, tuple(path for path in outermost if os.path.isdir(path)), inside)

    def cover(self, table: MountTable) -> None:
        """Hide what is others', and show what is needed."""
        trees = []
        for path in self.shown:
            with suppress(OSError):
                source = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                trees.append((path, table.detach(source, read_only=True)[0]))
                os.close(source)
        for private in PRIVATE:
            table.cover(private, IN_MEMORY, writable=True)
        for hidden in self.hidden:  # what was below a private folder is gone already
            table.cover(hidden, _SKELETON, writable=True)
        os.makedirs(f"{self.data}/jobs", exist_ok=True)
        for path, tree in trees:
            os.makedirs(path, exist_ok=True)
            table.attach(tree, path)

    def leads_from(self, folder: str) -> set[str]:
        """The entries of a private folder that the view itself has made."""
        inside = [path[len(folder) + 1 :] for path in (self.data, *self.shown) if path.startswith(f"{folder}/")]
        return {path.split("/", 1)[0] for path in inside}


def _is_above(folder: str, paths: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for path in paths)


def closed_parent(path: str) -> str:
    """A folder, or the uppermost one above it that others may not enter: their way to what is shown below."""
    parts = os.path.realpath(path).split("/")
    for count in range(2, len(parts)):
        above = "/".join(parts[:count])
        if not os.stat(above).st_mode & 0o001:
            return above
    return "/".join(parts)


class Restricted:
    """A thread with a working directory, namespaces and credentials of its own, without privileges to gain, and with a filter.

    The keeper waits while it works, so at any moment one of the two does something.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self._numbers = seccomp.architecture()
        self._prepare = prepare
        self._call: Callable[[], object] = lambda: None
        self._result: object = None
        self._error: BaseException | None = None
        self._go, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._done.acquire()
        _thread.start_new_thread(self._work, ())
        self.run(self._give_up)

    def run(self, function: Callable[[], T]) -> T:
        """What a function gives, or raises, when this thread calls it."""
        self._call = function
        self._go.release()
        self._done.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return cast(T, self._result)

    def _work(self) -> None:
        while True:
            self._go.acquire()
            try:
                self._result = self._call()
            except BaseException as error:
                self._error = error
            self._done.release()

    def _give_up(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        call(self.libc, "unshare", _NEW_FOLDER)
        seccomp.install(self.libc)
        self._prepare()

    def become(self, account: Account) -> None:
        """The user, for what is spawned now: the saved number stays ours until the command is executed, which forgets it.

        By system calls, as the C library would change all threads.
        """
        self._syscall(self._numbers.keyctl, _JOIN_SESSION_KEYRING, None)
        self._syscall(self._numbers.setgroups, 0, None)
        self._syscall(self._numbers.setresgid, account.uid, account.uid, account.uid)
        self._syscall(self._numbers.setresuid, account.uid, account.uid, 0)

    def return_to_root(self) -> None:
        self._syscall(self._numbers.setresuid, 0, 0, 0)
        self._syscall(self._numbers.setresgid, 0, 0, 0)

    def _syscall(self, number: int, *arguments: object) -> None:
        if self.libc.syscall(number, *arguments) < 0:
            if number == self._numbers.keyctl:
                return  # this kernel has no keys to protect, or a full quota of them
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


@contextmanager
def limited(processes: int) -> Iterator[None]:
    """The keeper's own limit for a moment, that of what it spawns for good: the filter lets no job raise the soft limit again.

    Not by the restricted thread, which may not either. The hard limit stays: not every root may raise it again.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
    if not processes or wanted == soft:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NPROC, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


class IdMaps:
    """User namespaces that map an owner on the disk to a user number, one for each pair; at most `MOST` stay open."""

    MOST = 64

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._open: dict[tuple[int, int], int] = {}

    def get(self, owner: int, uid: int) -> int:
        """A descriptor of the namespace; OSError when this machine has none."""
        key = owner, uid
        found = self._open.pop(key, -1)
        if found < 0:
            if len(self._open) >= self.MOST:
                os.close(self._open.pop(next(iter(self._open))))
            found = self._make(owner, uid)
        self._open[key] = found  # the last: the first is the one not used for longest
        return found

    def _make(self, owner: int, uid: int) -> int:
        """By a child that ends with the keeper, whenever that is: as long as it lives it holds the keeper's lock."""
        reader, writer = os.pipe()
        held, holder = os.pipe()  # the child reads its end when nobody has `holder` open any more
        pid = os.fork()
        if pid == 0:
            try:
                os.close(holder)
                call(self._libc, "unshare", NEW_USERS)
                os.write(writer, b"x")
                os.read(held, 1)
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
            for each in (reader, held, holder):
                os.close(each)
            os.waitpid(pid, 0)
