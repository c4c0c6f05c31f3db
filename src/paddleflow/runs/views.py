"""Runs as clients see them: the views of the reference, and what this platform adds. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from paddleflow.base.clock import local_text
from paddleflow.runs import codec
from paddleflow.runs.model import PAUSED, ComponentStatus, RunStatus
from paddleflow.runs.names import dag_id, with_seq
from paddleflow.runs.rows import ComponentRow, RunDetails, RunRow
from paddleflow.runs.state import POST, ROOT
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.pipeline.model import Component, Dag, FsMount, Parameter, Pipeline, Step
from paddleflow.spec.pipeline.templates import as_text


def run_summary(row: RunRow) -> wire.RunSummary:
    return {
        "runID": row.id,
        "name": row.name,
        "source": row.source,
        "username": row.user_name,
        "fsName": row.fs_name,
        "description": row.description,
        "scheduleID": row.schedule_id,
        "runMsg": row.message,
        "status": row.status,
        "scheduledTime": local_text(row.scheduled_at),
        "createTime": local_text(row.created_at),
        "activateTime": local_text(row.activated_at),
        "updateTime": local_text(row.updated_at),
    }


def run_view(found: RunDetails, now: float) -> wire.Run:
    """The whole of a run."""
    row, components = found.run, found.components
    pipeline = codec.load(row.pipeline)
    building = _Views(row, components, found.reasons, now)
    step = pipeline.post_process
    post = {view["stepName"]: view for view in building.of_step(POST, step)} if step is not None else {}
    return {
        **run_summary(row),
        "fsOptions": _fs_options(pipeline, row.fs_id),
        "parameters": json.loads(row.parameters),
        "runYaml": row.document,
        "runtime": {name: building.of_child(ROOT, name, child) for name, child in pipeline.entry_points.items()},
        "postProcess": post,
        "failureOptions": {"strategy": pipeline.strategy},
        "dockerEnv": row.docker_env or pipeline.docker_env,
        "disabled": row.disabled or ",".join(sorted(pipeline.disabled)),
        "runCachedIDs": ",".join(found.served),
        "retryOf": row.retry_of,
        "breakpoints": json.loads(row.breakpoints),
        "paused": [each.full_name for each in components if is_paused(each)],
    }


def is_paused(row: ComponentRow) -> bool:
    return bool(row.status == ComponentStatus.PENDING and row.message == PAUSED)


def _fs_options(pipeline: Pipeline, fs_id: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if pipeline.main_fs is not None:
        options["mainFS"] = {"id": fs_id, **mount_view(pipeline.main_fs)}
    if pipeline.extra_fs:
        options["extraFS"] = [mount_view(mount) for mount in pipeline.extra_fs]
    return options


def mount_view(mount: FsMount) -> dict[str, Any]:
    return {"name": mount.name, "mountPath": mount.mount_path, "subPath": mount.sub_path, "readOnly": mount.read_only}


class _Views:
    """The views of a run's components."""

    def __init__(self, run: RunRow, components: Sequence[ComponentRow], reasons: Mapping[str, str], now: float) -> None:
        self._run = run.id
        self._now = now
        self._reasons = reasons
        self._over = RunStatus(run.status).final
        self._rows: dict[tuple[int, str], list[ComponentRow]] = defaultdict(list)
        for row in components:
            self._rows[row.parent, row.name].append(row)

    def of_child(self, parent: int, name: str, child: Component, prefix: str = "") -> list[wire.JobView | wire.DagView]:
        """A view for every element; one that has not begun is shown as the document has it."""
        rows = self._elements(parent, name, child, prefix)
        return [self._dag(row, child) if isinstance(child, Dag) else self._step(row, child) for row in rows]

    def of_step(self, parent: int, step: Step) -> list[wire.JobView]:
        return [self._step(row, step) for row in self._elements(parent, step.name, step, "")]

    def _elements(self, parent: int, name: str, child: Component, prefix: str) -> list[ComponentRow]:
        rows = sorted(self._rows.get((parent, name), ()), key=lambda row: row.seq)
        if not rows:
            row = _not_begun(
                name, prefix, child, parent, ComponentStatus.CANCELLED if self._over else ComponentStatus.INIT
            )
            rows = [row] if parent != POST or not self._over else []
        return rows

    def _shared(self, row: ComponentRow, child: Component) -> dict[str, Any]:
        details = json.loads(row.details or "{}")
        begun, ended = row.started_at, row.finished_at
        return {
            "name": f"{self._run}-{with_seq(row.name, row.seq)}",
            "type": row.kind,
            "parentDagID": dag_id(self._run, row.parent) if row.parent > 0 else "",
            "deps": ",".join(child.deps),
            "parameters": _parameters(row, child.parameters),
            "artifacts": {
                "input": details.get("inputs") or dict(child.inputs),
                "output": json.loads(row.outputs or "{}") or dict.fromkeys(child.outputs, ""),
            },
            "startTime": local_text(begun),
            "endTime": local_text(ended),
            "status": row.status,
            "fullName": row.full_name,
            "seconds": 0.0 if begun is None else round((ended or self._now) - begun, 3),
        }

    def _step(self, row: ComponentRow, step: Step) -> wire.JobView:
        details = json.loads(row.details or "{}")
        view: Any = self._shared(row, step)
        view |= {
            "jobID": row.job_id,
            "stepName": row.name,
            "command": details.get("command", step.command),
            "env": details.get("env", {key: str(value) for key, value in step.env.items()}),
            "extraFS": [mount_view(mount) for mount in step.extra_fs],
            "dockerEnv": step.docker_env,
            "cache": _cache(step),
            "jobMessage": row.message,
            "cacheRunID": row.reused_run if row.reused_job else "",
            "cacheJobID": row.reused_job,
            "reusedFrom": row.reused_run,
            "cacheMiss": json.loads(row.misses or "[]"),
            "reason": self._reasons.get(row.job_id, ""),
            "tries": row.tries,
        }
        found: wire.JobView = view
        return found

    def _dag(self, row: ComponentRow, dag: Dag) -> wire.DagView:
        view: Any = self._shared(row, dag)
        number = row.number
        prefix = f"{row.full_name}."
        begun = number > 0 and bool(row.started_at)
        inside = number if begun else None
        view |= {
            "id": dag_id(self._run, number) if begun else "",
            "dagName": row.name,
            "message": row.message,
            "entryPoints": {
                name: self.of_child(-2 if inside is None else inside, name, child, prefix)
                for name, child in dag.children.items()
            },
        }
        found: wire.DagView = view
        return found


def _not_begun(name: str, prefix: str, child: Component, parent: int, status: ComponentStatus) -> ComponentRow:
    kind = "dag" if isinstance(child, Dag) else "step"
    return ComponentRow(
        run_id="", number=0, parent=parent, name=name, full_name=prefix + name, kind=kind, seq=0, status=status
    )


def _parameters(row: ComponentRow, given: Mapping[str, Parameter]) -> dict[str, str]:
    if row.parameters:
        return {name: as_text(value) for name, value in json.loads(row.parameters).items()}
    return {name: as_text(parameter.value) for name, parameter in given.items()}


def _cache(step: Step) -> wire.CacheOptions:
    scopes = [{"name": scope.name, "path": ",".join(scope.paths)} for scope in step.cache.fs_scope]
    return {"enable": step.cache.enable, "maxExpiredTime": str(step.cache.max_expired_time), "fsScope": scopes}
