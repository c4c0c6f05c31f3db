"""A bound pipeline as JSON text and back: what the row of a run keeps, so that a restart need not read YAML again.

Only what differs from the defaults is written; equal small values are shared when read, since a run may have thousands of
steps. `load(dump(p)) == p` but for the marks, which point into a text that nobody reads any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paddleflow.base.json_text import json_text
from paddleflow.spec.pipeline.model import (
    Cache,
    Component,
    Dag,
    FsMount,
    FsScope,
    Parameter,
    Pipeline,
    Retry,
    Step,
)

_NOTHING: Mapping[str, Any] = {}
_STEP = Step("")
_CACHE = Cache()
_RETRY = Retry()


def dump(pipeline: Pipeline) -> str:
    """The text of a pipeline."""
    data: dict[str, Any] = {
        "name": pipeline.name,
        "entry_points": _children(pipeline.entry_points),
        "parallelism": pipeline.parallelism,
        "strategy": pipeline.strategy,
    }
    if pipeline.post_process is not None:
        data["post_process"] = _step(pipeline.post_process)
    if pipeline.docker_env:
        data["docker_env"] = pipeline.docker_env
    if pipeline.disabled:
        data["disabled"] = sorted(pipeline.disabled)
    if pipeline.main_fs is not None:
        data["main_fs"] = _mount(pipeline.main_fs)
    if pipeline.extra_fs:
        data["extra_fs"] = [_mount(mount) for mount in pipeline.extra_fs]
    if pipeline.cache != _CACHE:
        data["cache"] = _cache(pipeline.cache)
    return json_text(data)


def load(text: str) -> Pipeline:
    """The pipeline of a text that `dump` made."""
    data = json.loads(text)
    post = data.get("post_process")
    return Pipeline(
        name=data["name"],
        entry_points={name: _component(name, child) for name, child in data["entry_points"].items()},
        post_process=None if post is None else _read_step(post.pop("name"), post),
        docker_env=data.get("docker_env", ""),
        parallelism=data["parallelism"],
        disabled=frozenset(data.get("disabled", ())),
        strategy=data["strategy"],
        main_fs=FsMount(*data["main_fs"]) if "main_fs" in data else None,
        extra_fs=tuple(FsMount(*mount) for mount in data.get("extra_fs", ())),
        cache=_read_cache(data["cache"]) if "cache" in data else _CACHE,
    )


def _children(children: Mapping[str, Component]) -> dict[str, Any]:
    return {
        name: _dag(child) if isinstance(child, Dag) else _step(child, named=False) for name, child in children.items()
    }


def _step(step: Step, *, named: bool = True) -> dict[str, Any]:
    data: dict[str, Any] = {"name": step.name} if named else {}
    for key in ("command", "docker_env", "condition", "timeout", "loop_argument", "job", "code", "requirements"):
        value = getattr(step, key)
        if value != getattr(_STEP, key):
            data[key] = value
    for key in ("inputs", "env", "outputs", "deps"):
        value = getattr(step, key)
        if value:
            data[key] = dict(value) if isinstance(value, Mapping) else list(value)
    if step.parameters:
        data["parameters"] = _parameters(step.parameters)
    if step.extra_fs:
        data["extra_fs"] = [_mount(mount) for mount in step.extra_fs]
    if step.secrets:
        data["secrets"] = [dict(use) for use in step.secrets]
    if step.cache != _CACHE:
        data["cache"] = _cache(step.cache)
    if step.retry != _RETRY:
        retry = step.retry
        data["retry"] = [retry.times, retry.delay, retry.factor, retry.most, list(retry.exit_codes)]
    return data


def _dag(dag: Dag) -> dict[str, Any]:
    data: dict[str, Any] = {"entry_points": _children(dag.children)}
    for key in ("inputs", "outputs"):
        value = getattr(dag, key)
        if value:
            data[key] = dict(value)
    if dag.deps:
        data["deps"] = list(dag.deps)
    if dag.condition:
        data["condition"] = dag.condition
    if dag.loop_argument is not None:
        data["loop_argument"] = dag.loop_argument
    if dag.parameters:
        data["parameters"] = _parameters(dag.parameters)
    return data


def _parameters(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    return {name: [item.value, item.type] for name, item in parameters.items()}


def _mount(mount: FsMount) -> list[Any]:
    return [mount.name, mount.mount_path, mount.sub_path, mount.read_only]


def _cache(cache: Cache) -> list[Any]:
    return [cache.enable, cache.max_expired_time, [[scope.name, list(scope.paths)] for scope in cache.fs_scope]]


def _read_cache(data: list[Any]) -> Cache:
    enable, expired, scopes = data
    return Cache(enable, expired, tuple(FsScope(name, tuple(paths)) for name, paths in scopes))


def _component(name: str, data: Mapping[str, Any]) -> Component:
    if "entry_points" not in data:
        return _read_step(name, data)
    return Dag(
        name=name,
        children={child: _component(child, inner) for child, inner in data["entry_points"].items()},
        parameters=_read_parameters(data),
        inputs=data.get("inputs", _NOTHING),
        outputs=data.get("outputs", _NOTHING),
        deps=tuple(data.get("deps", ())),
        condition=data.get("condition", ""),
        loop_argument=data.get("loop_argument"),
    )


def _read_step(name: str, data: Mapping[str, Any]) -> Step:
    retry = data.get("retry")
    return Step(
        name=name,
        command=data.get("command", ""),
        parameters=_read_parameters(data),
        inputs=data.get("inputs", _NOTHING),
        outputs=tuple(data.get("outputs", ())),
        deps=tuple(data.get("deps", ())),
        env=data.get("env", _NOTHING),
        docker_env=data.get("docker_env", ""),
        cache=_read_cache(data["cache"]) if "cache" in data else _CACHE,
        condition=data.get("condition", ""),
        loop_argument=data.get("loop_argument"),
        extra_fs=tuple(FsMount(*mount) for mount in data.get("extra_fs", ())),
        job=data.get("job"),
        retry=_RETRY if retry is None else Retry(retry[0], retry[1], retry[2], retry[3], tuple(retry[4])),
        timeout=data.get("timeout", 0.0),
        secrets=tuple(data.get("secrets", ())),
        code=data.get("code"),
        requirements=data.get("requirements", ""),
    )


def _read_parameters(data: Mapping[str, Any]) -> Mapping[str, Parameter]:
    found = data.get("parameters")
    if not found:
        return _NOTHING
    return {name: Parameter(value, kind) for name, (value, kind) in found.items()}
