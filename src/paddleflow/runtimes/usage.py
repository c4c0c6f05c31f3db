"""What jobs used, from samples of their members: rates now and series over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from paddleflow.base.quantity import Resources
from paddleflow.runtimes.log_store import Sample

MOST_POINTS = 1000

#: metric → the counter of a sample that only grows; shown as a rate
COUNTERS: dict[str, Callable[[Sample], float | None]] = {
    "cpu_usage_rate": lambda sample: sample.cpu_seconds,
    "disk_read_rate": lambda sample: sample.disk_read,
    "disk_write_rate": lambda sample: sample.disk_write,
    "net_receive_bytes": lambda sample: sample.net_received,
    "net_send_bytes": lambda sample: sample.net_sent,
}
#: metric → the level of a sample
LEVELS: dict[str, Callable[[Sample], float | None]] = {
    "memory_usage": lambda sample: sample.memory,
    "disk_usage": lambda sample: sample.disk_usage,
}
METRICS = (
    "cpu_usage_rate", "memory_usage_rate", "memory_usage", "disk_usage", "net_receive_bytes", "net_send_bytes",
    "disk_read_rate", "disk_write_rate", "gpu_util", "gpu_memory_util", "gpu_memory_usage",
)  # fmt: skip


def series(samples: Sequence[Sample], each: Resources) -> dict[str, list[tuple[float, float]]]:
    """Every metric that the samples tell, as (moment, value). Rates are between two samples; percent of the request."""
    found: dict[str, list[tuple[float, float]]] = {}
    for metric, level in LEVELS.items():
        found[metric] = [(sample.at, value) for sample in samples if (value := level(sample)) is not None]
    for metric, counter in COUNTERS.items():
        points = []
        for before, after in pairwise(samples):
            first, last = counter(before), counter(after)
            if first is not None and last is not None and after.at > before.at:
                points.append((after.at, max(last - first, 0.0) / (after.at - before.at)))
        found[metric] = points
    cores = each.cpu / 1000
    found["cpu_usage_rate"] = [(at, 100 * used / cores) for at, used in found["cpu_usage_rate"]] if cores else []
    if each.memory:
        found["memory_usage_rate"] = [(at, 100 * used / each.memory) for at, used in found["memory_usage"]]
    return {metric: points for metric, points in found.items() if points}


def stepped(points: Sequence[tuple[float, float]], start: float, end: float, step: float) -> list[list[float]]:
    """One value per step: the mean of the points within it; steps without a point are left out."""
    sums: dict[int, tuple[float, int]] = {}
    last = max(math.ceil((end - start) / step) - 1, 0)
    for at, value in points:
        if start <= at <= end:
            slot = min(int((at - start) // step), last)  # a point at the very end belongs to the last step
            total, count = sums.get(slot, (0.0, 0))
            sums[slot] = total + value, count + 1
    return [[round(start + slot * step, 3), round(total / count, 4)] for slot, (total, count) in sorted(sums.items())]


def metrics_text(members: Sequence[Mapping[str, list[tuple[float, float]]]]) -> dict[str, str]:
    """The newest value of every metric over all members, as text with its unit; empty where nothing is known."""
    text = dict.fromkeys(METRICS, "")
    for metric in METRICS:
        last = [points[metric][-1][1] for points in members if points.get(metric)]
        if not last:
            continue
        if metric.endswith(("usage_rate", "_util")):
            text[metric] = f"{sum(last) / len(last):.2f}%"
        elif metric.endswith("rate") or metric.startswith("net"):
            text[metric] = f"{sum(last):.2f}(B/s)"
        else:
            text[metric] = f"{sum(last):.0f}(Bytes)"
    return text
