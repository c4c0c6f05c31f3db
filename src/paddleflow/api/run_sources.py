"""Where a run's pipeline comes from: text in the request, a registered pipeline, a file on a storage, or JSON.

Everything is checked before anything is written: the document, what the request asks of it, the storages it names.
"""

from __future__ import annotations

import json

from pydantic_core import to_json

from paddleflow.access.callers import Caller, is_root
from paddleflow.api.pipelines import decoded, owned_pipeline
from paddleflow.api.platform import Platform
from paddleflow.errors import Fault, Invalid
from paddleflow.runs import demands, pipelines
from paddleflow.runs.model import NewRun
from paddleflow.runs.rows import RunRow
from paddleflow.spec.pipeline.document import read, read_json
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.positions import Places
from paddleflow.spec.pipeline.run_request import RunRequest, bind
from paddleflow.spec.run import RunDocument, RunJson
from paddleflow.storage import storages
from paddleflow.store.database import Tx

DEFAULT_PATH = "./run.yaml"
MOST_DESCRIPTION = 1024


async def from_request(platform: Platform, caller: Caller, body: RunDocument) -> NewRun:
    """The run that a request asks for, after every check: text wins over a registered pipeline, that over a file on a storage."""
    user = body.username or caller.name
    _check_request(body)
    if body.run_yaml_raw:
        raw, origin = decoded(body.run_yaml_raw), ""
    elif body.pipeline_id:
        raw, origin = await _registered(platform, caller, body)
    else:
        raw, origin = await _from_storage(platform, user, body)
    request = RunRequest(
        parameters=body.parameters,
        disabled=body.disabled_names,
        docker_env=body.docker_env,
        fs_name=body.fs_name,
        strategy=body.failure_options.strategy if body.failure_options else "",
        name=body.name,
    )
    file = body.run_yaml_path if origin else ""
    pipeline = await platform.computing.run(caller.name, _bound, raw, request, file)
    new = NewRun(
        user=user,
        pipeline=pipeline,
        document=raw.decode("utf-8"),
        source=origin,
        name=body.name,
        description=body.desc,
        parameters=body.parameters,
        docker_env=body.docker_env,
        disabled=body.disabled_names,
        schedule_id=body.schedule_id,
        breakpoints=body.breakpoints,
    )
    return await platform.database.read(demands.require_all, new, Places(new.document, file))


async def from_json(platform: Platform, caller: Caller, body: RunJson) -> NewRun:
    """The run of a pipeline that is written as JSON."""
    document = {**(body.model_extra or {})}
    given = dict(document)
    if body.username:
        given["username"] = body.username
    text = to_json(given, indent=2).decode()
    pipeline = await platform.computing.run(caller.name, _bound_json, given)
    description = document.get("description")
    new = NewRun(
        user=body.username or caller.name,
        pipeline=pipeline,
        document=text,
        source="",
        description=description if isinstance(description, str) else "",
    )
    return await platform.database.read(demands.require_all, new, Places())


async def changed_run(platform: Platform, old: RunRow, document: str) -> NewRun:
    """The run that a retry with a changed document asks for; what was asked of the earlier one is asked of it, too."""
    raw = decoded(document)
    disabled = [name for name in old.disabled.split(",") if name]
    request = RunRequest(
        parameters=json.loads(old.parameters),
        disabled=disabled,
        docker_env=old.docker_env,
        fs_name=old.fs_name,
        name=old.name,
    )
    new = NewRun(
        user=old.user_name,
        pipeline=await platform.computing.run(old.user_name, _bound, raw, request, ""),
        document=raw.decode("utf-8"),
        source="",
        name=old.name,
        description=old.description,
        parameters=request.parameters,
        docker_env=old.docker_env,
        disabled=disabled,
    )
    return await platform.database.read(demands.require_all, new, Places(new.document))


def _check_request(body: RunDocument) -> None:
    if len(body.desc) > MOST_DESCRIPTION:
        fault = Fault("desc", f"must have at most {MOST_DESCRIPTION} characters, it has {len(body.desc)}")
        raise Invalid.of([fault], code="InvalidArguments")


async def _registered(platform: Platform, caller: Caller, body: RunDocument) -> tuple[bytes, str]:
    """(text, source) of a version of a registered pipeline; the newest one unless one is named."""

    def find(tx: Tx) -> tuple[bytes, str]:
        pipeline = owned_pipeline(tx, caller, body.pipeline_id)
        version = pipelines.get_version(tx, pipeline, body.pipeline_version_id)
        return version.yaml.encode(), f"{pipeline.id}-{version.id}"

    return await platform.database.read(find)


async def _from_storage(platform: Platform, user: str, body: RunDocument) -> tuple[bytes, str]:
    """(text, path) of a file on a storage."""
    path = body.run_yaml_path or DEFAULT_PATH
    if not body.fs_name:
        raise Invalid(
            "nothing says what to run: runYamlRaw, pipelineID, or fsName with runYamlPath",
            code="InvalidArguments",
            hint="paddleflow run create -yr FILE sends a file of yours",
        )
    storage = await platform.database.read(storages.get_storage, user, is_root(user), body.fs_name)
    return await platform.files.of(user).run(platform.stores.read_document, storage, path), path


def _bound(raw: bytes, request: RunRequest, file: str) -> Pipeline:
    return bind(read(raw, file), request, file)


def _bound_json(document: dict[str, object]) -> Pipeline:
    return bind(read_json(document))
