"""Routes of registered pipelines. A pipeline belongs to its owner; root sees and changes all."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from paddleflow.access.callers import Caller, require_owner, require_root
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Conflict, Invalid
from paddleflow.runs import demands, pipelines
from paddleflow.runs.pipelines import Registered, Text, Version
from paddleflow.schedules import schedules
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.positions import Places
from paddleflow.spec.pipeline.run_request import bind
from paddleflow.spec.registered import PipelineDocument, PipelineQuery, PipelineText, VersionQuery
from paddleflow.storage import storages
from paddleflow.store.database import Tx

DEFAULT_PATH = "./run.yaml"


def owned_pipeline(tx: Tx, caller: Caller, id: str) -> Registered:
    """A pipeline for its owner or root."""
    registered = pipelines.get(tx, id)
    require_owner(caller, registered.user, f"resource[pipeline] with ID[{registered.id}]")
    return registered


async def create_pipeline(platform: Platform, call: Call[PipelineDocument, NoQuery]) -> wire.PipelineMade:
    user = call.body.username or call.caller.name
    text = await _text(platform, call.body, user, call.caller.root)
    made, version = await platform.database.write(
        pipelines.create, text, call.body.desc or "", user, platform.clock.now()
    )
    return {"pipelineID": made.id, "pipelineVersionID": version.id, "name": made.name}


async def update_pipeline(platform: Platform, call: Call[PipelineDocument, NoQuery]) -> wire.PipelineVersionMade:
    user, now = call.body.username or call.caller.name, platform.clock.now()
    await platform.database.read(owned_pipeline, call.caller, call.path["id"])
    text = await _text(platform, call.body, user, call.caller.root)

    def add(tx: Tx) -> tuple[Registered, Version]:
        registered = owned_pipeline(tx, call.caller, call.path["id"])
        return pipelines.add_version(tx, registered, text, call.body.desc, user, now)

    made, version = await platform.database.write(add)
    return {"pipelineID": made.id, "pipelineVersionID": version.id}


async def check_pipeline(platform: Platform, call: Call[PipelineText, NoQuery]) -> wire.PipelineCheck:
    raw = decoded(call.body.yaml_raw)
    pipeline = await platform.computing.run(call.caller.name, checked, raw)
    places = Places(raw.decode("utf-8"))
    await platform.database.read(demands.require_storages, pipeline, call.caller.name, call.caller.root, places)
    return {"name": pipeline.name}


async def _text(platform: Platform, document: PipelineDocument, user: str, root: bool) -> Text:
    """The document that a request names, read and checked."""
    path = ""
    if document.yaml_raw:
        if document.fs_name or document.yaml_path:
            given = "FsName" if document.fs_name else "YamlPath"
            raise Invalid(f"you cannot specify {given} while you specified YamlRaw", hint="give only one of the two")
        raw = decoded(document.yaml_raw)
    else:
        path = document.yaml_path or DEFAULT_PATH
        if not document.fs_name:
            raise Invalid(
                f"cannot get pipeline: fsname shall not be empty while you specified YamlPath[{path[:200]}]",
                hint="name the storage (fsName), or send the document itself (yamlRaw)",
            )
        storage = await platform.database.read(storages.get_storage, user, root, document.fs_name)
        raw = await platform.files.of(user).run(platform.stores.read_document, storage, path)
    pipeline = await platform.computing.run(user, checked, raw, path)
    text = raw.decode("utf-8")
    await platform.database.read(demands.require_storages, pipeline, user, root, Places(text, path))
    return Text(pipeline.name, text, document.fs_name, path)


def decoded(text: str) -> bytes:
    """A document that was sent as base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"Decode raw yaml[{text[:80]}] failed. err:{error}", code="Decode base64") from error


def checked(raw: bytes, file: str = "") -> Pipeline:
    """A document that can run as it is, without anything that a run would add."""
    return bind(read(raw, file), file=file)


async def list_pipelines(platform: Platform, call: Call[NoBody, PipelineQuery]) -> wire.RegisteredPipelineList:
    query = call.query
    found = await platform.database.read(
        pipelines.list_pipelines,
        query.after,
        query.limit,
        users=filtered_users(call.caller, query.user_filter),
        names=listed(query.name_filter),
    )
    rows, truncated, marker = page(found, query)
    shown = [pipeline_answer(row) for row in rows]
    return {**page_fields(query, truncated, marker), "pipelineList": shown}


def filtered_users(caller: Caller, user_filter: str) -> list[str]:
    """Whose things a list shows; empty: everybody's. Only root may ask for those of others."""
    if user_filter and not caller.root:
        require_root(caller, "set userFilter")
    return listed(user_filter) if caller.root else [caller.name]


async def show_pipeline(platform: Platform, call: Call[NoBody, VersionQuery]) -> wire.PipelineWithVersions:
    query = call.query

    def find(tx: Tx) -> tuple[Registered, list[Version]]:
        registered = owned_pipeline(tx, call.caller, call.path["id"])
        found = pipelines.list_versions(tx, registered, query.after, query.limit, fs_names=listed(query.fs_filter))
        return registered, found

    registered, found = await platform.database.read(find)
    rows, truncated, marker = page(found, query)
    versions = [version_answer(row) for row in rows]
    return {
        "pipeline": pipeline_answer(registered),
        "pplVersions": {**page_fields(query, truncated, marker), "pplVersionList": versions},
    }


async def delete_pipeline(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    def delete(tx: Tx) -> None:
        registered = owned_pipeline(tx, call.caller, call.path["id"])
        _refuse_scheduled(f"pipeline[{registered.id}]", schedules.using(tx, registered.id))
        pipelines.delete(tx, registered)

    await platform.database.write(delete)


async def show_version(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.PipelineWithVersion:
    def find(tx: Tx) -> tuple[Registered, Version]:
        registered = owned_pipeline(tx, call.caller, call.path["id"])
        return registered, pipelines.get_version(tx, registered, call.path["version"])

    registered, version = await platform.database.read(find)
    return {"pipeline": pipeline_answer(registered), "pipelineVersion": version_answer(version)}


async def delete_version(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    now = platform.clock.now()

    def delete(tx: Tx) -> None:
        registered = owned_pipeline(tx, call.caller, call.path["id"])
        version = pipelines.get_version(tx, registered, call.path["version"])
        what = f"pipeline[{registered.id}] version[{version.id}]"
        _refuse_scheduled(what, schedules.using(tx, registered.id, version.id))
        pipelines.delete_version(tx, registered, version, now)

    await platform.database.write(delete)


def _refuse_scheduled(what: str, users: Sequence[str]) -> None:
    if users:
        raise Conflict(
            f"delete {what} failed: there are running schedules using it: {', '.join(users[:8])}",
            hint=f"stop them first: paddleflow schedule stop {users[0]}",
        )


def pipeline_answer(registered: Registered) -> wire.RegisteredPipeline:
    return {
        "pipelineID": registered.id,
        "name": registered.name,
        "desc": registered.description,
        "username": registered.user,
        "createTime": local_text(registered.created_at),
        "updateTime": local_text(registered.updated_at),
    }


def version_answer(version: Version) -> wire.PipelineVersion:
    return {
        "pipelineVersionID": version.id,
        "pipelineID": version.pipeline,
        "fsName": version.fs_name,
        "yamlPath": version.yaml_path,
        "pipelineYaml": version.yaml,
        "username": version.user,
        "createTime": local_text(version.created_at),
        "updateTime": local_text(version.created_at),
    }


_CHECKED = (
    "400 Decode base64", "MalformedYaml", "InvalidPipeline", "400 FileSystemNotExist", "InvalidFileSystemFsName",
)  # fmt: skip
_REFUSED = (
    *_CHECKED, "FileSystemNotExist", "ReadYamlFileFailed", "ConnectivityFailed", "InvalidFileSystemParamsURL", "AccessDenied",
)  # fmt: skip

ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/pipeline", create_pipeline, "Register a pipeline with its first version",
        body=PipelineDocument, bulk=True, answer=wire.PipelineMade, status=201, errors=("DuplicatedName", *_REFUSED),
    ),
    Route(
        "POST", "/pipeline/check", check_pipeline, "Say everything that is wrong with a document, and register nothing",
        body=PipelineText, bulk=True, answer=wire.PipelineCheck, errors=_CHECKED,
    ),
    Route(
        "GET", "/pipeline", list_pipelines, "List one's own registered pipelines, or everybody's for root",
        query=PipelineQuery, answer=wire.RegisteredPipelineList, errors=("OnlyRootAllowed",),
    ),
    Route(
        "POST", "/pipeline/{id}", update_pipeline, "Add a version; the document must give itself the pipeline's name",
        body=PipelineDocument, bulk=True, answer=wire.PipelineVersionMade, status=201, errors=("PipelineNotFound", *_REFUSED),
    ),
    Route(
        "GET", "/pipeline/{id}", show_pipeline, "Show a pipeline with its versions, a page of them",
        query=VersionQuery, answer=wire.PipelineWithVersions, errors=("PipelineNotFound", "AccessDenied"),
    ),
    Route(
        "DELETE", "/pipeline/{id}", delete_pipeline, "Delete a pipeline that no running schedule uses; runs keep their copy",
        errors=("PipelineNotFound", "AccessDenied", "ActionNotAllowed"),
    ),
    Route(
        "GET", "/pipeline/{id}/{version}", show_version, "Show one version of a pipeline",
        answer=wire.PipelineWithVersion, errors=("PipelineNotFound", "AccessDenied"),
    ),
    Route(
        "DELETE", "/pipeline/{id}/{version}", delete_version, "Delete a version that is not the last and that no running schedule uses",
        errors=("PipelineNotFound", "AccessDenied", "ActionNotAllowed"),
    ),
)  # fmt: skip
