"""The conductor: keeps the states of all runs, and moves them inside the engine's turns.

    1. gather   what happened: jobs of steps that started or ended, runs that people changed, answers to errands, time
    2. advance  each run's machine; the jobs of steps that may start are admitted and put on the board, so the same turn
                places them
    3. collect  what the machines changed, as rows for the turn's one transaction
    4. (after the write) errands: files and the cache, outside of transactions; their answers are facts of a later turn

Disposable as the board is: after any error both are thrown away and rebuilt from the rows.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from functools import partial

from paddleflow.base.log import Log
from paddleflow.engine.admitting import REFUSALS, Admission, Asked
from paddleflow.engine.board import Board, Waiting
from paddleflow.engine.changeset import Changeset
from paddleflow.engine.claims import Claims
from paddleflow.engine.run_rows import Collected, collect
from paddleflow.engine.run_writes import FreshJob
from paddleflow.engine.turn import DELETED, advance_job, end_waiting
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs import facts as job_facts
from paddleflow.jobs.machine import JobState
from paddleflow.jobs.model import UNTIL_TOLD, JobStatus, NewJob, TaskStatus
from paddleflow.jobs.rows import job_row, request_of
from paddleflow.runs.ahead import awaited
from paddleflow.runs.facts import (
    Begun,
    BreakpointsSet,
    Command,
    Due,
    Fact,
    Finish,
    JobEnded,
    JobPlaced,
    JobStarted,
    Refused,
    Stop,
    StopAsked,
    Submit,
    Ticked,
    Withdraw,
)
from paddleflow.runs.machine import advance
from paddleflow.runs.model import ComponentStatus, RunStatus
from paddleflow.runs.restoring import RunRecords, read_run, restore
from paddleflow.runs.rows import SQL
from paddleflow.runs.state import Instance, Phase, RunState
from paddleflow.runs.tally import REUSED, Tally
from paddleflow.runs.values import Rendered, rendered
from paddleflow.spec.pipeline.model import Step
from paddleflow.store.database import Database, Row, Tx

HELD_BACK = "its turn comes after other steps of its run"
NOT_WANTED = "not started: a step before it did not succeed, or its run was changed"
NOT_KNOWN_YET = 2**60  #: orders of jobs whose rows are not written yet begin here
Told = tuple[RunState, Fact]
_OF_JOBS = Due | Withdraw | Stop

log = Log("engine")


def read_active(tx: Tx) -> list[RunRecords]:
    """All runs that have not ended."""
    return [read_run(tx, row) for row in tx.all(SQL["active_runs"])]


def _read_one(tx: Tx, run: str) -> RunRecords | None:
    row = tx.one(SQL["run_by_id"], id=run)
    return None if row is None or RunStatus(row["status"]).final else read_run(tx, row)


class Conductor:
    """The runs of one engine."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        tally: Tally,
        expected: Callable[[Row], float | None] = lambda row: None,
    ) -> None:
        self._database = database
        self._admission = admission
        self._tally = tally
        self._expected = expected  # seconds that a job will probably run
        self.runs: dict[str, RunState] = {}
        self.jobs: dict[str, tuple[RunState, int]] = {}  #: job of a step at work → its run and number
        self.inbox: list[Told] = []  #: answers to errands
        self.errands: list[tuple[RunState, Command]] = []  #: to be done after this turn's write
        self.rendered: dict[tuple[str, int], Rendered] = {}  #: of steps whose row is not written yet
        self.claims = Claims()
        self._submits: list[tuple[RunState, Instance]] = []
        self._touched: dict[str, RunState] = {}
        self._order = NOT_KNOWN_YET

    def adopt(self, records: RunRecords, now: float) -> list[Told]:
        """Take a run up, from its rows; what its machine must be told."""
        run, ended = restore(records, now)
        self.runs[run.id] = run
        for item in run.instances.values():
            if item.job and (item.slot or item.phase is Phase.FOLLOWING):
                self.jobs[item.job] = run, item.number
                self.claims.restore(run, item)
        return [(run, Begun(now)), *((run, fact) for fact in ended)]

    def next_due(self) -> float | None:
        """When a run must be looked at even if nothing happens."""
        return min((due for run in self.runs.values() if (due := run.next_due()) is not None), default=None)

    # ── a turn ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def turn(
        self, board: Board, changes: Changeset, jobs: Iterable[Row], runs: Iterable[Row], now: float
    ) -> None:
        """Everything that follows for runs from what this turn heard; `decide` comes after it."""
        told, self.inbox = self.inbox, []
        told = self._of_jobs(changes, jobs, now) + told
        told += await self._of_runs(runs, changes, now)
        await self._go_on(board, changes, told, now)

    async def begin(self, board: Board, changes: Changeset, told: list[Told], now: float) -> None:
        """The first turn: all runs were taken up, and the ends that were heard meanwhile count too."""
        await self._go_on(board, changes, told + self._of_jobs(changes, (), now), now)

    async def _go_on(self, board: Board, changes: Changeset, told: list[Told], now: float) -> None:
        told += [(run, Ticked(now)) for run in self.runs.values() if (due := run.next_due()) is not None and due <= now]
        while told or self._submits:
            for run, fact in told:
                self._advance(run, fact)
                self._stop_jobs(board, changes, now)
            told, self.inbox = self.inbox, []
            if self._submits:
                told += await self._submit(board, changes, now)
                self._stop_jobs(board, changes, now)
        self._collect(changes, now)

    def _of_jobs(self, changes: Changeset, rows: Iterable[Row], now: float) -> list[Told]:
        """Jobs of steps that started or ended."""
        told: list[Told] = []
        if not self.jobs:
            return told
        successors = [known for each in changes.writes.successors if (known := self.jobs.get(each.job)) is not None]
        told += [(run, JobPlaced(now, number)) for run, number in successors]
        for job, moved in changes.moved.items():
            known = self.jobs.get(job)
            if known is not None:
                fact = _fact(moved.active.state, known[1], now)
                if fact is not None:
                    told.append((known[0], fact))
        for row in rows:
            known = self.jobs.get(row["id"])
            if known is None or row["id"] in changes.moved:
                continue
            if row["status"] == DELETED:
                told.append((known[0], JobEnded(now, known[1], JobStatus.TERMINATED, None, "its job was deleted")))
            elif JobStatus(row["status"]).final:
                told.append((known[0], JobEnded(now, known[1], row["status"], None, row["message"])))
        told += [(known[0], fact) for state in changes.writes.changes if (known := self.jobs.get(state.after.id)) is not None
                 and (fact := _fact(state.after, known[1], now)) is not None]  # fmt: skip
        return told

    async def _of_runs(self, rows: Iterable[Row], changes: Changeset, now: float) -> list[Told]:
        """Runs that people made or changed."""
        told: list[Told] = []
        for row in rows:
            changes.writes.runs.seen.append({"seq": row["seq"], "touched": row["touched"]})
            run = self.runs.get(row["id"])
            if run is not None:
                told.append((run, BreakpointsSet(now, frozenset(json.loads(row["breakpoints"])))))
                if row["stop"] and not (run.stopping and run.force >= (row["stop"] > 1)):
                    told.append((run, StopAsked(now, row["stop"] > 1, row["message"])))
            elif not RunStatus(row["status"]).final:
                records = await self._database.read(_read_one, row["id"])
                if records is not None:
                    told += self.adopt(records, now)
        return told

    def _advance(self, run: RunState, fact: Fact) -> None:
        self._touched[run.id] = run
        try:
            _, commands = advance(run, fact)
        except Exception as error:  # a fault of ours in one run must not end the others, again and again
            commands = self._give_up(run, error, fact.at)
        self._carry_out(run, commands)

    def _carry_out(self, run: RunState, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Submit():
                    self._submits.append((run, run.instances[command.number]))
                case Withdraw() if not command.job:
                    self._submits = [e for e in self._submits if e[0] is not run or e[1].number != command.number]
                case Finish():
                    self.runs.pop(run.id, None)
                case _:
                    self.errands.append((run, command))

    def _give_up(self, run: RunState, error: Exception, now: float) -> list[Command]:
        """End a run that this code cannot go on with; what it had at work is stopped."""
        log.error("a run cannot go on", run=run.id, reason="".join(traceback.format_exception(error)))
        run.status, run.finished_at, run.moved = RunStatus.FAILED, now, True
        run.message = f"a fault of the server ended it: {type(error).__name__}; the server's log has the details"
        commands: list[Command] = [Finish()]
        for item in run.instances.values():
            if item.job and item.phase in {Phase.WORKING, Phase.FOLLOWING}:
                commands.append(Stop(item.number, run.message))
            item.status, item.message, item.finished_at = ComponentStatus.TERMINATED, run.message, now
            run.changed[item.number] = item
        run.queue.clear()
        run.timers.clear()
        return commands

    # ── jobs of steps ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_jobs(self, board: Board, changes: Changeset, now: float) -> None:
        """Carry out what the errands ask of jobs at once: they are changes of this turn."""
        asked = [(run, each) for run, each in self.errands if isinstance(each, _OF_JOBS)]
        if not asked:
            return
        self.errands = [errand for errand in self.errands if not isinstance(errand[1], _OF_JOBS)]
        for run, command in asked:
            item = run.instances.get(command.number)
            match command:
                case Due() if item is not None:
                    board.ungate(item.job)
                case Withdraw():
                    self.jobs.pop(command.job, None)
                    self._end_job(board, changes, command.job, NOT_WANTED, now)
                case Stop() if item is not None:
                    if self._stop_job(board, changes, item, command.message, now):
                        ended = JobEnded(now, item.number, JobStatus.TERMINATED, None, command.message)
                        self.inbox.append((run, ended))

    def _stop_job(self, board: Board, changes: Changeset, item: Instance, message: str, now: float) -> bool:
        """True when that ended it at once."""
        before = len(self._submits)
        self._submits = [each for each in self._submits if each[1] is not item]
        return len(self._submits) < before or self._end_job(board, changes, item.job, message, now)

    def _end_job(self, board: Board, changes: Changeset, job: str, message: str, now: float) -> bool:
        active = board.active.get(job)
        if active is not None:
            advance_job(board, active, job_facts.StopAsked(now, message), changes, now)
            return False
        if job not in board.waiting:
            return False  # it has ended, and its run will hear of it
        if changes.writes.runs.jobs.pop(job, None) is not None:
            board.forget_waiting(job)  # nobody but the board knows it
        else:
            end_waiting(board, job, message, changes, now)
        return True

    async def _submit(self, board: Board, changes: Changeset, now: float) -> list[Told]:
        """Admit the jobs of steps and put them on the board; what could not be admitted."""
        told: list[Told] = []
        asked: list[Asked] = []
        submits, self._submits = self._submits, []
        for run, item in submits:
            key = run.id, item.number
            try:
                found = self.rendered[key] = self.rendered.get(key) or rendered(run, item)
                asked.append((run, item, found))
            except REFUSALS as error:
                told.append((run, Refused(now, item.number, _words(error))))
            except Exception as error:  # as in `_advance`; nothing here asks the database
                self._carry_out(run, self._give_up(run, error, now))
        answers = await self._database.peek(self._admission.admit, asked)
        for (run, item, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, NewJob):
                self._enqueue(run, item, answer, board, changes, now)
            elif isinstance(answer, REFUSALS):
                told.append((run, Refused(now, item.number, _words(answer))))
            else:
                self._carry_out(run, self._give_up(run, answer, now))
        return told

    def _enqueue(
        self, run: RunState, item: Instance, job: NewJob, board: Board, changes: Changeset, now: float
    ) -> None:
        item.job = job.id
        self.jobs[job.id] = run, item.number
        row = job_row(job, now)
        follows = item.phase is Phase.FOLLOWING
        changes.writes.runs.jobs[job.id] = FreshJob(job, run.id, row, HELD_BACK if follows else "")
        board.prefetch.queued(job.id, run.id, partial(_awaited_jobs, run, item) if follows else None)
        self._order += 1
        self._tally.started += 1
        request = request_of({**row, "seq": self._order, "expected": self._expected(row)})
        board.enqueue(Waiting(request, job.framework, 1, 0), UNTIL_TOLD if follows else None, now)

    def settle(self, board: Board, rows: dict[str, Row], changes: Changeset) -> None:
        """The write stood: jobs that wait have their positions now."""
        for job in changes.writes.runs.jobs:
            waiting = board.waiting.get(job)
            if waiting is not None:
                board.waiting[job] = waiting._replace(request=waiting.request._replace(order=rows[job]["seq"]))
                board.prefetch.written(rows[job], changes.writes.runs.jobs[job].job.members)

    # ── rows ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _collect(self, changes: Changeset, now: float) -> None:
        for run in self._touched.values():
            for item in run.changed.values():
                if item.status.final and item.job:
                    self.jobs.pop(item.job, None)
            collected: Collected = collect(run, self.rendered, changes.writes.runs, now)
            self.inbox += self.claims.ended(collected, now)
            steps = (item for _, item in collected if isinstance(item.component, Step))
            self._tally.steps.update(REUSED if item.reused_run else item.status for item in steps)
            if run.status.final:
                self._tally.runs[run.status] += 1
                log.info("run ended", run=run.id, status=str(run.status), reason=run.message)
        self._touched.clear()
        self._tally.waiting = sum(len(run.queue) + len(run.ahead) for run in self.runs.values())


def _awaited_jobs(run: RunState, item: Instance) -> list[str]:
    """The jobs whose end one that is held back waits for."""
    return [other.job for other in awaited(run, item)]


def _words(error: PaddleFlowError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _fact(state: JobState, number: int, now: float) -> Fact | None:
    """What a job's state is for its step."""
    if state.status.final:
        code = next((task.exit_code for task in state.tasks if task.status is TaskStatus.FAILED), None)
        return JobEnded(state.finished_at or now, number, state.status, code, state.message, state.started_at)
    if state.status is JobStatus.RUNNING:
        return JobStarted(state.started_at or now, number)
    return None
