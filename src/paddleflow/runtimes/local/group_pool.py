"""Cgroup folders that are used again: making and removing them is a third of what a short attempt costs the keeper.

A group waits for the next attempt with the same limits when the last one was short and left nothing: no process, no
group of its own inside, next to no memory (page cache, files in memory), nobody killed for want of memory. Its limits are
written again before the keeper steps in, which also fills its CPU quota again: neither the next attempt nor the keeper
pays for what the last one used. The keeper is inside with the limits in force, so small limits are never shared.

Attempts that follow each other may so name the same folders in the journal, but only one of them has not ended, and the
ends of the others are written before it: see `recovery`. Idle groups bear the keeper's pid like all others and are found
by their base folder: the next keeper removes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from paddleflow.runtimes.local import cgroups
from paddleflow.runtimes.local.cgroups import Cgroups

MOST = 32  #: groups with open files, nine each: idle ones, and those that an attempt has for a second time
IDLE = 10.0  #: seconds; what was not used between two checks goes
LEAST_CPU = 100  #: thousandths of a core: less, and the keeper itself may have to wait for the next period
LEAST_MEMORY = 64 << 20  #: less, and what the keeper needs for a spawn would count
CARRIED = 16  #: a group may hold this part of its limit when it is used again

Limits = tuple[int, int]  #: thousandths of a core, bytes
Later = Callable[[float, Callable[[], None]], None]


class Files:
    """The open files of a group: to write to one takes a sixth of what it takes with opening it.

    Not `cgroup.procs` for reading: in version 1 the kernel gives an open file the same answer again for a second.
    """

    def __init__(self, groups: Cgroups, folders: list[str], limits: Limits) -> None:
        self._opened: list[int] = []
        try:
            self._folders = [self._open(folder, os.O_RDONLY) for folder in folders]
            self._entries = [self._open(path, os.O_WRONLY) for path in groups.entry_files(folders)]
            cpu, memory = limits
            self._limits = [
                (self._open(path, os.O_WRONLY), text.encode("ascii"))
                for path, text in groups.settings(folders, cpu=cpu, memory=memory)
            ]
            self._memory = [self._open(path, os.O_RDONLY) for path in groups.memory_files(folders)] if memory else []
        except OSError:
            self.close()
            raise

    def _open(self, path: str, how: int) -> int:
        self._opened.append(os.open(path, how))
        return self._opened[-1]

    def enter(self) -> None:
        for fd, text in self._limits:
            os.write(fd, text)
        for fd in self._entries:
            os.write(fd, b"0")

    def is_fresh(self, memory: int) -> bool:
        """Whether it has no group inside, nobody was killed for want of memory, and next to none of it is in use."""
        for fd in self._folders:
            if os.fstat(fd).st_nlink > 2:
                return False
        if not self._memory:
            return True
        events, usage = self._memory
        # Where the kernel does not count those that it killed, no group is used again.
        return b"\noom_kill 0\n" in os.pread(events, 4096, 0) and int(os.pread(usage, 64, 0)) * CARRIED <= memory

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())


class Group:
    """The folders of one attempt after the other."""

    __slots__ = ("files", "folders", "idle", "limits", "round")

    def __init__(self, folders: list[str], limits: Limits, at: int) -> None:
        self.folders = folders
        self.limits = limits
        self.files: Files | None = None  #: opened when it comes back for the first time
        self.idle = False
        self.round = at  #: of `GroupPool`, when it was last given or taken back


class GroupPool:
    """Groups for attempts, old ones where there are."""

    def __init__(self, groups: Cgroups, later: Later, *, most: int = MOST) -> None:
        self._most = most
        self._cgroups = groups
        self._later = later
        self._groups: dict[str, Group] = {}  #: by first folder; what is not here is for one attempt only
        self._idle: dict[Limits, list[Group]] = {}
        self._open = 0
        self._round = 0
        self._scheduled = False

    def names(self, *, cpu: int, memory: int) -> list[str]:
        """Folders for an attempt with these limits; the next call may give the same until `enter` takes them."""
        idle = self._idle.get((cpu, memory))
        return idle[-1].folders if idle else self._cgroups.names(cpu=cpu, memory=memory)

    def enter(self, folders: list[str]) -> None:
        """Step in; what is spawned now is born there."""
        group = self._groups.get(folders[0])
        if group is not None and group.idle and group.files is not None:
            self._idle[group.limits].remove(group)
            group.idle = False
            group.round = self._round
            try:
                group.files.enter()
            except OSError:  # somebody removed or changed it: once more from the beginning, as the journal names it
                self.leave()
                self._forget(group)
                cgroups.remove(folders)
            else:
                return
        self._cgroups.make(folders)
        self._cgroups.enter(folders)

    def leave(self) -> None:
        self._cgroups.leave()

    def tighten(self, folders: list[str], *, cpu: int, memory: int) -> None:
        """Set the limits of a new group; OSError EBUSY when the attempt is already beyond its memory."""
        if folders[0] in self._groups:
            return
        self._cgroups.tighten(folders, cpu=cpu, memory=memory)
        if (not cpu or cpu >= LEAST_CPU) and (not memory or memory >= LEAST_MEMORY):
            self._groups[folders[0]] = Group(folders, (cpu, memory), self._round)
            self._check_later()

    def take_back(self, folders: list[str], *, clean: bool) -> bool:
        """Whether they stay: for an attempt that never entered them, or one that was short and left no process."""
        group = self._groups.get(folders[0])
        if group is None or group.idle:
            return group is not None
        if not (clean and self._is_fresh(group)):
            self._forget(group)
            return False
        group.idle = True
        group.round = self._round
        self._idle.setdefault(group.limits, []).append(group)
        self._check_later()
        return True

    def _is_fresh(self, group: Group) -> bool:
        try:
            if group.files is None:
                if self._open >= self._most:
                    return False
                group.files = Files(self._cgroups, group.folders, group.limits)
                self._open += 1
            return group.files.is_fresh(group.limits[1])
        except (OSError, ValueError):
            return False

    def _forget(self, group: Group) -> None:
        """It is for this attempt only, from now on."""
        del self._groups[group.folders[0]]
        if group.files is not None:
            group.files.close()
            self._open -= 1

    def _check_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._later(IDLE, self._expire)

    def _expire(self) -> None:
        """Remove what nobody wanted since the last check, and let go of what an attempt has had since then."""
        self._scheduled = False
        for group in [group for group in self._groups.values() if group.round < self._round]:
            self._drop(group)
        self._round += 1
        if self._groups:
            self._check_later()

    def _drop(self, group: Group) -> None:
        self._forget(group)
        if group.idle:
            self._idle[group.limits].remove(group)
            if not self._idle[group.limits]:
                del self._idle[group.limits]
            cgroups.remove(group.folders)

    def close(self) -> None:
        """Remove what is idle and close all files."""
        for group in list(self._groups.values()):
            self._drop(group)
        with suppress(OSError):
            self._cgroups.close()
