"""The old calls for runs, their logs, artifacts and cached results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.sdk.legacy import run_info as info
from paddleflow.sdk.legacy.calls import Calls, Done, count, translated, wrong

PAGE_SIZE = 100


class RunCalls(Calls):
    """Runs, logs, artifacts, caches."""

    @translated
    def create_run(
        self,
        fs_name: str | None = None,
        username: str | None = None,
        run_name: str | None = None,
        desc: str | None = None,
        run_yaml_path: str | None = None,
        run_yaml_raw: bytes | None = None,
        pipeline_id: str | None = None,
        pipeline_version_id: str | None = None,
        param: Mapping[str, Any] | None = None,
        disabled: str | None = None,
        docker_env: str | None = None,
        failure_options: Mapping[str, str] | None = None,
    ) -> tuple[bool, str]:
        """The new run's id."""
        run = self._pf.runs.create(
            yaml=raw(run_yaml_raw, "runYamlRaw"),
            path=run_yaml_path,
            pipeline=pipeline_id,
            version=pipeline_version_id,
            name=run_name,
            desc=desc,
            fs=fs_name,
            user=username,
            parameters=param,
            disabled=disabled or "",
            docker_env=docker_env,
            strategy=(failure_options or {}).get("strategy"),
        )
        return True, run.id

    @translated
    def list_run(
        self,
        fs_name: str | None = None,
        username: str | None = None,
        run_id: str | None = None,
        run_name: str | None = None,
        status: str | None = None,
        maxsize: int = 100,
        marker: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"runList": [RunInfo], "nextMarker"}``"""
        page = self._pf.runs.page(
            user=username,
            fs=fs_name,
            run=run_id,
            name=run_name,
            status=status,
            max_keys=count(maxsize, "maxsize"),
            marker=marker,
        )
        return True, {"runList": [info.RunInfo.of(run.record.raw) for run in page], "nextMarker": page.next_marker}

    @translated
    def show_run(self, run_id: str) -> tuple[bool, info.RunInfo]:
        return True, info.RunInfo.of(self._pf.runs.get(run_id).record.raw)

    @translated
    def stop_run(self, run_id: str, force: bool = False) -> Done:
        self._pf.runs.handle(run_id).stop(force)
        return True, None

    @translated
    def retry_run(self, run_id: str) -> tuple[bool, str]:
        """The new run's id."""
        return True, self._pf.runs.handle(run_id).retry().id

    @translated
    def delete_run(self, run_id: str, check_cache: bool | None = None) -> Done:
        self._pf.runs.handle(run_id).delete(True if check_cache is None else check_cache)
        return True, None

    @translated
    def list_artifact(
        self,
        user_filter: str | None = None,
        fs_filter: str | None = None,
        run_filter: str | None = None,
        type_filter: str | None = None,
        path_filter: str | None = None,
        maxkeys: int | None = None,
        marker: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"artifactList": [ArtifactInfo], "nextMarker"}``"""
        page = self._pf.artifacts.page(
            user=user_filter,
            fs=fs_filter,
            run=run_filter,
            type=type_filter,
            path=path_filter,
            max_keys=count(maxkeys or PAGE_SIZE, "maxkeys"),
            marker=marker,
        )
        return True, {"artifactList": [info.ArtifactInfo.of(one.raw) for one in page], "nextMarker": page.next_marker}

    @translated
    def list_cache(
        self,
        user_filter: str | None = None,
        fs_filter: str | None = None,
        run_filter: str | None = None,
        max_keys: int | None = None,
        marker: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"runCacheList": [RunCacheInfo], "nextMarker"}``"""
        page = self._pf.caches.page(
            user=user_filter,
            fs=fs_filter,
            run=run_filter,
            max_keys=count(max_keys or PAGE_SIZE, "max_keys"),
            marker=marker,
        )
        return True, {"runCacheList": [info.RunCacheInfo.of(one.raw) for one in page], "nextMarker": page.next_marker}

    @translated
    def show_cache(self, cache_id: str) -> tuple[bool, info.RunCacheInfo]:
        return True, info.RunCacheInfo.of(self._pf.caches.get(cache_id).raw)

    @translated
    def delete_cache(self, cache_id: str) -> Done:
        self._pf.caches.delete(cache_id)
        return True, None

    @translated
    def show_log(
        self,
        run_id: str,
        job_id: str | None = None,
        page_size: int | None = None,
        page_no: int | None = None,
        log_file_position: str | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """``{"submitLog", "runLog": [LogInfo]}``"""
        found = self._pf.logs.run(run_id, job=job_id, page_no=page_no, page_size=page_size, position=log_file_position)
        size, number = count(page_size or PAGE_SIZE, "page_size"), count(page_no or 1, "page_no")
        logs = [
            info.LogInfo(
                found.run_id, job.job_id, task.task_id, task.has_next_page, task.truncated, size, number, task.content
            )
            for job in found.jobs
            for task in job.tasks
        ]
        return True, {"submitLog": found.submit_log, "runLog": logs}


def raw(given: bytes | None, name: str) -> bytes | None:
    if given is not None and not isinstance(given, bytes):
        raise wrong(f"{name} must be bytes type")
    return given
