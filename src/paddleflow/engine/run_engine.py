"""The run engine: keeps the states of all runs, and moves them inside the engine's turns.

    1. gather   what happened: jobs of steps that started or ended, runs that people changed, answers of `run_io`, time
    2. advance  each run's machine; the jobs of steps that may start are admitted and put on the board, so the same turn
                places them
    3. collect  what the machines changed, as rows for the turn's one transaction
    4. (after the write) I/O: files and the cache, outside of transactions; their answers are facts of a later turn

It is attached to one board, that of the cluster engine whose turns it takes part in. The step of a queue of that cluster costs
no transaction of its own. One of another cluster becomes an ordinary job row, as the API would write it, and its progress is
read from its row (`other_jobs`). Only the holder of the lease `runs` does this: its token is checked in each transaction that
writes about runs.

Disposable as the board is: after any error both are thrown away and rebuilt from the rows.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from paddleflow.base.log import Log
from paddleflow.engine.board import Board, Waiting
from paddleflow.engine.changeset import Changeset
from paddleflow.engine.claims import Claims
from paddleflow.engine.run_writes import Collected, FreshJob, collect, read_other_jobs, taken_ids
from paddleflow.engine.step_admission import REFUSALS, Admission, Asked
from paddleflow.engine.turn import advance_job, end_waiting
from paddleflow.errors import Conflict, PaddleFlowError
from paddleflow.jobs import facts as job_facts
from paddleflow.jobs.durations import JobProfile, profile_of_new
from paddleflow.jobs.machine import JobState
from paddleflow.jobs.model import JobStatus, NewJob, TaskStatus
from paddleflow.jobs.rows import DELETED, ChangedJob, JobRow, job_row, request_of_new
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runs.counters import REUSED, RunCounters
from paddleflow.runs.facts import (
    Adopted,
    BreakpointsSet,
    Command,
    Fact,
    FinishRun,
    JobEnded,
    JobPlaced,
    JobRefused,
    JobStarted,
    ReleaseJob,
    StopJob,
    StopRequested,
    SubmitJob,
    TimePassed,
    WithdrawJob,
)
from paddleflow.runs.machine import advance
from paddleflow.runs.model import ComponentStatus, RunStatus
from paddleflow.runs.prefetch import awaited
from paddleflow.runs.recovery import FINAL_JOBS, RunRecords, read_run, restore
from paddleflow.runs.rows import ChangedRun, active_runs, run_by_id
from paddleflow.runs.state import ROOT, Instance, Phase, RunState, frame_of, plan_of
from paddleflow.runs.values import Rendered, rendered
from paddleflow.spec.pipeline.model import Pipeline, Step
from paddleflow.store.database import Database, Tx

HELD_BACK = "its turn comes after other steps of its run"
NOT_WANTED = "not started: a step before it did not succeed, or its run was changed"
NOT_KNOWN_YET = 2**60  #: orders of jobs whose rows are not written yet begin here
RunFact = tuple[RunState, Fact]
_OF_JOBS = ReleaseJob | WithdrawJob | StopJob

log = Log("engine")


def read_active(tx: Tx) -> list[RunRecords]:
    """All runs that have not ended."""
    return [read_run(tx, row) for row in active_runs(tx)]


def _read_one(tx: Tx, run: str) -> RunRecords | None:
    row = run_by_id(tx, run)
    return None if row is None or RunStatus(row.status).final else read_run(tx, row)


class RunEngine:
    """The runs of one engine."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        results: RunCounters,
        expected: Callable[[JobProfile], float | None] = lambda job: None,
        set_aside: dict[str, str] | None = None,
        cluster: str = DEFAULT_CLUSTER,
        near: Callable[[NewJob], tuple[str, ...]] = lambda job: (),
    ) -> None:
        """`cluster`: that of the board it is attached to. `set_aside`: runs that an engine before this one could not write down, and why; they are failed."""
        self._database = database
        self._cluster = cluster
        self.lease: tuple[str, int] | None = None  #: of runs, with its token; None: another server moves them
        self.other_jobs: dict[str, str] = {}  #: jobs of steps on other clusters → the status that was seen last
        self.others_changed = False  #: their rows may say something new
        self._admission = admission
        self._counters = results
        self._expected = expected  # seconds that a job will probably run
        self._near = near  # nodes that hold its data
        self.runs: dict[str, RunState] = {}
        self.jobs: dict[str, tuple[RunState, int]] = {}  #: job of a running step → its run and number
        self.inbox: list[RunFact] = []  #: answers of `run_io`
        self.io_requests: list[tuple[RunState, Command]] = []  #: to be done after this turn's write
        self.rendered: dict[tuple[str, int], Rendered] = {}  #: of steps whose row is not written yet
        self.claims = Claims()
        self._set_aside = {} if set_aside is None else set_aside
        self._abandoned: list[tuple[RunState, Sequence[str]]] = []  #: runs that cannot be restored, with their jobs
        self._submits: list[tuple[RunState, Instance]] = []
        self._touched: dict[str, RunState] = {}
        self._order = NOT_KNOWN_YET

    def adopt(self, records: RunRecords, now: float) -> list[RunFact]:
        """Adopt a run from its rows; the facts for its machine. One that cannot be adopted fails with a message."""
        try:
            if records.run.id in self._set_aside:
                raise Conflict(self._set_aside[records.run.id])
            run, ended = restore(records, now)
        except Exception as error:  # whatever is wrong with the rows of one run, the others continue
            self._abandon(records, error, now)
            return []
        self.runs[run.id] = run
        elsewhere = {each.job_id for each in records.components if each.job_cluster not in {None, self._cluster}}
        for item in run.instances.values():
            if item.job and (item.slot or item.phase is Phase.PREFETCHED):
                self.jobs[item.job] = run, item.number
                if item.job in elsewhere:
                    self.other_jobs[item.job] = ""
                self.claims.restore(run, item)
        return [(run, Adopted(now)), *((run, fact) for fact in ended)]

    def _abandon(self, records: RunRecords, error: Exception, now: float) -> None:
        row = records.run
        run = RunState(row.id, row.user_name, Pipeline(row.name, {}), row.fs_id, frame_of(ROOT, plan_of({})))
        run.activated_at = row.activated_at
        self._fail(run, error, now)
        jobs = [each.job_id for each in records.components if each.job_id and each.job_status not in FINAL_JOBS]
        self._abandoned.append((run, jobs))
        self._touched[run.id] = run

    def next_due(self) -> float | None:
        """When the next timer of a run is due."""
        return min((due for run in self.runs.values() if (due := run.next_due()) is not None), default=None)

    # ── a turn ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def turn(
        self, board: Board, changes: Changeset, jobs: Iterable[ChangedJob], runs: Iterable[ChangedRun], now: float
    ) -> None:
        """Everything that follows for runs from what this turn observed; `decide` comes after it."""
        facts, self.inbox = self.inbox, []
        facts = self._of_jobs(changes, jobs, now) + facts
        facts += await self._of_other_jobs(now)
        facts += await self._of_runs(runs, changes, now)
        await self._go_on(board, changes, facts, now)

    async def begin(self, board: Board, changes: Changeset, facts: list[RunFact], now: float) -> None:
        """The first turn with runs: all were adopted, and the ends that were seen meanwhile count too."""
        await self._go_on(board, changes, facts + self._of_jobs(changes, (), now), now)

    async def _go_on(self, board: Board, changes: Changeset, facts: list[RunFact], now: float) -> None:
        facts += [
            (run, TimePassed(now)) for run in self.runs.values() if (due := run.next_due()) is not None and due <= now
        ]
        for run, jobs in self._abandoned:
            changes.writes.runs.abandoned.append({"run_id": run.id, "message": run.message, "at": now})
            for job in jobs:
                self._end_job(board, changes, job, run.message, now)
        self._abandoned.clear()
        while facts or self._submits:
            for run, fact in facts:
                self._advance(run, fact)
                self._stop_jobs(board, changes, now)
            facts, self.inbox = self.inbox, []
            if self._submits:
                facts += await self._submit(board, changes, now)
                self._stop_jobs(board, changes, now)
        self._collect(changes, now)

    def _of_jobs(self, changes: Changeset, rows: Iterable[ChangedJob], now: float) -> list[RunFact]:
        """Jobs of steps that started or ended."""
        facts: list[RunFact] = []
        if not self.jobs:
            return facts
        successors = [known for each in changes.writes.successors if (known := self.jobs.get(each.job)) is not None]
        facts += [(run, JobPlaced(now, number)) for run, number in successors]
        for job, moved in changes.moved.items():
            known = self.jobs.get(job)
            if known is not None:
                fact = _fact(moved.active.state, known[1], now)
                if fact is not None:
                    facts.append((known[0], fact))
        for row in rows:
            known = self.jobs.get(row.id)
            if known is None or row.id in changes.moved:
                continue
            if row.status == DELETED:
                facts.append((known[0], JobEnded(now, known[1], JobStatus.TERMINATED, None, "its job was deleted")))
            elif JobStatus(row.status).final:
                facts.append((known[0], JobEnded(now, known[1], row.status, None, row.message)))
        facts += [(known[0], fact) for state in changes.writes.changes if (known := self.jobs.get(state.after.id)) is not None
                 and (fact := _fact(state.after, known[1], now)) is not None]  # fmt: skip
        return facts

    async def _of_other_jobs(self, now: float) -> list[RunFact]:
        """Jobs of steps on other clusters that started or ended, as their rows say."""
        if not self.others_changed or not self.other_jobs:
            return []
        self.others_changed = False
        facts: list[RunFact] = []
        found = await self._database.read(read_other_jobs, list(self.other_jobs))
        for job, before in list(self.other_jobs.items()):
            known, row = self.jobs.get(job), found.get(job)
            if known is None:
                del self.other_jobs[job]
            elif row is None:
                facts.append((known[0], JobEnded(now, known[1], JobStatus.TERMINATED, None, "its job was deleted")))
            elif row.status != before:
                self.other_jobs[job] = row.status
                if JobStatus(row.status).final:
                    ended = row.finished_at or now, known[1], row.status, row.exit_code, row.message, row.started_at
                    facts.append((known[0], JobEnded(*ended)))
                elif row.status == JobStatus.RUNNING:
                    facts.append((known[0], JobStarted(row.started_at or now, known[1])))
        return facts

    async def _of_runs(self, rows: Iterable[ChangedRun], changes: Changeset, now: float) -> list[RunFact]:
        """Runs that people made or changed."""
        facts: list[RunFact] = []
        for row in rows:
            changes.writes.runs.seen.append({"seq": row.seq, "touched": row.touched})
            run = self.runs.get(row.id)
            if run is not None:
                facts.append((run, BreakpointsSet(now, frozenset(json.loads(row.breakpoints)))))
                if row.stop and not (run.stopping and run.force >= (row.stop > 1)):
                    facts.append((run, StopRequested(now, row.stop > 1, row.message)))
            elif not RunStatus(row.status).final:
                records = await self._database.read(_read_one, row.id)
                if records is not None:
                    facts += self.adopt(records, now)
        return facts

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
                case SubmitJob():
                    self._submits.append((run, run.instances[command.number]))
                case WithdrawJob() if not command.job:
                    self._submits = [e for e in self._submits if e[0] is not run or e[1].number != command.number]
                case FinishRun():
                    self.runs.pop(run.id, None)
                case _:
                    self.io_requests.append((run, command))

    def _give_up(self, run: RunState, error: Exception, now: float) -> list[Command]:
        """End a run that this code cannot continue; its running jobs are stopped."""
        self._fail(run, error, now)
        commands: list[Command] = [FinishRun()]
        for item in run.instances.values():
            if item.job and item.phase in {Phase.RUNNING, Phase.PREFETCHED}:
                commands.append(StopJob(item.number, run.message))
            item.status, item.message, item.finished_at = ComponentStatus.TERMINATED, run.message, now
            run.changed[item.number] = item
        run.queue.clear()
        run.timers.clear()
        return commands

    def _fail(self, run: RunState, error: Exception, now: float) -> None:
        log.error("a run cannot go on", run=run.id, reason="".join(traceback.format_exception(error)))
        run.status, run.finished_at, run.changed_itself = RunStatus.FAILED, now, True
        words = _words(error) if isinstance(error, PaddleFlowError) else type(error).__name__
        run.message = f"a fault of the server ended it: {words}; the server's log has the details"

    def _drop(self, run: RunState, error: Exception, changes: Changeset, now: float) -> Collected:
        """End a run whose changes cannot be written down."""
        self._fail(run, error, now)
        ended = list(run.instances.values())
        for item in ended:
            item.status, item.phase = ComponentStatus.TERMINATED, Phase.ENDED
            if item.job and self.jobs.pop(item.job, None) is not None:
                changes.writes.runs.stops.append((item.job, run.message))
        for waiting in (run.changed, run.instances, run.loops, run.withdrawn):
            waiting.clear()
        self.runs.pop(run.id, None)
        changes.writes.runs.abandoned.append({"run_id": run.id, "message": run.message, "at": now})
        return [*((run, item) for item in ended), *collect(run, self.rendered, changes.writes.runs, now)]

    async def find_conflicts(self, changes: Changeset) -> None:
        """A turn could not be written: the runs whose jobs have ids that are taken are set aside, or it would fail again."""
        fresh = changes.writes.runs.jobs
        if fresh:
            for job in await self._database.read(taken_ids, list(fresh)):
                self._set_aside[fresh[job].run] = f"a job of the id {job} exists already, and is not its own"

    # ── jobs of steps ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_jobs(self, board: Board, changes: Changeset, now: float) -> None:
        """Carry out what the machines ask of jobs at once: they are changes of this turn."""
        asked = [(run, each) for run, each in self.io_requests if isinstance(each, _OF_JOBS)]
        if not asked:
            return
        self.io_requests = [each for each in self.io_requests if not isinstance(each[1], _OF_JOBS)]
        for run, command in asked:
            item = run.instances.get(command.number)
            match command:
                case ReleaseJob() if item is not None:
                    if item.job in self.other_jobs:
                        changes.writes.runs.releases.append(item.job)
                    board.ungate(item.job)
                case WithdrawJob():
                    self.jobs.pop(command.job, None)
                    self._end_job(board, changes, command.job, NOT_WANTED, now)
                case StopJob() if item is not None:
                    if self._stop_job(board, changes, item, command.message, now):
                        ended = JobEnded(now, item.number, JobStatus.TERMINATED, None, command.message)
                        self.inbox.append((run, ended))

    def _stop_job(self, board: Board, changes: Changeset, item: Instance, message: str, now: float) -> bool:
        """True when that ended it at once."""
        before = len(self._submits)
        self._submits = [each for each in self._submits if each[1] is not item]
        return len(self._submits) < before or self._end_job(board, changes, item.job, message, now)

    def _end_job(self, board: Board, changes: Changeset, job: str, message: str, now: float) -> bool:
        if job in self.other_jobs:
            if changes.writes.runs.jobs.pop(job, None) is not None:
                del self.other_jobs[job]  # nobody else knows it yet
                return True
            changes.writes.runs.stops.append((job, message))
            return False  # its row will say when it has ended
        active = board.active.get(job)
        if active is not None:
            advance_job(board, active, job_facts.StopAsked(now, message), changes, now)
            return False
        if job not in board.waiting:
            return False  # it has ended, and a fact about it comes
        if changes.writes.runs.jobs.pop(job, None) is not None:
            board.forget_waiting(job)  # nobody but the board knows it
        else:
            end_waiting(board, job, message, changes, now)
        return True

    async def _submit(self, board: Board, changes: Changeset, now: float) -> list[RunFact]:
        """Admit the jobs of steps and put them on the board; what could not be admitted."""
        facts: list[RunFact] = []
        asked: list[Asked] = []
        submits, self._submits = self._submits, []
        for run, item in submits:
            key = run.id, item.number
            try:
                found = self.rendered[key] = self.rendered.get(key) or rendered(run, item)
                asked.append((run, item, found))
            except REFUSALS as error:
                facts.append((run, JobRefused(now, item.number, _words(error))))
            except Exception as error:  # as in `_advance`; nothing here asks the database
                self._carry_out(run, self._give_up(run, error, now))
        answers = await self._database.peek(self._admission.admit, asked)
        for (run, item, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, NewJob) and answer.cluster != self._cluster:
                facts += self._submit_elsewhere(run, item, answer, changes, now)
            elif isinstance(answer, NewJob):
                self._enqueue(run, item, answer, board, changes, now)
            elif isinstance(answer, REFUSALS):
                facts.append((run, JobRefused(now, item.number, _words(answer))))
            else:
                self._carry_out(run, self._give_up(run, answer, now))
        return facts

    def _submit_elsewhere(
        self, run: RunState, item: Instance, job: NewJob, changes: Changeset, now: float
    ) -> list[RunFact]:
        """A job on another cluster: its row is all that its engine needs. Nothing is prefetched there: not from here."""
        if item.phase is Phase.PREFETCHED:
            run.prefetch = False
            return [(run, JobRefused(now, item.number, "its queue belongs to another cluster"))]
        item.job = job.id
        self.jobs[job.id] = run, item.number
        self.other_jobs[job.id] = ""
        changes.writes.runs.jobs[job.id] = FreshJob(job, run.id, job_row(job, now), elsewhere=True)
        self._counters.started += 1
        return []

    def _enqueue(
        self, run: RunState, item: Instance, job: NewJob, board: Board, changes: Changeset, now: float
    ) -> None:
        item.job = job.id
        self.jobs[job.id] = run, item.number
        row = job_row(job, now)
        follows = item.phase is Phase.PREFETCHED
        changes.writes.runs.jobs[job.id] = FreshJob(job, run.id, row, HELD_BACK if follows else "")
        board.prefetch.queued(job.id, run.id, partial(_awaited_jobs, run, item) if follows else None)
        self._order += 1
        self._counters.started += 1
        member_sets = str(row["member_sets"])
        profile = profile_of_new(job, member_sets, now)
        request = request_of_new(job, member_sets, now, self._order, self._expected(profile), self._near(job))
        board.enqueue(Waiting(request, job.framework, 1, 0), None, now, gated=follows)

    def settle(self, board: Board, rows: dict[str, JobRow], changes: Changeset) -> None:
        """The write stood: jobs that wait have their positions now."""
        for job in changes.writes.runs.jobs:
            waiting = board.waiting.get(job)
            if waiting is not None:
                board.waiting[job] = waiting._replace(request=waiting.request._replace(seq=rows[job].seq))
                board.prefetch.written(rows[job], changes.writes.runs.jobs[job].job.members)

    # ── rows ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _collect(self, changes: Changeset, now: float) -> None:
        changes.writes.runs.lease = self.lease
        for run in self._touched.values():
            for item in run.changed.values():
                if item.status.final and item.job:
                    self.jobs.pop(item.job, None)
                    self.other_jobs.pop(item.job, None)
            try:
                collected: Collected = collect(run, self.rendered, changes.writes.runs, now)
            except Exception as error:  # as in `_advance`; what it had running is stopped by its row
                collected = self._drop(run, error, changes, now)
            self.inbox += self.claims.ended(collected, now)
            steps = (item for _, item in collected if isinstance(item.component, Step))
            self._counters.steps.update(REUSED if item.reused_run else item.status for item in steps)
            if run.status.final:
                self._counters.runs[run.status] += 1
                log.info("run ended", run=run.id, status=str(run.status), reason=run.message)
        self._touched.clear()
        self._counters.waiting = sum(len(run.queue) + len(run.prefetched) for run in self.runs.values())


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
