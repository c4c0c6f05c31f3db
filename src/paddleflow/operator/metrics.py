"""The operator's Prometheus metrics: queue, reconciles, writes, and jobs by phase."""

from __future__ import annotations

from collections import Counter as RunCounters
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from paddleflow.kube.controller import Reconciled
from paddleflow.kube.resources import View

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class OperatorMetrics:
    """One registry per operator."""

    def __init__(
        self,
        depth: Callable[[], int],
        jobs: Callable[[], Iterable[View]],
        leads: Callable[[], bool],
        overlaps: Callable[[], int] = lambda: 0,
    ) -> None:
        self.registry = CollectorRegistry()
        queue = Gauge("paddleflow_operator_queue_depth", "Jobs that wait to be reconciled.", registry=self.registry)
        queue.set_function(depth)
        leader = Gauge("paddleflow_operator_leader", "1 in the operator that leads.", registry=self.registry)
        leader.set_function(lambda: float(leads()))
        overlapping = Gauge(
            "paddleflow_operator_overlaps", "Other operators that work on the same PaddleJobs.", registry=self.registry
        )
        overlapping.set_function(overlaps)
        self._passes = Histogram(
            "paddleflow_operator_reconcile_seconds",
            "Duration of one reconcile of one job, with its writes.",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.writes = Counter(
            "paddleflow_operator_writes",
            "Writes to the API server, by what they did.",
            ["verb"],
            registry=self.registry,
        )
        self.refusals = Counter(
            "paddleflow_operator_refusals", "Writes that the API server refused.", ["reason"], registry=self.registry
        )
        self._phases = Gauge(
            "paddleflow_operator_jobs", "PaddleJobController by phase.", ["phase"], registry=self.registry
        )
        self._jobs = jobs

    def observe(self, turn: Reconciled) -> None:
        self._passes.labels(turn.result).observe(turn.seconds)

    def page(self) -> bytes:
        """Everything, as text."""
        found = RunCounters((job.get("status") or {}).get("phase") or "Pending" for job in self._jobs())
        self._phases.clear()
        for phase, count in found.items():
            self._phases.labels(phase).set(count)
        return generate_latest(self.registry)
