"""The numbers that the rules of the scheduler have, in one place."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 300.0  #: seconds after which a waiting job goes before the rest of its priority, and is kept room for
MOST_RESERVATIONS: Final = 4  #: so many jobs at a time have nodes kept for them
DATA_WAIT: Final = 60.0  #: seconds that a job waits for a node that holds its data, before it starts elsewhere
HALF_LIFE: Final = 86_400.0  #: seconds after which past use counts half, in queues of policy `fair`
LEAST_RUN: Final = 60.0  #: seconds that a job runs before it may be evicted
WINDOW: Final = 1800.0  #: seconds after an eviction during which the same job is not evicted again
MOST_VICTIMS: Final = 64  #: a job that needs more than this many others to end waits instead
RESIZE_PAUSE: Final = 30.0  #: seconds between two changes of the number of members of one job
UNEVEN: Final = 0.2  #: members move between elastic jobs when their parts differ by more than this
NAMED_HOLDERS: Final = 3  #: so many of those who hold what a job waits for are named in its reason

POLICIES: Final = ("fifo", "shortest", "fair", "drf")  #: how a queue orders jobs of one priority
PLACEMENTS: Final = ("pack", "spread")  #: how a queue's jobs are put on nodes
BY_USER: Final = ("fair", "drf")  #: those among them that look at who asks
