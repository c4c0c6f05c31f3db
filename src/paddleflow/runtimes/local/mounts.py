"""Folders that appear at another place for one attempt only: bind mounts in a mount namespace of its own.

Nothing is made on the host for it: where a target is missing, its nearest parent that exists is shown as a small read-only
tmpfs in which all that was there is bound again, with the target beside it. A folder for temporary files stays writable, for the
attempt alone; of others that the attempt's account could write to, a line in its log says why they are read-only. Only a target inside of another mount, or of the
job's own folder, is made for real (`make_nested`), as in volumes of containers: that is the user's, and stays writable. `apply` does that in a namespace that was made
before (see `namespaces`). Where namespaces are forbidden, `rewrite` puts the real folders into the command, its environment
and its working directory instead. Variables say where each mount is in both cases.

A sub path belongs to the user, so no link in it is followed.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH110, PTH112, PTH114, PTH116, PTH120, PTH208, PTH211

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from paddleflow.runtimes.local.process import Refused, reason

MOST_SIBLINGS = 10_000  #: entries of a folder that is shown again with a target beside them
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 1 << 5, 1 << 12, 1 << 14, 1 << 18
_PATH = os.O_PATH | os.O_CLOEXEC
#: Of the newer calls the C library of some machines has no names; the numbers are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_CLONE, _CLOSE_ON_EXEC, _WHOLE_TREE, _EMPTY_PATH, _FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 0x1000, 4
_NO_FOLLOW, _HERE = 0x100, -100
_SET_READ_ONLY, _SET_NO_SUID, _SET_NO_DEVICES, _ID_MAP = 1, 2, 4, 0x00100000
#: Any folder of the machine; nobody else sees what is mounted there. One with mounts below it cannot be shown again by an ordinary account.
STAGING = ("/tmp", "/mnt", "/srv", "/media", "/opt")  # noqa: S108 — it is covered, not written to
_SKELETON = b"mode=0755,size=1m"
#: A tenth of the memory each. What lies there is no process's, so when memory is short the kernel would end everybody else's instead;
#: an empty file costs a kilobyte that the size does not count.
IN_MEMORY = b"mode=1777,size=10%,nr_inodes=262144"
_ANYBODY_S = 0o1777  #: mode of a folder for temporary files
#: Nobody expects to make files directly in these.
_OF_THE_SYSTEM = frozenset(("/", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/run", "/srv", "/usr", "/var"))


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


def make_nested(mounts: Sequence[Mount]) -> None:
    """Make the targets that lie inside of earlier mounts, where those show a folder that may be written to.

    They belong to whoever the folder above belongs to. What is in the way, such as a link, is left for `MountTable` to refuse or cover.
    """
    for number, mount in enumerate(mounts):
        target = os.path.normpath(mount.target)
        outer = max(
            (each for each in mounts[:number] if target.startswith(os.path.normpath(each.target) + "/")),
            key=lambda each: len(os.path.normpath(each.target)),
            default=None,
        )
        if outer is not None and not outer.read_only:
            with contextlib.suppress(OSError):
                _make_folders(open_source(outer), target[len(os.path.normpath(outer.target)) + 1 :].split("/"))


def _make_folders(current: int, parts: Sequence[str]) -> None:
    """Below a descriptor, which is closed. The user may change everything there at any moment, so no name is trusted twice."""
    try:
        for part in parts:
            made = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=current)
                made = True
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            if made and not os.geteuid():
                above = os.fstat(current)
                os.fchown(below, above.st_uid, above.st_gid)
            os.close(current)
            current = below
    finally:
        os.close(current)


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


def closed_note(mounts: Sequence[Mount]) -> str:
    """For the log of an attempt of this account: which folders it cannot write to only because targets in them are missing."""
    lines = []
    for number, mount in enumerate(mounts):
        target = os.path.normpath(mount.target)
        parent = _nearest(target)
        shown = any(f"{parent}/".startswith(os.path.normpath(each.target) + "/") for each in mounts[:number])
        if shown or parent in {target, *_OF_THE_SYSTEM} or _is_temporary(parent) or not os.access(parent, os.W_OK):
            continue
        lines.append(
            f"paddleflow: no files can be made directly in {parent}, because the mount target {mount.target} is not there: "
            "make that folder on this machine first\n"
        )
    return "".join(dict.fromkeys(lines))


def _nearest(path: str) -> str:
    """The path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _is_temporary(folder: str) -> bool:
    return os.stat(folder).st_mode & _ANYBODY_S == _ANYBODY_S


class MountTable:
    """Mounts of the namespace that this process is in, which must be its own and private."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._skeletons: list[str] = []
        self._writable: list[str] = []  #: covered, and the attempt's own
        self._attached: list[str] = []  #: where `attach_at` mounted
        self._root = ""  #: the new root, when even the top folder had to be shown again

    def apply(
        self,
        mounts: Sequence[Mount],
        cover: Callable[[MountTable], None] | None = None,
    ) -> None:
        """Make them all; Refused names the one that is not possible. `cover` changes the view before, and may hide sources."""
        self.make_private()
        sources = [open_source(mount) for mount in mounts]
        if cover is not None:
            cover(self)
        for mount, source in zip(mounts, sources, strict=True):
            self._bind(mount, source, self._target(mount))
            os.close(source)
        self.finish()

    def attach_at(self, mount: Mount, tree: int) -> None:
        """The same for one, with a copy that `detach` made elsewhere."""
        try:
            target = self._target(mount)
        except BaseException:
            os.close(tree)
            raise
        try:
            self.attach(tree, target)
        except OSError as error:
            raise _cannot(mount, error) from error
        self._attached.append(target)

    def make_private(self) -> None:
        """Nothing of what follows is seen outside."""
        self.mount("none", "/", _RECURSIVE | _PRIVATE)

    def make_read_only(self) -> None:
        """Everything that is mounted now; devices can still be written to."""
        attributes = (ctypes.c_uint64 * 4)(_SET_READ_ONLY | _SET_NO_SUID, 0, 0, 0)
        if self._libc.syscall(_SET_ATTRIBUTES, _HERE, b"/", _WHOLE_TREE, attributes, ctypes.sizeof(attributes)) < 0:
            raise _error("/")

    def finish(self) -> None:
        """All is mounted: what was only made for it is closed to changes."""
        for folder in self._skeletons:
            self.mount("none", folder, _REMOUNT | _BIND | _READ_ONLY)
        if self._root:
            os.chroot(self._root)

    def own(self, folders: Iterable[str]) -> None:
        """These were covered before: targets may be made in them."""
        self._writable += filter(os.path.isdir, folders)

    def cover(self, folder: str, options: bytes, *, writable: bool = False) -> None:
        """An empty folder in the place of one that is there."""
        if os.path.isdir(folder):
            self.mount("tmpfs", folder, _NO_SUID | _NO_DEVICES, "tmpfs", options)
            (self._writable if writable else self._skeletons).append(folder)

    def detach(self, source: int, name: str = "", *, users: int = -1, read_only: bool = False) -> tuple[int, bool]:
        """A copy of a folder, or of `name` in it, and of all mounts inside, for `attach`; also in another namespace.

        With a user namespace its owner is another there, where the file system can do it: the second value says whether it is.
        """
        flags = _CLONE | _CLOSE_ON_EXEC | _WHOLE_TREE | _NO_FOLLOW | (0 if name else _EMPTY_PATH)
        tree: int = self._libc.syscall(_OPEN_TREE, source, os.fsencode(name), flags)
        if tree < 0:
            raise _error(name)
        wanted = _SET_NO_SUID | _SET_NO_DEVICES | (_SET_READ_ONLY if read_only else 0)
        # First what every kernel since 5.12 can; a file system may lack the other owner, and then its files keep theirs.
        self._set_attributes(tree, wanted)
        return tree, users < 0 or self._set_attributes(tree, _ID_MAP, users)

    def _set_attributes(self, tree: int, wanted: int, users: int = 0) -> bool:
        attributes = (ctypes.c_uint64 * 4)(wanted, 0, 0, users)
        size = ctypes.sizeof(attributes)
        return bool(self._libc.syscall(_SET_ATTRIBUTES, tree, b"", _EMPTY_PATH, attributes, size) == 0)

    def attach(self, tree: int, target: str) -> None:
        """Mount what `detach` gave, and close it."""
        try:
            if self._libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH) < 0:
                raise _error(target)
        finally:
            os.close(tree)

    def bind(self, source: int, target: str, name: str = "") -> None:
        """An open folder, or what is called `name` in it, at another place."""
        flags = _CLONE | _CLOSE_ON_EXEC | _WHOLE_TREE | _NO_FOLLOW | (0 if name else _EMPTY_PATH)
        tree = self._libc.syscall(_OPEN_TREE, source, os.fsencode(name), flags)
        if tree >= 0:
            self.attach(tree, target)
        elif ctypes.get_errno() == errno.ENOSYS:  # Linux before 5.2
            self.mount(f"/proc/self/fd/{source}/{name}".rstrip("/"), target, _BIND | _RECURSIVE)
        else:
            raise _error(target)

    def _bind(self, mount: Mount, source: int, target: str) -> None:
        try:
            self.bind(source, target)
            if mount.read_only:
                self.mount("none", target, _REMOUNT | _BIND | _READ_ONLY | _locked_flags(target))
        except OSError as error:
            raise _cannot(mount, error) from error

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
            self._make_below(self._root + parent, path[len(parent) :].split("/"))
        except OSError as error:
            raise Refused(f"mount target {mount.target}: {reason(error)}") from error
        return self._root + path

    def _make_below(self, folder: str, parts: list[str]) -> None:
        """Folders in what is ours. A process of the same job may be at work there, so nothing that it makes a link is followed."""
        ours = {os.stat(made).st_dev for made in (*self._skeletons, *self._writable)}
        current = os.open(folder, _PATH | os.O_DIRECTORY)
        try:
            for part in filter(None, parts):
                if os.fstat(current).st_dev not in ours:
                    raise OSError(errno.EXDEV, "it was replaced meanwhile", folder)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                below = os.open(part, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = below
        finally:
            os.close(current)

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
                f"mount target below {folder}: that folder has {len(entries)} entries, at most {MOST_SIBLINGS}; "
                "mount it below a folder of its own"
            )
        real = os.path.realpath(self._root + folder)
        below = os.open(real, _PATH)
        temporary = _is_temporary(real)
        try:
            staging = real if real != "/" else _staging(self._attached)
            hidden = os.open(staging, _PATH)
            try:
                self.mount("tmpfs", staging, _NO_SUID | _NO_DEVICES, "tmpfs", IN_MEMORY if temporary else _SKELETON)
                for name in entries:
                    if f"{real.rstrip('/')}/{name}" == staging:
                        # Not recursively: the tmpfs that lies on it now would come along.
                        os.mkdir(f"{staging}/{name}")
                        self._bind_alone(hidden, f"{staging}/{name}")
                        continue
                    try:
                        mode = os.lstat(name, dir_fd=below).st_mode
                    except OSError:
                        continue  # gone meanwhile, or a mount of somebody else's that is closed to us
                    self._show_entry(below, name, f"{staging}/{name}", mode)
            finally:
                os.close(hidden)
            (self._writable if temporary else self._skeletons).append(staging)
            if real == "/":
                self._root = staging
        finally:
            os.close(below)

    def _bind_alone(self, source: int, target: str) -> None:
        """Without the mounts inside: one of them may be the one that we are about to fill."""
        tree = self._libc.syscall(_OPEN_TREE, source, b"", _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH)
        if tree >= 0:
            self.attach(tree, target)
        else:
            self.mount(f"/proc/self/fd/{source}", target, _BIND)

    def _show_entry(self, folder: int, name: str, target: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(name, dir_fd=folder), target)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            self.bind(folder, target, name)
        except OSError:
            return  # not ours to see: it stays empty

    def mount(self, source: str, target: str, flags: int, kind: str = "", options: bytes | None = None) -> None:
        failed = self._libc.mount(
            os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options
        )
        if failed:
            raise _error(target)


def _error(target: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), target)


def _cannot(mount: Mount, error: OSError) -> Refused:
    return Refused(f"cannot mount {mount.source} at {mount.target}: {reason(error)}")


def _staging(attached: Iterable[str]) -> str:
    """The first folder without a mount below it; `attached` are mounted, too."""
    # In a sandbox /proc has its processes only, and not this one; the first of them sees what was mounted before.
    with open("/proc/self/mounts" if os.path.exists("/proc/self") else "/proc/1/mounts") as file:
        mounted = [line.split(" ")[1] + "/" for line in file] + [f"{each}/" for each in attached]
    free = (each for each in STAGING if os.path.isdir(each) and not _has_below(each, mounted))
    return next(free, STAGING[0])


def _has_below(folder: str, mounted: Iterable[str]) -> bool:
    return any(each.startswith(f"{folder}/") and each != f"{folder}/" for each in mounted)


def _locked_flags(target: str) -> int:
    """Flags of a mount that a remount in a user namespace must repeat."""
    seen = os.statvfs(target).f_flag
    return sum(flag for flag in (_NO_SUID, _NO_DEVICES, 8) if seen & flag)  # 8: noexec
