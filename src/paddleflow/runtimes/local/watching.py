"""What the keeper looks at from time to time: logs that grow beyond their limit, and ports that begin to listen.

A log is looked at soon after its attempt began, then less and less often while it does not grow, and as often as every
20 ms while it grows fast: half the time that it would need to fill what is left. Ports are looked at only while an
attempt waits to be ready.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH116

from __future__ import annotations

import os
from functools import partial

from paddleflow.runtimes.local import log_gap, procfs
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.custody import Custody

SOONEST = 0.02
LATEST = 1.0
TOGETHER = 0.25  #: logs that are looked at seldom are looked at together
A_WHILE = 5.0  #: seconds that ports are looked at often


def next_look(interval: float, grown: int, room: int, running: int) -> float:
    """Seconds until a log is looked at again. With thousands running each one is looked at less often."""
    latest = LATEST + running / 500
    if grown <= 0:
        return min(interval * 2, latest)
    return min(max(interval * room / grown / 2, SOONEST), interval * 2, latest)


class Watch:
    """Looks after the running attempts of one keeper."""

    def __init__(self, custody: Custody) -> None:
        self.log_limit = 0
        self.limit_text = ""
        self._custody = custody
        self._unready: dict[str, Attempt] = {}
        custody.begun.append(self._begun)
        custody.left.append(self._left)

    def _begun(self, attempt: Attempt) -> None:
        attempt.interval = SOONEST * 2
        self._look_later(attempt)
        if attempt.ready_at is None:
            self._unready[attempt.name] = attempt
            if len(self._unready) == 1:
                self._custody.timers.after(0.0, self._look_at_ports)

    def _left(self, attempt: Attempt) -> None:
        self._unready.pop(attempt.name, None)
        if attempt.pid:
            self._bound(attempt)

    def _look_later(self, attempt: Attempt) -> None:
        grid = TOGETHER if attempt.interval >= 2 * TOGETHER else 0.0
        self._custody.timers.after(attempt.interval, partial(self._look_at_log, attempt), grid)

    def _look_at_log(self, attempt: Attempt) -> None:
        if attempt.finished:
            return
        before, kept = attempt.log_size, self._bound(attempt)
        grown = attempt.log_size - before
        room = max(self.log_limit - kept, self.log_limit // 4)
        attempt.interval = next_look(attempt.interval, grown, room, len(self._custody.running))
        self._look_later(attempt)

    def _bound(self, attempt: Attempt) -> int:
        """Cut the middle out of a log that is too long; how many bytes of it are kept."""
        log: str = attempt.plan["log"]
        try:
            size = attempt.log_size = os.stat(log).st_size
            if self.log_limit <= 0 or size <= self.log_limit:
                return size
            gap = log_gap.wanted(size, self.log_limit)
            done = log_gap.read_gap(log)
            if gap is not None and (done is None or done.end < gap.end):
                log_gap.cut(log, gap if done is None else gap._replace(start=min(done.start, gap.start)))
        except OSError:
            why = f"log limit of {self.limit_text} exceeded; this file system cannot leave out the middle of a file"
            self._custody.stop([attempt.name], 0.0, why)
        return self.log_limit

    def _look_at_ports(self) -> None:
        if not self._unready:
            return
        ports = procfs.listening()
        for attempt in [a for a in self._unready.values() if a.plan["port"] in ports]:
            del self._unready[attempt.name]
            self._custody.ready(attempt)
        now = self._custody.clock.now()
        young = any(now - (attempt.started_at or 0.0) < A_WHILE for attempt in self._unready.values())
        if self._unready:
            self._custody.timers.after(SOONEST if young else SOONEST * 10, self._look_at_ports)
