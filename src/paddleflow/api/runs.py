"""Routes of runs: create, list, show, change, delete."""

from __future__ import annotations

from pydantic_core import to_json

from paddleflow.access.callers import Caller, require_owner
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.api.run_sources import changed_run, from_json, from_request
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.runs import codec, files
from paddleflow.runs import runs as records
from paddleflow.runs.model import NewRun
from paddleflow.runs.retry import retry_run
from paddleflow.runs.rows import ComponentRow, RunDetails, RunRow, details_of_run
from paddleflow.runs.runs import RunFilter, create, find_runs, get_components, get_run
from paddleflow.runs.views import run_summary, run_view
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import RunActionQuery, RunChange, RunDeletion, RunDocument, RunJson, RunListQuery
from paddleflow.storage.file_pool import SlicedWork
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import storage_by_id
from paddleflow.storage.stores import Stores
from paddleflow.store.bus import EVENTS, JOBS
from paddleflow.store.database import Tx

log = Log("api")


def owned_run(tx: Tx, caller: Caller, run: str) -> RunRow:
    """A run's row for its owner or root."""
    row = get_run(tx, run)
    require_owner(caller, row.user_name, f"run[{run}]")
    return row


async def create_run(platform: Platform, call: Call[RunDocument, NoQuery]) -> wire.RunId:
    return await _create(platform, await from_request(platform, call.caller, call.body))


async def create_run_json(platform: Platform, call: Call[RunJson, NoQuery]) -> wire.RunId:
    return await _create(platform, await from_json(platform, call.caller, call.body))


async def _create(platform: Platform, new: NewRun) -> wire.RunId:
    run = await platform.database.write(create, new, platform.clock.now())
    platform.bus.wake(JOBS)
    platform.bus.wake(EVENTS)
    log.debug("run accepted", run=run, user=new.user)
    return {"runID": run}


async def list_runs(platform: Platform, call: Call[NoBody, RunListQuery]) -> wire.RunList:
    query = call.query
    users = listed(query.user_filter) if call.caller.root else [call.caller.name]
    wanted = RunFilter(
        users=users,
        storages=listed(query.fs_filter),
        runs=listed(query.run_filter),
        names=listed(query.name_filter),
        statuses=listed(query.status_filter),
    )
    rows = await platform.database.read(find_runs, wanted, query.after, query.limit)
    shown, truncated, marker = page(rows, query)
    return {**page_fields(query, truncated, marker), "runList": [run_summary(row) for row in shown]}


async def show_run(platform: Platform, call: Call[NoBody, NoQuery]) -> bytes:
    found = await platform.database.read(_details, call.caller, call.path["id"])
    return await platform.computing.run(call.caller.name, _shown, found, platform.clock.now())


def _details(tx: Tx, caller: Caller, run: str) -> RunDetails:
    return details_of_run(tx, owned_run(tx, caller, run))


def _shown(found: RunDetails, now: float) -> bytes:
    """In a thread: a run may have ten thousand steps."""
    return to_json(run_view(found, now))


def run_with_components(tx: Tx, caller: Caller, run: str) -> tuple[RunRow, list[ComponentRow]]:
    return owned_run(tx, caller, run), get_components(tx, run)


async def change_run(platform: Platform, call: Call[RunChange | None, RunActionQuery]) -> wire.RunId | None:
    run, body, now = call.path["id"], call.body or RunChange(), platform.clock.now()
    changed: NewRun | None = None
    if call.query.action == "retry" and body.run_yaml_raw:
        old = await platform.database.read(owned_run, call.caller, run)
        changed = await changed_run(platform, old, body.run_yaml_raw)

    def change(tx: Tx) -> str:
        owned_run(tx, call.caller, run)
        match call.query.action:
            case "stop":
                records.stop_run(tx, run, body.stop_force, f"stopped by {call.caller.name}", now)
            case "breakpoint":
                records.change_breakpoints(tx, run, body.add, body.remove, now)
            case "resume":
                records.resume_run(tx, run, body.step, now)
            case _:
                return retry_run(tx, run, body.from_step, now, changed)
        return ""

    made = await platform.database.write(change)
    platform.bus.wake(JOBS)
    platform.bus.wake(EVENTS)
    return {"runID": made} if made else None


async def remove_run(platform: Platform, call: Call[RunDeletion | None, NoQuery]) -> None:
    run = call.path["id"]
    check_cache = call.body.check_cache if call.body is not None else True

    def remove(tx: Tx) -> tuple[RunRow, list[str], Storage | None]:
        owned_run(tx, call.caller, run)
        row, jobs = records.delete_run(tx, run, check_cache)
        return row, jobs, storage_by_id(tx, row.fs_id)

    row, jobs, storage = await platform.database.write(remove)
    await platform.jobs_run_here.remove_logs(jobs)
    main = codec.load(row.pipeline).main_fs
    if storage is not None and main is not None:
        await platform.files.of(call.caller.name).run_in_slices(
            _remove_artifacts(platform.stores, storage, main.sub_path, run)
        )
    platform.bus.wake(EVENTS)


def _remove_artifacts(stores: Stores, storage: Storage, sub_path: str, run: str) -> SlicedWork[None]:
    """The files of a run that is gone; what cannot be removed stays, and the log says so."""
    try:
        store = stores.open(storage)
        try:
            yield from files.remove_run(store, sub_path, run)
        finally:
            store.close()
    except PaddleFlowError as error:
        log.warning("artifacts of a deleted run stay", run=run, storage=storage.id, reason=error.message)


_REFUSED = ("404 RunNotFound", "403 AccessDenied")
_CREATION = (
    "MalformedYaml", "InvalidPipeline", "InvalidArguments", "ReadYamlFileFailed", "404 FileSystemNotExist",
    "400 FileSystemNotExist", "400 Decode base64", "404 PipelineNotFound", "404 InvalidVersion", "404 UserNotExist", "InvalidFileSystemFsName", "403 AccessDenied", "ConnectivityFailed",
)  # fmt: skip

ROUTES = (
    Route(
        "POST", "/run", create_run, "Run a pipeline: its text, a registered one, or a file on a storage.",
        body=RunDocument, bulk=True, answer=wire.RunId, status=201, errors=_CREATION,
    ),
    Route(
        "POST", "/runjson", create_run_json, "Run a pipeline that is written as JSON.",
        body=RunJson, bulk=True, answer=wire.RunId, status=201, errors=_CREATION,
    ),
    Route(
        "GET", "/run", list_runs, "Runs, newest first: one's own, or everybody's for root.",
        query=RunListQuery, answer=wire.RunList,
    ),
    Route("GET", "/run/{id}", show_run, "One run with all its components.", answer=wire.Run, errors=_REFUSED),
    Route(
        "PUT", "/run/{id}", change_run, "Stop, retry, pause or resume a run.",
        body=RunChange, body_optional=True, query=RunActionQuery, answer=wire.RunId,
        errors=(*_REFUSED, *_CREATION, "409 ActionNotAllowed"),
    ),
    Route(
        "DELETE", "/run/{id}", remove_run, "Delete a run that has ended, with its jobs, logs and artifacts.",
        body=RunDeletion, body_optional=True, errors=(*_REFUSED, "409 ActionNotAllowed"),
    ),
)  # fmt: skip
