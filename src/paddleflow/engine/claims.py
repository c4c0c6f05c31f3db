"""Who runs a cached step on behalf of all: two runs of the same step at once share one execution.

The first one that asks the cache holds the claim, from before the database is asked until its end; others with the same
fingerprints wait for its outcome. If it fails the next one takes its place: a failure is never shared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.runs.facts import CacheAnswered, Fact, Fingerprints, Hit
from paddleflow.runs.model import ComponentStatus
from paddleflow.runs.state import Instance, Phase, RunState

Key = tuple[str, str, str, str]
Ended = tuple[RunState, Instance]


@dataclass(slots=True)
class _Claim:
    holder: tuple[str, int]
    waiting: deque[tuple[RunState, Instance, Fingerprints]] = field(default_factory=deque)


class Claims:
    """The claims of one engine."""

    def __init__(self) -> None:
        self._claims: dict[Key, _Claim] = {}
        self._held: dict[tuple[str, int], Key] = {}

    def take(self, run: RunState, item: Instance, prints: Fingerprints) -> bool:
        """True: it is the first, and must find out. False: it will be given what the first one found."""
        key = prints.first, prints.second, run.user, run.fs_id
        claim = self._claims.get(key)
        if claim is not None:
            claim.waiting.append((run, item, prints))
            return False
        self._claims[key] = _Claim((run.id, item.number))
        self._held[run.id, item.number] = key
        return True

    def restore(self, run: RunState, item: Instance) -> None:
        """A step that was running when the engine stopped."""
        if item.prints.first:
            self.take(run, item, item.prints)

    def ended(self, items: Iterable[Ended], now: float) -> list[tuple[RunState, Fact]]:
        """Facts for those who waited for these."""
        facts: list[tuple[RunState, Fact]] = []
        for run, item in items:
            key = self._held.pop((run.id, item.number), None)
            if key is None:
                continue
            claim = self._claims.pop(key)
            if not claim.waiting:
                continue
            alive = deque(each for each in claim.waiting if each[1].phase is Phase.LOOKUP)
            if item.status is ComponentStatus.SUCCEEDED:
                hit = Hit(item.reused_run or run.id, item.reused_job or item.job, dict(item.outputs))
                facts += [(other, CacheAnswered(now, each.number, prints, hit)) for other, each, prints in alive]
            elif alive:
                other, each, prints = alive.popleft()
                self._claims[key] = _Claim((other.id, each.number), alive)
                self._held[other.id, each.number] = key
                facts.append((other, CacheAnswered(now, each.number, prints, None, ("the run it waited for failed",))))
        return facts
