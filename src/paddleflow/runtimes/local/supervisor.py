"""Attempts from their launch to the report of their end: what the keeper does, without its sockets.

Order is what makes it safe against ``kill -9``; see the crash table in ``docs/internals/local-runtime.md``:

    try line → spawn (the child makes its log, or a marker) → run line → marker removed → … → end line → report

`recovery` compares journal and processes when a keeper starts; `monitor` checks logs and ports meanwhile.
"""

from __future__ import annotations

import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from paddleflow.base.clock import Clock
from paddleflow.runtimes.local import cgroups, container_end, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.journal import Journal
from paddleflow.runtimes.local.launcher import Launcher
from paddleflow.runtimes.local.prefetch import Launch, PrefetchQueue, Reports
from paddleflow.runtimes.local.process import Refused, reason
from paddleflow.runtimes.local.timers import Timers

UNOBSERVED = (
    "ended while nobody watched: the keeper of this machine's jobs had been killed, so its exit code is not known"
)
SIGNAL_NAMES = {int(number): number.name for number in signal.Signals}
DRAIN_EVERY = 0.01
ORPHAN_CHECKS = 20  #: of a process without an environment; it may have none for good
DRAIN_PATIENCE = 2.0  #: seconds after SIGKILL until an end is reported although something of the group is still dying


class Supervisor:
    """All attempts of one data folder."""

    def __init__(self, launcher: Launcher, journal: Journal, timers: Timers, clock: Clock, keeper: str) -> None:
        self.launcher = launcher
        self.journal = journal
        self.timers = timers
        self.clock = clock
        self.keeper = keeper
        self.attempts: dict[str, Attempt] = {}
        self.pending: OrderedDict[str, Launch] = OrderedDict()
        self.running: dict[int, Attempt] = {}  #: by pid, until the main process has ended
        self.draining: dict[str, Attempt] = {}  #: main process ended, others of its group not yet
        self._removals: dict[
            int, tuple[Attempt, int]
        ] = {}  #: by the pid of the removal of its container, and which try
        self._waits_for_removal: set[str] = set()
        self.reports = Reports()
        self.prefetch = PrefetchQueue(self.pending, self.reports, timers, lambda name: self.attempts.get(name))
        self.on_started: list[Callable[[Attempt], None]] = []  #: called with each attempt that runs
        self.on_finished: list[Callable[[Attempt], None]] = []  #: called with each attempt whose end is reported
        self._children = procfs.Children()
        self._sweep = False
        self._removing = 0  #: sets of cgroup folders that are not empty yet
        self._groups: tuple[float, set[int]] = (0.0, set())  #: when they were read

    # ------------------------------------------------------------------ what a server asks

    def start(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            name = launch["attempt"]
            known = self.attempts.get(name)
            if known is not None:
                self.reports.add(*known.events())
            elif launch.get("prefetched"):
                if name not in self.pending:
                    self.prefetch.add(name, launch)
            elif name not in self.pending:
                self.prefetch.acquire(launch)
                self.pending[name] = launch

    def stop(self, names: Iterable[str], grace: float, why: str = "stopped") -> None:
        for name in names:
            launch = self.pending.pop(name, None)
            if launch is not None or self.prefetch.stop(name):
                self._never_ran(name, f"{why} before it ran", launch)
            elif (attempt := self.attempts.get(name)) is not None and attempt.end is None:
                self._stop(attempt, max(grace, 0.0), why)

    def forget(self, names: Sequence[str]) -> None:
        self.reports.acknowledge(names)
        for name in names:
            attempt = self.attempts.get(name)
            if attempt is not None and attempt.finished:
                del self.attempts[name]
                self.journal.add(["gone", name])
        self.journal.compact(self.attempts.values())

    def state(self) -> list[list[Any]]:
        """Everything that is known, as events; those that were about to be reported are among them."""
        self.prefetch.release_held()
        self.reports.clear()
        return [event for attempt in self.attempts.values() for event in attempt.events()]

    def new_server(self) -> None:
        """It asks for all there is, and again for what has not begun: that must not begin behind its back."""
        self.prefetch.new_server()
        self.reports.new_server()
        self.pending.clear()

    @property
    def busy(self) -> bool:
        return bool(self.pending or self.running or self.draining or self._removing or self._waits_for_removal)

    # ------------------------------------------------------------------ beginning

    def spawn_next(self, most: int) -> None:
        """Start up to `most` of those that wait."""
        for _ in range(min(most, len(self.pending))):
            name, launch = self.pending.popitem(last=False)
            try:
                spec = self.launcher.prepare(launch)
                attempt = Attempt(name, spec.plan, self.journal.boot)
                if self.launcher.marked:
                    self.settle()
                self.journal.write(["try", name, spec.plan])
            except (Refused, OSError, ValueError) as error:
                self._never_ran(name, _start_error(error), launch)
                continue
            attempt.slot_class = launch.get("slot_class", "")
            self.attempts[name] = attempt
            try:
                pid = self.launcher.spawn(spec)
            except (Refused, OSError, ValueError) as error:
                self.lost(attempt, _start_error(error))
                continue
            self._spawned(attempt, pid)
            trouble = self.launcher.limit(spec)
            if trouble:
                self._stop(attempt, 0.0, trouble)

    def _spawned(self, attempt: Attempt, pid: int) -> None:
        attempt.run(pid, self.launcher.ticks_of(pid), self.clock.now())
        self.journal.add(["run", attempt.name, pid, attempt.ticks, attempt.started_at])
        self.reports.started(attempt.name, ["started", attempt.name, attempt.started_at, pid])
        self.run(attempt)

    def settle(self) -> None:
        """Write down what was recorded. Only then the marker goes, which spoke for the last spawn until now.

        On a full disk both stay as they are, and nothing else starts until the lines are written.
        """
        if self.journal.flush() and self.launcher.marked:
            self.launcher.clear_marker()

    def run(self, attempt: Attempt) -> None:
        """Look after an attempt that has a process: just spawned, or found by `recovery`."""
        self.running[attempt.pid] = attempt
        if attempt.ready_at is not None and attempt.child:
            self.reports.started(attempt.name, ["ready", attempt.name, attempt.ready_at])
        for call in self.on_started:
            call(attempt)

    def ready(self, attempt: Attempt) -> None:
        attempt.ready_at = self.clock.now()
        self.journal.add(["ready", attempt.name, attempt.ready_at])
        self.reports.started(attempt.name, ["ready", attempt.name, attempt.ready_at])
        self.reports.urgent = True

    def _never_ran(self, name: str, message: str, launch: Launch | None) -> None:
        attempt = self.attempts[name] = Attempt(name, {}, self.journal.boot)
        attempt.slot_class = launch.get("slot_class", "") if launch is not None else ""
        self.lost(attempt, message)

    # ------------------------------------------------------------------ stopping

    def _stop(self, attempt: Attempt, grace: float, why: str) -> None:
        kill_at = self.clock.monotonic() + grace
        if attempt.kill_at is not None and attempt.kill_at <= kill_at:
            return
        if attempt.kill_at is None and grace > 0:
            _signal(attempt, signal.SIGTERM)
            _signal(attempt, signal.SIGCONT)  # one that was suspended must receive it too
        attempt.kill_at, attempt.why = kill_at, attempt.why or why
        self.journal.add(["stop", attempt.name, kill_at, attempt.why])
        self.kill_later(attempt)

    def kill_later(self, attempt: Attempt) -> None:
        """SIGKILL once its grace is over, which may be now."""
        assert attempt.kill_at is not None
        if attempt.finished:
            return
        delay = attempt.kill_at - self.clock.monotonic()
        if delay > 0:
            self.timers.after(delay, partial(self.kill_later, attempt))
        else:
            kill(attempt)

    # ------------------------------------------------------------------ ending

    def reap(self) -> None:
        """Take in every child that has ended."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._sweep = True
            if pid in self._removals:
                self._removal_ended(*self._removals.pop(pid), failed=status != 0)
                continue
            self.launcher.sandboxes.reaped(pid)
            attempt = self.running.get(pid)
            if attempt is not None and attempt.child:
                cpu = round(usage.ru_utime + usage.ru_stime, 6)
                self.main_ended(attempt, status, cpu, usage.ru_maxrss * 1024)
        if self._sweep:
            self._sweep = False
            self._kill_orphans()
            for attempt in list(self.draining.values()):
                if not self._alive(attempt):
                    self.finish(attempt)

    def main_ended(
        self, attempt: Attempt, status: int | None, cpu: float | None = None, peak: int | None = None
    ) -> None:
        """The main process is gone, with this status if anybody knows it: its group follows, then the end is reported."""
        if self.running.get(attempt.pid) is attempt:  # the number of one that is not our child may be another's by now
            del self.running[attempt.pid]
        if status is None:
            self._conclude(attempt, None, UNOBSERVED)
        else:
            message = _final_message(attempt, status)
            if attempt.has_container:
                said, cpu, peak = container_end.read(attempt.plan)
                message = said or message
            self._conclude(attempt, exit_code(status), message, cpu, peak)
        if attempt.kill_at is None or self.clock.monotonic() >= attempt.kill_at:
            attempt.kill_at = self.clock.monotonic()
            if not kill(attempt):
                self.finish(attempt)
                return
        self.draining[attempt.name] = attempt
        self._drain(attempt)

    def _drain(self, attempt: Attempt) -> None:
        """What a stop leaves alive has until the end of its grace, as the main process had."""
        if attempt.finished:
            return
        assert attempt.kill_at is not None
        late = self.clock.monotonic() - attempt.kill_at
        if not self._alive(attempt) or late > DRAIN_PATIENCE:
            self.finish(attempt)
            return
        if late >= 0:
            kill(attempt)
        self.timers.after(DRAIN_EVERY, partial(self._drain, attempt))

    def _alive(self, attempt: Attempt) -> bool:
        """Whether its group has members. What has ended does not count, also when others are slow to reap it."""
        if self.launcher.sandboxes.is_dying(attempt.name):
            return True
        if not _signal(attempt, 0):
            return False
        if attempt.child:
            return True
        now = self.clock.monotonic()
        if now - self._groups[0] >= DRAIN_EVERY:
            self._groups = now, procfs.living_groups()
        return attempt.pid in self._groups[1]

    def lost(self, attempt: Attempt, message: str) -> None:
        """There is no process, and nothing to clear up but what it left on disk."""
        self._conclude(attempt, None, message)
        self.finish(attempt)

    def _conclude(
        self, attempt: Attempt, code: int | None, message: str, cpu: float | None = None, peak: int | None = None
    ) -> None:
        attempt.end = [self.clock.now(), code, message, attempt.started_at, cpu, peak]
        self.journal.add(["end", attempt.name, *attempt.end])

    def finish(self, attempt: Attempt) -> None:
        """Nothing of it is left: report. What is left in its sandbox dies first."""
        if not self.launcher.sandboxes.leave(attempt.name):
            if attempt.kill_at is None:  # it could not be started there
                attempt.kill_at = self.clock.monotonic()
            if self.clock.monotonic() - attempt.kill_at <= DRAIN_PATIENCE:
                self.draining[attempt.name] = attempt
                self.timers.after(DRAIN_EVERY, partial(self._drain, attempt))
                return
            self.launcher.sandboxes.drop(attempt.name)
        self._sweep = self.draining.pop(attempt.name, None) is not None or self._sweep
        if attempt.has_container:
            if attempt.name not in self._waits_for_removal:
                self._waits_for_removal.add(attempt.name)
                self._remove_container(attempt, 1)
            return
        attempt.finished = True
        if attempt.pidfd >= 0:
            os.close(attempt.pidfd)
            attempt.pidfd = -1
        for call in self.on_finished:
            call(attempt)
        self.clear(attempt)
        self.reports.ended(attempt.name)  # its end says when it began
        if attempt.slot_class:
            self.prefetch.ended(attempt, hold=self.reports.unacknowledged)
        else:
            self.reports.add(*attempt.events())

    def _remove_container(self, attempt: Attempt, number: int) -> None:
        pid = self.launcher.remove_container(attempt.plan)
        if pid:
            self._removals[pid] = attempt, number
        else:
            self._removal_ended(attempt, number, failed=True)

    def _removal_ended(self, attempt: Attempt, number: int, *, failed: bool) -> None:
        if failed and number < container_end.TRIES:
            self.timers.after(container_end.TRY_EVERY, partial(self._remove_container, attempt, number + 1))
            return
        if failed:
            words = " ".join(attempt.plan["container"]["remove"])
            self.launcher.notes.append(f"the container of {attempt.name} may be left: {words} failed {number} times")
        container_end.clear(attempt.plan)
        del attempt.plan["container"]
        self._waits_for_removal.discard(attempt.name)
        self.journal.add(["cleared", attempt.name])
        self.finish(attempt)

    def clear(self, attempt: Attempt) -> None:
        """Remove what was made for it outside its folder, and its marker."""
        if marker := attempt.plan.get("marker"):
            self.launcher.remove(marker)
        if (folders := attempt.plan.get("groups")) and not self.launcher.keeps(attempt):
            self._removing += 1
            self._remove_groups(folders, 100)

    def _remove_groups(self, folders: list[str], tries: int) -> None:
        if cgroups.remove(folders) or tries == 0:
            self._removing -= 1
            return
        cgroups.kill(folders)
        self.timers.after(0.05, partial(self._remove_groups, folders, tries - 1))

    def _kill_orphans(self, checks: int = ORPHAN_CHECKS) -> None:
        """Kill descendants that left their group and whose attempt has ended: they became our children then.

        One that is about to become another program cannot be told apart, and is checked again.
        """
        again = False
        for pid in (*self._children(), *self.launcher.sandboxes.orphans()):
            if pid in self.running:
                continue
            name = procfs.attempt_of(pid, self.keeper)
            attempt = self.attempts.get(name) if name is not None else None
            if name is None:
                again = again or procfs.is_changing(pid)
            elif (attempt is None or attempt.end is not None) and name not in self.draining:
                _send(pid, signal.SIGKILL)
        if again and checks > 1:
            self.timers.after(DRAIN_EVERY, partial(self._kill_orphans, checks - 1))


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _final_message(attempt: Attempt, status: int) -> str:
    """The final message: why it ended, where that is known better than by the code."""
    plan, code = attempt.plan, exit_code(status)
    if code != 0 and plan.get("memory") and cgroups.out_of_memory(plan["groups"]):
        return f"memory limit of {plan['memory_text']} exceeded"
    if attempt.why:
        return attempt.why if code != 128 + signal.SIGKILL else f"{attempt.why}, by SIGKILL"
    return f"ended by {SIGNAL_NAMES.get(os.WTERMSIG(status), 'a signal')}" if os.WIFSIGNALED(status) else ""


def _start_error(error: Exception) -> str:
    return f"cannot start: {reason(error)}" if isinstance(error, OSError) else str(error)


def kill(attempt: Attempt) -> bool:
    """SIGKILL to all that belongs to it; whether there was anything."""
    in_group = _signal(attempt, signal.SIGKILL)
    attempt.empty = not cgroups.kill(attempt.plan.get("groups", []))
    return in_group or not attempt.empty


def _signal(attempt: Attempt, number: int) -> bool:
    """Whether anybody was there to get it. While a group has members its number is not given to another one."""
    if attempt.pid <= 1:  # never spawned; to the system 0 would mean this process's own group
        return False
    if not attempt.child and attempt.end is None:
        seen = procfs.stat(attempt.pid)
        if seen is None or seen.ticks != attempt.ticks:
            return False
    try:
        os.killpg(attempt.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return
