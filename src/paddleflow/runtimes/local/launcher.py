"""From a launch to a process: mounts, cgroup folders, log and spawn, and clearing up behind it.

`prepare` only decides; everything that touches the machine happens in `spawn`, after the plan is in the journal, so the
next keeper can clear up what a killed one had made. `limit` comes after the spawn, see `cgroups`.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH108

from __future__ import annotations

import errno
import os
from typing import Any, NamedTuple

from paddleflow.runtimes.local import cgroups, mounts, process, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.group_pool import GroupPool
from paddleflow.runtimes.local.namespaces import Namespaces
from paddleflow.runtimes.local.process import reason

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
    mounts: list[mounts.Mount]  #: to be made before the spawn


class Launcher:
    """Starts processes for one keeper."""

    def __init__(self, marker: str, keeper: str) -> None:
        self.marked = False  #: the marker of the last spawn is still there
        self.notes: list[str] = []  #: for the server's log, each once
        self.limits = UNLIMITED
        self.points = mounts.MountPoints()
        self._marker = marker
        self._keeper = keeper
        self._null = os.open("/dev/null", os.O_RDWR)
        self._between = 0, 0  #: ticks of the clock before and after the last spawn
        self._clock_is_true = False
        self._namespaces: Namespaces | None = None  #: made with the first mount
        self._enters = False  #: the keeper may step into them and back
        self._kind = ""  #: how mounts are made where the keeper does not make them itself
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
        note = ""
        if wanted:
            mounts.check(wanted)
            wanted, (argv, env, cwd, note) = self._mounted(wanted, argv, env, cwd, plan)
        if not note and launch["log"].startswith("/") and not os.path.lexists(launch["log"]):
            plan["fresh"] = True  # its child makes the log: no marker is needed to know that it began
        return SpawnSpec(name, argv, env, cwd, launch.get("work", ""), launch["log"], note, plan, wanted)

    def _mounted(
        self, wanted: list[mounts.Mount], argv: list[str], env: dict[str, str], cwd: str, plan: dict[str, Any]
    ) -> tuple[list[mounts.Mount], mounts.Planned]:
        """Those that the keeper makes itself, and what to spawn."""
        targets = [mount.target for mount in wanted]
        if not mounts.makeable(targets):
            return [], mounts.plan(wanted, "none", argv, env, cwd)
        if self._can_enter() and not self._covers_ours(targets, plan["log"]):
            plan["made"] = self.points.needed(env[procfs.ATTEMPT], targets)
            return wanted, mounts.plan(wanted, "there", argv, env, cwd)
        self._kind = self._kind or mounts.probe()
        if self._kind != "none":
            plan["mounts"] = targets
            plan["made"] = self.points.needed(env[procfs.ATTEMPT], targets)
        return [], mounts.plan(wanted, self._kind, argv, env, cwd)

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

    def spawn(self, spec: SpawnSpec) -> int:
        """The pid; Refused or OSError when it cannot run."""
        plan = spec.plan
        self.points.make(plan.get("made", ()))
        process.make_folder(spec.work)
        if not spec.mounts:
            return self._spawn_here(spec)
        assert self._namespaces is not None, "mounts are planned only where namespaces are possible"
        self._namespaces.enter(spec.mounts)
        try:
            return self._spawn_here(spec)
        finally:
            self._namespaces.leave()

    def _spawn_here(self, spec: SpawnSpec) -> int:
        process.enter(spec.cwd)
        try:
            if spec.plan.get("fresh"):
                return self._spawn(spec, process.logged(spec.log, self._null))
            log = process.open_log(spec.log)
            try:
                if spec.note:
                    os.write(log, spec.note.encode())
                self.marked = True
                return self._spawn(spec, process.marked(self._marker, log, self._null))
            finally:
                os.close(log)
        finally:
            os.chdir("/")  # hold no folder of a job

    def _spawn(self, spec: SpawnSpec, streams: process.Actions) -> int:
        word = spec.plan["word"] and spec.argv[0]
        file = process.find(word, spec.env.get("PATH", process.DEFAULT_PATH))
        inside = self._enter(spec.plan)
        self._between = procfs.clock_ticks(), 0
        try:
            pid = process.spawn(file, spec.argv, spec.env, streams)
            self._between = self._between[0], procfs.clock_ticks()
            return pid
        except OSError as error:
            raise process.refused(spec.argv[0], file, spec.log, error) from error
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

    def clear(self, attempt: Attempt) -> None:
        """Remove the mount points that were made for an attempt that has ended."""
        if made := attempt.plan.get("made"):
            self.points.release(attempt.name, made)

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
