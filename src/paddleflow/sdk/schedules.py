"""Schedules: registered pipelines that are run by the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

from paddleflow.errors import Conflict, NotFound
from paddleflow.sdk.area import PAGE, Area, body_of, known, narrowed_by, page_of
from paddleflow.sdk.records import Page, Record, items, record, table, wire
from paddleflow.sdk.runs import Run
from paddleflow.sdk.transport import segment


@record
class Schedule(Record):
    """A schedule. `options` are catchup, expireInterval, concurrency and concurrencyPolicy."""

    id: str = wire(key="scheduleID")
    name: str = wire()
    desc: str = wire()
    pipeline_id: str = wire(key="pipelineID")
    version_id: str = wire(key="pipelineVersionID")
    user: str = wire(key="username")
    fs_config: Mapping[str, Any] = wire({})
    crontab: str = wire()
    timezone: str = wire()
    options: Mapping[str, Any] = wire({})
    start_time: str = wire()
    end_time: str = wire()
    create_time: str = wire()
    update_time: str = wire()
    next_run_time: str = wire()
    message: str = wire(key="scheduleMsg")
    status: str = wire()


class ScheduleFields(TypedDict, total=False):
    """What may be said of a schedule. None counts as not given."""

    desc: str | None
    start_time: str | None  #: ``YYYY-MM-DD HH:MM:SS``
    end_time: str | None
    concurrency: int | None  #: runs at once; 0: any number
    concurrency_policy: str | None  #: suspend, replace or skip
    expire_interval: int | None  #: seconds after which a missed slot is only recorded; 0: never
    catchup: bool | None  #: whether slots that were missed are made up for
    timezone: str | None
    user: str | None


_KEYS = {"user": "username"}


class ScheduleFilters(TypedDict, total=False):
    """What a list of schedules is narrowed by: each may be a list with commas."""

    user: str | None
    pipeline: str | None
    version: str | None
    schedule: str | None
    name: str | None
    status: str | None


_FILTERS = {"pipeline": "ppl", "version": "pplVersion"}


class Schedules(Area):
    """Schedules of this user; of everybody for root."""

    def create(
        self, name: str, pipeline: str, version: str, crontab: str, **fields: Unpack[ScheduleFields]
    ) -> Schedule:
        """A schedule of one version of a registered pipeline."""
        rest = body_of(ScheduleFields, fields, _KEYS)
        body = {"name": name, "pipelineID": pipeline, "pipelineVersionID": version, "crontab": crontab, **rest}
        id = str(table(self._transport.call("POST", "/schedule", body=body)).get("scheduleID", ""))
        return Schedule(id=id, name=name, pipeline_id=pipeline, version_id=version, crontab=crontab)

    def get(self, id: str) -> Schedule:
        return Schedule.of(self._transport.call("GET", f"/schedule/{segment(id)}", query={"maxKeys": 1}))

    def run_page(
        self,
        id: str,
        *,
        max_keys: int = PAGE,
        marker: str | None = None,
        run: str | None = None,
        status: str | None = None,
    ) -> tuple[Schedule, Page[Run]]:
        """The schedule, and one page of its runs."""
        query = narrowed_by({"run": run, "status": status}, marker, max_keys)
        answer = table(self._transport.call("GET", f"/schedule/{segment(id)}", query=query))
        return Schedule.of(answer), page_of(answer.get("runs"), "runList", partial(Run.of, self._transport))

    def runs(self, id: str, *, run: str | None = None, status: str | None = None) -> Iterator[Run]:
        return self._pages(lambda marker: self.run_page(id, marker=marker, run=run, status=status)[1])

    def page(
        self, *, max_keys: int = PAGE, marker: str | None = None, **filters: Unpack[ScheduleFilters]
    ) -> Page[Schedule]:
        wanted = {_FILTERS.get(name, name): value for name, value in known(ScheduleFilters, filters).items()}
        query = narrowed_by(wanted, marker, max_keys)
        return self._page("/schedule", "scheduleList", Schedule.of, query)

    def list(self, **filters: Unpack[ScheduleFilters]) -> Iterator[Schedule]:
        return self._pages(lambda marker: self.page(marker=marker, **filters))

    def stop(self, id: str) -> None:
        """For good; its runs go on."""
        self._act(id, "stop")

    def pause(self, id: str) -> None:
        self._act(id, "pause")

    def resume(self, id: str) -> None:
        self._act(id, "resume")

    def next(self, id: str, count: int = 5) -> Sequence[str]:
        """The times at which it will start runs."""
        answer = table(self._transport.call("GET", f"/schedule/{segment(id)}/next", query={"count": count}))
        return [str(moment) for moment in items(answer.get("times"))]

    def delete(self, id: str) -> None:
        """Only one that is over or stopped."""
        self._transport.call("DELETE", f"/schedule/{segment(id)}", settled=NotFound)

    def _act(self, id: str, action: str) -> None:
        self._transport.call("PUT", f"/schedule/{segment(id)}", query={"action": action}, settled=Conflict)
