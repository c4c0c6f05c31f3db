"""The old calls for registered pipelines and schedules."""

from __future__ import annotations

from typing import Any

from paddleflow.sdk.legacy import run_info as info
from paddleflow.sdk.legacy.calls import Calls, Done, count, translated
from paddleflow.sdk.legacy.runs import PAGE_SIZE, raw


class PipelineCalls(Calls):
    """Pipelines and schedules."""

    @translated
    def create_pipeline(
        self,
        fs_name: str | None = None,
        yaml_path: str | None = None,
        desc: str | None = None,
        username: str | None = None,
        yaml_raw: bytes | None = None,
    ) -> tuple[bool, dict[str, str]]:
        """``{"name", "pplID", "pplVerID"}``"""
        made = self._pf.pipelines.create(
            yaml=raw(yaml_raw, "yamlRaw"), fs=fs_name, path=yaml_path, desc=desc, user=username
        )
        return True, {"name": made.name, "pplID": made.pipeline_id, "pplVerID": made.version_id}

    @translated
    def list_pipeline(
        self,
        user_filter: str | None = None,
        name_filter: str | None = None,
        max_keys: int | None = None,
        marker: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"pipelineList": [PipelineInfo], "nextMarker"}``"""
        page = self._pf.pipelines.page(
            user=user_filter, name=name_filter, max_keys=count(max_keys or PAGE_SIZE, "max_keys"), marker=marker
        )
        return True, {"pipelineList": [info.PipelineInfo.of(one.raw) for one in page], "nextMarker": page.next_marker}

    @translated
    def show_pipeline(
        self, pipeline_id: str, fs_filter: str | None = None, max_keys: int | None = None, marker: str | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """``{"pipelineInfo", "pipelineVersionList": [PipelineVersionInfo], "nextMarker"}``"""
        found, page = self._pf.pipelines.version_page(
            pipeline_id, fs=fs_filter, max_keys=count(max_keys or PAGE_SIZE, "max_keys"), marker=marker
        )
        return True, {
            "pipelineInfo": info.PipelineInfo.of(found.raw),
            "pipelineVersionList": [info.PipelineVersionInfo.of(one.raw) for one in page],
            "nextMarker": page.next_marker,
        }

    @translated
    def update_pipeline(
        self,
        pipeline_id: str,
        fs_name: str | None = None,
        yaml_path: str | None = None,
        username: str | None = None,
        desc: str | None = None,
        yaml_raw: bytes | None = None,
    ) -> tuple[bool, dict[str, str]]:
        """``{"pipelineID", "pipelineVersionID"}``"""
        made = self._pf.pipelines.update(
            pipeline_id, yaml=raw(yaml_raw, "yamlRaw"), fs=fs_name, path=yaml_path, desc=desc, user=username
        )
        return True, {"pipelineID": made.pipeline_id, "pipelineVersionID": made.version_id}

    @translated
    def show_pipeline_version(self, pipeline_id: str, pipeline_version_id: str) -> tuple[bool, dict[str, Any]]:
        """``{"pipelineInfo", "pipelineVersionInfo"}``"""
        found, version = self._pf.pipelines.with_version(pipeline_id, pipeline_version_id)
        return True, {
            "pipelineInfo": info.PipelineInfo.of(found.raw),
            "pipelineVersionInfo": info.PipelineVersionInfo.of(version.raw),
        }

    @translated
    def delete_pipeline(self, pipeline_id: str) -> Done:
        self._pf.pipelines.delete(pipeline_id)
        return True, None

    @translated
    def delete_pipeline_version(self, pipeline_id: str, pipeline_version_id: str) -> Done:
        self._pf.pipelines.delete_version(pipeline_id, pipeline_version_id)
        return True, None

    @translated
    def create_schedule(
        self,
        name: str,
        pipeline_id: str,
        pipeline_version_id: str,
        crontab: str,
        desc: str | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
        concurrency: int | None = None,
        concurrency_policy: str | None = None,
        expire_interval: int | None = None,
        catchup: bool | None = None,
        username: str | None = None,
    ) -> tuple[bool, str]:
        """The new schedule's id. `catchup=False` is sent as such."""
        made = self._pf.schedules.create(
            name,
            pipeline_id,
            pipeline_version_id,
            crontab,
            desc=desc or None,
            start_time=start_time or None,
            end_time=end_time or None,
            concurrency=concurrency,
            concurrency_policy=concurrency_policy or None,
            expire_interval=expire_interval,
            catchup=catchup,
            user=username or None,
        )
        return True, made.id

    @translated
    def list_schedule(
        self,
        user_filter: str | None = None,
        ppl_filter: str | None = None,
        ppl_version_filter: str | None = None,
        schedule_filter: str | None = None,
        name_filter: str | None = None,
        status_filter: str | None = None,
        marker: str | None = None,
        max_keys: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"scheduleList": [ScheduleInfo], "nextMarker"}``"""
        page = self._pf.schedules.page(
            user=user_filter,
            pipeline=ppl_filter,
            version=ppl_version_filter,
            schedule=schedule_filter,
            name=name_filter,
            status=status_filter,
            marker=marker,
            max_keys=count(max_keys or PAGE_SIZE, "max_keys"),
        )
        return True, {"scheduleList": [info.ScheduleInfo.of(one.raw) for one in page], "nextMarker": page.next_marker}

    @translated
    def show_schedule(
        self,
        schedule_id: str,
        run_filter: str | None = None,
        status_filter: str | None = None,
        marker: str | None = None,
        max_keys: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"scheduleInfo", "runList": [RunInfo], "nextMarker"}``"""
        found, page = self._pf.schedules.run_page(
            schedule_id,
            run=run_filter,
            status=status_filter,
            marker=marker,
            max_keys=count(max_keys or PAGE_SIZE, "max_keys"),
        )
        return True, {
            "scheduleInfo": info.ScheduleInfo.of(found.raw),
            "runList": [info.RunInfo.of(run.record.raw) for run in page],
            "nextMarker": page.next_marker,
        }

    @translated
    def stop_schedule(self, schedule_id: str) -> Done:
        self._pf.schedules.stop(schedule_id)
        return True, None

    @translated
    def delete_schedule(self, schedule_id: str) -> Done:
        self._pf.schedules.delete(schedule_id)
        return True, None
