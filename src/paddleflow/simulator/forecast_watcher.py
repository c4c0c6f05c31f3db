"""Watches a simulation and forecasts the start of jobs that wait, as the server would: from the past only.

Beside each forecast stands the plain guess that people make, position ÷ rate: jobs in front divided by starts a second
lately. When the job starts, what came is written beside what was said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace
from random import Random

from paddleflow.base.values import dataclass
from paddleflow.scheduling.classes import total_of
from paddleflow.scheduling.forecast import TOGETHER, Calibration, Durations, Forecast, expect
from paddleflow.scheduling.model import Request, Snapshot
from paddleflow.simulator.simulation import Simulation

_RATE_OVER = 50  #: starts that the plain guess looks back on


@dataclass(slots=True)
class IssuedForecast:
    """One forecast and what came of it."""

    job: str
    at: float
    raw: Forecast
    corrected: Forecast
    plain: float  #: position ÷ rate
    came: float | None = None


class ForecastWatcher:
    """A watcher that forecasts every `every`-th waiting job of each queue."""

    def __init__(self, every: int, futures: int = 15, seed: int = 1) -> None:
        self.said: list[IssuedForecast] = []
        self._every = every
        self._futures = futures
        self._random = Random(seed)  # noqa: S311  drawing futures needs no secrets
        self._durations = Durations()
        self._calibration = Calibration()
        self._open: dict[str, IssuedForecast] = {}
        self._waited: dict[str, int] = {}
        self._starts: dict[str, deque[float]] = {}

    def waits(self, simulation: Simulation, request: Request) -> None:
        count = self._waited[request.queue] = self._waited.get(request.queue, 0) + 1
        if count % self._every:
            return
        snapshot = _of_queue(simulation, request.queue)
        found = expect(snapshot, request.job, self._durations, keys_of, self._random, self._futures)
        if found is not None:
            plain = len(snapshot.pending) / self._rate(request.queue, simulation.now)
            corrected = self._calibration.correct(request.queue, found)
            said = self._open[request.job] = IssuedForecast(request.job, simulation.now, found, corrected, plain)
            self.said.append(said)

    def started(self, simulation: Simulation, request: Request) -> None:
        self._starts.setdefault(request.queue, deque(maxlen=_RATE_OVER)).append(simulation.now)
        said = self._open.pop(request.job, None)
        if said is not None:
            said.came = simulation.now - said.at
            self._calibration.learn(request.queue, said.raw.middle, said.came)

    def ended(self, simulation: Simulation, request: Request) -> None:
        started = simulation.records[request.job].started_at
        assert started is not None
        self._durations.learn(keys_of(request), simulation.now - started)

    def _rate(self, queue: str, now: float) -> float:
        starts = self._starts.get(queue, ())
        return max(1, len(starts)) / max(1.0, now - (starts[0] if starts else 0.0))


def keys_of(request: Request) -> tuple[Hashable, ...]:
    """Narrowest first: those that came together, whose job of what size, whose job.

    Who sweeps parameters, or tries until it works, submits many jobs at a time, and they run about equally long.
    """
    whose = (request.queue, request.user)
    together = (*whose, total_of(request), request.submitted_at // TOGETHER)
    return (together, (*whose, total_of(request)), whose, request.queue)


def _of_queue(simulation: Simulation, queue: str) -> Snapshot:
    """The part of the simulation that one queue has for itself; the whole simulation if its nodes are everybody's."""
    whole = simulation.core.snapshot(simulation.now)
    labels = next((q.node_labels for q in whole.queues if q.name == queue), ())
    if not labels:
        return whole
    return replace(
        whole,
        nodes=tuple(n for n in whole.nodes if all(n.labels.get(k) == v for k, v in labels)),
        queues=tuple(q for q in whole.queues if q.name == queue),
        pending=tuple(r for r in whole.pending if r.queue == queue),
        allocations=tuple(h for h in whole.allocations if h.request.queue == queue),
    )
