"""From a launch to a process: mounts, cgroup folders, log and spawn, and clearing up behind it.

`prepare` only decides; everything that touches the machine happens in `spawn`, after the plan is in the journal, so the
next keeper can clear up what a killed one had made. `limit` comes after the spawn, see `cgroups`.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH103, PTH106, PTH108, PTH116, PTH120

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from paddleflow.runtimes.local import cgroups, mounts, process, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.group_pool import GroupPool
from paddleflow.runtimes.local.isolation import IdMaps, Isolation
from paddleflow.runtimes.local.namespaces import Namespaces, can_fork_into, fork_into
from paddleflow.runtimes.local.process import reason

NOBODY = 65534
SHORT = 1.0  #: seconds; the groups of an attempt that ran longer are not used again
UNLIMITED = GroupPool(cgroups.Cgroups({}), lambda _seconds, _call: None)


class SpawnSpec(NamedTuple):
    """What will be spawned, and what the journal says of it."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    work: str
    log: str
    note: str
    plan: dict[str, Any]
    mounts: list[mounts.Mount]  #: to be made in a namespace of its own
    entered: bool  #: by the keeper itself, which steps in for the spawn; otherwise by the child
    isolation: Isolation | None = None  #: of another user's job


class Launcher:
    """Starts processes for one keeper."""

    def __init__(self, marker: str, keeper: str) -> None:
        self.marked = False  #: the marker of the last spawn is still there
        self.notes: list[str] = []  #: for the server's log, each once
        self.limits = UNLIMITED
        self._marker = marker
        self._keeper = keeper
        self._null = os.open("/dev/null", os.O_RDWR)
        self._between = 0, 0  #: ticks of the clock before and after the last spawn
        self._clock_is_true = False
        self._namespaces: Namespaces | None = None  #: made with the first mount
        self._enters = False  #: the keeper may step into them and back
        self._forks: bool | None = None  #: children of the keeper may make namespaces
        self._root = os.geteuid() == 0
        self.isolates = False  #: jobs of other users run under their own numbers
        self.processes = 0  #: that each of them may have at once
        self._id_maps = IdMaps()
        self._cores = os.cpu_count() or 1
        self._memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def prepare(self, launch: dict[str, Any]) -> SpawnSpec:
        name, argv, env, cwd = launch["attempt"], launch["argv"], launch["env"], launch["cwd"]
        wanted = [mounts.Mount(*mount) for mount in launch["mounts"]]
        # What is more than the machine has needs no enforcing.
        cpu = launch["cpu"] if 0 < launch["cpu"] < self._cores * 1000 else 0
        memory = launch["memory"] if 0 < launch["memory"] < self._memory else 0
        plan: dict[str, Any] = {"log": launch["log"], "word": argv[0] if argv else ""}
        if launch["port"] is not None:
            plan["port"] = launch["port"]
        groups = self.limits.names(cpu=cpu, memory=memory)
        if groups:
            plan |= {"groups": groups, "cpu": cpu, "memory": memory, "memory_text": launch["memory_text"]}
        env = {**env, procfs.ATTEMPT: name, procfs.KEEPER: self._keeper}
        note, entered, isolation = "", False, None
        if self.isolates and (uid := launch.get("uid")):
            mounts.check(wanted)
            isolation = Isolation(uid, os.path.dirname(self._marker), launch["work"].rpartition("/")[0], self.processes)
            env = {**env, **launch.get("own_env", {})}
            argv, env, cwd, note = mounts.mounted(wanted, argv, env, cwd)
        elif wanted:
            mounts.check(wanted)
            targets = [mount.target for mount in wanted]
            entered = self._can_enter() and not self._covers_ours(targets, plan["log"])
            if entered or self._can_fork():
                argv, env, cwd, note = mounts.mounted(wanted, argv, env, cwd)
            else:
                argv, env, cwd, note = mounts.rewritten(wanted, argv, env, cwd)
                wanted = []
        if not note and launch["log"].startswith("/") and not os.path.lexists(launch["log"]):
            plan["fresh"] = True  # its child makes the log: no marker is needed to know that it began
        return SpawnSpec(
            name, argv, env, cwd, launch.get("work", ""), launch["log"], note, plan, wanted, entered, isolation
        )

    def _covers_ours(self, targets: list[str], log: str) -> bool:
        """Whether mounts hide what the keeper itself needs while it is among them."""
        hidden = any(mounts.covered(path, targets) for path in (log, self._marker))
        return hidden or any(mounts.covered(target, ("/sys", "/proc")) for target in targets)

    def _can_enter(self) -> bool:
        """Whether the keeper may step into a namespace and back; found out once."""
        if self._namespaces is None:
            self._namespaces = Namespaces()
            self._enters = self._namespaces.are_possible()
        return self._enters

    def _can_fork(self) -> bool:
        """Whether a child may make a namespace, as root or in a user namespace; found out once."""
        if self._forks is None:
            self._forks = can_fork_into(users=not self._root)
        return self._forks

    def spawn(self, spec: SpawnSpec) -> int:
        """The pid; Refused or OSError when it cannot run."""
        process.make_folder(spec.work)
        if spec.isolation is not None:
            for folder in (spec.isolation.folder, spec.work):
                os.chown(folder, spec.isolation.uid, spec.isolation.uid, follow_symlinks=False)
        if not spec.entered:
            return self._spawn_here(spec)
        assert self._namespaces is not None, "the keeper enters only where it has tried to"
        self._namespaces.enter(lambda table: table.apply(spec.mounts))
        try:
            return self._spawn_here(spec)
        finally:
            self._namespaces.leave()

    def _spawn_here(self, spec: SpawnSpec) -> int:
        if spec.plan.get("fresh"):
            return self._spawn_with(spec, process.logged(spec.log, self._null))
        log = process.open_log(spec.log)
        try:
            if spec.note:
                os.write(log, spec.note.encode())
            self.marked = True
            return self._spawn_with(spec, process.marked(self._marker, log, self._null))
        finally:
            os.close(log)

    def _spawn_with(self, spec: SpawnSpec, streams: process.Actions) -> int:
        """By a fork where the child has mounts to make, otherwise by the cheaper posix_spawn."""
        word = spec.plan["word"] and spec.argv[0]
        if spec.isolation is not None or (spec.mounts and not spec.entered):
            return self._in_groups(spec, lambda: self._fork(word, spec, streams))
        process.enter(spec.cwd)
        try:
            file = process.find(word, spec.env.get("PATH", process.DEFAULT_PATH))
            return self._in_groups(spec, lambda: self._posix_spawn(file, spec, streams))
        finally:
            os.chdir("/")  # hold no folder of a job

    def _fork(self, word: str, spec: SpawnSpec, streams: process.Actions) -> int:
        isolation = spec.isolation
        owners = {os.stat(mount.source).st_uid for mount in spec.mounts} if isolation is not None else set[int]()
        maps = {owner: self._id_maps.get(owner, isolation.uid) for owner in owners} if isolation is not None else {}

        def view(table: mounts.MountTable) -> None:
            table.apply(spec.mounts, isolation.cover if isolation is not None else None, maps)

        def run() -> None:
            if isolation is not None:
                isolation.become()
            process.execute(word, spec.argv, spec.env, spec.cwd, spec.log)

        return fork_into(view, lambda: process.apply(streams), run, users=not self._root)

    def isolate(self, wanted: bool, processes: int) -> str:
        """Isolate users from now on, if wanted; what is in force, for a person."""
        self.isolates, self.processes = False, processes
        if not wanted:
            return "off: all jobs run as the server's account"
        if not self._root:
            return "single user: all jobs run as the server's account, which is not root"
        folder = os.path.dirname(self._marker)
        trial = Isolation(NOBODY, folder, f"{folder}/isolation-trial", 0)
        os.makedirs(trial.folder, exist_ok=True)
        try:
            users = self._id_maps.get(0, NOBODY)
            storage = [mounts.Mount("/usr", f"{trial.folder}/usr", True)]
            pid = fork_into(
                lambda table: table.apply(storage, trial.cover, {0: users}),
                lambda: None,
                lambda: (trial.become(), os._exit(0))[1],
                users=False,
            )
            os.waitpid(pid, 0)
        except (process.Refused, OSError) as error:
            return f"not possible here: all jobs run as the server's account ({error})"
        finally:
            os.rmdir(trial.folder)
        self.isolates = True
        return "by user: jobs of users other than root run under their own user numbers and see only their own files"

    def _posix_spawn(self, file: str, spec: SpawnSpec, streams: process.Actions) -> int:
        try:
            return process.spawn(file, spec.argv, spec.env, streams)
        except OSError as error:
            raise process.refused(spec.argv[0], file, spec.log, error) from error

    def _in_groups(self, spec: SpawnSpec, spawn: Callable[[], int]) -> int:
        """Spawn while the keeper is in the cgroups of the attempt."""
        inside = self._enter(spec.plan)
        self._between = procfs.clock_ticks(), 0
        try:
            pid = spawn()
            self._between = self._between[0], procfs.clock_ticks()
            return pid
        finally:
            if inside:
                self.limits.leave()

    def ticks_of(self, pid: int) -> int:
        """When the child that was spawned last began, as /proc tells it.

        The clock says the same where no tick passed meanwhile, for a tenth of the price; that it does is seen once.
        """
        first, last = self._between
        if self._clock_is_true and first == last:
            return first
        seen = procfs.stat(pid)
        if seen is not None and first == last:
            self._clock_is_true = seen.ticks == first
        return seen.ticks if seen else 0

    def _enter(self, plan: dict[str, Any]) -> bool:
        if not plan.get("groups"):
            return False
        try:
            self.limits.enter(plan["groups"])
        except OSError as error:
            self.notes.append(f"limits of an attempt are not enforced: {error.filename}: {reason(error)}")
            self.limits.leave()
            return False
        return True

    def limit(self, spec: SpawnSpec) -> str:
        """Set the limits of what was just spawned; not empty: why it must be stopped at once."""
        plan = spec.plan
        if not plan.get("groups"):
            return ""
        try:
            self.limits.tighten(plan["groups"], cpu=plan["cpu"], memory=plan["memory"])
        except OSError as error:
            if error.errno == errno.EBUSY:
                return f"memory limit of {plan['memory_text']} exceeded"
            self.notes.append(f"limits of an attempt are not enforced: {error.filename}: {reason(error)}")
        return ""

    def keeps(self, attempt: Attempt) -> bool:
        """Whether the groups of an attempt that has ended stay, for the next one with the same limits."""
        short = attempt.end is not None and attempt.end[0] - (attempt.started_at or 0.0) < SHORT
        return self.limits.take_back(attempt.plan["groups"], clean=short and attempt.empty)

    def clear_marker(self) -> None:
        self.marked = False
        try:
            os.unlink(self._marker)
        except FileNotFoundError:
            return
