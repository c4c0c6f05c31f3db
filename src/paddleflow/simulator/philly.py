"""A cluster trace as worlds to simulate: all groups on one cluster, or each group on nodes of its own.

A job of up to one node's GPUs is one member, a larger one a gang of whole (or equal parts of) nodes. Callers are the
Philly benchmark and the tests; no policy is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.baselines.model import Discipline
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request
from paddleflow.simulator.simulation import FixedDurations, Simulation, Watcher
from paddleflow.simulator.traces import ClusterJob

GPU = "gpu"
_WEEK = 7 * 86400.0


def requests(jobs: Sequence[ClusterJob], gpus_each: int) -> list[Request]:
    found = []
    for order, job in enumerate(jobs):
        each = math.gcd(job.gpus, gpus_each)
        member_set = MemberSet("worker", job.gpus // each, Resources.of(0, 0, {GPU: each * 1000}))
        found.append(Request(job.job, job.group, (member_set,), job.submitted_at, order))
    return found


def shared(
    jobs: Sequence[ClusterJob],
    nodes: int,
    gpus_each: int,
    discipline: Discipline | None = None,
    watcher: Watcher | None = None,
) -> Simulation:
    """All groups on one cluster, without ceilings."""
    places = [Node(f"node-{i:03}", Resources.of(0, 0, {GPU: gpus_each * 1000})) for i in range(nodes)]
    queues = [Queue(group, None) for group in sorted({job.group for job in jobs})]
    return Simulation(places, queues, _durations(jobs), GPU, discipline, watcher)


def shares(jobs: Sequence[ClusterJob], nodes: int, gpus_each: int) -> dict[str, int]:
    """Nodes for each group, by its part of all GPU seconds; at least what its largest job needs."""
    load: dict[str, float] = {}
    largest: dict[str, int] = {}
    for job in jobs:
        load[job.group] = load.get(job.group, 0.0) + job.gpus * job.duration
        largest[job.group] = max(largest.get(job.group, 0), job.gpus)
    whole = sum(load.values()) or 1.0
    return {group: max(-(-largest[group] // gpus_each), round(nodes * load[group] / whole)) for group in sorted(load)}


def peaks(jobs: Sequence[ClusterJob], gpus_each: int) -> dict[str, int]:
    """Nodes for each group, enough for the mean load of its busiest week; at least what its largest job needs."""
    weeks: dict[str, dict[int, float]] = {}
    largest: dict[str, int] = {}
    for job in jobs:
        largest[job.group] = max(largest.get(job.group, 0), job.gpus)
        at, end = job.submitted_at, job.submitted_at + job.duration
        while at < end:
            week = int(at // _WEEK)
            until = min(end, (week + 1) * _WEEK)
            load = weeks.setdefault(job.group, {})
            load[week] = load.get(week, 0.0) + job.gpus * (until - at)
            at = until
    return {
        group: max(-(-most // gpus_each), math.ceil(max(weeks.get(group, {0: 0.0}).values()) / _WEEK / gpus_each))
        for group, most in sorted(largest.items())
    }


def apart(
    jobs: Sequence[ClusterJob], nodes: Mapping[str, int], gpus_each: int, watcher: Watcher | None = None
) -> Simulation:
    """Each group alone on so many nodes of its own."""
    places, queues = list[Node](), list[Queue]()
    capacity = Resources.of(0, 0, {GPU: gpus_each * 1000})
    for group, count in nodes.items():
        places += [Node(f"{group}-{i:03}", capacity, {"group": group}) for i in range(count)]
        queues.append(Queue(group, None, node_labels=(("group", group),)))
    return Simulation(places, queues, _durations(jobs), GPU, None, watcher)


def _durations(jobs: Sequence[ClusterJob]) -> FixedDurations:
    return FixedDurations({job.job: job.duration for job in jobs})
