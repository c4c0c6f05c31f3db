"""From a launch to a process: mounts, cgroup folders, log and spawn, and clearing up behind it.

`prepare` only decides; everything that touches the machine happens in `spawn`, after the plan is in the journal, so the
next keeper can clear up what a killed one had made. `limit` comes after the spawn, see `cgroups`.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH103, PTH106, PTH108, PTH116, PTH120

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paddleflow.runtimes.local import cgroups, container_end, mounts, process, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.group_pool import GroupPool
from paddleflow.runtimes.local.isolation import Account, IdMaps, Restricted, View, limited
from paddleflow.runtimes.local.namespaces import Namespaces, can_fork_into, fork_into
from paddleflow.runtimes.local.process import reason
from paddleflow.runtimes.local.sandbox import Later, RootSandboxDriver, Sandbox, SandboxDriver, Sandboxes
from paddleflow.runtimes.local.turns import take_short_turns
from paddleflow.runtimes.local.user_sandbox import UserSandboxDriver, own_folders

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
    account: Account | None = None  #: of an isolated job, which runs in a sandbox


class Launcher:
    """Starts processes for one keeper."""

    def __init__(self, marker: str, keeper: str, later: Later = lambda _seconds, _call: None) -> None:
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
        self.isolates = False  #: jobs of other users run in sandboxes
        self.processes = 0  #: that each of these users may have at once
        self.sandboxes = Sandboxes(keeper, f"{os.path.dirname(marker)}/keeper.sandboxes", later)
        self._hidden: tuple[str, ...] = ()
        self._shown: tuple[str, ...] = ()
        self._view: View | None = None
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
        note, entered, account = "", False, None
        if container := launch.get("container"):
            plan["container"] = container
        if self.isolates and (uid := launch.get("uid")):
            mounts.check(wanted)
            account, plan["uid"] = Account(uid, self.processes), uid
            argv, env, cwd, note = mounts.mounted(wanted, argv, {**env, **launch.get("own_env", {})}, cwd)
            folder = launch["work"].rpartition("/")[0]
            wanted = [mounts.Mount(folder, folder, False), *wanted]
            mounts.make_nested(wanted)
        elif wanted:
            mounts.check(wanted)
            targets = [mount.target for mount in wanted]
            entered = self._can_enter() and not self._covers_ours(targets, plan["log"])
            if entered or self._can_fork():
                mounts.make_nested(wanted)
                argv, env, cwd, _ = mounts.mounted(wanted, argv, env, cwd)
                note = mounts.closed_note(wanted)
            else:
                argv, env, cwd, note = mounts.rewritten(wanted, argv, env, cwd)
                wanted = []
        note = launch.get("note", "") + note
        if not note and launch["log"].startswith("/") and not os.path.lexists(launch["log"]):
            plan["fresh"] = True  # its child makes the log: no marker is needed to know that it began
        elif account is not None:  # which cannot reach the marker of the others
            plan["marker"] = f"{launch['log']}.began"
            self.remove(plan["marker"])
        return SpawnSpec(
            name, argv, env, cwd, launch.get("work", ""), launch["log"], note, plan, wanted, entered, account
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
        if spec.account is not None:
            for folder in (spec.mounts[0].location, spec.work) if self._root else ():
                os.chown(folder, spec.account.uid, spec.account.uid, follow_symlinks=False)
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
            process.note_begin(spec.log, spec.name, log)
            if spec.note:
                os.write(log, spec.note.encode())
            marker = spec.plan.get("marker")
            self.marked = marker is None
            return self._spawn_with(spec, process.marked(marker or self._marker, log, self._null))
        finally:
            os.close(log)

    def _spawn_with(self, spec: SpawnSpec, streams: process.Actions) -> int:
        """By a fork where the child has mounts to make, otherwise by the cheaper posix_spawn."""
        word = spec.plan["word"] and spec.argv[0]
        if spec.account is not None:
            return self._isolated(word, spec, spec.account, streams)
        if spec.mounts and not spec.entered:
            return self._in_groups(spec, lambda: self._fork(word, spec, streams))
        process.enter(spec.cwd)
        try:
            file = process.find(word, spec.env.get("PATH", process.DEFAULT_PATH))
            return self._in_groups(spec, lambda: self._posix_spawn(file, spec, streams))
        finally:
            os.chdir("/")  # hold no folder of a job

    def _fork(self, word: str, spec: SpawnSpec, streams: process.Actions) -> int:
        return fork_into(
            lambda table: table.apply(spec.mounts),
            lambda: process.apply(streams),
            lambda: process.execute(word, spec.argv, spec.env, spec.cwd, spec.log),
            users=not self._root,
        )

    # ------------------------------------------------------------------ isolation

    def _isolated(self, word: str, spec: SpawnSpec, account: Account, streams: process.Actions) -> int:
        """In the sandbox of its job, by the restricted thread."""
        driver = self.sandboxes.driver
        assert driver is not None, "only where it was found possible"
        sandbox = self.sandboxes.lease(spec.name, job_of(spec.name), account.uid, self.view)
        maps: dict[str, int] = {}
        for mount in spec.mounts[1:] if self._root else ():
            owner = os.stat(mount.source).st_uid
            if owner != account.uid:
                maps[mount.source] = self._id_maps.get(owner, account.uid)

        def start() -> int:
            if not self._root:
                process.apply(streams)
                process.execute(word, spec.argv, spec.env, spec.cwd, spec.log)
            process.enter(spec.cwd)
            file = process.find(word, spec.env.get("PATH", process.DEFAULT_PATH))
            return self._posix_spawn(file, spec, streams)

        with limited(account.processes if self._root else 0):
            return self._in_groups(spec, lambda: driver.spawn(sandbox, account, spec.mounts, maps, start))

    @property
    def view(self) -> View:
        """What isolated jobs see, by what the server said last."""
        if self._view is None:
            hidden = self._hidden if self._root else (*self._hidden, *own_folders())
            self._view = View.of(os.path.dirname(self._marker), hidden, self._shown)
        return self._view

    def hide(self, folders: Sequence[str]) -> None:
        """From jobs that are isolated from now on."""
        self._hidden, self._view = tuple(folders), None

    def show(self, folders: Sequence[str]) -> None:
        """To them, although they lie below something that is hidden."""
        self._shown, self._view = tuple(folders), None

    def isolate(self, wanted: bool, processes: int) -> str:
        """Isolate users from now on, if wanted; what is in force, for a person."""
        self.isolates, self.processes = False, processes
        if not wanted:
            return "off: all jobs run as the server's account"
        try:
            if self.sandboxes.driver is None:
                self.sandboxes.driver = self._tried(
                    RootSandboxDriver(Restricted(take_short_turns)) if self._root else UserSandboxDriver()
                )
        except (process.Refused, OSError) as error:
            if not self._root:
                return f"single user: all jobs run as the server's account, which is not root ({error})"
            return f"not possible here: all jobs run as the server's account ({error})"
        self.isolates = True
        if not self._root:
            return (
                "by namespace: jobs of users other than root run as the server's account, in a view of the machine that cannot "
                "be changed and has neither its home nor the files of others"
            )
        return "by user: jobs of users other than root run under their own user numbers and see only their own files"

    def _tried(self, driver: SandboxDriver) -> SandboxDriver:
        """The same after a trial of all that it does."""
        folder = f"{os.path.dirname(self._marker)}/isolation-trial"
        os.makedirs(folder, exist_ok=True)
        self.sandboxes.sign()
        sandbox = Sandbox(driver.make(self.view, self.sandboxes.environment(NOBODY), kept=False), NOBODY, self.view)
        try:
            inside = [mounts.Mount(folder, folder, False), mounts.Mount("/usr", f"{folder}/usr", True)]
            maps = {"/usr": self._id_maps.get(0, NOBODY)} if self._root else {}
            command = ["sh", "-c", "test $$ -lt 10 && test -d /proc/$$"]

            def start() -> int:
                if not self._root:
                    process.execute(command[0], command, {}, "/", "")
                return process.spawn("/bin/sh", command, {}, [])

            child = driver.spawn(sandbox, Account(NOBODY, 0), inside, maps, start)
            if os.waitpid(child, 0)[1]:
                raise OSError(errno.EINVAL, "its own processes are not what a job would see in /proc")
        finally:
            os.kill(sandbox.pid, signal.SIGKILL)
            os.waitpid(sandbox.pid, 0)
            sandbox.close()
            os.rmdir(folder)
        return driver

    def _posix_spawn(self, file: str, spec: SpawnSpec, streams: process.Actions) -> int:
        try:
            return process.spawn(file, spec.argv, spec.env, streams)
        except OSError as error:
            if error.errno == errno.EAGAIN and spec.account is not None:
                raise process.Refused(
                    f"its user has {spec.account.processes} processes, the most that is allowed (local.processes)"
                ) from error
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

    def remove_container(self, plan: dict[str, Any]) -> int:
        """The pid of the command that does it; 0 when it cannot be started."""
        return container_end.remove(plan, self._null)

    def keeps(self, attempt: Attempt) -> bool:
        """Whether the groups of an attempt that has ended stay, for the next one with the same limits."""
        short = attempt.end is not None and attempt.end[0] - (attempt.started_at or 0.0) < SHORT
        return self.limits.take_back(attempt.plan["groups"], clean=short and attempt.empty)

    def clear_marker(self) -> None:
        self.marked = False
        self.remove(self._marker)

    @staticmethod
    def remove(marker: str) -> None:
        try:
            os.unlink(marker)
        except OSError:
            return


def job_of(attempt: str) -> str:
    """``<job>.<role>-<index>.<number>``."""
    return attempt.rsplit(".", 2)[0]
