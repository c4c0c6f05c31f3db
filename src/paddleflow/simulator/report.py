"""What a play is judged by, per queue: waiting, completion, use, victims; and fairness between queues. Pure."""

from __future__ import annotations

from paddleflow.base.quantity import Resources, total
from paddleflow.base.values import dataclass
from paddleflow.scheduling.classes import total_of
from paddleflow.scheduling.playback import Outcome
from paddleflow.scheduling.shares import dominant
from paddleflow.simulator.metrics import jain, mean, percentile
from paddleflow.simulator.whatif import Played


@dataclass(frozen=True, slots=True)
class QueueReport:
    """How the jobs of one queue fared."""

    name: str
    jobs: int
    started: int
    finished: int
    mean_wait: float
    p90_wait: float
    mean_completion: float
    use: float
    victims: int
    lost: float


@dataclass(frozen=True, slots=True)
class PlayReport:
    queues: list[QueueReport]
    fairness: float
    use: float
    victims: int


def report(played: Played, until: float) -> PlayReport:
    """`until`: the end of the time over which use is averaged, the same for plays that are compared."""
    by_queue: dict[str, list[Outcome]] = {}
    for outcome in played.outcomes.values():
        by_queue.setdefault(outcome.request.queue, []).append(outcome)
    capacity = total(node.capacity for node in played.snapshot.nodes)
    span = max(1e-9, until - played.begins)
    rows = [_queue(name, rows, played, capacity, span) for name, rows in sorted(by_queue.items())]
    weights = {queue.name: queue.weight for queue in played.snapshot.queues}
    shares = [row.use / max(1, weights.get(row.name, 1)) for row in rows]
    return PlayReport(rows, jain(shares), sum(row.use for row in rows), sum(row.victims for row in rows))


def _waited_until(outcome: Outcome, ends: float) -> float:
    """The moment at which a job started, or was given up; the end of the play if neither happened."""
    found = outcome.withdrawn_at if outcome.started_at is None else outcome.started_at
    return ends if found is None else found


def _queue(name: str, rows: list[Outcome], played: Played, capacity: Resources, span: float) -> QueueReport:
    waits = [max(0.0, _waited_until(r, played.ends) - r.eligible_at) for r in rows]
    done = [max(0.0, r.finished_at - r.eligible_at) for r in rows if r.finished_at is not None]
    busy = sum(
        dominant(total_of(r.request), capacity) * max(0.0, end - max(begin, played.begins))
        for r in rows
        for begin, end in r.intervals
    )
    return QueueReport(
        name,
        len(rows),
        sum(r.started_at is not None for r in rows),
        len(done),
        mean(waits),
        percentile(waits, 0.9),
        mean(done),
        busy / span,
        sum(r.evictions for r in rows),
        sum(r.lost for r in rows),
    )
