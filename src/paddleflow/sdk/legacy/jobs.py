"""The old calls for jobs, their logs and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddleflow.sdk.legacy import info
from paddleflow.sdk.legacy.calls import Calls, Done, count, translated


class JobCalls(Calls):
    """Jobs, logs, statistics."""

    @translated
    def create_job(self, job_type: str, job_request: Mapping[str, Any]) -> tuple[bool, str]:
        """The new job's id."""
        return True, self._pf.jobs.submit(job_request, kind=job_type).id

    @translated
    def show_job(self, job_id: str) -> tuple[bool, info.JobInfo]:
        return True, info.JobInfo.of(self._pf.jobs.get(job_id).record.raw)

    @translated
    def list_job(
        self,
        status: str | None = None,
        timestamp: int | None = None,
        start_time: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        maxkeys: int | None = 100,
        marker: str | None = None,
    ) -> tuple[bool, list[info.JobInfo], str | None]:
        page = self._pf.jobs.page(
            status=status,
            timestamp=timestamp,
            start_time=start_time,
            queue=queue,
            labels=labels,
            max_keys=count(maxkeys or 100, "maxkeys"),
            marker=marker,
        )
        return True, [info.JobInfo.of(job.record.raw) for job in page], page.next_marker

    @translated
    def update_job(
        self,
        job_id: str,
        priority: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Done:
        self._pf.jobs.handle(job_id).update(priority=priority, labels=labels, annotations=annotations)
        return True, None

    @translated
    def stop_job(self, job_id: str) -> Done:
        self._pf.jobs.handle(job_id).stop()
        return True, None

    @translated
    def delete_job(self, job_id: str) -> Done:
        self._pf.jobs.handle(job_id).delete()
        return True, None

    @translated
    def show_log_by_limit(
        self,
        job_id: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        cluster_name: str | None = None,
        read_from_tail: bool | None = None,
        line_limit: int | str | None = None,
        size_limit: int | str | None = None,
        type: str | None = None,
        framework: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"eventList": […], "logs": [LogInfoByLimit]}``"""
        log = self._pf.logs.job(
            job_id,
            name=name,
            namespace=namespace,
            cluster=cluster_name,
            read_from_tail=bool(read_from_tail) or None,
            line_limit=line_limit,
            size_limit=size_limit,
            type=type,
            framework=framework,
        )
        lines, size = count(line_limit or 1000, "line_limit"), str(size_limit or "100M")
        logs = [
            info.LogInfoByLimit(
                log.job_id, task.task_id, log.name, task.has_next_page, task.truncated, lines, size, task.content
            )
            for task in log.tasks
        ]
        return True, {"eventList": list(log.events), "logs": logs}

    @translated
    def get_statistics(self, jobid: str) -> tuple[bool, info.StatisticsJobInfo]:
        return True, info.StatisticsJobInfo(self._pf.statistics.job(jobid))

    @translated
    def get_statistics_detail(
        self, jobid: str, start: int | None = None, end: int | None = None, step: int | None = None
    ) -> tuple[bool, info.StatisticsJobDetailInfo, bool]:
        detail = self._pf.statistics.detail(jobid, start=start, end=end, step=step)
        return True, info.StatisticsJobDetailInfo.of(detail), detail.truncated

    @translated
    def get_cardtime_by_queue_name(
        self, queue_names: Sequence[str], start_time: str, end_time: str
    ) -> tuple[bool, info.CardTimeInfo]:
        found = self._pf.statistics.card_time(queue_names, start_time, end_time)
        return True, info.CardTimeInfo([queue.raw for queue in found])
