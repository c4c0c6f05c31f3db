"""The run machine: ``advance(state, fact) -> (state, commands)``. No I/O; time comes in with the fact.

The state is changed in place (a run may have ten thousand steps, and the end of one must cost what comes after it and no
more), but deterministically: equal histories give equal commands. `state` says what is kept.

A component begins when all that it waits for has succeeded or was skipped. Then, in this order: a breakpoint pauses it, its
loop is expanded, its condition is evaluated, a dag begins its children; a step asks the cache, waits for one of the run's
slots (`parallelism`), has the folders of its outputs made, and its job submitted. A try that fails is repeated as its `retry`
says. A failure ends everything (`fail_fast`) or what comes after it (`continue`). When the entry points have ended the
post-process runs, whatever their result; then the run has ended.

Rows to be written are left in `state.changed`, `state.loops` and `state.changed_itself`, for `engine.run_engine`, which calls
this. `prefetch` holds an optimisation that may be left out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from paddleflow.errors import Invalid
from paddleflow.runs import values
from paddleflow.runs.facts import (
    Adopted,
    BreakpointsSet,
    CacheAnswered,
    Command,
    Fact,
    FilesRead,
    FinishRun,
    JobEnded,
    JobRefused,
    JobStarted,
    LookUpCache,
    OutputsPrepared,
    OutputsProgress,
    OutputsRecorded,
    PrepareOutputs,
    ReadFiles,
    RecordOutputs,
    StopJob,
    StopRequested,
    SubmitJob,
    TimePassed,
    WithdrawJob,
)
from paddleflow.runs.model import GOOD, PAUSED, SUCCESS, ComponentStatus, RunStatus
from paddleflow.runs.names import with_seq
from paddleflow.runs.prefetch import Prefetch, ShortSteps
from paddleflow.runs.state import POST, Frame, Instance, LoopGroup, Phase, RunState, frame_of, plan_of
from paddleflow.spec.pipeline.model import FAIL_FAST, Dag, Step

_SUCCEEDED, _FAILED = ComponentStatus.SUCCEEDED, ComponentStatus.FAILED
_TERMINATED, _CANCELLED, _SKIPPED = ComponentStatus.TERMINATED, ComponentStatus.CANCELLED, ComponentStatus.SKIPPED
_NO_FILES: Mapping[str, str] = {}


def advance(state: RunState, fact: Fact) -> tuple[RunState, list[Command]]:
    """What follows from a fact. A fact about what has ended changes nothing; nothing is asked about what ended by it."""
    if state.status.final:
        return state, []
    machine = Machine(state, fact.at)
    machine.apply(fact)
    machine.go_on()
    return state, [
        each for each in machine.commands if isinstance(each, FinishRun | WithdrawJob) or each.number in state.instances
    ]


class Machine:
    """One fact on its way through the state of a run."""

    __slots__ = ("at", "commands", "prefetch", "run", "todo")

    def __init__(self, run: RunState, at: float) -> None:
        self.run = run
        self.at = at
        self.commands: list[Command] = []
        self.todo: deque[Callable[[], None]] = deque()  #: instead of recursion: chains may be long
        self.prefetch: Prefetch = ShortSteps(self) if run.prefetch or run.prefetched else Prefetch(self)

    # ── facts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, fact: Fact) -> None:
        match fact:
            case Adopted():
                self.begin()
            case StopRequested():
                self.stop(fact)
            case BreakpointsSet():
                self._set_breakpoints(fact.names)
            case TimePassed():
                self._tick()
            case _:
                item = self.run.instances.get(fact.number)
                if item is not None:
                    self._apply_to(item, fact)

    def _apply_to(self, item: Instance, fact: Fact) -> None:
        if item.phase is Phase.PREFETCHED:
            if isinstance(fact, JobRefused):  # refused again at its time, if it still is
                self.run.short_steps = 0
                self.prefetch.withdraw(item)
                return
            self.prefetch.promote(item)
        match fact:
            case JobStarted() if item.phase is Phase.RUNNING and item.status is ComponentStatus.PENDING:
                self._started(item, fact.at)
            case JobEnded() if item.phase is Phase.RUNNING:
                self._job_ended(item, fact)
            case JobRefused() if item.phase is Phase.RUNNING:
                self.end(item, _FAILED, fact.message)
            case FilesRead() if item.phase in {Phase.EXPANDING, Phase.READING}:
                self.files_read(item, fact)
            case CacheAnswered() if item.phase is Phase.LOOKUP:
                self._cache_answered(item, fact)
            case OutputsPrepared() if item.phase is Phase.PREPARING:
                if fact.error:
                    self.end(item, _FAILED, fact.error)
                else:
                    self.submit(item, Phase.RUNNING)
            case OutputsProgress() if item.phase is Phase.RECORDING:
                item.message = f"its outputs are being read: {fact.done / 2**30:.1f} GiB so far"
                self.run.changed[item.number] = item
            case OutputsRecorded() if item.phase is Phase.RECORDING:
                if fact.error:
                    self._failed(item, fact.error, None)
                else:
                    self.run.measured[item.number] = fact.made
                    self.end(item, _SUCCEEDED, "")

    def go_on(self) -> None:
        """Until nothing follows any more; then give free slots away."""
        run = self.run
        while True:
            while self.todo:
                self.todo.popleft()()
            free = run.running < run.pipeline.parallelism
            if free and (item := self.prefetch.next_ready()) is not None:
                self.prefetch.promote(item)
            elif free and run.queue:
                self._give_slot(run.queue.popleft())
            elif self.prefetch.fetch_one():
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
            self.commands.append(PrepareOutputs(item.number))
        else:
            self.submit(item, Phase.RUNNING)

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
            self.prefetch.job_succeeded(None if began is None else fact.at - began)
            if item.component.outputs:
                item.phase = Phase.RECORDING
                self.commands.append(RecordOutputs(item.number))
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
        self.prefetch.withdraw_successors(item)
        item.phase, item.status, item.not_before = Phase.BACKOFF, ComponentStatus.PENDING, self.at + delay
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
            if item.phase is Phase.BACKOFF and item.not_before is not None and item.not_before <= self.at:
                self.enqueue(item)
            elif (
                item.phase is Phase.RUNNING
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
        self.prefetch.withdraw_paused()
        for item in list(run.instances.values()):
            group = item.frame.groups.get(item.child)
            if group is not None and group.paused and item.frame.plan.path + item.name not in names:
                self.resume(item)

    # ── beginnings ─────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Everything that may begin and has not. After a restart that is what had not begun before."""
        run = self.run
        if run.status in {RunStatus.INITIATING, RunStatus.PENDING}:
            run.status = RunStatus.RUNNING
            run.changed_itself = True
        if run.activated_at is None:
            run.activated_at = self.at
            run.changed_itself = True
        before = list(run.instances.values())
        for frame in list(run.frames.values()):
            self._begin_children(frame)
        for item in before:
            self._take_up(item)
        if run.halting:
            self.halt()

    def _take_up(self, item: Instance) -> None:
        """A component that had begun before a restart, and what it waited for was only asked for."""
        group = item.frame.groups.get(item.child)
        if item.phase is not Phase.EXPANDING or group is None or item.number not in self.run.instances:
            return
        if group.begun:
            self.ask_condition(item)
        elif not group.paused:
            self.open(item, group)
        elif item.frame.plan.path + item.name not in self.run.breakpoints:
            self.resume(item)

    def resume(self, item: Instance) -> None:
        """It need not wait at its breakpoint any more."""
        group = item.frame.groups[item.child]
        group.paused = False
        item.message = ""
        self.run.changed[item.number] = item
        self.open(item, group)

    def enqueue(self, item: Instance) -> None:
        """It waits for one of the run's slots."""
        item.phase = Phase.QUEUED
        self.run.queue.append(item)

    def submit(self, item: Instance, phase: Phase) -> None:
        """Ask for the job of the next try: to run now, or held back."""
        item.phase, item.status, item.message = phase, ComponentStatus.PENDING, ""
        item.tries += 1
        item.not_before = item.try_started_at = None
        item.timed_out = False
        self.run.changed[item.number] = item
        self.commands.append(SubmitJob(item.number))
        self.prefetch.submitted(item)

    def _begin_children(self, frame: Frame) -> None:
        for child, waits in enumerate(frame.waits):
            if not waits and frame.statuses[child] is ComponentStatus.INIT and child not in frame.groups:
                self.begin_child(frame, child)
        if frame.left == 0 and frame.number > 0:
            self.todo.append(partial(self.end_frame, frame))

    def begin_child(self, frame: Frame, child: int) -> None:
        run = self.run
        if frame.statuses[child] is not ComponentStatus.INIT or child in frame.groups:
            return
        if run.halting and frame.number != POST:
            self.drop_child(frame, child, _CANCELLED, run.halting)
            return
        plain = frame.plan.path + frame.plan.names[child]
        if plain in run.pipeline.disabled:
            self.drop_child(frame, child, _SKIPPED, "disabled")
            return
        group = frame.groups[child] = LoopGroup(run.take_number())
        item = run.instances[group.number] = Instance(group.number, frame, child)
        if plain in run.breakpoints and frame.number != POST:
            group.paused = True
            item.message = PAUSED
            run.changed[item.number] = item
        else:
            self.open(item, group)

    def open(self, item: Instance, group: LoopGroup) -> None:
        """Its loop, if it has one."""
        argument = item.component.loop_argument
        if argument is None:
            group.begun, group.left = True, 1
            self.ask_condition(item)
            return
        needed = values.files_needed(self.run, item, argument)
        if needed and group.contents is None:
            self.commands.append(ReadFiles(item.number, needed, values.LOOP_BYTES))
            return
        try:
            items = values.loop_items(self.run, item, group.contents or _NO_FILES)
        except Invalid as error:
            group.begun, group.left = True, 1
            self.end(item, _FAILED, error.message)
            return
        group.contents = None
        self.run.loops.append((item.frame.number, item.name, items))
        self._spread(item, group, items)

    def _spread(self, first: Instance, group: LoopGroup, items: Any) -> None:
        """An instance for every element."""
        run, frame, child = self.run, first.frame, first.child
        frame.counts[child] = len(items)
        if not items:
            self.drop_child(frame, child, _SKIPPED, "its loop has no elements")
            return
        group.begun, group.items, group.left = True, items, len(items)
        first.item = items[0]
        self.ask_condition(first)
        for seq in range(1, len(items)):
            number = run.take_number()
            item = run.instances[number] = Instance(number, frame, child, seq, items[seq])
            self.ask_condition(item)

    def ask_condition(self, item: Instance) -> None:
        condition = item.component.condition
        if condition:
            group = item.frame.groups[item.child]
            needed = values.files_needed(self.run, item, condition)
            if needed and group.contents is None:
                item.phase = Phase.READING
                self.commands.append(ReadFiles(item.number, needed, values.CONDITION_BYTES))
                return
            try:
                holds = values.condition_holds(self.run, item, group.contents or _NO_FILES)
            except Invalid as error:
                self.end(item, _FAILED, error.message)
                return
            if not holds:
                self.end(item, _SKIPPED, "its condition is false")
                return
        component = item.component
        if isinstance(component, Dag):
            self._begin_dag(item, component)
        elif component.cache.enable and not item.post:
            item.phase = Phase.LOOKUP
            self.commands.append(LookUpCache(item.number))
        else:
            self.enqueue(item)

    def _begin_dag(self, item: Instance, dag: Dag) -> None:
        run, outer = self.run, item.frame
        frame = frame_of(item.number, outer.plan.inner(item.child), f"{outer.path}{with_seq(dag.name, item.seq)}.")
        frame.values = values.parameters_of(run, outer, item.child, item.item)
        frame.inputs = values.inputs_of(run, outer, item.child)
        frame.item = item.item
        run.frames[item.number] = frame
        item.phase, item.status, item.started_at = Phase.RUNNING, ComponentStatus.RUNNING, self.at
        run.changed[item.number] = item
        self.todo.append(partial(self._begin_children, frame))

    def files_read(self, item: Instance, fact: FilesRead) -> None:
        group = item.frame.groups[item.child]
        if fact.error:
            if not group.begun:
                group.begun, group.left = True, 1
            self.end(item, _FAILED, fact.error)
            return
        group.contents = {**(group.contents or _NO_FILES), **fact.contents}
        if item.phase is Phase.EXPANDING:
            self.open(item, group)
        else:
            self.ask_condition(item)

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def drop_child(self, frame: Frame, child: int, status: ComponentStatus, message: str) -> None:
        """It ends without having begun."""
        if frame.statuses[child] is not ComponentStatus.INIT:
            return
        group = frame.groups.pop(child, None)
        number = self.run.take_number() if group is None else group.number
        self.prefetch.drop(number)
        self.run.instances.pop(number, None)
        item = Instance(number, frame, child, status=status, phase=Phase.ENDED, message=message)
        item.finished_at = self.at
        self.run.changed[number] = item
        self.end_child(frame, child, status)

    def end(self, item: Instance, status: ComponentStatus, message: str) -> None:
        run, frame, child = self.run, item.frame, item.child
        item.phase, item.status, item.message, item.finished_at = Phase.ENDED, status, message, self.at
        if item.slot:
            item.slot = False
            run.running -= 1
        run.changed[item.number] = item
        self.prefetch.ended(item)
        del run.instances[item.number]
        if item.outputs and status is _SUCCEEDED:
            frame.outputs[child, item.seq] = item.outputs
        group = frame.groups[child]
        group.results.add(status)
        group.left -= 1
        if status is _FAILED or status is _TERMINATED:
            self._note_failure(item, message)
        if group.left == 0:
            self.end_child(frame, child, group_result(group.results))

    def _note_failure(self, item: Instance, message: str) -> None:
        run = self.run
        if not run.failure:
            run.failure = first_failure(item.full_name, item.status, message)
        if run.pipeline.strategy == FAIL_FAST and not run.halting and not item.post:
            run.halting = f"not started: {run.failure}"
            self.todo.append(self.halt)

    def end_child(self, frame: Frame, child: int, status: ComponentStatus) -> None:
        frame.statuses[child] = status
        frame.groups.pop(child, None)
        frame.results.add(status)
        frame.left -= 1
        good = status in GOOD
        for after in frame.plan.successors[child]:
            if good:
                frame.waits[after] -= 1
                if not frame.waits[after]:
                    self.todo.append(partial(self.begin_child, frame, after))
            else:
                reason = f"not started: {frame.path}{frame.plan.names[child]} {status}"
                self.todo.append(partial(self.drop_child, frame, after, _CANCELLED, reason))
        if frame.left == 0 and frame.number > 0:
            self.todo.append(partial(self.end_frame, frame))

    def end_frame(self, frame: Frame) -> None:
        run = self.run
        item = run.instances.get(frame.number)
        if item is None or run.frames.pop(frame.number, None) is None:
            return
        status = group_result(frame.results - {_SKIPPED} or {_SUCCEEDED})
        dag = item.component
        if status is _SUCCEEDED and isinstance(dag, Dag):
            item.outputs = values.dag_outputs(run, frame, dag)
        self.end(item, status, "")

    def after_entry_points(self) -> None:
        """The post-process, then the end."""
        run = self.run
        step = run.pipeline.post_process
        if step is not None and run.post is None:
            post = run.post = run.frames[POST] = frame_of(POST, plan_of({step.name: step}))
            if run.force:
                self.todo.append(partial(self.drop_child, post, 0, _CANCELLED, run.halting))
            else:
                self.todo.append(partial(self.begin_child, post, 0))
            return
        if run.post is not None and run.post.left:
            return
        results = run.root.results | (run.post.results if run.post is not None else set())
        run.status, run.message = run_result(results, run.stopping, run.failure, run.message)
        run.finished_at, run.changed_itself = self.at, True
        run.frames.clear()
        self.commands.append(FinishRun())

    def stop(self, fact: StopRequested) -> None:
        run = self.run
        run.stopping = True
        run.force = run.force or fact.force
        run.status, run.message, run.changed_itself = RunStatus.TERMINATING, fact.message, True
        run.halting = run.halting or fact.message or "the run was stopped"
        self.halt()

    def halt(self) -> None:
        """Nothing new begins; what runs is ended. The post-process continues, unless that is asked for by force."""
        run = self.run
        for item in list(run.instances.values()):
            if (item.post and not run.force) or item.number not in run.instances:
                continue
            if item.number in run.frames:
                continue
            if item.phase is Phase.RECORDING:
                if run.stopping:  # it may take long; a failure of another step does not undo what this one made
                    self.end(item, _TERMINATED, f"{run.halting}, while its outputs were being read")
            elif item.phase is Phase.RUNNING:
                self.stop_job(item, run.halting)
            elif item.frame.groups[item.child].begun and item.phase is not Phase.PREFETCHED:
                self.end(item, _CANCELLED, run.halting)
            else:
                self.drop_child(item.frame, item.child, _CANCELLED, run.halting)
        for frame in list(run.frames.values()):
            if frame.number != POST:
                for child, status in enumerate(frame.statuses):
                    if status is ComponentStatus.INIT and child not in frame.groups:
                        self.drop_child(frame, child, _CANCELLED, run.halting)

    def stop_job(self, item: Instance, message: str) -> None:
        if item.status is not ComponentStatus.TERMINATING:
            item.status = ComponentStatus.TERMINATING
            self.run.changed[item.number] = item
            self.commands.append(StopJob(item.number, message))


def group_result(results: AbstractSet[ComponentStatus]) -> ComponentStatus:
    """Of parts that ended like this: any failed → failed, then terminated, then cancelled; all skipped → skipped."""
    for status in (ComponentStatus.FAILED, ComponentStatus.TERMINATED, ComponentStatus.CANCELLED):
        if status in results:
            return status
    return ComponentStatus.SUCCEEDED if ComponentStatus.SUCCEEDED in results else ComponentStatus.SKIPPED


def run_result(
    results: AbstractSet[ComponentStatus], stopping: bool, failure: str, message: str
) -> tuple[RunStatus, str]:
    """The status of a run whose components ended like this, and the sentence for it."""
    if ComponentStatus.FAILED in results:
        return RunStatus.FAILED, failure
    if results & {ComponentStatus.TERMINATED, ComponentStatus.CANCELLED}:
        if stopping:
            return RunStatus.TERMINATED, message or "stopped"
        return RunStatus.FAILED, failure
    return RunStatus.SUCCEEDED, SUCCESS


def first_failure(name: str, status: ComponentStatus, message: str) -> str:
    return f"step[{name}] {status}" + (f": {message}" if message else "")
