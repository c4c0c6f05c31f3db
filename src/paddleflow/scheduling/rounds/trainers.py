"""How many trainers each elastic job has: idle room is shared out, and given back when somebody asks for it.

`resize` is one decision: where room is free the least fulfilled job grows, where it is short the most fulfilled one
gives, nobody falls below its least or rises above its most, and between two jobs trainers move only when they are more
than `band` apart, so that nothing swings to and fro. Pure; the elastic experiment of the simulator calls it.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.base.values import dataclass

BAND = 2  #: trainers by which two jobs may differ before one gives to the other


@dataclass(frozen=True, slots=True)
class Elastic:
    """A running elastic job."""

    job: str
    least: int
    most: int
    has: int


def resize(jobs: Sequence[Elastic], free: int, band: int = BAND) -> dict[str, int]:
    """The number of trainers each job shall have; `free` trainers find room now, or so many must go if it is negative."""
    wanted = {job.job: job.has for job in jobs}
    by_name = {job.job: job for job in jobs}

    def grower() -> str | None:
        open_ = [name for name in wanted if wanted[name] < by_name[name].most]
        return min(open_, key=lambda name: (wanted[name], name), default=None)

    def giver() -> str | None:
        able = [name for name in wanted if wanted[name] > by_name[name].least]
        return max(able, key=lambda name: (wanted[name], name), default=None)

    while free > 0 and (name := grower()) is not None:
        wanted[name] += 1
        free -= 1
    while free < 0 and (name := giver()) is not None:
        wanted[name] -= 1
        free += 1
    while (low := grower()) is not None and (high := giver()) is not None and wanted[high] - wanted[low] > band:
        wanted[high] -= 1
        wanted[low] += 1
    return wanted
