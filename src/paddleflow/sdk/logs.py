"""Logs by page and limit, as existing tools read them. To follow a log see `Job.logs` and `Run.logs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddleflow.sdk.area import Area
from paddleflow.sdk.records import Record, items, many, record, table, wire
from paddleflow.sdk.transport import segment


@record
class TaskLog(Record):
    """A part of one task's log."""

    task_id: str = wire(key="taskID")
    content: str = ""
    has_next_page: bool = False
    truncated: bool = False


@record
class JobLog(Record):
    """The logs of a job's tasks, and what else was told of it."""

    job_id: str = wire(key="jobID")
    name: str = wire()
    type: str = wire()
    tasks: Sequence[TaskLog] = wire((), key="taskList", read=lambda value: tuple(_task(item) for item in items(value)))
    events: Sequence[Any] = wire((), key="eventList", read=lambda value: tuple(items(value)))


@record
class RunLog(Record):
    """One page of the logs of a run's steps."""

    run_id: str = wire(key="runID")
    submit_log: str = wire()
    jobs: Sequence[JobLog] = wire((), key="runLog", read=many(JobLog))


def _task(answer: object) -> TaskLog:
    data = table(answer)
    info = table(data.get("logInfo"))
    return TaskLog(
        raw=data,
        task_id=str(data.get("taskID") or ""),
        content=str(info.get("logContent") or ""),
        has_next_page=bool(info.get("hasNextPage")),
        truncated=bool(info.get("truncated")),
    )


class Logs(Area):
    """Logs."""

    def job(
        self,
        id: str | None = None,
        *,
        read_from_tail: bool | None = None,
        line_limit: int | str | None = None,
        size_limit: int | str | None = None,
        framework: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        cluster: str | None = None,
        type: str | None = None,
    ) -> JobLog:
        """At most `line_limit` lines and `size_limit` bytes (``100M``) of each task, from the beginning or the end."""
        query = {
            "jobID": id,
            "name": name,
            "namespace": namespace,
            "clusterName": cluster,
            "readFromTail": read_from_tail,
            "lineLimit": line_limit,
            "sizeLimit": size_limit,
            "type": type,
            "framework": framework,
        }
        return JobLog.of(self._transport.call("GET", "/log/job", query=query))

    def run(
        self,
        id: str,
        *,
        job: str | None = None,
        page_no: int | None = None,
        page_size: int | None = None,
        position: str | None = None,
    ) -> RunLog:
        """A page of each step's log; `position` is begin or end: which end page 1 is at. To follow see `Run.logs`."""
        query = {"jobID": job, "pageNo": page_no, "pageSize": page_size, "logFilePosition": position}
        return RunLog.of(self._transport.call("GET", f"/log/run/{segment(id)}", query=query))
