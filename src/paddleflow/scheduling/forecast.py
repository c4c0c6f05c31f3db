"""When waiting jobs will start: the queue played forward through the same core, with durations drawn from the past.

`Durations` remembers how long jobs of a user, a name or a queue ran; `Estimate` is what it says of one job. `play_future` is
one possible future, in which every waiting job starts; `forecast_starts` takes several of them, so one computation answers
for all who ask. `Calibration` corrects them by how wrong earlier forecasts were, so that the interval means what it says.
Nothing here looks at anything but the past, and where the past says nothing, a forecast names the job that is unknown.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import Final

from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Request, Snapshot, Start
from paddleflow.scheduling.playback import Outcome, Playback

_KEPT = 256  #: durations remembered for each key
_MOST_KEYS = 16_384  #: those that were not seen for longest are forgotten
_ENOUGH = 8  #: fewer say too little: a broader key is asked
TOGETHER = 3600.0  #: seconds; jobs that one user submits within them have more in common than their size
_OUTCOMES = 30  #: forecasts whose end is known that calibration looks at: what is wrong now was right last week
_MOST_MOMENTS = 200_000  #: of one future
_FEW_OUTCOMES = 8  #: fewer say too little: those of all queues are asked
_PRIOR = tuple(math.log(2) * (at - 3.5) / 4 for at in range(8))  #: believed before anything came true: half to double


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from now until a job starts: the middle, and the bounds between which four of five starts fall."""

    middle: float
    early: float
    late: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a job probably runs."""

    durations: tuple[float, ...] = ()  #: of jobs like it, sorted
    known: bool = False  #: jobs of its kind have run before; else they only have a user or a queue in common with it

    def draw(self, elapsed: float, random: Random) -> float:
        """Seconds that it still runs after `elapsed`, drawn from those that ran longer."""
        first = bisect_right(self.durations, elapsed)
        if first < len(self.durations):
            return self.durations[random.randrange(first, len(self.durations))] - elapsed
        return _outlived(elapsed)


NO_ESTIMATE: Final = Estimate()


@dataclass(frozen=True, slots=True)
class StartForecast:
    """When one job starts."""

    forecast: Forecast | None  #: None: it starts in no future that was played
    beyond: float | None = None  #: seconds after which the play was cut off before it started
    unknown: str = ""  #: a job that must end first and whose duration nobody knows; then the forecast is a guess


class Durations:
    """How long jobs ran, by any keys, the narrowest first: (user, name), then user, then queue."""

    def __init__(self) -> None:
        self._order: dict[Hashable, deque[float]] = {}  # the key that was seen last is the last
        self._sorted: dict[Hashable, list[float]] = {}

    def learn(self, keys: Sequence[Hashable], duration: float) -> None:
        """A job with these keys has ended."""
        for key in (*keys, None):
            order, ranked = self._order.pop(key, deque[float]()), self._sorted.setdefault(key, [])
            self._order[key] = order
            order.append(duration)
            insort(ranked, duration)
            if len(order) > _KEPT:
                del ranked[bisect_right(ranked, order.popleft()) - 1]
        while len(self._order) > _MOST_KEYS:
            oldest = next(iter(self._order))
            del self._order[oldest], self._sorted[oldest]

    def draw(self, keys: Sequence[Hashable], elapsed: float, random: Random) -> float:
        """Seconds that a job with these keys will still run after `elapsed`, drawn from those that ran longer."""
        for key in (*keys, None):
            ranked = self._sorted.get(key, [])
            first = bisect_right(ranked, elapsed)
            if len(ranked) - first >= (_ENOUGH if key is not None else 1):
                return ranked[random.randrange(first, len(ranked))] - elapsed
        return _outlived(elapsed)

    def estimate(self, keys: Sequence[Hashable], specific: int) -> Estimate:
        """What is known of a job with these keys, of which the first `specific` stand for jobs of its own kind."""
        for least in (_ENOUGH, 1):
            for key in keys[:specific]:
                if len(ranked := self._sorted.get(key, [])) >= least:
                    return Estimate(tuple(ranked), known=True)
        for key in keys[specific:]:
            if len(ranked := self._sorted.get(key, [])) >= _ENOUGH:
                return Estimate(tuple(ranked))
        return Estimate(tuple(self._sorted.get(None, [])))

    def middle(self, keys: Sequence[Hashable]) -> float | None:
        """Seconds that a job with these keys probably runs; None when too little is known."""
        for key in keys:
            ranked = self._sorted.get(key, [])
            if len(ranked) >= _ENOUGH:
                return quantile(ranked, 0.5)
        return None


def _outlived(elapsed: float) -> float:
    """What is left of a job that has run longer than all that is known: as long again."""
    return max(60.0, elapsed)


def expect_start(snapshot: Snapshot, job: str, lasts: Callable[[Request, float], float]) -> float | None:
    """One future: seconds until the job starts, or None if it never would. `lasts`: how long a job still runs."""
    now = snapshot.now
    playback = Playback(Core.of(snapshot), lasts)
    playback.begin(now)
    for _ in range(_MOST_MOMENTS):
        playback.run_cycles(now)
        if playback.outcomes[job].started_at is not None:
            return now - snapshot.now
        now = playback.next_moment(now)
        if now == float("inf"):
            return None
    return None


def expect(
    snapshot: Snapshot,
    job: str,
    durations: Durations,
    keys: Callable[[Request], Sequence[Hashable]],
    random: Random,
    futures: int = 15,
) -> Forecast | None:
    """The middle of several futures and the bounds of the inner four fifths; None when it starts in none of them."""

    def lasts(request: Request, elapsed: float) -> float:
        return durations.draw(keys(request), elapsed, random)

    return _middle([start for _ in range(futures) if (start := expect_start(snapshot, job, lasts)) is not None])


def _middle(starts: list[float]) -> Forecast | None:
    found = sorted(starts)
    return Forecast(quantile(found, 0.5), quantile(found, 0.1), quantile(found, 0.9)) if found else None


class _Future:
    """One future of all waiting jobs."""

    def __init__(self, snapshot: Snapshot, estimates: Mapping[str, Estimate], random: Random) -> None:
        self.starts: dict[str, float] = {}  #: seconds from now
        self.unknown: dict[str, str] = {}  #: of jobs that have started: whose unknown duration that rests on
        self._snapshot, self._estimates, self._random = snapshot, estimates, random
        self._nodes = {a.request.job: {each.node for each in a.assignments} for a in snapshot.allocations}
        self.cut_at: float | None = None  #: seconds from now, if time was up before the end
        self._ended: list[str] = []  # at this moment
        self._playback = Playback(Core.of(snapshot), self._lasts, ended=self._note_end)

    def _lasts(self, request: Request, elapsed: float) -> float:
        return self._estimates.get(request.job, NO_ESTIMATE).draw(elapsed, self._random)

    def _note_end(self, outcome: Outcome, now: float) -> None:
        self._ended.append(outcome.request.job)

    def play(self, expired: Callable[[], bool]) -> bool:
        """Until everything that waits has started or nothing happens any more; False when time was up before."""
        now = self._snapshot.now
        waiting = {request.job for request in self._snapshot.pending}
        self._playback.begin(now)
        for _ in range(_MOST_MOMENTS):
            self._ended.clear()
            for action in self._playback.run_cycles(now):
                if isinstance(action, Start):
                    self._note_start(action, now)
                    waiting.discard(action.job)
            if not waiting:
                return True
            now = self._playback.next_moment(now)
            if now == float("inf"):
                return True
            if expired():
                break
        self.cut_at = now - self._snapshot.now
        return False

    def _note_start(self, start: Start, now: float) -> None:
        """It starts because others ended: what is not known of them, and of those before them, is not known of it."""
        job, nodes = start.job, {each.node for each in start.assignments}
        self._nodes[job] = nodes
        self.starts.setdefault(job, now - self._snapshot.now)
        rests_on = [self._why_unknown(other) for other in self._ended if nodes & self._nodes.get(other, set())]
        self.unknown.setdefault(job, next((name for name in rests_on if name), ""))

    def _why_unknown(self, job: str) -> str:
        known = self._estimates.get(job, NO_ESTIMATE).known
        return self.unknown.get(job, "") or ("" if known else job)


def forecast_starts(
    snapshot: Snapshot,
    estimates: Mapping[str, Estimate],
    futures: int,
    seed: int,
    expired: Callable[[], bool] = lambda: False,
) -> dict[str, StartForecast]:
    """When each waiting job starts, by up to so many futures; one at least, of which `expired` may leave out the end."""
    random = Random(seed)  # noqa: S311  drawing futures needs no secrets
    played: list[_Future] = []
    for _ in range(futures):
        future = _Future(snapshot, estimates, random)
        whole = future.play(expired)
        if whole or not played:
            played.append(future)
        if expired():
            break
    found = {}
    for request in snapshot.pending:
        starts = [future.starts[request.job] for future in played if request.job in future.starts]
        unknown = [name for future in played if (name := future.unknown.get(request.job, ""))]
        guess = unknown[0] if 2 * len(unknown) > len(starts) else ""
        beyond = played[0].cut_at if not starts else None
        found[request.job] = StartForecast(_middle(starts), beyond, guess)
    return found


class Calibration:
    """What earlier forecasts of a kind were worth: their outcomes set the middle right and the interval wide enough.

    Futures differ less than the future does: they draw each job's duration by itself, and what a queue is wrong about it is
    wrong about for many jobs at a time. So the interval comes from outcomes alone, and from a belief until there are some.
    """

    def __init__(self) -> None:
        self._ratios: dict[Hashable, deque[float]] = {}

    def learn(self, kind: Hashable, middle: float, came: float) -> None:
        """A forecast of `middle` seconds came true after `came`."""
        for key in (kind, None):
            self._ratios.setdefault(key, deque(maxlen=_OUTCOMES)).append(_log(came) - _log(middle))

    def correct(self, kind: Hashable, forecast: Forecast) -> Forecast:
        ratios = self._ratios.get(kind, ())
        if len(ratios) < _FEW_OUTCOMES:
            ratios = self._ratios.get(None, ())
        ranked, base = sorted((*ratios, *_PRIOR)), _log(forecast.middle)
        count = len(ranked)  # the bounds lie one rank further out than the quantiles: the next one counts as well
        early, late = max(0, math.floor(0.1 * (count + 1)) - 1), min(count - 1, math.ceil(0.9 * (count + 1)) - 1)
        middle = quantile(ranked, 0.5)
        found = Forecast(*(_seconds(base + ratio) for ratio in (middle, ranked[early], ranked[late])))
        if len(ratios) >= _FEW_OUTCOMES:
            return found
        return Forecast(found.middle, min(found.early, forecast.early), max(found.late, forecast.late))


def _log(seconds: float) -> float:
    return math.log(seconds + 1.0)


def _seconds(value: float) -> float:
    return max(0.0, math.exp(min(value, 40.0)) - 1.0)


def quantile(ranked: Sequence[float], share: float) -> float:
    """Of sorted values, straight between the neighbours."""
    at = share * (len(ranked) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (at - low) * (ranked[high] - ranked[low])
