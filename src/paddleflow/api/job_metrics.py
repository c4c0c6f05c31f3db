"""Metrics of queues and jobs: gauges as the database has them when ``/metrics`` is asked, and how long jobs took.

`JobMetrics.refresh` looks once per scrape; jobs that ended are found by the events since the state before, so each is
counted once and the cost is that of what happened, not of what is stored. With several servers on one database each one
counts every job: do not add their figures up.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from paddleflow.base.log import Log
from paddleflow.base.quantity import Resources, left_of
from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.queries import EndedJob, StatusCount, count_by_status, ended_behind, held_by_user
from paddleflow.queues.model import Queue
from paddleflow.queues.queues import list_queues
from paddleflow.runs.counters import RunCounters
from paddleflow.runs.rows import count_active_runs
from paddleflow.store import events
from paddleflow.store.database import Database, Tx

#: upper bounds in seconds
BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
MOST_QUEUES = 1000  #: shown; more would be too many series
MOST_HOLDERS = 2000  #: pairs of queue and user that are shown, and that are counted, likewise

log = Log("api")


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the database says at one moment."""

    position: int  #: of the newest event
    queues: Sequence[Queue] = ()
    used: dict[str, Resources] = field(default_factory=dict)
    held: dict[tuple[str, str], Resources] = field(default_factory=dict)  #: by queue and user
    active: Sequence[StatusCount] = ()  #: queue, status, jobs
    ended: Sequence[EndedJob] = ()  #: since the state before


def read_state(tx: Tx, after: int) -> QueueState:
    """Everything that the metrics show, and the jobs that ended behind a position of the event log."""
    used: dict[str, Resources] = {}
    held: dict[tuple[str, str], Resources] = {}
    for row in held_by_user(tx):
        scalars = {name: amount * row.jobs for name, amount in json.loads(row.scalars).items()}
        amount, key = Resources.of(row.cpu, row.memory, scalars), (row.queue, row.user_name)
        used[row.queue] = used.get(row.queue, Resources()) + amount
        if key in held or len(held) < MOST_HOLDERS:
            held[key] = held.get(key, Resources()) + amount
    return QueueState(
        position=events.last_seq(tx),
        queues=list_queues(tx, 0, MOST_QUEUES, user="", root=True),
        used=used,
        held=held,
        active=count_by_status(tx),
        ended=ended_behind(tx, after),
    )


#: How many jobs wait, by cluster, queue and code of the reason.
Waiting = Callable[[], Awaitable[Mapping[tuple[str, str, str], int]]]


class WaitingMetrics(Collector):
    """``pf_metric_jobs_waiting``: why jobs wait, in the clusters whose engines run in this server."""

    def __init__(self, registry: CollectorRegistry, waiting: Waiting) -> None:
        self._waiting = waiting
        self._counts: Mapping[tuple[str, str, str], int] = {}
        registry.register(self)

    async def refresh(self) -> None:
        self._counts = await self._waiting()

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "pf_metric_jobs_waiting", "Jobs that wait, by why.", labels=["cluster", "queue", "reason"]
        )
        for key, jobs in self._counts.items():
            family.add_metric(list(key), jobs)
        yield family


class JobMetrics(Collector):
    """``pf_metric_queue_info``, ``pf_metric_held``, ``pf_metric_resource_seconds``, ``pf_metric_jobs``, ``pf_metric_jobs_ended`` and
    ``pf_metric_job_time``."""

    def __init__(self, database: Database, registry: CollectorRegistry, position: int) -> None:
        self._database = database
        self._state = QueueState(position)
        self._ended: dict[tuple[str, str], int] = {}
        self._seconds: dict[
            tuple[str, str], dict[str, float]
        ] = {}  #: by queue and user: resource → amount times seconds
        self._times: dict[tuple[str, str], list[float]] = {}  #: by queue and stage: counts per bucket, then the sum
        registry.register(self)

    @staticmethod
    async def watching(database: Database, registry: CollectorRegistry) -> JobMetrics:
        """Counts jobs that end from now on."""
        return JobMetrics(database, registry, await database.read(events.last_seq))

    async def refresh(self) -> None:
        """QueueState again. A database that does not answer leaves the gauges out, and the counts as they are."""
        try:
            self._state = await self._database.read(read_state, self._state.position)
        except PaddleFlowError as error:
            log.warning("metrics without queues and jobs", reason=error.message)
            self._state = QueueState(self._state.position)
        for row in self._state.ended:
            self._count(row)

    def _count(self, row: EndedJob) -> None:
        queue, accepted, started, finished = row.queue, row.accepted_at, row.started_at, row.finished_at
        key = queue, row.status
        self._ended[key] = self._ended.get(key, 0) + 1
        self._observe(queue, "waiting", (finished if started is None else started) - accepted)
        if started is not None:
            self._observe(queue, "running", finished - started)
            self._count_seconds(row, max(finished - started, 0.0))

    def _count_seconds(self, row: EndedJob, ran: float) -> None:
        key = row.queue, row.user_name
        if key not in self._seconds and len(self._seconds) >= MOST_HOLDERS:
            return
        series = self._seconds.setdefault(key, {})
        for resource, amount in amounts_of(Resources.of(row.cpu, row.memory, json.loads(row.scalars))):
            series[resource] = series.get(resource, 0.0) + amount * ran

    def _observe(self, queue: str, stage: str, seconds: float) -> None:
        series = self._times.setdefault((queue, stage), [0.0] * (len(BOUNDS) + 2))
        series[bisect_left(BOUNDS, seconds)] += 1
        series[-1] += max(seconds, 0.0)

    def collect(self) -> Iterator[Metric]:
        yield self._queue_info()
        held = GaugeMetricFamily(
            "pf_metric_held",
            "What jobs that have their places hold: cores, bytes, and pieces of the others.",
            labels=["queue", "user", "resource"],
        )
        for (queue, user), holding in self._state.held.items():
            for resource, amount in amounts_of(holding):
                held.add_metric([queue, user, resource], amount)
        yield held
        seconds = CounterMetricFamily(
            "pf_metric_resource_seconds",
            "Resources times seconds of jobs that ended since this server started: card time.",
            labels=["queue", "user", "resource"],
        )
        for (queue, user), series in self._seconds.items():
            for resource, spent in series.items():
                seconds.add_metric([queue, user, resource], spent)
        yield seconds
        jobs = GaugeMetricFamily("pf_metric_jobs", "Jobs that have not ended.", labels=["queue", "status"])
        for row in self._state.active:
            jobs.add_metric([row.queue, row.status], row.jobs)
        yield jobs
        ended = CounterMetricFamily(
            "pf_metric_jobs_ended", "Jobs that ended since this server started.", labels=["queue", "status"]
        )
        for key, count in self._ended.items():
            ended.add_metric(list(key), count)
        yield ended
        times = HistogramMetricFamily(
            "pf_metric_job_time", "Seconds that ended jobs waited and ran.", labels=["queue", "stage"]
        )
        for key, counts in self._times.items():
            total = 0.0
            buckets: list[tuple[str, float]] = []
            for bound, counted in zip((*map(str, BOUNDS), "+Inf"), counts, strict=False):
                total += counted
                buckets.append((bound, total))
            times.add_metric(list(key), buckets=buckets, sum_value=counts[-1])
        yield times

    def _queue_info(self) -> GaugeMetricFamily:
        info = GaugeMetricFamily(
            "pf_metric_queue_info",
            "Resources of queues: cores, bytes, and pieces of the others.",
            labels=["queue", "resource", "type"],
        )
        for queue in self._state.queues:
            used = self._state.used.get(queue.name, Resources())
            amounts = {"min": queue.least, "used": used}
            if queue.ceiling is not None:
                amounts |= {"max": queue.ceiling, "idle": left_of(queue.ceiling, used)}
            names = {name for amount in amounts.values() for name, _ in amount.scalars}
            for kind, amount in amounts.items():
                for resource in ("cpu", "memory", *sorted(names)):
                    value = amount.amount(resource)
                    info.add_metric([queue.name, resource, kind], value if resource == "memory" else value / 1000)
        return info


def amounts_of(resources: Resources) -> Iterator[tuple[str, float]]:
    """Each resource with its amount: cores, bytes, and pieces of the others."""
    for resource in ("cpu", "memory", *(name for name, _ in resources.scalars)):
        value = resources.amount(resource)
        yield resource, float(value) if resource == "memory" else value / 1000


class RunMetrics(Collector):
    """``pf_metric_runs``, ``pf_metric_runs_ended``, and ``pf_metric_steps_`` with started, ended and waiting."""

    def __init__(self, database: Database, registry: CollectorRegistry, counters: RunCounters) -> None:
        self._database = database
        self._counters = counters
        self._active: Mapping[str, int] = {}
        registry.register(self)

    async def refresh(self) -> None:
        """Read the counts. A database that does not answer leaves the gauge out."""
        try:
            self._active = await self._database.read(count_active_runs)
        except PaddleFlowError as error:
            log.warning("metrics without runs", reason=error.message)
            self._active = {}

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("pf_metric_runs", "Runs that have not ended.", labels=["status"])
        for status, count in self._active.items():
            runs.add_metric([status], count)
        yield runs
        yield _counts("pf_metric_runs_ended", "Runs that ended since this server started.", self._counters.runs)
        yield CounterMetricFamily("pf_metric_steps_started", "Jobs of steps, each try.", value=self._counters.started)
        yield _counts("pf_metric_steps_ended", "Steps that ended, by status or reused.", self._counters.steps)
        yield GaugeMetricFamily(
            "pf_metric_steps_waiting",
            "Steps that only their run's parallelism holds back.",
            value=self._counters.waiting,
        )


def _counts(name: str, about: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about, labels=["status"])
    for status, count in counts.items():
        family.add_metric([str(status)], count)
    return family
