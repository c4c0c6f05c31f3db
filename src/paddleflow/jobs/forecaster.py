"""One forecast answers all questions about when a job starts: computed off the event loop, bounded, shared and short-lived.

A small queue is played in a thread, a large one in a process with a lower priority (`simulator.forecast_worker`), which is
killed when the last client that waits for it has gone. At most one forecast is computed at a time; whoever asks meanwhile
waits for it, and whoever asks within `keep` seconds gets the same one. A forecast that took long is kept for longer, so
that forecasts never take more than a fifth of a processor, however many clients ask.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable
from paddleflow.scheduling.forecast import StartForecast
from paddleflow.simulator.forecast_worker import Problem, solve

FUTURES = 15
SMALL = 200  #: jobs that are played in a thread
_GRACE = 5.0  #: seconds beyond its own limit after which a process is killed
_SHARE = 4.0  #: a forecast is kept for at least so many times the seconds that it took


@dataclass(frozen=True, slots=True)
class Forecasts:
    """When every job starts that waited at one moment."""

    at: float
    learnt: int  #: ended jobs whose durations it rests on
    starts: Mapping[str, StartForecast]
    cost: float = 0.0  #: seconds that it took


@dataclass(frozen=True, slots=True)
class Question:
    """What a forecast is made of."""

    problem: Problem
    learnt: int


class Forecaster:
    """The forecast of one cluster. Lives as long as the server."""

    def __init__(self, keep: float = 10.0, *, small: int = SMALL) -> None:
        self._keep = keep
        self._small = small
        self._lock = asyncio.Lock()
        self._last: Forecasts | None = None

    async def forecasts(self, job: str, now: float, ask: Callable[[], Awaitable[Question | None]]) -> Forecasts | None:
        """The forecast that counts now and knows this job, or the newest; None when the scheduler is not here."""
        found = self._fresh(job, now)
        if found is not None:
            return found
        async with self._lock:  # who waited here most often finds what the one before has computed
            found = self._fresh(job, now)
            if found is not None:
                return found
            question = await ask()
            if question is None:
                return None
            began = time.monotonic()
            starts = await solve_aside(question.problem, self._small)
            self._last = Forecasts(question.problem.snapshot.now, question.learnt, starts, time.monotonic() - began)
            return self._last

    def _fresh(self, job: str, now: float) -> Forecasts | None:
        last = self._last
        if last is None or not now - last.at >= 0.0:
            return None
        age = now - last.at
        if age < self._keep and job in last.starts:
            return last
        return last if age < _SHARE * last.cost else None


async def solve_aside(problem: Problem, small: int = SMALL) -> Mapping[str, StartForecast]:
    """Off the event loop: a small problem in a thread, a large one in a process."""
    snapshot = problem.snapshot
    if len(snapshot.pending) + len(snapshot.allocations) <= small:
        return await asyncio.to_thread(solve, problem)
    data = await asyncio.to_thread(pickle.dumps, problem, pickle.HIGHEST_PROTOCOL)
    return await _in_process(data, problem.seconds + _GRACE)


async def _in_process(data: bytes, seconds: float) -> Mapping[str, StartForecast]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "paddleflow.simulator.forecast_worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate(data)
    except TimeoutError:
        raise Unavailable("the forecast took too long", hint="try again when fewer jobs wait") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Unavailable("the forecast failed", hint="the server's log says why")
    starts: Mapping[str, StartForecast] = await asyncio.to_thread(pickle.loads, answer)
    return starts
