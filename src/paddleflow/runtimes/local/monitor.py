"""What the keeper checks from time to time: logs that grow beyond their limit, and ports that begin to listen.

A log is checked soon after its attempt started, then less and less often while it does not grow, and as often as every
20 ms while it grows fast: half the time that it would need to fill what is left. Ports are checked only while an
attempt waits to be ready.
"""

# The keeper starts without pathlib, so:

from __future__ import annotations

import errno
import os
import stat
from functools import partial

from paddleflow.runtimes.local import log_gap, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.supervisor import Supervisor

SOONEST = 0.02
LATEST = 1.0
TOGETHER = 0.25  #: logs that are checked seldom are checked together
STARTUP = 5.0  #: seconds that ports are checked often


CANNOT_PUNCH = (errno.EOPNOTSUPP, errno.ENOSYS)


def _size(log: str) -> int:
    """How long a log is; 0 when there is none: the job may have moved it away, or put something else there."""
    try:
        seen = os.lstat(log)
    except OSError:
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


def next_interval(interval: float, grown: int, room: int, running: int) -> float:
    """Seconds until a log is checked again. With thousands running each one is checked less often."""
    latest = LATEST + running / 500
    if grown <= 0:
        return min(interval * 2, latest)
    return min(max(interval * room / grown / 2, SOONEST), interval * 2, latest)


class Monitor:
    """Checks the running attempts of one keeper."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.log_limit = 0
        self.limit_text = ""
        self._supervisor = supervisor
        self._unready: dict[str, Attempt] = {}
        supervisor.on_started.append(self._started)
        supervisor.on_finished.append(self._finished)

    def _started(self, attempt: Attempt) -> None:
        attempt.interval = SOONEST * 2
        self._check_later(attempt)
        if attempt.ready_at is None:
            self._unready[attempt.name] = attempt
            if len(self._unready) == 1:
                self._supervisor.timers.after(0.0, self._check_ports)

    def _finished(self, attempt: Attempt) -> None:
        self._unready.pop(attempt.name, None)
        if attempt.pid:
            self._bound(attempt)

    def _check_later(self, attempt: Attempt) -> None:
        grid = TOGETHER if attempt.interval >= 2 * TOGETHER else 0.0
        self._supervisor.timers.after(attempt.interval, partial(self._check_log, attempt), grid)

    def _check_log(self, attempt: Attempt) -> None:
        if attempt.finished:
            return
        before, kept = attempt.log_size, self._bound(attempt)
        grown = attempt.log_size - before
        room = max(self.log_limit - kept, self.log_limit // 4)
        attempt.interval = next_interval(attempt.interval, grown, room, len(self._supervisor.running))
        self._check_later(attempt)

    def _bound(self, attempt: Attempt) -> int:
        """Cut the middle out of a log that is too long; how many bytes of it are kept."""
        log: str = attempt.plan["log"]
        try:
            size = attempt.log_size = _size(log)
            if self.log_limit <= 0 or size <= self.log_limit:
                return size
            gap = log_gap.wanted(size, self.log_limit)
            done = log_gap.read_gap(log)
            if gap is not None and (done is None or done.end < gap.end):
                log_gap.cut(log, gap if done is None else gap._replace(start=min(done.start, gap.start)))
        except OSError as error:
            if error.errno in CANNOT_PUNCH:
                why = f"log limit of {self.limit_text} exceeded; this file system cannot leave out the middle of a file"
                self._supervisor.stop([attempt.name], 0.0, why)
            # Anything else (it was replaced or removed, the disk is full) is no excess: it is checked again.
        return self.log_limit

    def _check_ports(self) -> None:
        if not self._unready:
            return
        ports = procfs.listening()
        for attempt in [a for a in self._unready.values() if a.plan["port"] in ports]:
            del self._unready[attempt.name]
            self._supervisor.ready(attempt)
        now = self._supervisor.clock.now()
        young = any(now - (attempt.started_at or 0.0) < STARTUP for attempt in self._unready.values())
        if self._unready:
            self._supervisor.timers.after(SOONEST if young else SOONEST * 10, self._check_ports)
