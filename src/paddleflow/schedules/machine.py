"""What becomes of the slots that are due: pure, from a schedule, its timetable, its runs and the moment.

Each slot is decided about once, in order: it runs, or it is left out with a reason, or (``suspend``) it waits and everything
behind it too. The schedule remembers the oldest slot that nothing was decided about, and it only moves forward, so a clock
that jumps back makes the loop wait and never fires a slot again. A long outage is worked off in bounded portions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paddleflow.base.values import dataclass
from paddleflow.schedules.model import ConcurrencyPolicy, Schedule, ScheduleStatus
from paddleflow.schedules.timetable import Timetable

PORTION = 100  #: slots that one decision is about
ENDED = "no slot is left before endTime"
NEVER = "the crontab has no further slot"


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of this schedule that has not ended."""

    id: str
    stopping: bool  #: it was asked to stop


@dataclass(frozen=True, slots=True)
class Fire:
    """A slot that runs."""

    slot: float


@dataclass(frozen=True, slots=True)
class Skip:
    """A slot that is left out."""

    slot: float
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, in this order, and how the schedule stands then."""

    schedule: Schedule
    slots: tuple[Fire | Skip, ...] = ()
    stops: tuple[str, ...] = ()  #: runs that are replaced
    more: bool = False  #: slots are left that could be decided about at once


def decide(schedule: Schedule, table: Timetable, active: Sequence[ActiveRun], now: float) -> Decision:
    """Decide about the slots that are due now. `active` is oldest first."""
    if schedule.status is not ScheduleStatus.RUNNING:
        return Decision(schedule)
    until = now if schedule.end_at is None else min(now, schedule.end_at)
    due = _Due(schedule, table, active, now, until)
    waits = due.walk()
    return due.closed(waits)


class _Due:
    """The walk through the slots of one decision."""

    def __init__(
        self, schedule: Schedule, table: Timetable, active: Sequence[ActiveRun], now: float, until: float
    ) -> None:
        self._schedule, self._table, self._active, self._now, self._until = schedule, table, active, now, until
        self._options = schedule.options
        self._next = schedule.next_at
        self._slots: list[Fire | Skip] = []
        self._running = len(active)  #: with those that this decision starts
        self._cut, self._cut_reason = self._first_that_may_run()

    def _first_that_may_run(self) -> tuple[float | None, str]:
        """Slots before this one are left out, however many runs are allowed."""
        options, first = self._options, self._schedule.next_at
        if first is None or first > self._until:
            return None, ""
        if not options.catchup:
            return self._table.newest(1, first, self._until), "a newer slot is due, and catchup is off"
        if options.policy is ConcurrencyPolicy.REPLACE and options.concurrency:
            newest = self._table.newest(options.concurrency, first, self._until)
            return newest, f"replaced by newer slots, concurrency is {options.concurrency}"
        return None, ""

    def walk(self) -> bool:
        """Decide about one slot after the other; True when one must wait."""
        while (slot := self._next) is not None and slot <= self._until and len(self._slots) < PORTION:
            reason = self._why_not(slot)
            if reason:
                self._slots.append(Skip(slot, reason))
            elif self._room():
                self._running += 1
                self._slots.append(Fire(slot))
            else:
                return True
            self._next = self._table.next(slot)
        return False

    def _why_not(self, slot: float) -> str:
        options = self._options
        if options.expire_interval and slot + options.expire_interval < self._now:
            return f"expired: it did not start within {options.expire_interval} seconds"
        if self._cut is not None and slot < self._cut:
            return self._cut_reason
        if options.policy is ConcurrencyPolicy.SKIP and not self._room():
            return f"skipped: {self._running} runs are active, concurrency is {options.concurrency}"
        return ""

    def _room(self) -> bool:
        options = self._options
        return (
            not options.concurrency
            or options.policy is ConcurrencyPolicy.REPLACE
            or self._running < options.concurrency
        )

    def closed(self, waits: bool) -> Decision:
        """The decision, with what the schedule remembers."""
        schedule, end = self._schedule, self._schedule.end_at
        more = not waits and self._next is not None and self._next <= self._until
        changed = replace(
            schedule, next_at=self._next, suspended=waits, check_at=self._again_at(waits) if not more else self._now
        )
        if self._next is None or (end is not None and self._next > end):
            message = NEVER if self._next is None else ENDED
            status = ScheduleStatus.SUCCESS
            changed = replace(changed, status=status, message=message, next_at=None, check_at=None, suspended=False)
        return Decision(changed, tuple(self._slots), self._stops(), more)

    def _again_at(self, waits: bool) -> float | None:
        """When to look again by oneself. A slot that waits may expire, or be overtaken by the next one."""
        if not waits or self._next is None:
            return self._next
        moments: list[float] = []
        if self._options.expire_interval:
            moments.append(self._next + self._options.expire_interval + 1.0)
        if not self._options.catchup and (overtaken_at := self._table.next(self._next)) is not None:
            moments.append(overtaken_at)
        return min(moments, default=None)

    def _stops(self) -> tuple[str, ...]:
        """The oldest runs, as many as stand in the way of those that start."""
        if self._options.policy is not ConcurrencyPolicy.REPLACE or not self._options.concurrency:
            return ()
        staying = [run.id for run in self._active if not run.stopping]
        starting = sum(isinstance(slot, Fire) for slot in self._slots)
        return tuple(staying[: max(0, len(staying) + starting - self._options.concurrency)])
