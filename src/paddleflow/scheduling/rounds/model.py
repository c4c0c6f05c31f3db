"""What a round-based policy sees and says: values, and questions that a job answers about itself.

A policy is anything with `allot(now, jobs, nodes)`. It is called once a round with every unfinished job in order of
submission and returns the spread of each job that shall run; a job whose spread is the one it holds is left alone, any
other change costs the job a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from paddleflow.base.values import dataclass

Spread = tuple[tuple[str, int], ...]  #: node and number of GPUs there, in the order of the job's ring of workers


@dataclass(frozen=True, slots=True)
class RoundJob:
    """One unfinished job as a policy may know it. Each policy reads only what its design allows it to know."""

    job: str
    submitted_at: float
    most: int  #: GPUs it can use, or asked for where the number is fixed
    held: Spread  #: what it has now
    served: float  #: GPU seconds it has had
    restarts: int  #: how often it was moved after its first start
    remaining: float  #: steps that are left; only an oracle looks at it
    step_time: Callable[
        [int], float
    ]  #: seconds a step takes on so many GPUs, packed, with the batch its owner asked for
    rate: Callable[[int, int], float]  #: progress a second on so many nodes and GPUs, with the best batch size


class Policy(Protocol):
    def allot(self, now: float, jobs: Sequence[RoundJob], nodes: Mapping[str, int]) -> dict[str, Spread]:
        """Who runs where from now on; `nodes` says how many GPUs each node has."""
        ...


def gpus(spread: Spread) -> int:
    return sum([count for _, count in spread])


def free_after(nodes: Mapping[str, int], spreads: Mapping[str, Spread]) -> dict[str, int]:
    """What is left on each node."""
    free = dict(nodes)
    for spread in spreads.values():
        for node, count in spread:
            free[node] -= count
    return free


def take_emptiest(free: dict[str, int], count: int) -> Spread:
    """So many GPUs, always from the node with most of them free (the first of equals); takes them out of `free`."""
    spread: list[tuple[str, int]] = []
    while count > 0:
        node = max(free, key=free.__getitem__)
        taken = min(free[node], count)
        if taken <= 0:
            raise ValueError(f"{count} more GPUs are wanted than are free")
        free[node] -= taken
        count -= taken
        spread.append((node, taken))
    return tuple(spread)
