"""The logs of a run: those of its steps' jobs, put together.

A step that runs has a job with a log of its own; following a run means following each of them from the moment it starts.
One thread per job that is followed, one queue for their lines; the run's events say when a new one starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.sdk.follow import Event
from paddleflow.sdk.jobs import Job
from paddleflow.sdk.run_views import StepView, written_name
from paddleflow.sdk.transport import Transport

if TYPE_CHECKING:  # a run calls us for its logs
    from paddleflow.sdk.runs import Run

ENDED = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped"})

_Message = str | PaddleFlowError | int  #: a line, what went wrong, or one more (1) or fewer (-1) who writes


def run_lines(transport: Transport, run: Run, step: str | None, *, follow: bool) -> Iterator[str]:
    """Lines of the step called `step`, of all that are in the DAG of that name, or of all where it is None."""
    if follow:
        return _Following(transport, run, step).lines()
    return _written(transport, _chosen(run.refresh(), step))


def _chosen(run: Run, step: str | None) -> list[StepView]:
    known = run.named_steps()
    found = [view for name, view in known if _meant(step, name, view.full_name)]
    if not found and step is not None:
        names = ", ".join(dict.fromkeys(name for name, _ in known)) or "none"
        raise NotFound(f"run[{run.id}] has no step {step!r}", hint=f"its steps: {names}")
    return sorted((view for view in found if view.job_id), key=lambda view: view.start_time)


def _meant(step: str | None, name: str, full_name: str) -> bool:
    """Whether `step` stands for a step by its name in the document, by its name in the run, or for a DAG around it."""
    return step is None or step in (name, full_name) or name.startswith(f"{step}.") or full_name.startswith(f"{step}.")


def _written(transport: Transport, steps: list[StepView]) -> Iterator[str]:
    several = len(steps) > 1
    for one in steps:
        for line in Job(transport, one.job_id).logs():
            yield _prefixed(one.full_name or one.step_name, line) if several else line


def _prefixed(name: str, line: str) -> str:
    return f"[{name}] {line}" if line.endswith("\n") else f"[{name}] {line}\n"


class _Following:
    """Threads that follow jobs, and one that follows the run to learn of new ones."""

    def __init__(self, transport: Transport, run: Run, step: str | None) -> None:
        self._transport = transport
        self._run = run.another()  # refreshed by another thread
        self._step = step
        self._queue: SimpleQueue[_Message] = SimpleQueue()
        self._known: set[str] = set()
        self._left = threading.Event()  #: nobody reads any more

    def lines(self) -> Iterator[str]:
        self._spawn(self._watch)
        writers = 0
        try:
            while True:
                message = self._queue.get()
                if isinstance(message, str):
                    yield message
                elif isinstance(message, int):
                    writers += message
                    if not writers:
                        return
                else:
                    raise message
        finally:
            self._left.set()

    def _spawn(self, work: Callable[[], None]) -> None:
        self._queue.put(1)
        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PaddleFlowError as error:
            self._queue.put(error)
        finally:
            self._queue.put(-1)

    def _watch(self) -> None:
        """Begins to follow each job as it comes; ends with the run, or with all that was asked for."""
        if self._look():
            return
        runtime = self._run.record.runtime
        for event in self._run.events():
            if self._left.is_set():
                return
            if event.type == "step" and _meant(self._step, written_name(event.step, runtime), event.step):
                self._begin(str(event.raw.get("jobID") or ""), event.step)
                if self._step is not None and self._ended(event):
                    return
        self._look()

    def _ended(self, event: Event) -> bool:
        return event.status in ENDED and self._look()

    def _look(self) -> bool:
        """Begins to follow what is there; whether nothing more can come."""
        self._run.refresh()
        _chosen(self._run, self._step)
        meant = [view for name, view in self._run.named_steps() if _meant(self._step, name, view.full_name)]
        for view in meant:
            self._begin(view.job_id, view.full_name or view.step_name)
        return self._step is not None and all(view.status in ENDED for view in meant)

    def _begin(self, job: str, name: str) -> None:
        if job and job not in self._known:
            self._known.add(job)
            self._spawn(partial(self._write, job, name))

    def _write(self, job: str, name: str) -> None:
        for line in Job(self._transport, job).logs(follow=True):
            self._queue.put(_prefixed(name, line) if self._step is None else line)
            if self._left.is_set():
                return
