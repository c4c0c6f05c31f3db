"""The schedule engine: fires the schedules that are due, as `schedules.machine` decides.

What becomes of a schedule's slots, the runs that they make and the runs that are replaced are one transaction, which reads the
schedule again. So a server that is killed at any moment neither loses nor doubles a slot, and two servers cannot both fire
one. The lease only spares the others the work.

There is one timer, for the next moment at which some schedule must be looked at. Wake-ups (topic ``schedules``) come when
one was made or changed, and when a run of one ended; they may be lost, and the machine's clock may be set: the loop looks by
itself every `POLL_EVERY` seconds. After an error it tries again with growing pauses; it never ends by itself.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError
from paddleflow.runs import runs
from paddleflow.runs.model import NewRun
from paddleflow.schedules import schedules
from paddleflow.schedules.machine import ActiveRun, Decision, Fire, decide
from paddleflow.schedules.model import Schedule, ScheduleStatus, schedule_id
from paddleflow.schedules.rules import table_of
from paddleflow.storage.storages import require_user
from paddleflow.store import leases
from paddleflow.store.bus import EVENTS, JOBS, SCHEDULES, Bus
from paddleflow.store.database import Database, Tx

LEASE = "schedules"
LEASE_SECONDS = 30.0
POLL_EVERY = 10.0
AT_ONCE = 50  #: schedules whose writes may share a commit
FIRST_PAUSE = 0.2  #: after an error; doubles up to LAST_PAUSE
LAST_PAUSE = 30.0
REPLACED = "replaced by a newer run of its schedule"
#: what a run may be refused with: the slot is noted with the reason, and the schedule continues
REFUSALS = (Invalid, NotFound, Forbidden, Conflict)

log = Log("engine")


@dataclass(frozen=True, slots=True)
class Fired:
    """What one schedule's turn did."""

    runs: tuple[str, ...] = ()
    skipped: int = 0


class ScheduleEngine:
    """Fires the schedules of a database. `run` never ends by itself."""

    def __init__(self, database: Database, clock: Clock, bus: Bus, holder: str) -> None:
        self._database, self._clock, self._bus, self._holder = database, clock, bus, holder
        self._problem = ""

    async def health(self) -> str:
        """Why schedules are not fired; empty when they are, or when another server fires them."""
        return self._problem and f"are tried again after an error: {self._problem}"

    async def run(self) -> None:
        pause = FIRST_PAUSE
        with self._bus.subscribe(SCHEDULES) as woken:
            while True:
                try:
                    wait = await self.turn()
                    pause, self._problem = FIRST_PAUSE, ""
                except Exception as error:  # a fault of ours as well: the rows are right, and everything else continues
                    known = isinstance(error, PaddleFlowError | OSError)
                    self._problem = str(error) if known else f"a fault of the server: {type(error).__name__}"
                    reason = str(error) if known else "".join(traceback.format_exception(error))
                    log.warning("schedules are tried again later", reason=reason, seconds=pause)
                    wait, pause = pause, min(pause * 2, LAST_PAUSE)
                await woken.wait(wait)

    async def turn(self) -> float:
        """Fire everything that is due now; the seconds until the next turn."""
        now = self._clock.now()
        due = await self._database.read(schedules.due, now, 0, AT_ONCE)
        if due:
            token = await self._database.write(leases.acquire, LEASE, self._holder, now, LEASE_SECONDS)
            if token is None:
                return POLL_EVERY  # another server fires
            while due:
                await self._fire_all(due, token, now)
                due = await self._database.read(schedules.due, now, due[-1], AT_ONCE)
        at = await self._database.peek(schedules.next_check)
        return POLL_EVERY if at is None else min(max(at - self._clock.now(), 0.0), POLL_EVERY)

    async def _fire_all(self, due: list[int], token: int, now: float) -> None:
        """Batched, so that they share commits. What failed is raised when all have been tried."""
        failed: list[Exception] = []

        async def one(seq: int) -> None:
            try:
                await self._fire(seq, token, now)
            except (PaddleFlowError, OSError) as error:
                failed.append(error)
            except Exception as error:  # a fault of ours in one schedule must not keep the others from firing
                words = "".join(traceback.format_exception(error))
                log.error("a schedule cannot be moved", schedule=schedule_id(seq), reason=words)
                await self._database.write(
                    _set_aside, seq, token, f"a fault of the server: {type(error).__name__}", now
                )

        async with asyncio.TaskGroup() as group:
            for seq in due:
                group.create_task(one(seq))
        if failed:
            raise failed[0]

    async def _fire(self, seq: int, token: int, now: float) -> None:
        try:
            text = await self._database.peek(_document, seq)
            await asyncio.to_thread(runs.bound_document, text)
            fired = await self._database.write(fire, seq, token, now)
        except REFUSALS as error:
            fired = await self._database.write(fire, seq, token, now, refusal=error.message)
            log.warning("a slot could not run", schedule=seq, reason=error.message)
        if fired.runs or fired.skipped:
            log.info("schedule fired", schedule=seq, runs=list(fired.runs), skipped=fired.skipped)
            self._bus.wake(JOBS)
            self._bus.wake(EVENTS)


def _set_aside(tx: Tx, seq: int, token: int, message: str, now: float) -> None:
    """A schedule that cannot be moved has failed, until a person changes it."""
    leases.check(tx, LEASE, token)
    schedule = schedules.find(tx, seq)
    if schedule is not None and schedule.status is ScheduleStatus.RUNNING:
        schedules.change(tx, schedule, ScheduleStatus.FAILED, message, now)


def _document(tx: Tx, seq: int) -> str:
    """What a schedule runs."""
    schedule = schedules.get(tx, schedule_id(seq))
    return runs.registered_document(tx, schedule.pipeline, schedule.version)


def fire(tx: Tx, seq: int, token: int, now: float, *, refusal: str = "") -> Fired:
    """Decide about one schedule's slots and write everything that follows. `refusal`: why a run could not be made before;
    the slots are only noted then."""
    leases.check(tx, LEASE, token)
    schedule = schedules.find(tx, seq)
    if schedule is None or schedule.status is not ScheduleStatus.RUNNING:
        return Fired()
    try:
        require_user(tx, schedule.user)
        table = table_of(schedule)
    except (NotFound, ValueError) as error:
        schedules.change(tx, schedule, ScheduleStatus.FAILED, str(error), now)
        return Fired()
    active = [
        ActiveRun(run, stopping) for run, stopping in runs.active_runs_of_schedule(tx, schedule.id, schedule.user)
    ]
    decision = decide(schedule, table, active, now)
    fired = _carry_out(tx, schedule, decision, refusal, now)
    after = decision.schedule
    if after.status is ScheduleStatus.RUNNING and (fired.runs or refusal):
        after = replace(after, message=refusal)  # a slot that ran takes an older reason away
    schedules.save(tx, schedule, after, now)
    return fired


def _carry_out(tx: Tx, schedule: Schedule, decision: Decision, refusal: str, now: float) -> Fired:
    if not decision.slots:
        return Fired()
    new = _new_run(tx, schedule, refusal)
    made: list[str] = []
    for slot in decision.slots:
        run = replace(new, schedule_id=schedule.id, scheduled_at=slot.slot, name=schedule.name)
        if isinstance(slot, Fire) and not refusal:
            made.append(runs.create(tx, run, now))
        else:
            reason = f"could not run: {refusal}" if isinstance(slot, Fire) else slot.reason
            runs.record_skipped(tx, run, reason, now)
    if made:
        for stopped in decision.stops:
            runs.stop_run(tx, stopped, False, REPLACED, now)
    return Fired(tuple(made), len(decision.slots) - len(made))


def _new_run(tx: Tx, schedule: Schedule, refusal: str) -> NewRun:
    if refusal:
        return runs.placeholder_run(schedule.pipeline, schedule.version, schedule.user)
    return runs.new_run_of_version(tx, schedule.pipeline, schedule.version, schedule.user)
