"""The display of `wait`: state, time and reason of each job or run, on stderr.

On a terminal it is drawn in place (by rich, imported only then); elsewhere each change is one line. Jobs are followed by
threads, at most `FOLLOWERS` at a time, so that hundreds can be waited for.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, note

if TYPE_CHECKING:
    from paddleflow.sdk.follow import Event
    from paddleflow.sdk.jobs import Job
    from paddleflow.sdk.runs import Run

FOLLOWERS = 16


class Watched:
    """A job or a run that is waited for."""

    def __init__(self, work: Job | Run) -> None:
        self.work = work
        self.status = "connecting"
        self.reason = ""
        self.since = time.monotonic()
        self.ended: float | None = None
        self.failure: Exception | None = None
        self.changed = True

    def update(self, event: Event) -> None:
        if event.status and event.type == "status":
            self.changed = self.changed or (event.status, event.message) != (self.status, self.reason)
            self.status, self.reason = event.status, event.message

    @property
    def run_time(self) -> str:
        """How long it ran, by the server's times: not since somebody began to wait for it."""
        record = self.work.record
        started = getattr(record, "start_time", "") or getattr(record, "activate_time", "")
        return output.elapsed(started, getattr(record, "finish_time", "") or getattr(record, "update_time", ""))

    @property
    def elapsed(self) -> str:
        return output.short_duration((self.ended or time.monotonic()) - self.since)


def _kind(plural: str, data: Callable[[Watched], object], compat: tuple[str, str, str]) -> Kind[Watched]:
    id, name, message = compat
    return Kind(
        plural,
        lambda one: one.work.id,
        data,
        (
            Column(lambda one: one.work.id, "ID", id),
            Column(lambda one: one.work.record.name, "NAME", name, flexible=True),
            Column(lambda one: one.status, "STATUS", "status"),
            Column(lambda one: one.run_time, "TIME"),
            Column(lambda one: one.reason, "MESSAGE", message, flexible=True),
        ),
    )


JOBS = _kind("jobs", lambda one: one.work.record.raw, ("job id", "job name", "message"))
RUNS = _kind("runs", lambda one: output.with_id(one.work.record.raw, "runID"), ("run id", "name", "run msg"))


class Display(Protocol):
    """Where the states are shown."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def draw(self, watched: Sequence[Watched]) -> None: ...


class Lines:
    """A line for each change."""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def draw(self, watched: Sequence[Watched]) -> None:
        for one in watched:
            if one.changed:
                one.changed = False
                note(f"{one.work.id} {one.status}" + (f" {one.reason}" if one.reason else ""))


class Live:
    """A line for each job, drawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        # where the list of results follows on the same screen, it takes the place of the progress
        self._live = RichLive(console=Console(stderr=True), auto_refresh=False, transient=sys.stdout.isatty())

    def __enter__(self) -> Display:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def draw(self, watched: Sequence[Watched]) -> None:
        from rich.console import Group
        from rich.text import Text

        alone = len(watched) == 1  # there is room for the whole reason
        lines = screen(watched, shutil.get_terminal_size().lines - 2)
        self._live.update(Group(*(Text(line, no_wrap=not alone, overflow="ellipsis") for line in lines)), refresh=True)


def screen(watched: Sequence[Watched], rows: int) -> list[str]:
    """What is waited for within `rows` lines, what has not finished first; where there are several, their number at the end."""
    room = max(rows - 1, 1)
    shown = sorted(watched, key=lambda one: one.ended is not None)[:room]
    wide = max((output.width(one.work.id) for one in shown), default=0)
    lines = [
        printable(f"{one.work.id:<{wide}}  {one.status:<11}  {one.elapsed:<7}  {one.reason}").rstrip() for one in shown
    ]
    if len(watched) > 1:
        over = sum(one.ended is not None for one in watched)
        lines.append(f"{over} of {len(watched)} finished")
    return lines


def display() -> Display:
    return Live() if sys.stderr.isatty() else Lines()


def wait_and_show(session: Session, kind: Kind[Watched], works: Sequence[Job | Run], timeout: float | None) -> int:
    """Waits for all of them and prints how they ended; the exit code: 0 if all succeeded."""
    over = wait_for(works, timeout)
    output.show_list(session, kind, over)
    return 0 if all(one.work.succeeded for one in over) else 1


def wait_for(works: Sequence[Job | Run], timeout: float | None) -> Sequence[Watched]:
    """Waits until all jobs or runs are over, showing how they are. TimeoutError, or the first error met."""
    watched = [Watched(work) for work in works]
    deadline = None if timeout is None else time.monotonic() + timeout
    left = deque(watched)

    def follow() -> None:
        while left:
            try:
                one = left.popleft()
            except IndexError:
                return
            try:
                rest = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                one.work.wait(rest, on_event=one.update)
                one.changed = one.changed or one.status != one.work.status
                one.status, one.reason = one.work.status, one.work.record.message
            except TimeoutError:  # it names what was left of the time when this one's turn came
                one.failure = TimeoutError(
                    f"{one.work.kind}[{one.work.id}] is still {one.work.status} after {timeout:g} s"
                )
            except Exception as error:
                one.failure = error
            one.ended = time.monotonic()

    # Daemons: an interrupt ends the command at once, whatever they read.
    threads = [threading.Thread(target=follow, daemon=True) for _ in range(min(FOLLOWERS, len(watched)))]
    for thread in threads:
        thread.start()
    with display() as shown:
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                if thread.is_alive():
                    thread.join(0.1)
                    break
            shown.draw(watched)
        shown.draw(watched)
    failure = next((one.failure for one in watched if one.failure), None)
    if failure is not None:
        raise failure
    return watched
