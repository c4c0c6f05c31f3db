"""What a simulation is judged by: waiting, completion, use, fairness, victims. Pure functions of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paddleflow.simulator.simulation import SimulatedJob

#: The classes by which waiting is told: up to so many GPUs.
SIZES = ((1, "1 GPU"), (4, "2 to 4 GPUs"), (8, "5 to 8 GPUs"), (1 << 30, "more than 8 GPUs"))


def waiting(records: Iterable[SimulatedJob]) -> list[float]:
    """Seconds from submission to the first start, of those that started."""
    return [r.started_at - r.request.submitted_at for r in records if r.started_at is not None]


def completion(records: Iterable[SimulatedJob]) -> list[float]:
    """Seconds from submission to the end, of those that ended."""
    return [r.finished_at - r.request.submitted_at for r in records if r.finished_at is not None]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank); 0 of none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


def waiting_by_size(records: Iterable[SimulatedJob]) -> dict[str, float]:
    """Mean seconds of waiting in each size class that has jobs."""
    classes: dict[str, list[float]] = {}
    for record in records:
        if record.started_at is not None:
            name = next(name for most, name in SIZES if record.size <= most)
            classes.setdefault(name, []).append(record.started_at - record.request.submitted_at)
    return {name: mean(classes[name]) for _, name in SIZES if name in classes}


def by_queue(records: Iterable[SimulatedJob]) -> dict[str, list[SimulatedJob]]:
    found: dict[str, list[SimulatedJob]] = {}
    for record in records:
        found.setdefault(record.request.queue, []).append(record)
    return found


def finish_time_fairness(together: Iterable[SimulatedJob], alone: Iterable[SimulatedJob]) -> dict[str, float]:
    """Per queue: mean completion on the shared cluster ÷ mean completion alone on its share. 1 or less is fair."""
    shared, apart = by_queue(together), by_queue(alone)
    return {
        queue: mean(completion(shared[queue])) / base
        for queue, records in apart.items()
        if queue in shared and (base := mean(completion(records)))
    }


def jain(values: Sequence[float]) -> float:
    """1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def use(records: Iterable[SimulatedJob], size: int, until: float) -> float:
    """Share of `size` units that jobs held from 0 to `until`; evicted jobs count from their first start."""
    busy = sum(
        r.size * (min(until, until if r.finished_at is None else r.finished_at) - min(until, r.started_at))
        for r in records
        if r.started_at is not None
    )
    return busy / (size * until) if size and until > 0 else 0.0


def victims(records: Iterable[SimulatedJob]) -> Mapping[str, int]:
    """Evictions per queue, of queues that had any."""
    found: dict[str, int] = {}
    for record in records:
        if record.evictions:
            found[record.request.queue] = found.get(record.request.queue, 0) + record.evictions
    return found
