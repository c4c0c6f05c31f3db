"""Shares of the cluster, now and over time.

The dominant share of an amount is the largest part of anything it takes. A user's past is the integral of its share over
time, each second counting half as much after a half-life; divided by the weight of all time that is an average share, so
that past and present can be added. The state of `UsageHistory` is what `Snapshot.past` says: a core rebuilt from it agrees
to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import UserUsage

_FORGOTTEN = 1e-9  # less than this much of an average share is no past


def dominant(used: Resources, capacity: Resources) -> float:
    """The largest part of any resource of the cluster; of what the cluster has none, the smallest amount is all."""
    used_cpu, used_memory, scalars = used
    cpu, memory, _ = capacity
    share = used_cpu / cpu if cpu else 0.0
    if memory and used_memory / memory > share:
        share = used_memory / memory
    for name, amount in scalars:
        part = amount / (capacity.scalar(name) or 1)
        if part > share:
            share = part
    return share


class UsageHistory:
    """What the users of one queue have had."""

    __slots__ = ("_past", "half_life")

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self._past: dict[str, tuple[float, float, float]] = {}  # value, at, rate

    def _value(self, user: str, now: float) -> float:
        value, at, rate = self._past.get(user, (0.0, now, 0.0))
        if now <= at:  # the clock was set back: nothing is added, nothing fades
            return value
        kept = 0.5 ** ((now - at) / self.half_life)
        return float(value * kept + rate * (1.0 - kept) * self.half_life / log(2))

    def share(self, user: str, now: float) -> float:
        """The average share of the past, the recent past counting most."""
        return self._value(user, now) * log(2) / self.half_life

    def settle(self, rates: dict[str, float], now: float) -> None:
        """QueueLedger for the time until now, from which on the users hold these shares."""
        fresh: dict[str, tuple[float, float, float]] = {}
        for user in sorted(self._past.keys() | rates.keys()):
            value, rate = self._value(user, now), rates.get(user, 0.0)
            if rate > 0.0 or value * log(2) / self.half_life > _FORGOTTEN:
                fresh[user] = (value, max(now, self._past.get(user, (0.0, now, 0.0))[1]), rate)
        self._past = fresh

    def rows(self, queue: str) -> Iterable[UserUsage]:
        return [UserUsage(queue, user, *past) for user, past in self._past.items()]

    def restore(self, past: UserUsage) -> None:
        self._past[past.user] = (past.value, past.at, past.rate)
