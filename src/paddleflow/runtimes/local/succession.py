"""Who takes the place of an attempt that has ended: the next in its lane, without a word from the server in between.

A launch that is ahead waits in its lane. It begins when another of the lane has ended well, one for one, so no more run at
once than the server gave places to. After a failure nobody begins: all of the lane is given back, and the server decides.
Called by `custody`, and by the keeper's loop when the server has spoken.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.lanes import Lanes
from paddleflow.runtimes.local.telling import Telling
from paddleflow.runtimes.local.timers import Timers

Launch = dict[str, Any]
REST = 0.02  #: seconds that a place stays open for a server that has not answered yet


class Succession:
    """The lanes of one keeper, and the places that are passed on in them."""

    def __init__(
        self,
        waiting: OrderedDict[str, Launch],
        telling: Telling,
        timers: Timers,
        known: Callable[[str], Attempt | None],
    ) -> None:
        self.lanes = Lanes()
        self._waiting = waiting  #: launches that have a place and are about to begin
        self._telling = telling
        self._timers = timers
        self._known = known  #: an attempt that has begun and is not forgotten, by its name
        self._resting: dict[str, Attempt] = {}  #: ended well, and the place may still be passed on: not told yet

    def start(self, name: str, launch: Launch) -> None:
        """A launch that is ahead."""
        if name in self.lanes:
            return
        if not all(self._can_be_awaited(other) for other in launch.get("after", ())) or not self.lanes.add(launch):
            self._give_back([name])
        for attempt in [each for each in self._resting.values() if each.lane == launch["lane"]]:
            self.leave(attempt, rest=True)

    def enter(self, launch: Launch) -> None:
        """A launch that has a place; it may have waited for one in its lane."""
        self.lanes.take(launch["attempt"])
        if lane := launch.get("lane"):
            self.lanes.enter(lane)

    def recall(self, names: Iterable[str]) -> None:
        """Give back those that still wait, and who comes after them."""
        for name in names:
            self._give_back(self.lanes.withdraw(name))

    def stop(self, name: str) -> bool:
        """Whether it waited in its lane. It never begins; who comes after it is given back."""
        gone = self.lanes.withdraw(name)
        self._give_back(gone[1:])
        return bool(gone)

    def _can_be_awaited(self, name: str) -> bool:
        """Whether it may still end well, or has: not if it was never sent, given back, or ended otherwise."""
        known = self._known(name)
        if known is None:
            return name in self.lanes or name in self._waiting
        return known.end is None or known.end[1] == 0

    def _has_ended(self, name: str) -> bool:
        """Whether one that somebody waits for has ended; if it is not known any more it was forgotten since, so it had."""
        known = self._known(name)
        return known.finished if known is not None else name not in self.lanes and name not in self._waiting

    def _give_back(self, names: Iterable[str]) -> None:
        self._telling.add(*(["recalled", name] for name in names))

    def leave(self, attempt: Attempt, *, rest: bool) -> None:
        """An attempt has ended: pass its place on, and tell its end.

        When nobody waits and it may `rest`, the place stays open for a moment: the server is about to send more.
        """
        assert attempt.end is not None
        well = attempt.end[1] == 0
        following = self.lanes.following(attempt.lane, self._has_ended) if well else None
        if following is None and well and rest:
            if attempt.name not in self._resting:
                self._resting[attempt.name] = attempt
                self._timers.after(REST, partial(self._wake, attempt))
            return
        self._resting.pop(attempt.name, None)
        lane, attempt.lane = attempt.lane, ""
        if following is None:
            self._telling.add(*attempt.events())
            self._give_back([*([] if well else self.lanes.clear(lane)), *self.lanes.leave(lane)])
            return
        name: str = following["attempt"]
        self._waiting[name] = following
        self._waiting.move_to_end(name, last=False)
        self._telling.add_later(*([*event, name] for event in attempt.events()))

    def _wake(self, attempt: Attempt) -> None:
        if attempt.name in self._resting:
            self.leave(attempt, rest=False)

    def wake(self) -> None:
        """The server has said all that it had to say: places that are still open are given back."""
        for attempt in list(self._resting.values()):
            self.leave(attempt, rest=False)

    def new_server(self) -> None:
        """It knows nothing of lanes: nobody follows anybody until it says so."""
        self.wake()
        self.lanes.forget()
        for launch in self._waiting.values():
            if lane := launch.get("lane"):
                self.lanes.leave(lane)
