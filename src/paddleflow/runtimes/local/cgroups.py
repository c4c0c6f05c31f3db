"""CPU and memory limits by cgroups, version 1 or 2, whichever has the controller and may be written.

An attempt with limits gets a folder of its own below the keeper's own cgroup. The cheapest way without a race: the
keeper steps into the folder, spawns, steps out, and only then sets the limits. So every process of the attempt was born
inside; and the keeper is not inside a limit, where it would be the largest process and the first to be killed.
`group_pool` uses folders with larger limits again, since making and removing them costs most. In version 1 the keeper steps by the file
`tasks`, which moves a thread, and the keeper has one: `cgroup.procs` moves a whole process, for which the kernel first waits
until every core has passed a quiet point, 10 ms and more where launches are seldom.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH102, PTH103, PTH106, PTH110, PTH119, PTH120

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

from paddleflow.runtimes.local import procfs

ROOT = "/sys/fs/cgroup"
PERIOD = 100_000  #: microseconds of a CPU quota's period
DELEGATE_HINT = "under systemd, Delegate=yes and DelegateSubgroup=server in the unit give them"


class Hierarchy(NamedTuple):
    """Where one controller lets us make groups."""

    version: int
    home: str  #: the keeper's own group
    base: str  #: the folder that holds the attempts' groups


class OwnGroup(NamedTuple):
    """The keeper's own group of one controller."""

    version: int
    folder: str


def own_groups(mountinfo: str, cgroup: str) -> dict[str, OwnGroup]:
    """Controller → own folder, from /proc/self/mountinfo and /proc/self/cgroup. ``""`` is version 2."""
    paths: dict[str, str] = {}
    for row in cgroup.splitlines():
        _, names, path = row.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    found: dict[str, OwnGroup] = {}
    for row in mountinfo.splitlines():
        left, _, right = row.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, mountpoint = left.split(" ")[3:5]
        if kind == "cgroup2" and "" in paths:
            found.setdefault("", OwnGroup(2, _within(mountpoint, root, paths[""])))
        elif kind == "cgroup":
            for name in options.replace(" ", ",").split(","):
                if name in ("cpu", "memory") and name in paths:
                    found.setdefault(name, OwnGroup(1, _within(mountpoint, root, paths[name])))
    return found


def _within(mountpoint: str, root: str, path: str) -> str:
    """A group's folder: its path counts from the top of the hierarchy, the mount may show only a part of that."""
    inner = path.removeprefix(root) if root != "/" else path
    return (mountpoint + "/" + inner.strip("/")).rstrip("/")


def locate(name: str) -> tuple[dict[str, Hierarchy], str]:
    """Hierarchies for ``cpu`` and ``memory`` with the folder `name` made in each, and why a controller is missing."""
    mountinfo = (procfs.read("/proc/self/mountinfo") or b"").decode("utf-8", "surrogateescape")
    cgroup = (procfs.read("/proc/self/cgroup") or b"").decode("utf-8", "surrogateescape")
    own = own_groups(mountinfo, cgroup)
    hierarchies: dict[str, Hierarchy] = {}
    reasons = []
    for controller in ("cpu", "memory"):
        member = own.get(controller) or own.get("")
        if member is None:
            reasons.append(f"no cgroup of the controller {controller} is mounted")
            continue
        try:
            hierarchies[controller] = _prepared(controller, member, name)
        except OSError as error:
            reasons.append(f"{controller}: {error.filename or member.folder}: {(error.strerror or '').lower()}")
    return hierarchies, "; ".join(reasons)


def _prepared(controller: str, member: OwnGroup, name: str) -> Hierarchy:
    if member.version == 1:
        hierarchy = Hierarchy(1, member.folder, f"{member.folder}/{name}")
        _open_base(controller, hierarchy)
        return hierarchy
    # Version 2 hands a controller only to groups whose parent holds no process: our own group is seldom such a parent,
    # but the one above is when the server was started in a subgroup of a delegated one.
    failure: OSError | None = None
    for parent in (member.folder, os.path.dirname(member.folder)):
        hierarchy = Hierarchy(2, member.folder, f"{parent}/{name}")
        try:
            _open_base(controller, hierarchy)
        except OSError as error:
            failure = failure or error
        else:
            return hierarchy
    assert failure is not None
    failure.strerror = f"{failure.strerror} ({DELEGATE_HINT})"
    raise failure


def _open_base(controller: str, hierarchy: Hierarchy) -> None:
    if hierarchy.version == 2:
        _enable(os.path.dirname(hierarchy.base), controller)
    os.makedirs(hierarchy.base, exist_ok=True)
    if hierarchy.version == 2:
        _enable(hierarchy.base, controller)


def _enable(folder: str, controller: str) -> None:
    path = f"{folder}/cgroup.subtree_control"
    with open(path) as file:
        if controller in file.read().split():
            return
    write(path, f"+{controller}")


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode("ascii"))
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


class Cgroups:
    """The groups of one keeper."""

    def __init__(self, hierarchies: dict[str, Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._homes: list[int] = []

    def names(self, *, cpu: int, memory: int) -> list[str]:
        """Folders for a new attempt with these limits (thousandths of a core, bytes; 0: none); not yet made."""
        wanted = {"cpu": cpu, "memory": memory}
        # Never the same name twice: a group is killed with its attempt. The pid is for `clear_empty`.
        name = f"{os.getpid()}-{os.urandom(6).hex()}"
        return sorted({f"{hierarchy.base}/{name}" for key, hierarchy in self._hierarchies.items() if wanted[key]})

    def make(self, folders: Iterable[str]) -> None:
        for folder in folders:
            try:
                os.mkdir(folder)
            except FileNotFoundError:  # another keeper found our base empty and cleared it away
                for controller, hierarchy in self._hierarchies.items():
                    if folder.startswith(hierarchy.base + "/"):
                        _open_base(controller, hierarchy)
                os.mkdir(folder)

    def enter(self, folders: Iterable[str]) -> None:
        """Step in; what is spawned now is born there."""
        for entry in self.entry_files(folders):
            write(entry, "0")

    def entry_files(self, folders: Iterable[str]) -> list[str]:
        """The files by which one steps into these groups."""
        versions = {hierarchy.base: hierarchy.version for hierarchy in self._hierarchies.values()}
        return [_entry_file(versions[os.path.dirname(folder)], folder) for folder in folders]

    def leave(self) -> None:
        """Step back into the keeper's own groups, by files that stay open: this is done at every launch."""
        if not self._homes:
            homes = {_entry_file(hierarchy.version, hierarchy.home) for hierarchy in self._hierarchies.values()}
            self._homes = [os.open(home, os.O_WRONLY) for home in homes]
        for fd in self._homes:
            os.write(fd, b"0")

    def close(self) -> None:
        while self._homes:
            os.close(self._homes.pop())

    def tighten(self, folders: list[str], *, cpu: int, memory: int) -> None:
        """Set the limits; OSError EBUSY when the attempt is already beyond its memory."""
        for path, text in self.settings(folders, cpu=cpu, memory=memory):
            write(path, text)

    def settings(self, folders: list[str], *, cpu: int, memory: int) -> list[tuple[str, str]]:
        """The files that set these limits, and what to write to each."""
        found: list[tuple[str, str]] = []
        for controller, hierarchy in self._hierarchies.items():
            folder = next((folder for folder in folders if os.path.dirname(folder) == hierarchy.base), None)
            if folder is None:
                continue
            if controller == "cpu" and cpu:
                quota = max(cpu * PERIOD // 1000, 1000)
                name, text = ("cpu.cfs_quota_us", "") if hierarchy.version == 1 else ("cpu.max", f" {PERIOD}")
                found.append((f"{folder}/{name}", f"{quota}{text}"))
            if controller == "memory" and memory:
                found += _memory_settings(hierarchy.version, folder, memory)
        return found

    def memory_files(self, folders: Iterable[str]) -> tuple[str, str]:
        """Of the group that limits memory: where the kernel says whom it killed, and how much is in use."""
        hierarchy = self._hierarchies["memory"]
        folder = next(folder for folder in folders if os.path.dirname(folder) == hierarchy.base)
        names = (
            ("memory.oom_control", "memory.usage_in_bytes")
            if hierarchy.version == 1
            else ("memory.events", "memory.current")
        )
        return f"{folder}/{names[0]}", f"{folder}/{names[1]}"


def _entry_file(version: int, folder: str) -> str:
    return f"{folder}/{'tasks' if version == 1 else 'cgroup.procs'}"


def _memory_settings(version: int, folder: str, memory: int) -> list[tuple[str, str]]:
    limit, swap = (
        ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", str(memory)))
        if version == 1
        else ("memory.max", ("memory.swap.max", "0"))
    )
    found = [(f"{folder}/{limit}", str(memory))]
    if os.path.exists(f"{folder}/{swap[0]}"):
        found.append((f"{folder}/{swap[0]}", swap[1]))
    if version == 2:
        found.append((f"{folder}/memory.oom.group", "1"))
    return found


def out_of_memory(folders: Iterable[str]) -> bool:
    """Whether the kernel killed something in these groups for its memory."""
    for folder in folders:
        for name in ("memory.oom_control", "memory.events"):
            for row in (procfs.read(f"{folder}/{name}") or b"").split(b"\n"):
                if row.startswith(b"oom_kill ") and row != b"oom_kill 0":
                    return True
    return False


def kill(folders: Iterable[str]) -> bool:
    """SIGKILL to everything inside; whether there was anything."""
    found = False
    for folder in folders:
        for word in (procfs.read(f"{folder}/cgroup.procs") or b"").split():
            found = True
            try:
                os.kill(int(word), signal.SIGKILL)
            except OSError:
                continue
    return found


def remove(folders: Iterable[str]) -> bool:
    """Whether all of these are gone now."""
    done = True
    for folder in folders:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            done = done and error.errno not in (errno.EBUSY, errno.ENOTEMPTY)
    return done


def left_over(hierarchies: dict[str, Hierarchy]) -> list[str]:
    """Groups that a crashed keeper of the same data folder left."""
    return [path for base in {hierarchy.base for hierarchy in hierarchies.values()} for path in _folders(base)]


def clear_empty(hierarchies: dict[str, Hierarchy]) -> None:
    """Remove what crashed keepers of other data folders left, if no process is in it.

    Groups bear the pid of their keeper; those of one that lives stay. Its empty base may go: it makes it again.
    """
    for hierarchy in hierarchies.values():
        above, name = os.path.split(hierarchy.base)
        prefix = name.partition("-")[0] + "-"
        for base in _folders(above):
            if base != hierarchy.base and os.path.basename(base).startswith(prefix):
                groups = _folders(base)
                remove(path for path in groups if not _is_keeper(os.path.basename(path).partition("-")[0]))
                remove([base])


def _is_keeper(pid: str) -> bool:
    return procfs.read(f"/proc/{pid}/comm") == b"pf-keeper\n"


def _folders(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path) if entry.is_dir()]
    except OSError:
        return []
