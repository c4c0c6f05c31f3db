"""Folders that appear at another place for one attempt only: bind mounts in a mount namespace of its own.

Nothing is made on the host for it: where a target is missing, its nearest parent that exists is shown as a small read-only
tmpfs in which all that was there is bound again, with the target beside it. `apply` does that in a namespace that was made
before (see `namespaces`). Where namespaces are forbidden, `rewrite` puts the real folders into the command, its environment
and its working directory instead. Variables say where each mount is in both cases.

A sub path belongs to the user, so no link in it is followed.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH103, PTH112, PTH114, PTH115, PTH116, PTH120, PTH208, PTH211

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from paddleflow.runtimes.local.process import Refused, reason

MOST_SIBLINGS = 2000  #: entries of a folder that is shown again with a target beside them
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 1 << 5, 1 << 12, 1 << 14, 1 << 18
_PATH = os.O_PATH | os.O_CLOEXEC
#: Of the newer calls the C library of some machines has no names; the numbers are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_CLONE, _CLOSE_ON_EXEC, _WHOLE_TREE, _EMPTY_PATH, _FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 0x1000, 4
_HERE, _ID_MAP = -100, 0x00100000
STAGING = "/tmp"  # noqa: S108 — any folder that every machine has; nobody else sees what is mounted there
_SKELETON = b"mode=0755,size=1m"


class Mount(NamedTuple):
    location: str  #: folder of the storage
    target: str
    read_only: bool
    sub_path: str = ""  #: below the location

    @property
    def source(self) -> str:
        return f"{self.location.rstrip('/')}/{self.sub_path}" if self.sub_path else self.location


class Command(NamedTuple):
    """What to spawn."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    note: str  #: for the attempt's log; empty when all is as asked


def variable(target: str) -> str:
    """``/mnt/my-data`` → ``PADDLEFLOW_MOUNT_MNT_MY_DATA``."""
    return "PADDLEFLOW_MOUNT_" + re.sub(r"[^A-Z0-9]+", "_", target.strip("/").upper())


def check(mounts: Iterable[Mount]) -> None:
    """Refuse what cannot be mounted anywhere."""
    for mount in mounts:
        if not mount.target.startswith("/") or os.path.normpath(mount.target) == "/":
            raise Refused(f"mount target {mount.target!r} is not the full path of a folder")
        os.close(open_source(mount))


def open_source(mount: Mount) -> int:
    """A descriptor of the folder that a mount shows. No part of its sub path may be a link: the user could lead it anywhere."""
    try:
        fd = os.open(mount.location, _PATH | os.O_DIRECTORY)
    except OSError as error:
        raise Refused(f"mount source not found: {mount.source}") from error
    for part in (part for part in mount.sub_path.split("/") if part not in ("", ".")):
        above = fd
        try:
            if part == "..":
                raise Refused(f"mount source {mount.source}: the sub path leads out of its storage")
            fd = os.open(part, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            link = os.path.islink(f"/proc/self/fd/{above}/{part}")
            raise Refused(
                f"mount source {mount.source}: {part} is a link, and links in a sub path are not followed"
                if link
                else f"mount source not found: {mount.source}"
            ) from error
        finally:
            os.close(above)
    return fd


def covered(path: str, targets: Iterable[str]) -> bool:
    """Whether a path would lead into one of the mounts."""
    inner = os.path.realpath(path) + "/"
    return any(inner.startswith(os.path.realpath(target).rstrip("/") + "/") for target in targets)


def rewritten(mounts: Sequence[Mount], argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Command:
    """The same command without mounts: their targets are replaced by the real folders wherever they are named."""
    folders = {mount.target.rstrip("/"): mount.source.rstrip("/") for mount in mounts}
    longest = sorted(folders, key=len, reverse=True)
    # A path ends where no character of a file name follows: /mnt/one is no part of /mnt/one-more.
    pattern = re.compile("(?<![\\w./-])(" + "|".join(map(re.escape, longest)) + r")(?![\w.-])")

    def replaced(text: str) -> str:
        return pattern.sub(lambda found: folders[found[1]], text)

    env = {name: replaced(value) for name, value in env.items()}
    env |= {variable(mount.target): mount.source for mount in mounts}
    shown = ", ".join(f"{target} is {source}" for target, source in folders.items())
    note = f"paddleflow: this machine allows no private mounts; paths were replaced: {shown}\n"
    return Command([replaced(word) for word in argv], env, replaced(cwd), note)


def mounted(mounts: Sequence[Mount], argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Command:
    """The command as it is, for a namespace that has the mounts."""
    return Command(list(argv), {**env, **{variable(mount.target): mount.target for mount in mounts}}, cwd, "")


class MountTable:
    """Mounts of the namespace that this process is in, which must be its own and private."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._skeletons: list[str] = []
        self._writable: list[str] = []  #: covered, and the attempt's own
        self._root = ""  #: the new root, when even the top folder had to be shown again

    def apply(
        self,
        mounts: Sequence[Mount],
        cover: Callable[[MountTable], None] | None = None,
        id_maps: Mapping[int, int] | None = None,
    ) -> None:
        """Make them all; Refused names the one that is not possible.

        `cover` changes the view before them, and may hide their sources. `id_maps` has a user namespace for the owner of each
        source: that owner's files belong to whom the namespace says, inside.
        """
        self.mount("none", "/", _RECURSIVE | _PRIVATE)  # nothing of what follows is seen outside
        sources = [open_source(mount) for mount in mounts]
        if cover is not None:
            cover(self)
        for mount, source in zip(mounts, sources, strict=True):
            self._bind(mount, source, self._target(mount), id_maps or {})
            os.close(source)
        for folder in self._skeletons:
            self.mount("none", folder, _REMOUNT | _BIND | _READ_ONLY)
        if self._root:
            os.chroot(self._root)

    def cover(self, folder: str, options: bytes, *, writable: bool = False) -> None:
        """An empty folder in the place of one that is there."""
        if os.path.isdir(folder):
            self.mount("tmpfs", folder, _NO_SUID | _NO_DEVICES, "tmpfs", options)
            (self._writable if writable else self._skeletons).append(folder)

    def bind(self, source: int, target: str, users: int = -1) -> None:
        """A folder that is open, with another owner where a user namespace is given and the file system can do it."""
        tree = self._libc.syscall(_OPEN_TREE, source, b"", _CLONE | _CLOSE_ON_EXEC | _WHOLE_TREE | _EMPTY_PATH)
        if tree < 0:
            self.mount(f"/proc/self/fd/{source}", target, _BIND | _RECURSIVE)  # Linux before 5.2
            return
        try:
            if users >= 0:
                wanted = (ctypes.c_uint64 * 4)(_ID_MAP, 0, 0, users)
                self._libc.syscall(_SET_ATTRIBUTES, tree, b"", _EMPTY_PATH, wanted, ctypes.sizeof(wanted))
            if self._libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH) < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), target)
        finally:
            os.close(tree)

    def _bind(self, mount: Mount, source: int, target: str, id_maps: Mapping[int, int]) -> None:
        try:
            self.bind(source, target, id_maps.get(os.fstat(source).st_uid, -1))
            if mount.read_only:
                self.mount("none", target, _REMOUNT | _BIND | _READ_ONLY | _locked_flags(target))
        except OSError as error:
            raise Refused(f"cannot mount {mount.source} at {mount.target}: {reason(error)}") from error

    def _target(self, mount: Mount) -> str:
        """Where it is mounted, which is a folder afterwards."""
        path = os.path.normpath(mount.target)
        here = self._root + path
        if os.path.isdir(here):
            return here
        parent = os.path.dirname(path)
        while not os.path.lexists(self._root + parent):
            parent = os.path.dirname(parent)
        if os.path.lexists(here) or not os.path.isdir(self._root + parent):
            raise Refused(f"mount target {mount.target}: not a directory")
        try:
            if not self._is_ours(parent):
                self._show_again(parent)
            os.makedirs(self._root + path)
        except OSError as error:
            raise Refused(f"mount target {mount.target}: {reason(error)}") from error
        return self._root + path

    def _is_ours(self, folder: str) -> bool:
        """Whether a folder is in a skeleton, or in one of the mounts, and not in what the machine has."""
        ours = (*self._skeletons, *self._writable)
        inside = any((self._root + folder + "/").startswith(made.rstrip("/") + "/") for made in ours)
        return inside and os.stat(self._root + folder).st_dev in {os.stat(made).st_dev for made in ours}

    def _show_again(self, folder: str) -> None:
        """A tmpfs over a folder, with all that the folder has."""
        entries = os.listdir(self._root + folder)
        if len(entries) > MOST_SIBLINGS:
            raise Refused(
                f"mount target below {folder}: that folder has {len(entries)} entries, at most {MOST_SIBLINGS}"
            )
        real = os.path.realpath(self._root + folder)
        below = os.open(real, _PATH)
        try:
            staging = real if real != "/" else STAGING
            hidden = os.open(staging, _PATH)
            try:
                self.mount("tmpfs", staging, _NO_SUID | _NO_DEVICES, "tmpfs", _SKELETON)
                for name in entries:
                    if f"{real.rstrip('/')}/{name}" == staging:
                        # Not recursively: the tmpfs that lies on it now would come along.
                        os.mkdir(f"{staging}/{name}")
                        self.mount(f"/proc/self/fd/{hidden}", f"{staging}/{name}", _BIND)
                        continue
                    mode = os.lstat(name, dir_fd=below).st_mode
                    self._show_entry(f"/proc/self/fd/{below}/{name}", f"{staging}/{name}", mode)
            finally:
                os.close(hidden)
            self._skeletons.append(staging)
            if real == "/":
                self._root = staging
        finally:
            os.close(below)

    def _show_entry(self, source: str, target: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            self.mount(source, target, _BIND | _RECURSIVE)
        except OSError:
            return  # not ours to see: it stays empty

    def mount(self, source: str, target: str, flags: int, kind: str = "", options: bytes | None = None) -> None:
        failed = self._libc.mount(
            os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options
        )
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), target)


def _locked_flags(target: str) -> int:
    """Flags of a mount that a remount in a user namespace must repeat."""
    seen = os.statvfs(target).f_flag
    return sum(flag for flag in (_NO_SUID, _NO_DEVICES, 8) if seen & flag)  # 8: noexec
