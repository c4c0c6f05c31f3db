"""Launches that wait in the keeper for the place of another: so that short attempts follow each other without a word
from the server in between.

A lane holds attempts that are alike. When one of them has ended well the next that may begin takes its place, one for one,
so no more run at once than the server gave places to. Pure bookkeeping; `custody` is the only caller.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

Launch = dict[str, Any]


class Lanes:
    """All lanes of one keeper, each as long as anything of it holds a place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}  #: lane → attempts that hold a place
        self._queues: dict[str, OrderedDict[str, Launch]] = {}
        self._lane_of: dict[str, str] = {}  #: of those that wait

    def __len__(self) -> int:
        """How many wait."""
        return len(self._lane_of)

    def __contains__(self, name: str) -> bool:
        return name in self._lane_of

    def enter(self, lane: str) -> None:
        """An attempt of this lane was given a place."""
        self._places[lane] = self._places.get(lane, 0) + 1

    def leave(self, lane: str) -> list[str]:
        """A place is given back; who waits for one that will never come, if it was the last."""
        self._places[lane] -= 1
        if self._places[lane]:
            return []
        del self._places[lane]
        return self.clear(lane)

    def add(self, launch: Launch) -> bool:
        """Let it wait; False when nothing of its lane holds a place that could become free."""
        lane, name = launch["lane"], launch["attempt"]
        if lane not in self._places:
            return False
        self._queues.setdefault(lane, OrderedDict())[name] = launch
        self._lane_of[name] = lane
        return True

    def take(self, name: str) -> bool:
        """It waits no longer; False when it did not."""
        lane = self._lane_of.pop(name, None)
        if lane is None:
            return False
        queue = self._queues[lane]
        del queue[name]
        if not queue:
            del self._queues[lane]
        return True

    def withdraw(self, name: str) -> list[str]:
        """It will not begin, and so nobody who comes after it can: all of these wait no longer."""
        lane = self._lane_of.get(name)
        if lane is None:
            return []
        gone = [name]
        for other, launch in self._queues[
            lane
        ].items():  # in their order: nobody waits before those that it comes after
            if not set(gone).isdisjoint(launch.get("after", ())):
                gone.append(other)
        for other in gone:
            self.take(other)
        return gone

    def following(self, lane: str, ended: Callable[[str], bool]) -> Launch | None:
        """The first that waits and for which all that it comes after has ended; it waits no longer."""
        for name, launch in self._queues.get(lane, {}).items():
            if all(ended(other) for other in launch.get("after", ())):
                self.take(name)
                return launch
        return None

    def clear(self, lane: str) -> list[str]:
        """Nobody waits in it any more; who did."""
        names = list(self._queues.pop(lane, ()))
        for name in names:
            del self._lane_of[name]
        return names

    def forget(self) -> None:
        """Nobody waits anywhere."""
        self._queues.clear()
        self._lane_of.clear()
