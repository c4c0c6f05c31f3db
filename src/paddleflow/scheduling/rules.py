"""The numbers that the rules of the scheduler have, in one place. A server sets them by its settings (`scheduling.…`)."""

from __future__ import annotations

from typing import Final

from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be set. SizeGroup of the snapshot: other rules, other decisions."""

    preemption: bool = False  #: whoever carries decisions out can end jobs that make way
    elastic: bool = False  #: it can add and end single members
    patience: float = (
        300.0  #: seconds after which a waiting job goes before the rest of its priority, and is kept room for
    )
    reservations: int = 4  #: so many jobs at a time have nodes kept for them
    data_wait: float = 60.0  #: seconds that a job waits for a node that holds its data, before it starts elsewhere
    half_life: float = 86_400.0  #: seconds after which past use counts half, in queues of policy `fair`
    least_run: float = 60.0  #: seconds that a job runs before it may be evicted
    window: float = 1800.0  #: seconds after an eviction during which the same job is not evicted again
    victims: int = 64  #: a job that needs more than this many others to end waits instead
    resize_pause: float = 30.0  #: seconds between two changes of the number of members of one job
    restart_pause: float = 600.0  #: the same before it grows, for a job that must be started anew to change
    uneven: float = 0.2  #: members move between elastic jobs when their parts differ by more than this


DEFAULTS: Final = Rules()
NAMED_HOLDERS: Final = 3  #: so many of those who hold what a job waits for are named in its reason

ORDERS: Final = ("fifo", "shortest", "fair", "drf")  #: how a queue orders jobs of one priority
PLACEMENTS: Final = ("pack", "spread")  #: how a queue's jobs are put on nodes
BY_USER: Final = ("fair", "drf")  #: those among them that look at who asks
