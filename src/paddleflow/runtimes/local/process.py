"""One process, started: executable looked up in the launch's own PATH, errors in words that name the thing.

The keeper has one thread, so it may change its own folder for the spawn (``posix_spawn`` has no such action in Python).
Signals, mask and descriptors of the child are the defaults; it leads a session and a process group of its own.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH113

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Mapping
from typing import Any

BEGINS = ".begins"  #: behind the name of a log: the file that says where its attempts begin
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Actions = list[tuple[Any, ...]]  #: what the child does with its descriptors before it becomes the command

_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


class Refused(Exception):
    """It cannot run; the text says why, for a person."""


def find(word: str, path: str) -> str:
    """The file that a command's first word means, as seen from the current folder."""
    if not word:
        raise Refused("command not found: the command is empty")
    if "/" in word:
        return word
    denied = False
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{word}"
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            denied = True
    raise Refused(f"permission denied: {word} is not executable" if denied else f"command not found: {word}")


def make_folder(folder: str) -> None:
    """The folder that belongs to a launch alone."""
    if not folder or _made(folder):
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Refused(f"work folder {folder}: {reason(error)}") from error


def _made(folder: str) -> bool:
    """The usual case, without looking first: a new folder below one that is new, too, or there."""
    try:
        os.mkdir(folder.rpartition("/")[0])
    except FileExistsError:
        pass
    except OSError:
        return False
    try:
        os.mkdir(folder)
    except OSError:
        return False
    return True


def enter(folder: str) -> None:
    """Go to the working directory of a launch."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Refused(f"working directory {folder}: {reason(error)}") from error


def open_log(path: str) -> int:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(f"log {path}: {reason(error)}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # an earlier attempt put something else there
        os.close(fd)
        raise Refused(f"log {path}: not a regular file")
    os.set_blocking(fd, True)
    return fd


def note_begin(path: str, attempt: str, log: int) -> None:
    """Note beside a log where the part of this attempt begins; an empty log needs no note."""
    size = os.fstat(log).st_size
    if not size:
        return
    try:
        fd = open_log(path + BEGINS)
    except Refused:
        return  # the job put something else there: its log is not divided
    try:
        os.write(fd, f"{attempt.rpartition('.')[2]} {size}\n".encode())
    except OSError:
        return  # the disk is full, which the attempt will say itself
    finally:
        os.close(fd)


def marked(marker: str, log: int, null: int) -> Actions:
    """The streams of a child that makes `marker` first: that file tells the next keeper that it began."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, marker, os.O_WRONLY | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]


def logged(log: str, null: int) -> Actions:
    """The streams of a child that makes its log itself, which so tells the next keeper that it began."""
    return [
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_DUP2, null, 0),
    ]


def apply(actions: Actions) -> None:
    """The same in a child that was forked."""
    for kind, *rest in actions:
        if kind == os.POSIX_SPAWN_OPEN:
            number, path, flags, mode = rest
            fd = os.open(path, flags, mode)
            os.dup2(fd, number)
        else:
            os.dup2(*rest)


def execute(word: str, argv: list[str], env: Mapping[str, str], cwd: str, log: str) -> None:
    """Become the command; Refused when that is not possible."""
    enter(cwd)
    file = find(word, env.get("PATH", DEFAULT_PATH))
    try:
        os.execve(file, argv, env)  # noqa: S606 — what the user asked for
    except ValueError as error:
        raise Refused(f"command or environment: {error}") from error
    except OSError as error:
        raise refused(argv[0], file, log, error) from error


def spawn(file: str, argv: list[str], env: Mapping[str, str], streams: Actions) -> int:
    """The pid of a new process; OSError when a stream or the program cannot be opened."""
    try:
        return os.posix_spawn(file, argv, env, file_actions=streams, setsid=True, setsigmask=(), setsigdef=_SIGNALS)
    except ValueError as error:  # a NUL byte, or '=' in the name of a variable
        raise Refused(f"command or environment: {error}") from error


def refused(word: str, file: str, log: str, error: OSError) -> Refused:
    """What was wrong with a spawn. If the log is not there, then not even that could be opened."""
    if not os.path.lexists(log):
        try:
            os.close(open_log(log))
        except Refused as named:
            return named
    return Refused(_cannot_execute(word, file, error))


def _cannot_execute(word: str, file: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        if os.path.exists(file):
            return f"command not found: the interpreter that {word} names in its first line"
        return f"command not found: {word}"
    if error.errno == errno.EACCES:
        return f"permission denied: {word} is {'a folder' if os.path.isdir(file) else 'not executable'}"
    if error.errno == errno.E2BIG:
        return f"command and environment of {word} are longer than the system takes"
    return f"cannot execute {word}: {reason(error)}"


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
