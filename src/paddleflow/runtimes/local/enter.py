"""Becomes a command inside a running attempt: python -m paddleflow.runtimes.local.enter PID ATTEMPT COMMAND…

Joins cgroups and namespaces of the attempt's main process, takes its user, limits, environment and working directory, then executes. All
is read through one descriptor of /proc/PID, which never stands for a later process of the same number, and only a process whose
environment names the attempt is entered. Called by `exec_session`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress

from paddleflow.runtimes.local import seccomp
from paddleflow.runtimes.local.procfs import ATTEMPT

NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
LIMITS = {
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max core file size": resource.RLIMIT_CORE,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max stack size": resource.RLIMIT_STACK,
    "Max address space": resource.RLIMIT_AS,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
}  #: as /proc names them, which tells also those who may not ask for the limits of another user
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, JOIN_SESSION_KEYRING = 1, 38, 1
CANNOT_RUN, NOT_FOUND, CANNOT_ENTER = 126, 127, 125
_libc = ctypes.CDLL(None, use_errno=True)


class NotThere(Exception):
    """The attempt does not run any more."""


def _read(proc: int, name: str) -> bytes:
    opened = os.open(name, os.O_RDONLY, dir_fd=proc)
    with os.fdopen(opened, "rb") as file:
        return file.read()


def _status(proc: int) -> dict[str, list[str]]:
    lines = _read(proc, "status").decode("utf-8", "replace").splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def _environment(proc: int, attempt: str) -> dict[bytes, bytes]:
    found = dict(word.split(b"=", 1) for word in _read(proc, "environ").split(b"\0") if b"=" in word)
    if found.get(ATTEMPT.encode()) != attempt.encode():
        raise NotThere("its main process has ended, or has cleared its environment")
    return found


def _limits(proc: int) -> list[tuple[int, tuple[int, int]]]:
    found = []
    for line in _read(proc, "limits").decode().splitlines():
        name, words = line[:26].strip(), line[26:].split()
        if name in LIMITS:
            soft, hard = (resource.RLIM_INFINITY if word == "unlimited" else int(word) for word in words[:2])
            found.append((LIMITS[name], (soft, hard)))
    return found


def _join_cgroups(proc: int) -> None:
    for line in _read(proc, "cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        for root in (f"/sys/fs/cgroup/{controllers.removeprefix('name=')}", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            with suppress(OSError), open(f"{root}{path}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
                break


def _join_namespaces(proc: int) -> bool:
    """Whether children from now on are in another namespace of processes."""
    opened: dict[str, int] = {}
    for name in ("user", *NAMESPACES):
        with suppress(FileNotFoundError):
            there, here = os.stat(f"ns/{name}", dir_fd=proc), os.stat(f"/proc/self/ns/{name}")  # noqa: PTH116
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                opened[name] = os.open(f"ns/{name}", os.O_RDONLY, dir_fd=proc)
    # Root joins the namespace of users last, as it loses its rights outside; others gain theirs by it.
    order = (*NAMESPACES, "user") if os.geteuid() == 0 else ("user", *NAMESPACES)
    for name in order:
        if name in opened and _libc.setns(opened[name], 0):
            raise OSError(ctypes.get_errno(), f"cannot join its {name} namespace: {os.strerror(ctypes.get_errno())}")
    return "pid" in opened


def _become(status: dict[str, list[str]]) -> None:
    """The user of the main process, for good."""
    uid, gid = int(status["Uid"][1]), int(status["Gid"][1])
    if status.get("Seccomp") == ["2"]:
        seccomp.install(_libc)
        _libc.syscall(seccomp.architecture().keyctl, JOIN_SESSION_KEYRING, None)
    if uid != os.geteuid():
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if status.get("NoNewPrivs") == ["1"]:
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter(pid: int, attempt: str, command: Sequence[str]) -> int:
    """Never comes back where the command can be run in this process; else its exit code."""
    try:
        proc = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        environment = _environment(proc, attempt)
        status = _status(proc)
        folder = os.open("cwd", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise NotThere("its main process has ended") from error
    limits = _limits(proc)
    _join_cgroups(proc)
    apart = _join_namespaces(proc)
    for number, limit in limits:
        with suppress(OSError, ValueError):
            resource.setrlimit(number, limit)
    child = os.fork() if apart else 0
    if child:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)  # the child's, on the same terminal
        _, ended = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(ended) if os.WIFEXITED(ended) else 128 + os.WTERMSIG(ended)
    os.fchdir(folder)
    _become(status)
    for path in _candidates(command[0], environment):
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                os.execve(path, list(command), environment)  # noqa: S606  the user's own command
            except PermissionError as error:
                print(f"{command[0]}: {error.strerror}", file=sys.stderr)
                os._exit(CANNOT_RUN)
    print(f"{command[0]}: not found", file=sys.stderr, flush=True)
    os._exit(NOT_FOUND)


def _candidates(word: str, environment: dict[bytes, bytes]) -> list[str]:
    if "/" in word:
        return [word]
    folders = environment.get(b"PATH", os.defpath.encode()).decode("utf-8", "surrogateescape").split(":")
    return [f"{folder or '.'}/{word}" for folder in folders]


def main(words: Sequence[str]) -> int:
    pid, attempt, *command = words
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        return enter(int(pid), attempt, command)
    except (NotThere, OSError) as error:
        print(f"paddleflow: cannot enter {attempt}: {error}", file=sys.stderr)
        return CANNOT_ENTER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
