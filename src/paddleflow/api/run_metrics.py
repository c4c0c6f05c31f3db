"""Metrics of runs: the active ones as the database has them when ``/metrics`` is asked, and what this server's engine did.

With several servers on one database only the one whose engine moves the runs counts their steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.runs.counters import RunCounters
from paddleflow.runs.rows import count_active_runs
from paddleflow.store.database import Database

log = Log("api")


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
