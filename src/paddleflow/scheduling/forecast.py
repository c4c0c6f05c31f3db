"""When a waiting job will start: the queue replayed forward through the same core, with durations drawn from the past.

`Durations` remembers how long jobs of a user, a name or a queue ran, and draws from that for those that run or wait;
`replay` is one possible future; `expect` takes several of them. `Calibration` corrects them by how wrong earlier
forecasts were, so that the interval means what it says. Nothing here looks at anything but the past.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random

from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Request, Snapshot
from paddleflow.scheduling.playback import Playback

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
        return max(60.0, elapsed)  # it has outlived all that is known: as long again

    def middle(self, keys: Sequence[Hashable]) -> float | None:
        """Seconds that a job with these keys probably runs; None when too little is known."""
        for key in keys:
            ranked = self._sorted.get(key, [])
            if len(ranked) >= _ENOUGH:
                return quantile(ranked, 0.5)
        return None


def replay(snapshot: Snapshot, job: str, lasts: Callable[[Request, float], float]) -> float | None:
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

    found = sorted(start for _ in range(futures) if (start := replay(snapshot, job, lasts)) is not None)
    if not found:
        return None
    return Forecast(quantile(found, 0.5), quantile(found, 0.1), quantile(found, 0.9))


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
