"""Pods that others made and that name the platform's scheduler: the engine of their cluster places them beside its own jobs.

An optional part of `Runtime`, as there must be one decider for a node's free room. The engine hands its core over (`attach`) and from
then on reports queues and nodes here instead of there, calls `take_in` before each cycle and `decided` after it, and `act` once
its turn is written. `take_in` and `decided` may be called in a thread; everything else is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Decision, Node, Queue


class ForeignPods(Protocol):
    """Implemented for Kubernetes by `podscheduler`."""

    def attach(
        self, core: Core, queues: Sequence[Queue], nodes: Sequence[Node], wake: Callable[[], None], free: Free
    ) -> None:
        """Put everything that is known into this core. `wake` asks for a turn; `free` waits until no thread changes the core."""
        ...

    def detach(self) -> None:
        """The core decides no more."""
        ...

    def set_queues(self, queues: Sequence[Queue]) -> None: ...

    def set_nodes(self, nodes: Sequence[Node]) -> None: ...

    def take_in(self, now: float) -> None:
        """Apply to the core what happened since the last call; `Temporary` when another process decides by now."""
        ...

    def knows(self, job: str) -> bool:
        """Whether this job of the core is not one of the platform's."""
        ...

    def decided(self, decisions: Sequence[Decision]) -> None:
        """What the core decided about jobs that are known here."""
        ...

    def act(self) -> None:
        """Begin with what was decided."""
        ...


Free = Callable[[], Awaitable[None]]
