"""Prefetching, an optional part of a runtime: launches that it holds before their slots are free.

A short job's successor then starts the moment the job has ended, without a round trip to the engine. A runtime without it is
complete: its `Runtime.prefetching` is None, and nobody gives it a launch with a `PrefetchRequest`. The rules:

* Attempts of one slot class are interchangeable. A launch that is `waiting` has no slot: it starts when another attempt of
  its class has ended with code 0, in that one's slot, and the other one's `Ended` names it as its `successor`.
* What can no longer start so (no attempt of the class runs, one of it failed, `withdraw`) is reported by `Returned` and was
  never started.
* Nothing waits any more after `Runtime.adopt`, but one that was about to take a slot may still start.

``tests/contract/test_runtime_prefetch.py`` holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddleflow.base.ids import AttemptId
from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class PrefetchRequest:
    """How a launch takes part in prefetching."""

    slot_class: str  #: others of this class may take its slot when it has ended well
    waiting: bool = False  #: it has no slot yet and waits for that of another
    after: tuple[AttemptId, ...] = ()  #: waiting, and not before these of its class have ended well


@dataclass(frozen=True, slots=True)
class Returned:
    """It was prefetched and never started; the runtime knows nothing of it any more."""

    attempt: AttemptId


class Prefetching(Protocol):
    """A runtime's prefetch queue; launches come to it by `Runtime.start`."""

    async def withdraw(self, attempts: Sequence[AttemptId]) -> None:
        """Return those of these that still wait, and those that come after them."""
        ...
