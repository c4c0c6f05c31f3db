"""What the runtime saw and no turn has dealt with yet.

An end is dealt with at once: somebody waits for the place. A beginning waits a moment, because a short job's end follows
on its heels: both are then one step of the machine and one commit, and the next job does not wait for the first one's
beginning to reach the disk. `Mover` is the only caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.runtimes.runtime import Ended, Observation

PATIENCE = 0.01  #: seconds that a beginning waits for company


class Heard:
    """Observations in the order in which they came."""

    def __init__(self) -> None:
        self._items: list[Observation] = []
        self._due_at: float | None = None

    def add(self, items: Sequence[Observation], at: float, *, urgent: bool = False) -> float | None:
        """Keep them; in how many seconds a turn must look at them, None when that is settled already."""
        if not items:
            return None
        self._items.extend(items)
        urgent = urgent or any(isinstance(item, Ended) for item in items)
        delay = 0.0 if urgent else PATIENCE
        if self._due_at is not None and self._due_at <= at + delay:
            return None
        self._due_at = at + delay
        return delay

    def due(self, at: float) -> bool:
        """Whether there is something that waits no longer."""
        return self._due_at is not None and self._due_at <= at

    def take(self, at: float) -> list[Observation]:
        """Everything, once any of it is due."""
        if not self.due(at):
            return []
        taken, self._items, self._due_at = self._items, [], None
        return taken
