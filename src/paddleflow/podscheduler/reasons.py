"""Which reasons of waiting pods are to be told, and when. Pure.

A reason is told once it has stood for a while, and one that changes again and again ever more seldom. Most pods of a burst, and of a
gang that is being created, wait for a moment only: telling why would take more writes than binding them.
"""

from __future__ import annotations

from heapq import heappop, heappush

from paddleflow.podscheduler.pods import Pod

TELL_AFTER = (1.0, 30.0)  #: seconds before a reason is told: at first, and at most for one that keeps changing
LONGEST = 1024  #: characters of a message


class Reasons:
    """Those of one scheduler. What was told is remembered until the pod is forgotten."""

    def __init__(self, tell_after: tuple[float, float] = TELL_AFTER) -> None:
        self._first, self._longest = tell_after
        self._waiting: dict[str, tuple[Pod, str]] = {}  # to be told, by uid
        self._due: list[tuple[float, str]] = []  # when; an entry whose uid is not waiting is old
        self._reported: dict[str, tuple[str, int]] = {}  # what was told last, and how many times something was

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pod: Pod, why: str, now: float) -> None:
        """Why a pod waits, as of now."""
        why = why[:LONGEST]
        last, times = self._reported.get(pod.uid, (pod.waits, 0))
        if why == last:
            self._waiting.pop(pod.uid, None)
            return
        if pod.uid not in self._waiting:
            heappush(self._due, (now + min(self._first * 2.0 ** min(times, 30), self._longest), pod.uid))
        self._waiting[pod.uid] = (pod, why)

    def take(self, now: float) -> tuple[Pod, str] | None:
        """The next one that is due; it counts as told from now on."""
        while self._due and self._due[0][0] <= now:
            _, uid = heappop(self._due)
            found = self._waiting.pop(uid, None)
            if found is not None:
                self._reported[uid] = (found[1], self._reported.get(uid, ("", 0))[1] + 1)
                return found
        return None

    def forget(self, uid: str) -> None:
        """The pod is gone, or waits no more."""
        self._waiting.pop(uid, None)
        self._reported.pop(uid, None)
