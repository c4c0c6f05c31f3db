"""The scheduler's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)


class Metrics:
    """One registry per scheduler."""

    def __init__(self, waiting: Callable[[], int], leads: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        pending = Gauge("paddleflow_scheduler_pending_pods", "Pods that wait for a node.", registry=self.registry)
        pending.set_function(waiting)
        leader = Gauge("paddleflow_scheduler_leader", "1 in the scheduler that leads.", registry=self.registry)
        leader.set_function(lambda: float(leads()))
        self.bindings = Counter(
            "paddleflow_scheduler_bindings", "Bindings, by their result.", ["result"], registry=self.registry
        )
        self.evictions = Counter("paddleflow_scheduler_evictions", "Pods that made way.", registry=self.registry)
        self.decisions = Histogram(
            "paddleflow_scheduler_decision_seconds", "Duration of one cycle.", buckets=_BUCKETS, registry=self.registry
        )
        self.latency = Histogram(
            "paddleflow_scheduler_pod_seconds",
            "From the first sight of a pod to its binding.",
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def page(self) -> bytes:
        return generate_latest(self.registry)
