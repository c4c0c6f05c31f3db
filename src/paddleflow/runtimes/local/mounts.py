"""Folders that appear at another place for one attempt only: a private mount namespace with bind mounts.

As root the keeper makes it itself, see `namespaces`. Otherwise `plan` turns a launch's mounts into another command line:
``unshare`` makes the namespace, a few lines of shell mount and then become the command, so pid and exit code are the
command's own. Where neither is allowed, the launch runs without: a working directory below a target becomes the same folder below its source, and variables say
where each mount is. Those variables are set in both cases, so a program that uses them runs everywhere.

`MountPoints` makes target folders that are missing and removes them when the last attempt that used them has ended,
unless somebody else has mounted something there meanwhile.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH106, PTH112, PTH115, PTH120, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paddleflow.runtimes.local.process import Refused, reason

FAILED = 125  #: exit code of the lines below when a mount or the working directory is not possible

_TOOLS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
_SCRIPT = """
mount=$1 cwd=$2 count=$3 bind=$4; shift 4
while [ "$count" -gt 0 ]; do
  "$mount" "$bind" -- "$1" "$2" || { echo "paddleflow: cannot mount $1 at $2" >&2; exit 125; }
  if [ "$3" = ro ]; then
    "$mount" -o remount,bind,ro -- "$2" || { echo "paddleflow: cannot make $2 read-only" >&2; exit 125; }
  fi
  shift 3; count=$((count - 1))
done
cd -- "$cwd" || { echo "paddleflow: cannot enter $cwd" >&2; exit 125; }
exec "$@"
"""


class Mount(NamedTuple):
    source: str
    target: str
    read_only: bool


class Planned(NamedTuple):
    """What to spawn instead."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    note: str  #: for the attempt's log; empty when all is as asked


def tool(name: str) -> str:
    """Full path of a system tool; empty when it is not there."""
    return next((f"{folder}/{name}" for folder in _TOOLS if os.access(f"{folder}/{name}", os.X_OK)), "")


def probe() -> str:
    """What this machine lets us do: ``root``, ``user`` (a user namespace) or ``none``."""
    unshare, true = tool("unshare"), tool("true")
    if not unshare or not true or not tool("mount") or not tool("sh"):
        return "none"
    for kind in ("root", "user"):
        null = os.open("/dev/null", os.O_RDWR)
        try:
            actions = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
            argv = [unshare, *_NAMESPACE[kind], "--", true]
            pid = os.posix_spawn(unshare, argv, {}, file_actions=actions)
        finally:
            os.close(null)
        if os.waitpid(pid, 0)[1] == 0:
            return kind
    return "none"


_NAMESPACE = {
    "root": ["--mount", "--propagation", "private"],
    "user": ["--user", "--map-root-user", "--mount", "--propagation", "private"],
}


def covered(path: str, targets: Iterable[str]) -> bool:
    """Whether a path would lead into one of the mounts."""
    inner = os.path.realpath(path) + "/"
    return any(inner.startswith(os.path.realpath(target).rstrip("/") + "/") for target in targets)


def variable(target: str) -> str:
    """``/mnt/my-data`` → ``PADDLEFLOW_MOUNT_MNT_MY_DATA``."""
    return "PADDLEFLOW_MOUNT_" + re.sub(r"[^A-Z0-9]+", "_", target.strip("/").upper())


def check(mounts: Iterable[Mount]) -> None:
    """Refuse what cannot be mounted anywhere."""
    for mount in mounts:
        if not mount.target.startswith("/") or os.path.normpath(mount.target) == "/":
            raise Refused(f"mount target {mount.target!r} is not the full path of a folder")
        if not os.path.isdir(mount.source):
            raise Refused(f"mount source not found: {mount.source}")


def makeable(targets: Iterable[str]) -> bool:
    """Whether those that are missing may be made."""
    for target in targets:
        path = os.path.normpath(target)
        missing = not os.path.lexists(path)
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        if missing and not os.access(path, os.W_OK):
            return False
    return True


def plan(mounts: Sequence[Mount], kind: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Planned:
    """The command line that makes the mounts and then becomes `argv`; `argv` itself where they are there before it."""
    if kind == "none":
        return _without(mounts, argv, env, cwd)
    env = {**env, **{variable(mount.target): mount.target for mount in mounts}}
    if kind == "there":
        return Planned(list(argv), env, cwd, "")
    wrapped = [tool("unshare"), *_NAMESPACE[kind], "--", tool("sh"), "-c", _SCRIPT, "paddleflow"]
    # In a user namespace a plain bind of a folder that holds other mounts is refused.
    wrapped += [tool("mount"), cwd, str(len(mounts)), "--bind" if kind == "root" else "--rbind"]
    for mount in mounts:
        wrapped += [mount.source, mount.target, "ro" if mount.read_only else "rw"]
    if kind == "user":  # the command is not to believe that it is root
        identity = [f"--map-user={os.getuid()}", f"--map-group={os.getgid()}"]
        wrapped += [tool("unshare"), "--user", *identity, "--"]
    return Planned([*wrapped, *argv], env, "/", "")


def _without(mounts: Sequence[Mount], argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Planned:
    env = {**env, **{variable(mount.target): mount.source for mount in mounts}}
    for mount in sorted(mounts, key=lambda mount: -len(mount.target)):
        target = mount.target.rstrip("/")
        if cwd == target or cwd.startswith(target + "/"):
            cwd = mount.source.rstrip("/") + cwd[len(target) :]
            break
    shown = ", ".join(f"{variable(mount.target)}={mount.source}" for mount in mounts)
    note = f"paddleflow: this machine allows no private mounts; the folders are found by {shown}\n"
    return Planned(list(argv), env, cwd, note)


class MountPoints:
    """The target folders that were made for attempts, and who uses each."""

    def __init__(self) -> None:
        self._users: dict[str, set[str]] = {}

    def needed(self, attempt: str, targets: Iterable[str]) -> list[str]:
        """Folders of ours that this attempt uses, those still to be made among them, upper ones first."""
        found: list[str] = []
        for target in targets:
            path = os.path.normpath(target)
            while path != "/":
                if path not in found and (path in self._users or not os.path.lexists(path)):
                    found.append(path)
                path = os.path.dirname(path)
        found.sort()
        self.hold(attempt, found)
        return found

    def hold(self, attempt: str, folders: Iterable[str]) -> None:
        for folder in folders:
            self._users.setdefault(folder, set()).add(attempt)

    def make(self, folders: Iterable[str]) -> None:
        for folder in folders:
            try:
                os.mkdir(folder)
            except FileExistsError:
                continue
            except OSError as error:
                raise Refused(f"mount target {folder}: {reason(error)}") from error

    def release(self, attempt: str, folders: Iterable[str]) -> None:
        """Remove what nobody else uses and nobody put anything into."""
        for folder in sorted(folders, reverse=True):
            users = self._users.get(folder)
            if users is None:
                continue
            users.discard(attempt)
            if not users:
                del self._users[folder]
                if _mounted_by_others(folder):
                    continue
                try:
                    os.rmdir(folder)
                except OSError:
                    continue


def _mounted_by_others(folder: str) -> bool:
    """Whether something is mounted there in another namespace: removing the folder would take that mount away.

    Attempts of another server on this machine may use the same path.
    """
    wanted = f" {folder} ".encode("utf-8", "surrogateescape")
    seen = {os.readlink("/proc/self/ns/mnt")}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace in seen:
                continue
            seen.add(namespace)
            with open(f"/proc/{pid}/mountinfo", "rb") as file:
                if wanted in file.read():
                    return True
        except OSError:
            continue
    return False
