"""What jobs used: now, over time, and in hours of accelerator cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddleflow.sdk.area import Area
from paddleflow.sdk.records import Record, items, many, record, table, wire
from paddleflow.sdk.transport import segment


@record
class Series(Record):
    """One measure of one task: (moment, value) pairs."""

    metric: str = wire()
    values: Sequence[Sequence[Any]] = wire((), read=lambda value: tuple(items(value)))


@record
class TaskSeries(Record):
    """The measures of one task."""

    task: str = wire(key="taskName")
    series: Sequence[Series] = wire((), key="taskInfo", read=many(Series))


@record
class JobDetail(Record):
    """The measures of a job over time; `truncated` if there were more points than are given."""

    tasks: Sequence[TaskSeries] = wire((), key="result", read=many(TaskSeries))
    truncated: bool = wire(False)


@record
class UserCards(Record):
    """Card hours of one user in a queue."""

    user: str = wire(key="userName")
    job_count: int = wire(0)
    hours: float = wire(0.0, key="totalCardTime")
    jobs: Sequence[Mapping[str, Any]] = wire((), key="jobInfoList", read=lambda value: tuple(items(value)))


@record
class QueueCards(Record):
    """Card hours of a queue."""

    queue: str = wire(key="queueName")
    hours: float = wire(0.0, key="cardTime")
    device_type: str = wire()
    users: Sequence[UserCards] = wire((), key="detail", read=many(UserCards))


class Statistics(Area):
    """Statistics."""

    def job(self, id: str) -> Mapping[str, str]:
        """The latest of each measure, such as ``cpu_usage_rate``, with its unit."""
        return table(table(self._transport.call("GET", f"/statistics/job/{segment(id)}")).get("metricsInfo"))

    def detail(
        self, id: str, *, start: int | None = None, end: int | None = None, step: int | None = None
    ) -> JobDetail:
        """The measures between two seconds of the epoch, one point each `step` seconds (60)."""
        query = {"start": start, "end": end, "step": step}
        return JobDetail.of(self._transport.call("GET", f"/statistics/jobDetail/{segment(id)}", query=query))

    def card_time(self, queues: Sequence[str], start_time: str, end_time: str) -> Sequence[QueueCards]:
        """Card hours per queue and user between two moments, written ``YYYY-MM-DD HH:MM:SS``."""
        body = {"queueNames": [*queues], "startTime": start_time, "endTime": end_time}
        return many(QueueCards)(table(self._transport.call("POST", "/statistics/cardTime", body=body)).get("data"))
