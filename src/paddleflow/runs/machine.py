"""The run machine: ``advance(state, fact) -> (state, commands)``. No I/O; time comes in with the fact.

The state is changed in place (a run may have ten thousand steps, and the end of one must cost what comes after it and no
more), but deterministically: equal histories give equal commands. `state` says what is kept.

A component begins when all that it waits for has succeeded or was skipped. Then, in this order: a breakpoint pauses it, its
loop is opened, its condition is asked, a dag begins its children; a step asks the cache, waits for one of the run's slots
(`parallelism`), has the folders of its outputs made, and its job submitted. What it fails by is tried again as its `retry`
says. A failure ends everything (`fail_fast`) or what comes after it (`continue`). When the entry points have ended the
post-process runs, whatever their result; then the run has ended.

Rows to be written are left in `state.changed`, `state.loops` and `state.moved`, for whoever keeps the state.
"""

from __future__ import annotations

import heapq

from paddleflow.runs.ahead import BRISK, Ahead
from paddleflow.runs.facts import (
    Begun,
    BreakpointsSet,
    CacheAnswered,
    Command,
    Fact,
    FilesRead,
    Finish,
    JobEnded,
    JobStarted,
    Prepare,
    Prepared,
    Record,
    Recorded,
    Refused,
    StopAsked,
    Ticked,
    Withdraw,
)
from paddleflow.runs.model import ComponentStatus
from paddleflow.runs.state import Instance, Phase, RunState
from paddleflow.spec.pipeline.model import Step

_SUCCEEDED, _FAILED = ComponentStatus.SUCCEEDED, ComponentStatus.FAILED
_TERMINATED, _CANCELLED = ComponentStatus.TERMINATED, ComponentStatus.CANCELLED


def advance(state: RunState, fact: Fact) -> tuple[RunState, list[Command]]:
    """What follows from a fact. A fact about what has ended changes nothing; nothing is asked about what ended by it."""
    if state.status.final:
        return state, []
    walk = _Walk(state, fact.at)
    walk.hear(fact)
    walk.go_on()
    return state, [
        each for each in walk.commands if isinstance(each, Finish | Withdraw) or each.number in state.instances
    ]


class _Walk(Ahead):
    """One fact on its way through the state, with what steps at work do."""

    __slots__ = ()

    def hear(self, fact: Fact) -> None:
        match fact:
            case Begun():
                self.begin()
            case StopAsked():
                self.stop(fact)
            case BreakpointsSet():
                self._set_breakpoints(fact.names)
            case Ticked():
                self._tick()
            case _:
                item = self.run.instances.get(fact.number)
                if item is not None:
                    self._hear_of(item, fact)

    def _hear_of(self, item: Instance, fact: Fact) -> None:
        if item.phase is Phase.FOLLOWING:
            if isinstance(fact, Refused):  # it is told so at its time, if it still is
                self.run.brisk = 0
                self.unfollow(item)
                return
            self.promote(item)
        match fact:
            case JobStarted() if item.phase is Phase.WORKING and item.status is ComponentStatus.PENDING:
                self._started(item, fact.at)
            case JobEnded() if item.phase is Phase.WORKING:
                self._job_ended(item, fact)
            case Refused() if item.phase is Phase.WORKING:
                self.end(item, _FAILED, fact.message)
            case FilesRead() if item.phase in {Phase.OPENING, Phase.READING}:
                self.files_read(item, fact)
            case CacheAnswered() if item.phase is Phase.CACHING:
                self._cache_answered(item, fact)
            case Prepared() if item.phase is Phase.PREPARING:
                if fact.error:
                    self.end(item, _FAILED, fact.error)
                else:
                    self.submit(item, Phase.WORKING)
            case Recorded() if item.phase is Phase.RECORDING:
                self.run.measured[item.number] = fact.made
                self.end(item, _SUCCEEDED, "")

    def go_on(self) -> None:
        """Until nothing follows any more; then give free slots away."""
        run = self.run
        while True:
            while self.todo:
                self.todo.popleft()()
            free = run.running < run.pipeline.parallelism
            if free and run.ahead and (item := self.next_due()) is not None:
                self.promote(item)
            elif free and run.queue:
                self._give_slot(run.queue.popleft())
            elif self.look_ahead():
                continue
            elif run.root.left == 0 and not run.status.final:
                self.after_entry_points()
                if not self.todo:
                    return
            else:
                return

    def _give_slot(self, item: Instance) -> None:
        if item.phase is not Phase.QUEUED:
            return
        item.slot = True
        self.run.running += 1
        if item.component.outputs or self._in_a_folder_of_its_own():
            item.phase = Phase.PREPARING
            self.commands.append(Prepare(item.number))
        else:
            self.submit(item, Phase.WORKING)

    def _in_a_folder_of_its_own(self) -> bool:
        """Steps see a part of the main storage, which may still have to be made."""
        main = self.run.pipeline.main_fs
        return main is not None and bool(main.sub_path)

    def _cache_answered(self, item: Instance, fact: CacheAnswered) -> None:
        if fact.error:
            self.end(item, _FAILED, fact.error)
            return
        item.prints, item.misses = fact.prints, fact.misses
        if fact.hit is None:
            self.enqueue(item)
            return
        item.reused_run, item.reused_job, item.outputs = fact.hit.run, fact.hit.job, fact.hit.outputs
        item.job = fact.hit.job
        item.started_at = self.at
        self.end(item, _SUCCEEDED, f"reused from {fact.hit.run}")

    def _started(self, item: Instance, at: float) -> None:
        item.status, item.try_started_at = ComponentStatus.RUNNING, at
        if item.started_at is None:
            item.started_at = at
        if item.step.timeout:
            self.run.at(at + item.step.timeout, item.number)
        self.run.changed[item.number] = item

    def _job_ended(self, item: Instance, fact: JobEnded) -> None:
        if item.started_at is None:
            item.started_at = fact.started_at
        if item.slot:
            item.slot = False
            self.run.running -= 1
        if fact.status == _SUCCEEDED:
            began = item.try_started_at if item.try_started_at is not None else fact.started_at
            self.run.brisk = self.run.brisk + 1 if began is not None and fact.at - began < BRISK else 0
            if item.component.outputs:
                item.phase = Phase.RECORDING
                self.commands.append(Record(item.number))
            else:
                self.end(item, _SUCCEEDED, "")
        elif item.timed_out:
            self._failed(item, f"it ran longer than its timeout of {item.step.timeout:g} s", None)
        elif fact.status in {_TERMINATED, _CANCELLED}:
            self.end(item, _TERMINATED, fact.message)
        else:
            self._failed(item, fact.message, fact.exit_code)

    def _failed(self, item: Instance, message: str, exit_code: int | None) -> None:
        retry = item.step.retry
        wanted = not retry.exit_codes or exit_code in retry.exit_codes
        if item.tries > retry.times or not wanted or (self.run.halting and not item.post):
            tries = f" (try {item.tries} of {retry.times + 1})" if retry.times and wanted else ""
            self.end(item, _FAILED, message + tries)
            return
        delay = min(retry.delay * retry.factor ** (item.tries - 1), retry.most)
        for after in item.frame.plan.successors[item.child]:
            self.unfollow_child(item.frame, after)
        item.phase, item.status, item.not_before = Phase.RESTING, ComponentStatus.PENDING, self.at + delay
        item.message = (
            f"try {item.tries} of {retry.times + 1} failed ({message}); the next one begins after {delay:g} s"
        )
        self.run.at(item.not_before, item.number)
        self.run.changed[item.number] = item

    def _tick(self) -> None:
        run = self.run
        while run.timers and run.timers[0][0] <= self.at:
            _, number = heapq.heappop(run.timers)
            item = run.instances.get(number)
            if item is None:
                continue
            if item.phase is Phase.RESTING and item.not_before is not None and item.not_before <= self.at:
                self.enqueue(item)
            elif (
                item.phase is Phase.WORKING
                and isinstance(item.component, Step)
                and item.status is ComponentStatus.RUNNING
            ):
                began, limit = item.try_started_at, item.component.timeout
                if limit and began is not None and began + limit <= self.at:
                    item.timed_out = True
                    self.stop_job(item, f"it ran longer than its timeout of {limit:g} s")

    def _set_breakpoints(self, names: frozenset[str]) -> None:
        run = self.run
        run.breakpoints = names
        for item in list(run.ahead.values()):
            if item.frame.waits[item.child] and item.frame.plan.path + item.name in names and item.number in run.ahead:
                self.unfollow(item)
        for item in list(run.instances.values()):
            group = item.frame.groups.get(item.child)
            if group is not None and group.paused and item.frame.plan.path + item.name not in names:
                self.resume(item)
