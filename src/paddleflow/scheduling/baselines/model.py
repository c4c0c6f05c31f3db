"""What a line sees and may ask for: waiting jobs in, starts and evictions out. Values and protocols only.

A line is served after every event. It may ask the dispatcher to start a waiting job (all of it, or it stays waiting) and, if
its policy preempts, to evict a running one, which then arrives again with what it has left.
"""

from __future__ import annotations

from typing import Protocol

from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job as a line knows it. Only an oracle looks at `remaining`."""

    job: str
    group: str
    size: int  #: GPUs
    remaining: float


class Dispatcher(Protocol):
    @property
    def free(self) -> int:
        """GPUs that nobody has."""
        ...

    def start(self, job: str) -> bool:
        """Start it now if all of it finds a place."""
        ...

    def evict(self, job: str) -> None:
        """Stop it; it arrives again at once."""
        ...


class Discipline(Protocol):
    def arrive(self, waiting: Waiting) -> None: ...

    def leave(self, job: str) -> None:
        """A running job has ended, or was evicted."""
        ...

    def serve(self, now: float, dispatcher: Dispatcher) -> None: ...
