"""What a new keeper does first: compare the journal with the processes that are there.

Nothing is started by it. Every attempt of the journal is afterwards either running and watched, or ended; what was
never spawned is as if it had never been asked for, and may be started again.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH110

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from paddleflow.runtimes.local import procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.supervisor import Supervisor

REBOOTED = "lost with the machine: it was started again while this ran"
POLL_EVERY = 0.2  #: seconds between two checks of an adopted process when descriptors are short


class Recovery:
    """Takes over from a keeper that was killed. `watch` gets a descriptor that becomes readable at a process's end."""

    def __init__(self, supervisor: Supervisor, watch: Callable[[int, Callable[[], None]], None]) -> None:
        self._supervisor = supervisor
        self._watch = watch

    def run(self, marker: str) -> None:
        supervisor = self._supervisor
        supervisor.attempts = supervisor.journal.load()
        if not supervisor.attempts:
            supervisor.launcher.clear_marker()
            supervisor.launcher.sandboxes.recover({})
            return
        supervisor.launcher.marked = os.path.exists(marker)
        processes = procfs.belonging(supervisor.keeper)
        lived_in = {folder for each in supervisor.attempts.values() if each.end is None for folder in groups_of(each)}
        for attempt in list(supervisor.attempts.values()):
            if attempt.end is not None and attempt.has_container:
                supervisor.finish(attempt)
            elif attempt.end is not None:
                attempt.finished = True
                if not lived_in.isdisjoint(groups_of(attempt)):  # it had them first; not its to clear any more
                    del attempt.plan["groups"]
                supervisor.clear(attempt)
            elif attempt.boot != supervisor.journal.boot:
                supervisor.lost(attempt, REBOOTED)
            elif attempt.pid == 0 and attempt.name not in processes and not self._was_spawned(attempt):
                self._never_spawned(attempt)
            else:
                self._adopt(attempt, processes.get(attempt.name, []))
        self._clear(processes)
        supervisor.launcher.sandboxes.recover({each.name: each.pid for each in supervisor.running.values()})
        supervisor.settle()

    def _was_spawned(self, attempt: Attempt) -> bool:
        """Whether a child was made: the first thing that it does is to make its log, or the marker if it had one before."""
        if attempt.plan.get("fresh"):
            return os.path.lexists(attempt.plan["log"])
        if marker := attempt.plan.get("marker"):
            return os.path.lexists(marker)
        return self._supervisor.launcher.marked

    def _never_spawned(self, attempt: Attempt) -> None:
        del self._supervisor.attempts[attempt.name]
        self._supervisor.clear(attempt)
        self._supervisor.journal.add(["gone", attempt.name])

    def _adopt(self, attempt: Attempt, processes: list[procfs.Stat]) -> None:
        supervisor = self._supervisor
        attempt.child = False
        if attempt.pid == 0:  # spawned, but killed before the journal said so: found by its environment
            main = next((seen for seen in processes if seen.pid == seen.session and _is_of(seen.pid, attempt)), None)
            if main is not None:
                attempt.run(main.pid, main.ticks, supervisor.clock.now())
                supervisor.journal.add(["run", attempt.name, main.pid, main.ticks, attempt.started_at])
        seen = procfs.stat(attempt.pid) if attempt.pid else None
        if seen is None or seen.ticks != attempt.ticks:
            supervisor.main_ended(attempt, None)
            return
        if seen.state in "ZX":
            supervisor.main_ended(attempt, procfs.exit_status_of_non_child(attempt.pid, attempt.ticks, -1))
            return
        try:
            attempt.pidfd = os.pidfd_open(attempt.pid)
        except ProcessLookupError:
            supervisor.main_ended(attempt, None)
            return
        except OSError:  # too many descriptors
            supervisor.timers.after(POLL_EVERY, partial(self._poll, attempt))
        supervisor.run(attempt)
        if attempt.pidfd >= 0:
            self._watch(attempt.pidfd, partial(self._ended, attempt))
        if attempt.kill_at is not None:
            supervisor.kill_later(attempt)

    def _poll(self, attempt: Attempt) -> None:
        seen = procfs.stat(attempt.pid)
        if seen is None or seen.ticks != attempt.ticks or seen.state in "ZX":
            self._ended(attempt)
        else:
            self._supervisor.timers.after(POLL_EVERY, partial(self._poll, attempt))

    def _ended(self, attempt: Attempt) -> None:
        if attempt.end is None:
            status = procfs.exit_status_of_non_child(attempt.pid, attempt.ticks, attempt.pidfd)
            self._supervisor.main_ended(attempt, status)

    def _clear(self, processes: dict[str, list[procfs.Stat]]) -> None:
        """Kill what is left of attempts that have ended."""
        for name, left in processes.items():
            attempt = self._supervisor.attempts.get(name)
            if attempt is not None and attempt.end is None:
                continue
            for seen in left:
                try:
                    os.kill(seen.pid, signal.SIGKILL)
                except OSError:
                    continue


def _is_of(pid: int, attempt: Attempt) -> bool:
    """Whether a process that says so can be an attempt's: an isolated job of somebody else may say so, too."""
    uid: int | None = attempt.plan.get("uid")
    if uid is not None:
        return procfs.owner(pid) == uid
    return procfs.namespace(pid) == procfs.namespace(os.getpid())


def groups_of(attempt: Attempt) -> list[str]:
    found: list[str] = attempt.plan.get("groups", [])
    return found
