"""A process of its own for one large forecast, so that the server's event loop stays free while it is computed.

`python -m paddleflow.simulator.forecast_worker` reads a pickled `Problem` from standard input and writes the pickled answer
to standard output. `jobs.forecaster` starts it, with a lower priority than the server's, and kills it when nobody waits for
the answer any more. Both ends are the same code of the same installation, so pickle is safe here.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Mapping

from paddleflow.base.values import dataclass
from paddleflow.scheduling.forecast import Estimate, StartForecast, forecast_starts
from paddleflow.scheduling.model import Snapshot

_NICE = 10  #: how much lower the priority is


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be forecast, and how much work that is worth."""

    snapshot: Snapshot
    estimates: Mapping[str, Estimate]
    futures: int
    seconds: float  #: after which it answers with what it has


def solve(problem: Problem) -> dict[str, StartForecast]:
    """When each waiting job starts."""
    deadline = time.monotonic() + problem.seconds
    seed = int(problem.snapshot.now * 1000)
    return forecast_starts(
        problem.snapshot, problem.estimates, problem.futures, seed, lambda: time.monotonic() > deadline
    )


def main() -> None:
    os.nice(_NICE)
    problem = pickle.load(sys.stdin.buffer)  # noqa: S301  written by the server that started this process
    pickle.dump(solve(problem), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
