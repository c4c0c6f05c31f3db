"""A cluster trace as worlds to simulate: all groups on one cluster, or each group on nodes of its own.

A job of up to one node's GPUs is one member, a larger one a gang of whole (or equal parts of) nodes. Callers are the
Philly benchmark and the tests; no policy is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.baselines.lines import Line
from paddleflow.scheduling.model import Need, Node, Queue, Request
from paddleflow.simulator.run import FixedDurations, Watcher, World
from paddleflow.simulator.traces import ClusterJob

GPU = "gpu"


def requests(jobs: Sequence[ClusterJob], gpus_each: int) -> list[Request]:
    found = []
    for order, job in enumerate(jobs):
        each = math.gcd(job.gpus, gpus_each)
        need = Need("worker", job.gpus // each, Resources.of(0, 0, {GPU: each * 1000}))
        found.append(Request(job.job, job.group, (need,), job.submitted_at, order))
    return found


def shared(
    jobs: Sequence[ClusterJob], nodes: int, gpus_each: int, line: Line | None = None, watcher: Watcher | None = None
) -> World:
    """All groups on one cluster, without ceilings."""
    places = [Node(f"node-{i:03}", Resources.of(0, 0, {GPU: gpus_each * 1000})) for i in range(nodes)]
    queues = [Queue(group, None) for group in sorted({job.group for job in jobs})]
    return World(places, queues, _durations(jobs), GPU, line, watcher)


def shares(jobs: Sequence[ClusterJob], nodes: int, gpus_each: int) -> dict[str, int]:
    """Nodes for each group, by its part of all GPU seconds; at least what its largest job needs."""
    load: dict[str, float] = {}
    largest: dict[str, int] = {}
    for job in jobs:
        load[job.group] = load.get(job.group, 0.0) + job.gpus * job.duration
        largest[job.group] = max(largest.get(job.group, 0), job.gpus)
    whole = sum(load.values()) or 1.0
    return {
        group: max(-(-largest[group] // gpus_each), round(nodes * load[group] / whole)) for group in sorted(load)
    }


def apart(
    jobs: Sequence[ClusterJob], nodes: int, gpus_each: int, watcher: Watcher | None = None
) -> World:
    """Each group alone on its share of the nodes."""
    places, queues = list[Node](), list[Queue]()
    for group, count in shares(jobs, nodes, gpus_each).items():
        label = {"group": group}
        capacity = Resources.of(0, 0, {GPU: gpus_each * 1000})
        places += [Node(f"{group}-{i:03}", capacity, label) for i in range(count)]
        queues.append(Queue(group, None, node_labels=(("group", group),)))
    return World(places, queues, _durations(jobs), GPU, None, watcher)


def _durations(jobs: Sequence[ClusterJob]) -> FixedDurations:
    return FixedDurations({job.job: job.duration for job in jobs})
