"""`paddleflow run watch`, `logs`, `wait` and `events`: what follows a run.

Watching is driven by the run's events alone: each event changes one step, so a run of thousands of steps costs what its
events cost. `RunProgress` keeps the state, `screen` draws it within the rows of a terminal (running and failed steps stay
visible, finished groups fold); where stdout is no terminal each change is one line. Following survives a restart of the
server, because events are numbered and read on from the last one seen.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from paddleflow.base.text import printable
from paddleflow.base.values import dataclass
from paddleflow.cli import output
from paddleflow.cli.job_follow import print_log, show_events
from paddleflow.cli.lazy import Command
from paddleflow.cli.run_tree import ENDED, MARKS, duration
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from paddleflow.sdk.client import PaddleFlow
    from paddleflow.sdk.follow import Event
    from paddleflow.sdk.runs import Run

DRAW_EVERY = 0.5  #: seconds between two drawings, so that durations go on
ASK_WHY_EVERY = 3.0  #: seconds between two questions why steps are pending
EXPLAINED = 3  #: pending steps whose reason is asked for
TAILED = 6  #: running steps whose last log line is shown
FAILED = frozenset({"failed", "terminated"})
WAITING = frozenset({"", "init", "pending"})
_REPETITION = re.compile(r"-\d+$")


@dataclass
class StepState:
    """A step as its events tell it."""

    name: str
    status: str = ""
    job_id: str = ""
    message: str = ""
    started: float | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float | None:
        return None if self.started is None else max((self.ended or now) - self.started, 0.0)


class RunProgress:
    """All steps of a run, kept up by its events."""

    def __init__(self) -> None:
        self.steps: dict[str, StepState] = {}
        self.status = ""
        self.message = ""
        self.started: float | None = None
        self.ended: float | None = None

    def apply(self, event: Event) -> StepState | None:
        """Takes an event in; the step that it changed, if it is about one."""
        self.started = self.started if self.started is not None else event.at
        if event.type != "step":
            if event.status:
                self.status, self.message, self.ended = event.status, event.message, event.at
            return None
        step = self.steps.setdefault(event.step, StepState(event.step))
        if event.status == "pending":
            step.started = step.ended = None  # it is tried again
        if event.status not in WAITING and step.started is None:
            step.started = event.at
        if event.status in ENDED:
            step.ended = event.at
        step.status, step.message = event.status, event.message
        step.job_id = str(event.raw.get("jobID") or "") or step.job_id
        return step

    def expect(self, names: Iterable[tuple[str, str]]) -> None:
        """Steps that the run has, with their states: those that have not begun have no events yet, and count all the same."""
        for name, status in names:
            self.steps.setdefault(name, StepState(name, status if status in ENDED else ""))

    def finish(self) -> None:
        """The run is over: what never began is no part of it."""
        self.steps = {name: step for name, step in self.steps.items() if step.status}

    def counts(self) -> tuple[int, int, int, int]:
        """Done, running, waiting, failed."""
        found = [step.status for step in list(self.steps.values())]  # another thread adds steps
        failed = sum(status in FAILED for status in found)
        done = sum(status in ENDED for status in found) - failed
        waiting = sum(status in WAITING for status in found)
        return done, len(found) - done - failed - waiting, waiting, failed

    def remaining(self) -> float | None:
        """Rough seconds until the known steps have ended, by the mean of those that have; None without knowledge."""
        done, running, waiting, _ = self.counts()
        times = [step.ended - step.started for step in list(self.steps.values()) if step.started and step.ended]
        if len(times) < 3 or not done or not running + waiting:
            return None
        return sum(times) / len(times) * (waiting + running / 2) / max(running, 1)


def counter(progress: RunProgress, now: float) -> str:
    """One line that sums the run up."""
    done, running, waiting, failed = progress.counts()
    words = [f"{done}/{len(progress.steps)} done", f"{running} running", f"{waiting} waiting", f"{failed} failed"]
    if progress.started is not None:
        words.append(f"{output.short_duration(now - progress.started)} elapsed")
    rest = progress.remaining()
    if rest is not None and rest >= 1:
        words.append(f"~{output.short_duration(rest)} left")
    return " · ".join(words)


def screen(
    title: str, progress: RunProgress, rows: int, now: float, tail: Callable[[StepState], str] = lambda step: ""
) -> list[str]:
    """The run within `rows` lines: all steps if they fit, else running, failed and first waiting ones, the rest folded."""
    head = [f"{title} {progress.status}".rstrip(), counter(progress, now)]
    steps = list(progress.steps.values())
    room = max(rows - len(head), 3)
    if len(steps) <= room:
        return [*head, *(_line(step, now, tail) for step in steps)]
    groups: dict[str, list[StepState]] = {}
    for step in steps:
        groups.setdefault(_group(step.name), []).append(step)
    failed = [step for step in steps if step.status in FAILED]
    urgent = failed + [step for step in steps if step.status not in ENDED | WAITING]
    alone = [members[0] for members in groups.values() if len(members) == 1]
    done = [step for step in alone if step.status in ENDED - FAILED]
    several = [(name, members) for name, members in groups.items() if len(members) > 1]
    several.sort(key=lambda group: all(step.status in ENDED for step in group[1]))  # what goes on comes first
    folds = len(several) + bool(done) + any(step.status in WAITING for step in alone)
    most = max(room - min(folds, room // 2), 1)
    lines = [_line(step, now, tail) for step in urgent[:most]]
    if len(urgent) > most:
        lines[-1] = f"  … {len(urgent) - most + 1} more running or failed"
    next_ones = [step for step in steps if step.status in WAITING and step.job_id][:EXPLAINED]
    next_ones = next_ones[: max(room - len(lines) - folds, 0)]
    lines += [_line(step, now, tail) for step in next_ones]
    shown = {step.name for step in next_ones}
    waiting = [step for step in alone if step.status in WAITING and step.name not in shown]
    sums = [
        f"{mark} {output.count(len(found), f'more {word} step')}"
        for mark, word, found in (("·", "waiting", waiting), ("✓", "finished", done))
        if found
    ]
    left = max(room - len(lines) - len(sums), 0)
    folded = [_folded(name, members) for name, members in several[:left]]
    if len(several) > left and left:
        folded[-1] = f"  … {output.count(len(several) - left + 1, 'more group')}"
    return [*head, *lines, *folded, *sums][:rows]


def _group(name: str) -> str:
    """What a step is folded into: its dag, or the loop that it is a repetition of."""
    dag, _, last = name.rpartition(".")
    base = _REPETITION.sub("", last)
    return dag or base


def _folded(name: str, members: list[StepState]) -> str:
    found = [step.status for step in members]
    words = {
        "done": sum(status in ENDED - FAILED for status in found),
        "failed": sum(status in FAILED for status in found),
        "running": sum(status not in ENDED | WAITING for status in found),
        "waiting": sum(status in WAITING for status in found),
    }
    mark = "✗" if words["failed"] else "✓" if words["done"] == len(found) else "▶" if words["running"] else "·"
    shown = ", ".join(f"{count} {word}" for word, count in words.items() if count)
    return f"{mark} {name}  {shown}"


def _line(step: StepState, now: float, tail: Callable[[StepState], str]) -> str:
    words = [f"{MARKS.get(step.status or 'pending', '?')} {step.name}", step.status or "waiting"]
    seconds = step.seconds(now)
    if seconds is not None:
        words.append(duration(seconds))
    if step.status in WAITING and step.job_id:
        words.append(step.job_id)
    words.append(step.message)
    if last := tail(step):
        words.append(last)
    return "  ".join(word for word in words if word)


class _Details:
    """What a drawing shows beside the events: the last log line of running steps, and why steps are pending.

    Asked for by daemon threads, for a few steps at a time, so that drawing never waits for the server.
    """

    def __init__(self, client: PaddleFlow | None) -> None:
        self._client = client
        self._lines: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._followed: set[str] = set()
        self._active = 0
        self._asked = 0.0

    def of(self, step: StepState) -> str:
        if step.status in WAITING:
            return self._reasons.get(step.job_id, "")
        last = self._lines.get(step.job_id, "")
        return f"│ {last}" if last and step.status not in ENDED else ""

    def update(self, steps: Iterable[StepState], now: float) -> None:
        """Begins to follow steps that run, and asks why others are pending."""
        if self._client is None:
            return
        pending = []
        for step in steps:
            if step.status in WAITING:
                pending += [step.job_id] if step.job_id else []
            elif step.status not in ENDED and step.job_id not in self._followed and self._active < TAILED:
                self._followed.add(step.job_id)
                self._active += 1
                threading.Thread(target=self._follow, args=(self._client, step.job_id), daemon=True).start()
        if pending and now - self._asked > ASK_WHY_EVERY:
            self._asked = now
            threading.Thread(target=self._ask, args=(self._client, pending[:EXPLAINED]), daemon=True).start()

    def _follow(self, client: PaddleFlow, job_id: str) -> None:
        try:
            for line in client.jobs.handle(job_id).logs(follow=True):
                if line.strip():
                    self._lines[job_id] = line.strip()
        except PaddleFlowError:
            pass  # the states are shown all the same
        finally:
            self._active -= 1

    def _ask(self, client: PaddleFlow, jobs: list[str]) -> None:
        for job_id in jobs:
            try:
                self._reasons[job_id] = client.jobs.handle(job_id).why().text
            except PaddleFlowError:
                return


def watched(run: Run, *, quiet: bool = False, client: PaddleFlow | None = None) -> int:
    """Shows a run until it has finished; the exit code. Ctrl-C stops watching, not the run."""
    progress = RunProgress()
    try:
        if quiet:
            for event in run.events():
                progress.apply(event)
        elif sys.stdout.isatty():
            _draw(run, progress, client)
        else:
            _print(run, progress)
    except KeyboardInterrupt:
        note(f"{run.id} continues; watch it again with: paddleflow run watch {run.id}")
        return 130
    if progress.status not in run.final:  # it went away, or its end was before what the server still knows of
        progress.status, progress.message = run.refresh().status, run.record.message
    if quiet or progress.status != "succeeded" or not sys.stdout.isatty():  # else the drawing ends with it
        note(f"{run.id} {progress.status}" + (f": {progress.message}" if progress.message else ""))
    failed = next((step for step in progress.steps.values() if step.status == "failed" and step.job_id), None)
    if failed:
        note(f"hint: see its output with: paddleflow run logs {run.id} {failed.name}")
    return 0 if progress.status == "succeeded" else 1


def _print(run: Run, progress: RunProgress) -> None:
    """A line for each change of a step."""
    for event in run.events():
        step = progress.apply(event)
        if step is None or step.status in WAITING:
            continue
        words = [step.name, step.status]
        if step.ended is not None and (seconds := step.seconds(step.ended)):
            words.append(duration(seconds))
        words.append(step.message)
        click.echo(printable(" ".join(word for word in words if word)))


def _draw(run: Run, progress: RunProgress, client: PaddleFlow | None) -> None:
    """Redraws the screen while a thread reads the events."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    changed, over = threading.Event(), threading.Event()
    failures: list[PaddleFlowError] = []

    def follow() -> None:
        another = run.another()
        try:
            progress.expect([(view.full_name, view.status) for _, view in another.refresh().named_steps()])
            for event in another.events():
                progress.apply(event)
                changed.set()
        except PaddleFlowError as error:
            failures.append(error)
        finally:
            over.set()
            changed.set()

    threading.Thread(target=follow, daemon=True).start()
    details = _Details(client)
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            ended = over.is_set()
            if ended:
                progress.finish()
            changed.clear()
            now = time.time()
            details.update(list(progress.steps.values()), now)
            rows = shutil.get_terminal_size().lines - 2
            lines = screen(run.id, progress, rows, now, details.of)
            live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)), refresh=True)
            if ended:
                break
            changed.wait(DRAW_EVERY)
            over.wait(0.05)  # several events of a moment are one drawing
    if failures:
        raise failures[0]


@click.command(cls=Command)
@click.argument("runid")
@pass_session
@click.pass_context
def watch(ctx: click.Context, session: Session, runid: str) -> None:
    """Watch a run until it has finished: each step with its state, duration and the last line of its log.

    Exits with 0 if the run succeeded, else with 1. Ctrl-C stops watching, not the run.

    \b
    Example:
      paddleflow run watch @latest
    """
    ctx.exit(watched(session.run(runid), quiet=session.machine, client=session.client))


@click.command(cls=Command)
@click.argument("runid")
@click.argument("step", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run, or the step, has finished.")
@pass_session
def logs(session: Session, runid: str, step: str | None, follow: bool) -> None:
    """Print the logs of a run's steps, or of one STEP by its full name. Lines begin with their step: [train].

    \b
    Examples:
      paddleflow run logs @latest -f
      paddleflow run logs run-000001 prepare.download
    """
    run = session.run(runid)
    lines = run.logs(step, follow=follow)
    if session.machine:
        output.print_data(session, {"id": run.id, "step": step or "", "log": "".join(lines)})
    else:
        print_log(lines)


@click.command(cls=Command)
@click.argument("runids", nargs=-1, required=True, metavar="RUNID...")
@click.option("--timeout", type=float, help="Give up after this many seconds.")
@pass_session
@click.pass_context
def wait(ctx: click.Context, session: Session, runids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until runs have finished, showing their state. `paddleflow run watch` shows every step.

    Exits with 0 if all of them succeeded, with 1 if one did not or the timeout was reached.
    """
    from paddleflow.cli.progress import RUNS, wait_and_show

    ctx.exit(wait_and_show(session, RUNS, [session.run(id) for id in runids], timeout))


@click.command(cls=Command)
@click.argument("runid")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run has finished.")
@click.option("--after", type=int, default=0, help="Only events after this sequence number.")
@pass_session
def events(session: Session, runid: str, follow: bool, after: int) -> None:
    """Show the events of a run and its steps. With -f each event is printed as it happens."""
    show_events(session, session.run(runid).events(after, follow=follow), "step", follow=follow)
