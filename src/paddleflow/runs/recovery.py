"""A run's state from its rows: at its beginning, after a restart, and after any error of the engine. One path for all.

Rows hold what has ended, what has a job, what pauses and what rests between two tries. Everything else (a step that waited
for a slot, an answer of the cache, a file) had no effect yet and starts again with the fact `Adopted`.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.runs import codec, values
from paddleflow.runs.facts import Fingerprints, JobEnded
from paddleflow.runs.machine import first_failure, group_result
from paddleflow.runs.model import GOOD, PAUSED, ComponentStatus, RunStatus
from paddleflow.runs.names import with_seq
from paddleflow.runs.rows import SQL, ComponentRecord, Loop, RunRow, loops_of
from paddleflow.runs.state import POST, ROOT, Frame, Instance, LoopGroup, Phase, RunState, frame_of, plan_of
from paddleflow.spec.pipeline.model import FAIL_FAST, Dag, Step
from paddleflow.store.database import Tx

FINAL_JOBS = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped", "preempted"})
_LOST = "its job is gone and nobody saw how it ended"


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What the database says of one run."""

    run: RunRow
    components: Sequence[ComponentRecord]
    loops: Sequence[Loop]
    exit_codes: dict[str, int]  #: by job, of those that failed while no engine was running


def read_run(tx: Tx, run: RunRow) -> RunRecords:
    components = tx.rows(ComponentRecord, SQL["places_of_run"], run_id=run.id)
    failed = [row.job_id for row in components if row.job_status == "failed"]
    codes = {job: tx.value(SQL["last_exit_code"], job_id=job) for job in failed}
    loops = loops_of(tx, run.id)
    return RunRecords(run, components, loops, {job: code for job, code in codes.items() if code is not None})


def restore(records: RunRecords, now: float) -> tuple[RunState, list[JobEnded]]:
    """The state, and the ends of jobs that the run does not know yet."""
    return _Restoring(records, now).all()


class _Restoring:
    def __init__(self, records: RunRecords, now: float) -> None:
        row = records.run
        pipeline = codec.load(row.pipeline)
        root = frame_of(ROOT, plan_of(pipeline.entry_points))
        self.run = RunState(row.id, row.user_name, pipeline, row.fs_id, root)
        self.run.status = RunStatus(row.status)
        self.run.message = row.message
        self.run.source = row.source
        self.run.activated_at = row.activated_at
        self.run.breakpoints = frozenset(json.loads(row.breakpoints))
        self.run.frames[ROOT] = root
        self.run.next_number = max(self.run.next_number, row.numbers)
        self.run.stopping, self.run.force = row.stop > 0, row.stop > 1
        self.records = records
        self.now = now
        self.ended: list[JobEnded] = []
        self.failures: list[tuple[ComponentRecord, str]] = []

    def all(self) -> tuple[RunState, list[JobEnded]]:
        run = self.run
        below: dict[int, list[ComponentRecord]] = defaultdict(list)
        for row in self.records.components:
            below[row.parent].append(row)
            run.next_number = max(run.next_number, row.number + 1)
        loops: dict[int, dict[str, list[Any]]] = defaultdict(dict)
        for loop in self.records.loops:
            loops[loop.parent][loop.name] = json.loads(loop.items)
        if below.get(POST) and run.pipeline.post_process is not None:
            step = run.pipeline.post_process
            run.post = run.frames[POST] = frame_of(POST, plan_of({step.name: step}))
        pending = deque(run.frames.values())
        while pending:
            frame = pending.popleft()
            pending += self._fill(frame, below.get(frame.number, []), loops.get(frame.number, {}))
        self._reasons()
        return run, self.ended

    def _fill(self, frame: Frame, rows: Iterable[ComponentRecord], loops: dict[str, list[Any]]) -> list[Frame]:
        """Its children as the rows say; the frames of those that are running dags."""
        children: dict[int, list[ComponentRecord]] = defaultdict(list)
        for row in rows:
            children[frame.plan.index[row.name]].append(row)
        for name, items in loops.items():
            child = frame.plan.index[name]
            frame.counts[child] = len(items)
            children.setdefault(child, [])
        for child, mine in children.items():
            if frame.plan.components[child].loop_argument is None and mine[0].parameters not in {"", "{}"}:
                frame.parameters[child] = json.loads(mine[0].parameters)
        inner: list[Frame] = []
        for child, mine in children.items():
            inner += self._child(frame, child, mine, loops.get(frame.plan.names[child]))
        return inner

    def _child(self, frame: Frame, child: int, rows: list[ComponentRecord], items: list[Any] | None) -> list[Frame]:
        results = {ComponentStatus(row.status) for row in rows}
        for row in rows:
            if row.outputs != "{}":
                frame.outputs[child, row.seq] = json.loads(row.outputs)
            if row.status in {ComponentStatus.FAILED, ComponentStatus.TERMINATED} and row.kind == "step":
                self.failures.append((row, frame.path + with_seq(row.name, row.seq)))
        dropped = (
            items is not None and len(rows) == 1 and rows[0].status == ComponentStatus.CANCELLED and not rows[0].tries
        )
        whole = items is None or len(rows) == len(items) or not items or dropped
        if rows and whole and all(status.final for status in results):
            self._end_child(frame, child, group_result(results))
            return []
        group = frame.groups[child] = LoopGroup(rows[0].number if rows else self.run.take_number())
        group.results = {status for status in results if status.final}
        if len(rows) == 1 and rows[0].message == PAUSED and rows[0].status == ComponentStatus.PENDING:
            group.paused = True
            self.run.instances[group.number] = Instance(group.number, frame, child, message=PAUSED)
            return []
        group.begun, group.items = True, items
        count = 1 if items is None else len(items)
        group.left = count - sum(ComponentStatus(row.status).final for row in rows)
        inner = [made for row in rows if (made := self._instance(frame, child, row, items)) is not None]
        known = {row.seq for row in rows}
        for seq in range(count):
            if seq not in known:
                number = group.number if not rows and seq == 0 else self.run.take_number()
                item = "" if items is None else items[seq]
                self.run.instances[number] = Instance(number, frame, child, seq, item)
        return inner

    def _end_child(self, frame: Frame, child: int, status: ComponentStatus) -> None:
        frame.statuses[child] = status
        frame.results.add(status)
        frame.left -= 1
        if status in GOOD:
            for after in frame.plan.successors[child]:
                frame.waits[after] -= 1

    def _instance(self, frame: Frame, child: int, row: ComponentRecord, items: list[Any] | None) -> Frame | None:
        """One that has not ended; the frame inside it, if it is a dag."""
        status = ComponentStatus(row.status)
        if status.final:
            return None
        run, component = self.run, frame.plan.components[child]
        item = Instance(row.number, frame, child, row.seq, "" if items is None else items[row.seq], status)
        item.message, item.job, item.tries = row.message, row.job_id, row.tries
        item.not_before, item.started_at = row.not_before, row.started_at
        item.prints = Fingerprints(row.first_fp, row.second_fp, row.parts)
        item.misses = json.loads(row.misses)
        item.outputs = json.loads(row.outputs) if row.outputs != "{}" else item.outputs
        run.instances[item.number] = item
        if isinstance(component, Dag):
            item.phase = Phase.RUNNING
            inner = frame_of(item.number, frame.plan.inner(child), f"{frame.path}{with_seq(component.name, item.seq)}.")
            inner.values = values.parameters_of(run, frame, child, item.item)
            inner.inputs = values.inputs_of(run, frame, child)
            inner.item = item.item
            run.frames[item.number] = inner
            return inner
        if item.not_before is not None:
            item.phase = Phase.BACKOFF
            run.at(item.not_before, item.number)
        elif item.job:
            self._at_work(item, component, row)
        return None

    def _at_work(self, item: Instance, step: Step, row: ComponentRecord) -> None:
        run = self.run
        if row.job_gated:
            item.phase = Phase.PREFETCHED
            run.prefetched[item.number] = item
            return
        item.phase, item.slot = Phase.RUNNING, True
        run.running += 1
        if item.status is ComponentStatus.RUNNING:
            item.try_started_at = row.job_started_at
            if step.timeout and item.try_started_at is not None:
                run.at(item.try_started_at + step.timeout, item.number)
        if row.job_status is None:
            self.ended.append(JobEnded(self.now, item.number, "failed", None, _LOST))
        elif row.job_status in FINAL_JOBS:
            code = self.records.exit_codes.get(item.job)
            self.ended.append(JobEnded(self.now, item.number, row.job_status, code, row.job_message or ""))

    def _reasons(self) -> None:
        """Why nothing new begins, if that is so."""
        run = self.run
        if self.failures:
            first, name = min(self.failures, key=lambda failed: failed[0].number)
            run.failure = first_failure(name, ComponentStatus(first.status), first.message)
            if run.pipeline.strategy == FAIL_FAST and any(row.parent != POST for row, _ in self.failures):
                run.halting = f"not started: {run.failure}"
        if run.stopping:
            run.halting = run.halting or run.message or "the run was stopped"
