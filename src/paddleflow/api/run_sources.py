"""Where a run's pipeline comes from: text in the request, a registered pipeline, a file on a storage, or JSON.

Everything is checked before anything is written: the document, what the request asks of it, the storages it names.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_core import to_json

from paddleflow.access.callers import Caller, is_root
from paddleflow.api.platform import Platform
from paddleflow.errors import Fault, Invalid, NotFound
from paddleflow.runs import files
from paddleflow.runs.model import NewRun
from paddleflow.spec.pipeline.binding import RunRequest, bind
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.reading import read, read_json
from paddleflow.spec.run import RunDocument, RunJson
from paddleflow.storage.model import Storage
from paddleflow.storage.places import check_folder
from paddleflow.storage.storages import get_storage, require_user
from paddleflow.store.database import Tx

DEFAULT_PATH = "./run.yaml"
MOST_YAML = 10 * 2**20  #: bytes of a document
MOST_DESCRIPTION = 1024


@dataclass(frozen=True, slots=True)
class Source:
    """A run that passed every check."""

    new: NewRun


async def source_of(platform: Platform, caller: Caller, body: RunDocument) -> Source:
    """The run that a request asks for: text wins over a registered pipeline, that over a file on a storage."""
    user = body.username or caller.name
    _check_request(body)
    if body.run_yaml_raw:
        text, origin = _decoded(body.run_yaml_raw), ""
    elif body.pipeline_id:
        raise NotFound(f"pipeline[{body.pipeline_id[:80]}] does not exist", code="PipelineNotFound")
    else:
        text, origin = await _from_storage(platform, user, body)
    request = RunRequest(
        parameters=body.parameters,
        disabled=body.disabled_names,
        docker_env=body.docker_env,
        fs_name=body.fs_name,
        strategy=body.failure_options.strategy if body.failure_options else "",
        name=body.name,
    )
    pipeline = await asyncio.to_thread(_bound, text, request)
    new = NewRun(
        user=user,
        pipeline=pipeline,
        document=text,
        source=origin,
        name=body.name,
        description=body.desc,
        parameters=body.parameters,
        docker_env=body.docker_env,
        disabled=body.disabled_names,
        schedule_id=body.schedule_id,
        breakpoints=body.breakpoints,
    )
    return Source(await platform.database.read(with_storages, new))


async def from_json(platform: Platform, caller: Caller, body: RunJson) -> Source:
    """The run of a pipeline that is written as JSON."""
    document = {**(body.model_extra or {})}
    given = dict(document)
    if body.username:
        given["username"] = body.username
    text = to_json(given, indent=2).decode()
    pipeline = await asyncio.to_thread(_bound_json, given)
    description = document.get("description")
    new = NewRun(
        user=body.username or caller.name,
        pipeline=pipeline,
        document=text,
        source="",
        description=description if isinstance(description, str) else "",
    )
    return Source(await platform.database.read(with_storages, new))


def _check_request(body: RunDocument) -> None:
    faults = []
    if len(body.desc) > MOST_DESCRIPTION:
        faults.append(Fault("desc", f"must have at most {MOST_DESCRIPTION} characters, it has {len(body.desc)}"))
    if body.run_yaml_raw and (body.pipeline_id or body.run_yaml_path):
        pass  # the text wins, as existing clients expect
    if faults:
        raise Invalid.of(faults, code="InvalidArguments")


def _decoded(raw: str) -> str:
    try:
        data = base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"runYamlRaw is not base64: {error}", code="InvalidArguments") from error
    return _text(data, "runYamlRaw")


def _text(data: bytes, what: str) -> str:
    if len(data) > MOST_YAML:
        raise Invalid(f"{what} has {len(data)} bytes, at most {MOST_YAML} are possible", code="MalformedYaml")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{what} is not text in UTF-8: {error}", code="MalformedYaml") from error


async def _from_storage(platform: Platform, user: str, body: RunDocument) -> tuple[str, str]:
    """(text, path) of a file on a storage."""
    path = body.run_yaml_path or DEFAULT_PATH
    if not body.fs_name:
        raise Invalid(
            "nothing says what to run: runYamlRaw, pipelineID, or fsName with runYamlPath",
            code="InvalidArguments",
            hint="paddleflow run create -yr FILE sends a file of yours",
        )
    storage = await platform.database.read(get_storage, user, is_root(user), body.fs_name)
    return await asyncio.to_thread(read_document, platform.settings.data_folder, storage, path), path


def read_document(data: Path, storage: Storage, path: str) -> str:
    """A pipeline's text from a storage. Blocks on the disk."""
    folder = check_folder(storage.folder, data=data, user=storage.user, confined=storage.confined)
    try:
        file = files.within(folder, path.removeprefix("./"))
        with file.open("rb") as opened:
            return _text(opened.read(MOST_YAML + 1), path)
    except OSError as error:
        raise Invalid(
            f"file {path[:200]} of fs[{storage.name}] cannot be read: {error.strerror}", code="ReadYamlFileFailed"
        ) from error
    except Invalid as error:
        raise Invalid(error.message, code="ReadYamlFileFailed", hint=error.hint) from error


def _bound(text: str, request: RunRequest) -> Pipeline:
    return bind(read(text), request)


def _bound_json(document: dict[str, object]) -> Pipeline:
    return bind(read_json(document), RunRequest())


def with_storages(tx: Tx, new: NewRun) -> NewRun:
    """The run with its main storage found; `NotFound` for a storage that its user does not have."""
    root = is_root(new.user)
    require_user(tx, new.user)
    for name in _storages(new.pipeline):
        get_storage(tx, new.user, root, name)
    main = new.pipeline.main_fs
    if main is None:
        return new
    storage = get_storage(tx, new.user, root, main.name)
    return replace(new, fs_id=storage.id, fs_name=main.name)


def _storages(pipeline: Pipeline) -> Sequence[str]:
    """The names of all storages that a pipeline mounts beside the main one."""
    found = dict.fromkeys(mount.name for mount in pipeline.extra_fs)
    waiting = [*pipeline.entry_points.values(), *([pipeline.post_process] if pipeline.post_process else [])]
    while waiting:
        component = waiting.pop()
        children = getattr(component, "children", None)
        if children is not None:
            waiting.extend(children.values())
        else:
            found.update(dict.fromkeys(mount.name for mount in getattr(component, "extra_fs", ())))
    return list(found)
