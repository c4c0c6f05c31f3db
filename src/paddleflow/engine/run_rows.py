"""What the machines of runs changed, as rows and events for the turn's transaction."""

from __future__ import annotations

from typing import TypeAlias

from paddleflow.engine.run_writes import RunWrites
from paddleflow.runs.artifacts import INPUT, OUTPUT, NewArtifact
from paddleflow.runs.caches import NewCache
from paddleflow.runs.facts import Measured
from paddleflow.runs.model import ComponentStatus
from paddleflow.runs.rows import component_row, run_row, text
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered, on_storage
from paddleflow.spec.pipeline.model import Step
from paddleflow.store.events import NewEvent

Collected: TypeAlias = "list[tuple[RunState, Instance]]"
Waiting: TypeAlias = "dict[tuple[str, int], Rendered]"
NOT_THERE = Measured("missing")


def collect(run: RunState, rendered: Waiting, writes: RunWrites, now: float) -> Collected:
    """Take the changes out of a run's state and into the writes; the components that have ended."""
    ended: Collected = []
    for item in run.changed.values():
        found = rendered.pop((run.id, item.number), None)
        row = component_row(run, item, found)
        writes.components.append(row)
        writes.events.append(NewEvent("run", run.id, now, "step", _event(item)))
        if found is not None and found.inputs and item.tries <= 1:
            writes.artifacts += [_input(run, item, name, path) for name, path in found.inputs.items()]
        if item.status.final:
            ended.append((run, item))
            if isinstance(item.component, Step) and item.status is ComponentStatus.SUCCEEDED:
                _succeeded(run, item, writes)
    run.changed.clear()
    writes.unbegun += [{"run_id": run.id, "number": number} for number in run.unbegun]
    run.unbegun.clear()
    for frame, name, items in run.loops:
        writes.loops.append({"run_id": run.id, "parent": frame, "name": name, "items": text(list(items))})
    run.loops.clear()
    if run.moved:
        run.moved = False
        writes.runs.append(run_row(run, now))
        writes.events.append(NewEvent("run", run.id, now, "status", {"status": run.status, "message": run.message}))
    return ended


def _event(item: Instance) -> dict[str, object]:
    data: dict[str, object] = {"step": item.full_name, "status": item.status, "message": item.message}
    if item.job:
        data["jobID"] = item.job
    if item.reused_run:
        data["reusedFrom"] = item.reused_run
    return data


def _record(run: RunState, item: Instance, kind: str, name: str, path: str, seen: Measured, meta: str) -> NewArtifact:
    main = run.pipeline.main_fs
    return NewArtifact(
        run_id=run.id,
        fs_id=run.fs_id,
        fs_name=main.name if main is not None else "",
        user_name=run.user,
        path=on_storage(run, path),
        step=item.full_name,
        job_id=item.job,
        kind=kind,
        name=name,
        hash=seen.hash,
        size=seen.size,
        meta=meta,
    )


def _input(run: RunState, item: Instance, name: str, path: str) -> NewArtifact:
    return _record(run, item, INPUT, name, path, NOT_THERE, "")


def _succeeded(run: RunState, item: Instance, writes: RunWrites) -> None:
    """Records of what it made, and the result that later runs may use."""
    made = run.measured.pop(item.number, {})
    for name, path in item.outputs.items():
        seen = made.get(name, NOT_THERE)
        writes.artifacts.append(
            _record(run, item, OUTPUT, name, path, seen, "reused" if item.reused_run else seen.kind)
        )
    if item.prints.first and not item.reused_run:
        main = run.pipeline.main_fs
        outputs = {name: (path, made.get(name, NOT_THERE).hash) for name, path in item.outputs.items()}
        writes.caches.append(
            NewCache(
                prints=item.prints,
                run_id=run.id,
                pipeline=run.pipeline.name,
                step=item.full_name,
                job_id=item.job,
                fs_id=run.fs_id,
                fs_name=main.name if main is not None else "",
                user_name=run.user,
                expired_time=item.step.cache.max_expired_time,
                outputs=outputs,
                source=run.source,
            )
        )
