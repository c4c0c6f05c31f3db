"""A mount namespace for one spawn: the keeper steps into a new one, mounts, spawns, and steps back. As root only.

What is spawned meanwhile lives in it and is its only user, so it goes with the attempt. A tenth of a millisecond, where
``unshare`` and ``mount`` as programs of their own take four. Whatever the keeper opens by its path in between must not be
below a target: see `Launcher`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from paddleflow.runtimes.local.mounts import Mount
from paddleflow.runtimes.local.process import Refused

_NEW_MOUNTS = 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _ALL_BELOW, _PRIVATE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 18


class Namespaces:
    """In and out, for one keeper. It has one thread, so it may change its own namespace for a moment."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._home = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        self._root = os.open("/", os.O_RDONLY)  # stepping back leads to the namespace's root, which need not be ours

    def are_possible(self) -> bool:
        """Whether it works here, tried by a child: who cannot step back is lost."""
        pid = os.fork()
        if pid == 0:
            try:
                self.enter(())
                self.leave()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1] == 0

    def enter(self, mounts: Iterable[Mount]) -> None:
        """Step into a new namespace with these mounts; Refused, and at home, when one of them cannot be made."""
        self._call("unshare", _NEW_MOUNTS)
        try:
            self._mount("none", "/", _ALL_BELOW | _PRIVATE)  # nothing of what follows is seen outside
            for mount in mounts:
                self._bind(mount)
        except BaseException:
            self.leave()
            raise

    def _bind(self, mount: Mount) -> None:
        try:
            self._mount(mount.source, mount.target, _BIND)
            if mount.read_only:
                self._mount("none", mount.target, _REMOUNT | _BIND | _READ_ONLY)
        except OSError as error:
            what = f"cannot mount {mount.source} at {mount.target}"
            raise Refused(f"{what}: {(error.strerror or '').lower()}") from error

    def leave(self) -> None:
        """Step back."""
        self._call("setns", self._home, _NEW_MOUNTS)
        os.fchdir(self._root)
        os.chroot(".")

    def _mount(self, source: str, target: str, flags: int) -> None:
        self._call("mount", os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None)

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._libc, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
