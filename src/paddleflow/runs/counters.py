"""What a server's engine did for runs since it started: written by the engine, read by the metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from paddleflow.base.values import dataclass

REUSED = "reused"  #: how a step ended whose result came from the cache


@dataclass(slots=True)
class RunCounters:
    """Counts that only grow, and how many steps wait now."""

    started: int = 0  #: jobs of steps; each try is one
    steps: Counter[str] = field(default_factory=Counter)  #: that ended: by status, or `REUSED`
    runs: Counter[str] = field(default_factory=Counter)  #: that ended, by status
    waiting: int = 0  #: steps that could begin, but for the parallelism of their runs
