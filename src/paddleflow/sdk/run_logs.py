"""The logs of a run: those of its steps' jobs, put together.

A step that runs has a job with a log of its own; following a run means following each of them from the moment it starts.
One thread per job that is followed, one queue for their lines; the run's events say when a new one starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.sdk.jobs import Job
from paddleflow.sdk.run_views import StepView
from paddleflow.sdk.transport import Transport

if TYPE_CHECKING:
    from paddleflow.sdk.runs import Run

ENDED = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped"})

_Message = str | PaddleFlowError | int  #: a line, what went wrong, or one more (1) or fewer (-1) who writes


def run_lines(transport: Transport, run: Run, step: str | None, *, follow: bool) -> Iterator[str]:
    """Lines of the steps whose name is, or begins with, `step`; of all where it is None."""
    if follow:
        return _Following(transport, run, step).lines()
    return _written(transport, _chosen(run.refresh().steps, step, run.id))


def _chosen(steps: Sequence[StepView], step: str | None, run: str) -> Sequence[StepView]:
    found = [one for one in steps if step is None or _meant(one, step)]
    if not found and step is not None:
        known = ", ".join(sorted({one.full_name for one in steps})) or "none yet"
        raise NotFound(f"run[{run}] has no step {step!r}", hint=f"its steps: {known}")
    return sorted((one for one in found if one.job_id), key=lambda one: one.start_time)


def _meant(view: StepView, step: str) -> bool:
    full = view.full_name or view.step_name
    return full == step or full.startswith(f"{step}.") or view.name == step or view.step_name == step


def _written(transport: Transport, steps: Sequence[StepView]) -> Iterator[str]:
    several = len(steps) > 1
    for one in steps:
        for line in Job(transport, one.job_id).logs():
            yield _prefixed(one, line) if several else line


def _prefixed(step: StepView, line: str) -> str:
    return f"[{step.full_name or step.step_name}] {line if line.endswith(chr(10)) else line + chr(10)}"


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
        for _ in self._run.events():
            if self._look() or self._left.is_set():
                return
        self._look()

    def _look(self) -> bool:
        """Whether nothing more can come."""
        steps = self._run.refresh().steps
        meant = [one for one in steps if self._step is None or _meant(one, self._step)]
        for one in meant:
            if one.job_id and one.job_id not in self._known:
                self._known.add(one.job_id)
                self._spawn(partial(self._write, one))
        return self._step is not None and bool(meant) and all(one.status in ENDED for one in meant)

    def _write(self, step: StepView) -> None:
        for line in Job(self._transport, step.job_id).logs(follow=True):
            self._queue.put(_prefixed(step, line) if self._step is None else line)
            if self._left.is_set():
                return
