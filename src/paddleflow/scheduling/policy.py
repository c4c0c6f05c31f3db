"""The numbers that the rules of the scheduler have, in one place."""

from __future__ import annotations

PATIENCE = 300.0  #: seconds after which a waiting job lets nothing behind it in its queue go first
NAMED_HOLDERS = 3  #: so many of those who hold what a job waits for are named in its reason
