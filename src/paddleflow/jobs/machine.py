"""The job machine: ``advance(state, fact) -> (state, commands)``. Pure; time comes in with the fact.

A job is a gang. Its members start stage by stage (`Lifecycle.stages`), a stage when every member of the one before is ready.
The first member that fails decides the outcome, and so do the completing roles when they have succeeded; the others are
halted, and when the last one has ended the job is final, or goes back to the queue if it may be restarted.

    init ──► pending ──► running ──► succeeded | failed | terminated
              ▲  (placed)   │
              └── restart ──┘        stop: ──► terminating ──► terminated
              └── evicted: preempting ──► pending again, or preempted when it says so

Members may come and go in place (`Resized`), or by starting all of them anew at the new size.

The engine feeds facts, writes the new state and then carries the commands out; a fact told twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from paddleflow.base.values import dataclass
from paddleflow.frameworks.framework import Completion
from paddleflow.jobs.facts import (
    Command,
    Evicted,
    Fact,
    Halt,
    Key,
    Launch,
    MemberDelayed,
    MemberEnded,
    MemberReady,
    MemberStarted,
    Placed,
    Release,
    Replace,
    Requeue,
    Resized,
    Shrunk,
    StopAsked,
)
from paddleflow.jobs.model import JobStatus, TaskStatus

LONGEST_DELAY = 300.0  #: seconds between the end of an attempt and the start of the next one
_STARTED = frozenset({TaskStatus.PENDING, TaskStatus.RUNNING})
_AGAIN = frozenset({JobStatus.PREEMPTED, JobStatus.PENDING})  # outcomes after which it is placed again


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """What the framework and the restart policy say about this job; never changes."""

    stages: tuple[tuple[str, ...], ...]
    completing: frozenset[str]
    completion: Completion = Completion.ALL
    restarts: int = 0  #: how often it may be started again after it failed
    requeued: bool = True  #: whether it waits for a new place after an eviction, or ends
    restart_delay: float = 1.0  #: seconds before the first restart; each further delay is twice as long


class TaskState(NamedTuple):
    """One member of the gang. A named tuple, as the job is: a busy server makes ten of them a job, and this is the
    cheapest value that can be changed by making another."""

    role: str
    index: int  # type: ignore[assignment]  # a tuple's own method of that name is not used here
    status: TaskStatus = TaskStatus.WAITING
    ready: bool = False
    exit_code: int | None = None
    message: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    leaving: bool = False  #: told to go, the others stay; however it ends is well

    @property
    def key(self) -> Key:
        return self.role, self.index


class JobState(NamedTuple):
    """A job as the machine sees it. `outcome` is set once it is decided how the job ends, before it has ended."""

    id: str
    lifecycle: Lifecycle
    status: JobStatus = JobStatus.INIT
    message: str = ""
    tasks: tuple[TaskState, ...] = ()
    attempt: int = 0
    outcome: JobStatus | None = None
    started_at: float | None = None
    finished_at: float | None = None
    not_before: float | None = None
    excused: int = 0  #: attempts that ended for the sake of others: by an eviction, or for another size

    @property
    def placed(self) -> bool:
        """Whether it holds resources. The members of an attempt that failed are kept until the next one is placed."""
        return not all(task.status.final for task in self.tasks)


Step: TypeAlias = tuple[JobState, tuple[Command, ...]]


def advance(state: JobState, fact: Fact) -> Step:
    """What the job becomes, and what must be done once that is written down."""
    if state.status.final:
        return state, ()
    match fact:
        case Placed():
            return _placed(state, fact)
        case MemberStarted():
            return _started(state, fact)
        case MemberDelayed():
            return _delayed(state, fact), ()
        case MemberReady():
            return _ready(state, fact)
        case MemberEnded():
            return _ended(state, fact)
        case StopAsked():
            return _stop(state, fact)
        case Evicted():
            if not state.placed or state.outcome is not None:
                return state, ()
            state = state._replace(status=JobStatus.PREEMPTING, excused=state.excused + 1)
            return _decide(state, JobStatus.PREEMPTED, fact.message, fact.at)
        case Resized():
            return _resize(state, fact)


def _placed(state: JobState, fact: Placed) -> Step:
    if state.placed:
        return state, ()
    state = state._replace(
        status=JobStatus.PENDING,
        message="",
        attempt=state.attempt + 1,
        tasks=tuple(TaskState(role, index) for role, index in fact.members),
        not_before=None,
    )
    return _launch_ready_stages(state)


def _launch_ready_stages(state: JobState) -> Step:
    """Launch the first stage that has members waiting, once all before it are ready."""
    for stage in state.lifecycle.stages:
        members = [task for task in state.tasks if task.role in stage and not task.leaving]
        waiting = [task.key for task in members if task.status is TaskStatus.WAITING]
        if waiting:
            chosen = set(waiting)
            tasks = tuple(t._replace(status=TaskStatus.PENDING) if t.key in chosen else t for t in state.tasks)
            return state._replace(tasks=tasks), (Launch(tuple(waiting)),)
        if not all(task.ready for task in members):
            break
    return state, ()


def _started(state: JobState, fact: MemberStarted) -> Step:
    task = _find(state, fact.key)
    if task is None or task.status is not TaskStatus.PENDING:
        return state, ()
    state = _with(state, task, task._replace(status=TaskStatus.RUNNING, started_at=fact.at, message=""))
    if state.started_at is None:
        state = state._replace(started_at=fact.at)
    waiting = {TaskStatus.WAITING, TaskStatus.PENDING}
    if state.status is JobStatus.PENDING and not any(t.status in waiting for t in state.tasks):
        state = state._replace(status=JobStatus.RUNNING, message="" if state.outcome is None else state.message)
    return state, ()


def _delayed(state: JobState, fact: MemberDelayed) -> JobState:
    """The job's message is what keeps one of its members from starting."""
    task = _find(state, fact.key)
    if task is None or task.status is not TaskStatus.PENDING or task.message == fact.message:
        return state
    state = _with(state, task, task._replace(message=fact.message))
    if state.status is not JobStatus.PENDING or state.outcome is not None:
        return state
    who = "" if len(state.tasks) == 1 else f"{task.role}-{task.index}: "
    return state._replace(message=f"{who}{fact.message}")


def _ready(state: JobState, fact: MemberReady) -> Step:
    task = _find(state, fact.key)
    if task is None or task.ready or task.status.final:
        return state, ()
    state, commands = _started(state, MemberStarted(fact.at, fact.key))
    task = _sure(state, fact.key)
    state = _with(state, task, task._replace(ready=True))
    if state.outcome is not None:
        return state, commands
    state, more = _launch_ready_stages(state)
    return state, (*commands, *more)


def _ended(state: JobState, fact: MemberEnded) -> Step:
    task = _find(state, fact.key)
    if task is None or task.status.final:
        return state, ()
    good = fact.exit_code == 0
    status = TaskStatus.SUCCEEDED if good else TaskStatus.FAILED if state.outcome is None else TaskStatus.STOPPED
    started = task.started_at if task.started_at is not None else fact.started_at
    before = task
    task = task._replace(
        status=status,
        ready=good,
        exit_code=fact.exit_code,
        message=fact.message,
        started_at=started,
        finished_at=fact.at,
        cpu_seconds=fact.cpu_seconds,
        peak_memory=fact.peak_memory,
    )
    state = _with(state, before, task._replace(status=TaskStatus.STOPPED) if task.leaving else task)
    if state.started_at is None and started is not None:
        state = state._replace(started_at=started)
    if task.leaving and state.outcome is None:
        return _shrunk(state, fact.at)
    if state.outcome is not None:
        return _finish_if_all_ended(state, fact.at)
    if not good:
        return _decide(state, JobStatus.FAILED, _failure(task, len(state.tasks)), fact.at)
    if task.role in state.lifecycle.completing and _complete(state):
        return _decide(state, JobStatus.SUCCEEDED, "", fact.at)
    if all(t.status.final or t.leaving for t in state.tasks):  # every member ended well, whatever their roles complete
        return _decide(state, JobStatus.SUCCEEDED, "", fact.at)
    return _launch_ready_stages(state)


def _complete(state: JobState) -> bool:
    counted = [t for t in state.tasks if t.role in state.lifecycle.completing and not t.leaving]
    done = [t.status is TaskStatus.SUCCEEDED for t in counted]
    return any(done) if state.lifecycle.completion is Completion.ANY else bool(done) and all(done)


def _shrunk(state: JobState, at: float) -> Step:
    """Once all leaving members have ended, the job continues without them, or is over: the others may have done it before."""
    if any(t.leaving and not t.status.final for t in state.tasks):
        return state, ()
    if _complete(state) or all(t.status.final for t in state.tasks):
        return _decide(state, JobStatus.SUCCEEDED, "", at)
    return state, (Shrunk(),)


def _stop(state: JobState, fact: StopAsked) -> Step:
    if not state.placed:
        return state._replace(status=fact.outcome, message=fact.message, finished_at=fact.at, outcome=fact.outcome), ()
    if state.outcome is None:
        return _decide(state._replace(status=JobStatus.TERMINATING), fact.outcome, fact.message, fact.at)
    if state.status is JobStatus.TERMINATING:
        return state, ()
    # It is ending already; an attempt that would be started again is not started again any more.
    again = state.outcome in _AGAIN or (state.outcome is JobStatus.FAILED and state.lifecycle.restarts)
    outcome = fact.outcome if again else state.outcome
    return state._replace(status=JobStatus.TERMINATING, outcome=outcome), ()


def _resize(state: JobState, fact: Resized) -> Step:
    if not state.placed or state.outcome is not None:
        return state, ()
    if fact.anew:
        return _decide(state._replace(excused=state.excused + 1), JobStatus.PENDING, fact.message, fact.at)
    known, gone = {task.key for task in state.tasks if not task.status.final}, set(fact.removed)
    halted = tuple(t.key for t in state.tasks if t.key in gone and t.status in _STARTED)
    kept = tuple(
        t._replace(leaving=True)
        if t.key in halted
        else t._replace(leaving=True, status=TaskStatus.STOPPED, finished_at=fact.at, message="never started")
        if t.key in gone and t.status is TaskStatus.WAITING
        else t
        for t in state.tasks
        if t.key not in fact.added or t.key in known
    )
    new = tuple(TaskState(role, index) for role, index in fact.added if (role, index) not in known)
    state = state._replace(tasks=kept + new)
    first: tuple[Command, ...] = (Halt(halted),) if halted else ()
    if gone and not halted:
        state, first = _shrunk(state, fact.at)
    state, commands = _launch_ready_stages(state) if state.outcome is None else (state, ())
    return state, (*first, *commands)


def _decide(state: JobState, outcome: JobStatus, message: str, at: float) -> Step:
    """The outcome is clear: members that never started are dropped, the others are halted."""
    halted = tuple(t.key for t in state.tasks if t.status in _STARTED)
    tasks = tuple(
        t._replace(status=TaskStatus.STOPPED, finished_at=at, message="never started")
        if t.status is TaskStatus.WAITING
        else t
        for t in state.tasks
    )
    state, commands = _finish_if_all_ended(state._replace(tasks=tasks, outcome=outcome, message=message), at)
    return state, ((Halt(halted),) if halted else ()) + commands


def _finish_if_all_ended(state: JobState, at: float) -> Step:
    outcome = state.outcome
    assert outcome is not None
    if not all(t.status.final for t in state.tasks):
        return state, ()
    stopping = state.status is JobStatus.TERMINATING
    if outcome is JobStatus.PENDING and not stopping:
        return state._replace(status=JobStatus.PENDING, outcome=None), (Replace(),)
    if outcome is JobStatus.PREEMPTED and state.lifecycle.requeued and not stopping:
        state = state._replace(status=JobStatus.PENDING, outcome=None, message=f"{state.message}; it waits for a place")
        return state, (Release(), Requeue(at))
    tried = state.attempt - state.excused
    if outcome is JobStatus.FAILED and tried <= state.lifecycle.restarts and not stopping:
        delay = min(state.lifecycle.restart_delay * 2 ** max(0, tried - 1), LONGEST_DELAY)
        message = f"attempt {state.attempt} failed ({state.message}); it is started again after {delay:g} s"
        state = state._replace(status=JobStatus.PENDING, outcome=None, message=message, not_before=at + delay)
        return state, (Release(), Requeue(at + delay))
    return state._replace(status=outcome, finished_at=at), (Release(),)


def _failure(task: TaskState, members: int) -> str:
    """Why a member failed, for a person."""
    who = "the process" if members == 1 else f"{task.role}-{task.index}"
    if task.exit_code is None:
        return f"{who}: {task.message}" if members > 1 and task.message else task.message or f"{who} was lost"
    if task.exit_code > 128 and not task.message:
        return f"{who} was ended by signal {task.exit_code - 128}"
    text = f"{who} exited with code {task.exit_code}"
    return f"{text}: {task.message}" if task.message else text


def _find(state: JobState, key: Key) -> TaskState | None:
    role, index = key
    for task in state.tasks:  # no generator: most jobs have one member, and a busy server looks for it four times a job
        if task.index == index and task.role == role:
            return task
    return None


def _sure(state: JobState, key: Key) -> TaskState:
    task = _find(state, key)
    assert task is not None
    return task


def _with(state: JobState, before: TaskState, after: TaskState) -> JobState:
    return state._replace(tasks=tuple([after if task is before else task for task in state.tasks]))


def changed_tasks(before: Sequence[TaskState], after: Iterable[TaskState]) -> list[TaskState]:
    """The members that a step changed, by identity: `advance` keeps the objects that it does not touch."""
    known = {id(task) for task in before}
    return [task for task in after if id(task) not in known]
