"""The FUSE device and the mount itself: as root by the system call, otherwise by fusermount3.

`Device` is the descriptor that requests come from; further threads or processes read from clones of it. Backing files are
how passthrough is asked for. Everything here is a thin layer over system calls; errors are OSError, or `Unavailable` and
`Forbidden` in words where a person can do something about them.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.fs import kernel

FILE_SYSTEM = "paddleflow"  #: the type that `mount` and /proc/mounts show is fuse.paddleflow
_CLONE, _BACKING_OPEN, _BACKING_CLOSE = 0x8004E500, 0x4010E501, 0x4004E502
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Device:
    """An open /dev/fuse that belongs to a mount."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def clone(self) -> int:
        """A descriptor with a queue of its own for answers: a second reader does not wait for the first."""
        made = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(made, _CLONE, struct.pack("<I", self.fd))
        except OSError:
            os.close(made)
            raise
        return made

    def open_backing(self, fd: int) -> int:
        """Lend a file to the kernel, which then reads and writes it by itself; the id to answer OPEN with."""
        found: int = fcntl.ioctl(self.fd, _BACKING_OPEN, bytearray(struct.pack("<iIQ", fd, 0, 0)))
        return found

    def close_backing(self, backing: int) -> None:
        fcntl.ioctl(self.fd, _BACKING_CLOSE, struct.pack("<I", backing))

    def expire_attributes(self, node: int) -> None:
        """Make the kernel ask for a node's attributes again, although it may remember them."""
        try:
            os.write(self.fd, kernel.pack_attributes_stale(node))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # the kernel has forgotten it, or is gone
                raise

    def resend(self) -> None:
        """Make the kernel send all requests again that have no answer yet."""
        try:
            os.write(self.fd, kernel.pack_resend())
        except OSError as error:
            if error.errno != errno.ENODEV:  # unmounted meanwhile: nobody waits
                raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def mount(source: str, folder: Path, *, read_only: bool, allow_other: bool, noexec: bool = False) -> Device:
    """Mount on a folder. As root directly, for others by fusermount3."""
    try:
        if not folder.is_dir():
            raise Invalid(f"{folder} is not a folder to mount on", hint=f"mkdir -p {folder}")
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            hint = f"paddleflow fs umount {folder}"
            raise Conflict(f"{folder} has a mount whose process is gone", hint=hint) from error
        raise Unavailable(f"{folder} cannot be used: {error.strerror}") from error
    if os.geteuid() == 0:
        return _mount_directly(source, folder, read_only=read_only, allow_other=allow_other, noexec=noexec)
    return _mount_by_helper(source, folder, read_only=read_only, allow_other=allow_other, noexec=noexec)


def _mount_directly(source: str, folder: Path, *, read_only: bool, allow_other: bool, noexec: bool) -> Device:
    try:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        hint = "load the kernel's module fuse, or give the container the device /dev/fuse"
        raise Unavailable(f"/dev/fuse cannot be opened: {error.strerror}", hint=hint) from error
    options = f"fd={fd},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},default_permissions"
    options += ",allow_other" if allow_other else ""
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0) | (_MS_NOEXEC if noexec else 0)
    kind = f"fuse.{FILE_SYSTEM}".encode()
    if _libc.mount(_safe(source).encode(), os.fsencode(folder), kind, flags, options.encode()) != 0:
        number = ctypes.get_errno()
        os.close(fd)
        raise _mount_error(folder, number)
    return Device(fd)


def _mount_error(folder: Path, number: int) -> PaddleFlowError:
    if number == errno.EPERM:
        hint = "a container needs CAP_SYS_ADMIN to mount"
        return Forbidden(f"mounting on {folder} is not allowed here", hint=hint)
    if number == errno.ENODEV:
        return Unavailable("this kernel has no FUSE", hint="load the kernel's module fuse")
    return Unavailable(f"mounting on {folder} failed: {os.strerror(number)}")


def _mount_by_helper(source: str, folder: Path, *, read_only: bool, allow_other: bool, noexec: bool) -> Device:
    """fusermount3 is set-uid root; it opens the device, mounts, and sends the descriptor through a socket."""
    helper = shutil.which("fusermount3") or shutil.which("fusermount")
    if helper is None:
        hint = "install it (Debian: apt-get install fuse3), or mount as root"
        raise Unavailable("fusermount3 is not installed; it mounts for users other than root", hint=hint)
    options = f"fsname={_safe(source)},subtype={FILE_SYSTEM},default_permissions,nosuid,nodev"
    options += ",ro" if read_only else ",rw"
    options += ",noexec" if noexec else ""
    options += ",allow_other" if allow_other else ""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        with theirs:
            done = subprocess.run(
                ["env", f"_FUSE_COMMFD={theirs.fileno()}", helper, "-o", options, "--", str(folder)],
                pass_fds=[theirs.fileno()],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        if done.returncode != 0:
            why = done.stderr.strip() or f"fusermount3 ended with {done.returncode}"
            hint = "set user_allow_other in /etc/fuse.conf" if "user_allow_other" in why else ""
            if "/dev/fuse" in why:
                hint = "have root let users open the device: chmod 666 /dev/fuse"
            raise Forbidden(f"mounting on {folder} failed: {why}", hint=hint)
        descriptors = array.array("i")
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: descriptors.itemsize])
            os.set_inheritable(descriptors[0], False)
            return Device(descriptors[0])
    raise Unavailable("fusermount3 mounted but sent no descriptor", hint="check its version: fusermount3 -V")


def unmount(folder: Path, *, force: bool = False) -> None:
    """Unmount; with `force` also one that is in use: it goes away when the last user has closed it."""
    if not is_mounted(folder):
        raise NotFound(f"nothing of PaddleFlow is mounted on {folder}", hint="findmnt -t fuse.paddleflow")
    if os.geteuid() == 0:
        if _libc.umount2(os.fsencode(folder), _MNT_DETACH if force else 0) == 0:
            return
        number = ctypes.get_errno()
        if number == errno.EBUSY:
            raise Conflict(f"{folder} is in use", hint="see who with fuser -vm, or umount -f")
        raise Unavailable(f"unmounting {folder} failed: {os.strerror(number)}")
    helper = shutil.which("fusermount3") or shutil.which("fusermount") or "fusermount3"
    command: Sequence[str] = [helper, "-u", *(["-z"] if force else []), "--", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        busy = "busy" in done.stderr
        hint = "see who with fuser -vm, or umount -f" if busy else ""
        raise Conflict(f"unmounting {folder} failed: {done.stderr.strip()}", hint=hint)


def is_mounted(folder: Path) -> bool:
    """Whether a mount of ours is on this folder. Reads the table of mounts, so a dead one does not block it."""
    return str(folder) in mounted_folders()


def mounted_folders() -> list[str]:
    found = []
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        words = line.split(b" ")
        if words[2] == f"fuse.{FILE_SYSTEM}".encode():
            # blanks and the like stand there in octal
            plain = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), words[1])
            found.append(os.fsdecode(plain))
    return found


def _safe(source: str) -> str:
    """The source as `mount` shows it: commas and blanks would be taken for options."""
    return "".join("_" if letter in ",\\ \n\t" else letter for letter in source)[:200]
