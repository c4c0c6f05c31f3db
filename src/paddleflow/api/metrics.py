"""How long requests took, by route and status: plain lists on the event loop, turned into a histogram when asked.

A prometheus histogram takes locks and walks its buckets on every observation; a request costs a tenth of that here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route

#: upper bounds in milliseconds
_BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)
_SUM = len(_BOUNDS) + 1

#: Observations per bucket, then those beyond the last bound, then the sum.
Series = list[float]


def observe(series: Series, milliseconds: float) -> None:
    series[bisect_left(_BOUNDS, milliseconds)] += 1
    series[_SUM] += milliseconds


class RequestTimes(Collector):
    """``pf_metric_api_duration_millisecond`` of one application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}
        registry.register(self)

    def series(self, method: str, path: str, status: int) -> Series:
        """The series of a route and status; made when first asked for."""
        return self._series.setdefault((method, path, str(status)), [0.0] * (_SUM + 1))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "pf_metric_api_duration_millisecond",
            "Time from the request's head to its answer.",
            labels=["method", "path", "status"],
        )
        for labels, series in self._series.items():
            total = 0.0
            buckets: list[tuple[str, float]] = []
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), series, strict=False):
                total += count
                buckets.append((bound, total))
            family.add_metric(list(labels), buckets=buckets, sum_value=series[_SUM])
        yield family


async def metrics(platform: Platform, call: Call[NoBody, NoQuery]) -> Response:
    async def collect() -> bytes:
        for refresh in platform.refresh:
            await refresh()
        return generate_latest(platform.registry)

    return Response(await platform.metrics.get(collect), headers={"content-type": CONTENT_TYPE_LATEST})


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/metrics",
        metrics,
        "Metrics in Prometheus' text format",
        answer=str,
        open=True,
        media_type="text/plain",
        prefix="",
    ),
)
