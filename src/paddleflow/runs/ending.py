"""How a fact goes through a run, the part about endings: of components, loops, dags, of the run; and stops.

`Walk` is one fact on its way. `machine` has the whole of it; this half calls back to it for what begins next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

from paddleflow.runs import values
from paddleflow.runs.facts import Command, Finish, Stop, StopAsked, Withdraw
from paddleflow.runs.model import GOOD, SUCCESS, ComponentStatus, RunStatus
from paddleflow.runs.plan import plan_of
from paddleflow.runs.state import POST, Frame, Instance, Phase, RunState, frame_of
from paddleflow.spec.pipeline.model import FAIL_FAST, Dag

_SUCCEEDED, _FAILED = ComponentStatus.SUCCEEDED, ComponentStatus.FAILED
_TERMINATED, _CANCELLED, _SKIPPED = ComponentStatus.TERMINATED, ComponentStatus.CANCELLED, ComponentStatus.SKIPPED


@dataclass(slots=True)
class Walk:
    """One fact on its way through the state."""

    run: RunState
    at: float
    commands: list[Command] = field(default_factory=list)
    todo: deque[Callable[[], None]] = field(default_factory=deque)  #: instead of recursion: chains may be long

    def begin_child(self, frame: Frame, child: int) -> None:
        """All that a component waits for is there."""
        raise NotImplementedError

    def drop_child(self, frame: Frame, child: int, status: ComponentStatus, message: str) -> None:
        """It ends without having begun."""
        if frame.statuses[child] is not ComponentStatus.INIT:
            return
        group = frame.groups.pop(child, None)
        number = self.run.take_number() if group is None else group.number
        if (ahead := self.run.ahead.pop(number, None)) is not None:
            self.commands.append(Withdraw(number, ahead.job))
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
        run.leaders.pop(item.number, None)
        del run.instances[item.number]
        if item.outputs and status is _SUCCEEDED:
            frame.outputs[child, item.seq] = item.outputs
        group = frame.groups[child]
        group.tally.add(status)
        group.left -= 1
        if status is _FAILED or status is _TERMINATED:
            self._note_failure(item, message)
        if group.left == 0:
            self.end_child(frame, child, group_result(group.tally))

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
        frame.tally.add(status)
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
        status = group_result(frame.tally - {_SKIPPED} or {_SUCCEEDED})
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
        tally = run.root.tally | (run.post.tally if run.post is not None else set())
        run.status, run.message = run_result(tally, run.stopping, run.failure, run.message)
        run.finished_at, run.moved = self.at, True
        run.frames.clear()
        self.commands.append(Finish())

    def stop(self, fact: StopAsked) -> None:
        run = self.run
        run.stopping = True
        run.force = run.force or fact.force
        run.status, run.message, run.moved = RunStatus.TERMINATING, fact.message, True
        run.halting = run.halting or fact.message or "the run was stopped"
        self.halt()

    def halt(self) -> None:
        """Nothing new begins; what runs is ended. The post-process goes on, unless that is asked for by force."""
        run = self.run
        for item in list(run.instances.values()):
            if (item.post and not run.force) or item.number not in run.instances:
                continue
            if item.number in run.frames or item.phase is Phase.RECORDING:
                continue
            if item.phase is Phase.WORKING:
                self.stop_job(item, run.halting)
            elif item.frame.groups[item.child].begun and item.phase is not Phase.FOLLOWING:
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
            self.commands.append(Stop(item.number, message))


def group_result(tally: AbstractSet[ComponentStatus]) -> ComponentStatus:
    """Of parts that ended like this: any failed → failed, then terminated, then cancelled; all skipped → skipped."""
    for status in (ComponentStatus.FAILED, ComponentStatus.TERMINATED, ComponentStatus.CANCELLED):
        if status in tally:
            return status
    return ComponentStatus.SUCCEEDED if ComponentStatus.SUCCEEDED in tally else ComponentStatus.SKIPPED


def run_result(
    tally: AbstractSet[ComponentStatus], stopping: bool, failure: str, message: str
) -> tuple[RunStatus, str]:
    """The status of a run whose components ended like this, and the sentence for it."""
    if ComponentStatus.FAILED in tally:
        return RunStatus.FAILED, failure
    if tally & {ComponentStatus.TERMINATED, ComponentStatus.CANCELLED}:
        if stopping:
            return RunStatus.TERMINATED, message or "stopped"
        return RunStatus.FAILED, failure
    return RunStatus.SUCCEEDED, SUCCESS


def first_failure(name: str, status: ComponentStatus, message: str) -> str:
    return f"step[{name}] {status}" + (f": {message}" if message else "")
