"""A world without processes and files around a run's machine: jobs end as the test says, rows are kept as the database would."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from paddleflow.runs import codec
from paddleflow.runs.facts import (
    Adopted,
    CacheAnswered,
    Command,
    Fact,
    FilesRead,
    Fingerprints,
    FinishRun,
    Hit,
    JobEnded,
    JobPlaced,
    JobStarted,
    LookUpCache,
    OutputsPrepared,
    OutputsRecorded,
    PrepareOutputs,
    ReadFiles,
    RecordOutputs,
    ReleaseJob,
    StopJob,
    SubmitJob,
    WithdrawJob,
)
from paddleflow.runs.machine import advance
from paddleflow.runs.model import GOOD
from paddleflow.runs.prefetch import awaited, dependencies_of
from paddleflow.runs.recovery import RunRecords, restore
from paddleflow.runs.rows import ComponentRecord, Loop, RunRow, component_row
from paddleflow.runs.state import Phase, RunState
from paddleflow.runs.values import rendered
from paddleflow.spec.pipeline.model import Pipeline

RUN = "run-000001"


def run_row(pipeline: Pipeline, **columns: Any) -> dict[str, Any]:
    row = {
        "id": RUN, "user_name": "alice", "pipeline": codec.dump(pipeline), "fs_id": "fs-alice-store", "status": "initiating",
        "message": "", "source": "", "activated_at": None, "breakpoints": "[]", "stop": 0,
    }  # fmt: skip
    return {**row, **columns}


@dataclass
class RunWorld:
    """One run and everything that answers it. Facts that are not applied yet wait in `pending`."""

    pipeline: Pipeline
    files: Mapping[str, str] = field(default_factory=dict)  #: contents by artifact name
    hits: Callable[[str], bool] = lambda name: False
    now: float = 1000.0
    row: dict[str, Any] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    loops: dict[tuple[int, str], list[Any]] = field(default_factory=dict)
    jobs: dict[str, JobEnded | None] = field(default_factory=dict)  #: every job; how it ended
    running: dict[int, str] = field(default_factory=dict)  #: jobs that have not ended, by the component's number
    held: dict[int, str] = field(default_factory=dict)  #: jobs that are held back, by the component's number
    began: dict[str, float] = field(default_factory=dict)  #: when jobs started
    stops: list[int] = field(default_factory=list)
    pending: list[Fact] = field(default_factory=list)
    started: list[str] = field(default_factory=list)  #: full names, in order, one for each try
    finished: int = 0
    history: list[str] = field(default_factory=list)  #: commands, to compare
    state: RunState = field(init=False)

    def __post_init__(self) -> None:
        self.row = self.row or run_row(self.pipeline)
        self.restart()

    def restart(self) -> None:
        """All memory is lost; the rows are not, and neither is what runs."""
        components = [self._with_job(row) for _, row in sorted(self.rows.items())]
        loops = [Loop(*key, json.dumps(items)) for key, items in self.loops.items()]
        codes = {job: 1 for job, end in self.jobs.items() if end is not None and end.status == "failed"}
        self.state, ended = restore(RunRecords(RunRow(**self.row), components, loops, codes), self.now)
        self.pending = []
        self.tell(Adopted(self.now))
        for fact in ended:
            self.tell(fact)

    def _with_job(self, row: dict[str, Any]) -> ComponentRecord:
        end = self.jobs.get(row["job_id"])
        known = row["job_id"] in self.jobs
        found = {
            **row,
            "job_status": (end.status if end is not None else "running") if known else None,
            "job_message": end.message if end is not None else "",
            "job_started_at": self.began.get(row["job_id"]),
            "job_gated": int(row["job_id"] in self.held.values()),
            "job_cluster": "default-cluster" if known else None,
        }
        return ComponentRecord(**{each.name: found[each.name] for each in fields(ComponentRecord)})

    def tell(self, fact: Fact) -> None:
        """Advance, answer what can be answered, write rows."""
        self.now = max(self.now, fact.at)
        if isinstance(fact, JobStarted) and fact.number in self.running:
            self.began[self.running[fact.number]] = fact.at
        _, commands = advance(self.state, fact)
        self.history += [str(command) for command in commands]
        for command in commands:
            self._do(command)
        for item in self.state.changed.values():
            row = component_row(self.state, item)
            old = self.rows.get(item.number)
            for column in ("details", "parameters"):
                row[column] = row[column] or (old[column] if old else "")
            self.rows[item.number] = row
        self.state.changed.clear()
        if self.state.withdrawn:
            self.row["numbers"] = self.state.next_number
        for number in self.state.withdrawn:
            if number not in self.state.instances or not self.state.instances[number].job:
                self.rows.pop(number, None)
        self.state.withdrawn.clear()
        for frame, name, items in self.state.loops:
            self.loops[frame, name] = list(items)
        self.state.loops.clear()
        if self.state.changed_itself:
            self.row.update(status=self.state.status, message=self.state.message, activated_at=self.state.activated_at)

    def _do(self, command: Command) -> None:
        now = self.now
        match command:
            case SubmitJob(number):
                item = self.state.instances[number]
                rendered(self.state, item)
                item.job = f"job-{number}-{item.tries}"
                assert item.job not in self.jobs, f"{item.full_name} was started twice"
                self.jobs[item.job] = None
                self.held[number] = item.job
                if item.phase is not Phase.PREFETCHED:
                    self._start(number)
            case ReleaseJob(number):
                if number in self.held:
                    self._start(number)
            case WithdrawJob(number, job):
                if self.held.get(number) == job:
                    del self.held[number]
            case ReadFiles(number, paths):
                missing = [name for name in paths if name not in self.files]
                error = f"artifact[{missing[0]}] is not there" if missing else ""
                contents = {name: self.files[name] for name in paths if name in self.files}
                self.pending.append(FilesRead(now, number, contents, error))
            case LookUpCache(number):
                name = self.state.instances[number].full_name
                hit = Hit("run-000000", "job-0", {}) if self.hits(name) else None
                self.pending.append(
                    CacheAnswered(now, number, Fingerprints("a", "b"), hit, () if hit else ("command",))
                )
            case PrepareOutputs(number):
                self.pending.append(OutputsPrepared(now, number))
            case RecordOutputs(number):
                self.pending.append(OutputsRecorded(now, number, {}))
            case StopJob(number):
                self.stops.append(number)
            case FinishRun():
                self.finished += 1

    def _start(self, number: int) -> None:
        item = self.state.instances[number]
        for before in dependencies_of(item.frame, item.child):
            group = item.frame.groups.get(before)
            other = None if group is None else self.state.instances.get(group.number)
            ended = None if other is None else self.jobs.get(other.job)
            well = item.frame.statuses[before] in GOOD or (ended is not None and ended.status == "succeeded")
            assert well, f"{item.full_name} begins before {item.frame.plan.names[before]} has ended well"
        self.running[number] = self.held.pop(number)
        self.started.append(self.state.instances[number].full_name)
        self.pending.append(JobStarted(self.now, number))

    @property
    def followers(self) -> list[int]:
        """Jobs that a runtime may begin without a word: all that they come after have ended well, though nobody knows."""
        found = []
        for number in self.held:
            item = self.state.instances.get(number)
            before = [] if item is None else awaited(self.state, item)
            if before and all((end := self.jobs.get(each.job)) and end.status == "succeeded" for each in before):
                found.append(number)
        return sorted(found)

    def follow(self, number: int) -> None:
        """A job that was held back begins in the place of another."""
        self.pending.append(JobPlaced(self.now, number))
        self._start(number)

    def end_job(self, number: int, status: str, message: str = "", exit_code: int | None = None) -> None:
        """A job ends; the machine knows when its fact is applied."""
        job = self.running.pop(number)
        fact = JobEnded(self.now, number, status, exit_code, message, self.now)
        self.jobs[job] = fact
        self.pending.append(fact)

    @property
    def statuses(self) -> dict[str, str]:
        return {row["full_name"]: str(row["status"]) for row in self.rows.values()}
