"""The operator's metrics, as a Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from paddleflow.kube.controller import Reconciled
from paddleflow.operator.metrics import OperatorMetrics


def read(metrics: OperatorMetrics) -> Mapping[tuple[str, str], float]:
    """Value by name and the labels' values in order."""
    families = text_string_to_metric_families(metrics.page().decode())
    return {(s.name, ",".join(sorted(s.labels.values()))): s.value for children in families for s in children.samples}


def test_queue_leader_and_phases_are_those_of_this_moment() -> None:
    jobs: list[dict[str, Any]] = [{"status": {"phase": "Running"}}, {"status": {"phase": "Running"}}, {}]
    waiting, leading = 3, False
    metrics = OperatorMetrics(lambda: waiting, lambda: jobs, lambda: leading)
    found = read(metrics)
    assert found["paddleflow_operator_queue_depth", ""] == 3
    assert found["paddleflow_operator_leader", ""] == 0
    assert found["paddleflow_operator_jobs", "Running"] == 2
    assert found["paddleflow_operator_jobs", "Pending"] == 1, "a job without a status has not been reconciled yet"
    waiting, leading = 0, True
    jobs[:] = [{"status": {"phase": "Completed"}}, {"status": None}]
    found = read(metrics)
    assert (found["paddleflow_operator_queue_depth", ""], found["paddleflow_operator_leader", ""]) == (0, 1)
    phases = {phase: count for (name, phase), count in found.items() if name == "paddleflow_operator_jobs"}
    assert phases == {"Completed": 1, "Pending": 1}, "a phase that no job has any more is not shown"


def test_passes_are_timed_by_result_and_writes_are_counted() -> None:
    metrics = OperatorMetrics(lambda: 0, list, lambda: True)
    metrics.observe(Reconciled("a/b", 0.02, "done"))
    metrics.observe(Reconciled("a/b", 0.5, "done"))
    metrics.observe(Reconciled("a/c", 0.001, "conflict"))
    metrics.writes.labels("create").inc(11)
    metrics.refusals.labels("QuotaExceeded").inc()
    found = read(metrics)
    assert found["paddleflow_operator_reconcile_seconds_count", "done"] == 2
    assert found["paddleflow_operator_reconcile_seconds_sum", "done"] == 0.52
    assert found["paddleflow_operator_reconcile_seconds_bucket", "0.025,done"] == 1
    assert found["paddleflow_operator_reconcile_seconds_count", "conflict"] == 1
    assert found["paddleflow_operator_writes_total", "create"] == 11
    assert found["paddleflow_operator_refusals_total", "QuotaExceeded"] == 1


def test_two_operators_in_one_process_count_apart() -> None:
    one, two = (OperatorMetrics(lambda: 0, list, lambda: True) for _ in range(2))
    one.writes.labels("create").inc()
    assert ("paddleflow_operator_writes_total", "create") in read(one)
    assert ("paddleflow_operator_writes_total", "create") not in read(two)
