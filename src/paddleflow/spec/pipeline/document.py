"""A pipeline as a document again: references resolved, defaults left out. Reading it gives the same pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from paddleflow.spec.pipeline.model import (
    DEFAULT_PARALLELISM,
    FAIL_FAST,
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
from paddleflow.spec.pipeline.nodes import scalar


class _Dumper(yaml.SafeDumper):
    """Writes what this package reads: text that would be read as a number (`1e3`) goes into quotes."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None if isinstance(scalar(value), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(document: Mapping[str, Any]) -> str:
    """The document as YAML text."""
    return yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def to_document(pipeline: Pipeline) -> dict[str, Any]:
    """The document in the words of YAML, for `yaml.safe_dump` or JSON."""
    document: dict[str, Any] = {"name": pipeline.name}
    if pipeline.docker_env:
        document["docker_env"] = pipeline.docker_env
    document["entry_points"] = {name: _component(each, pipeline) for name, each in pipeline.entry_points.items()}
    if pipeline.cache != Cache():
        document["cache"] = _cache(pipeline.cache, pipeline.cache.fs_scope)
    if pipeline.parallelism != DEFAULT_PARALLELISM:
        document["parallelism"] = pipeline.parallelism
    if pipeline.disabled:
        document["disabled"] = ",".join(sorted(pipeline.disabled))
    if pipeline.strategy != FAIL_FAST:
        document["failure_options"] = {"strategy": pipeline.strategy}
    if pipeline.post_process:
        step = pipeline.post_process
        document["post_process"] = {step.name: _step(step, pipeline, cached=False)}
    storages: dict[str, Any] = {}
    if pipeline.main_fs:
        storages["main_fs"] = _mount(pipeline.main_fs)
    if pipeline.extra_fs:
        storages["extra_fs"] = [_mount(each) for each in pipeline.extra_fs]
    if storages:
        document["fs_options"] = storages
    return document


def _component(component: Component, pipeline: Pipeline) -> dict[str, Any]:
    return _dag(component, pipeline) if isinstance(component, Dag) else _step(component, pipeline)


def _dag(dag: Dag, pipeline: Pipeline) -> dict[str, Any]:
    document = _shared(dag, dict(dag.outputs))
    document["entry_points"] = {name: _component(each, pipeline) for name, each in dag.children.items()}
    return document


def _step(step: Step, pipeline: Pipeline, *, cached: bool = True) -> dict[str, Any]:
    document = _shared(step, list(step.outputs))
    for key, value in (("command", step.command), ("docker_env", step.docker_env), ("env", dict(step.env))):
        if value:
            document[key] = value
    if cached and step.cache != pipeline.cache:
        document["cache"] = _cache(step.cache, _without(step.cache.fs_scope, pipeline.cache.fs_scope))
    if own := _without(step.extra_fs, pipeline.extra_fs):
        document["extra_fs"] = [_mount(each) for each in own]
    if step.job is not None:
        document["job"] = _plain(step.job)
    if step.retry != Retry():
        document["retry"] = _retry(step.retry)
    if step.timeout:
        document["timeout"] = step.timeout
    return document


def _shared(component: Component, outputs: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"type": "dag" if isinstance(component, Dag) else "step"}
    if component.deps:
        document["deps"] = ",".join(component.deps)
    if component.condition:
        document["condition"] = component.condition
    if component.loop_argument is not None:
        document["loop_argument"] = component.loop_argument
    if component.parameters:
        document["parameters"] = {name: _parameter(each) for name, each in component.parameters.items()}
    artifacts = {key: value for key, value in (("input", dict(component.inputs)), ("output", outputs)) if value}
    if artifacts:
        document["artifacts"] = artifacts
    return document


def _parameter(parameter: Parameter) -> Any:
    return {"type": parameter.type, "default": parameter.value} if parameter.type else parameter.value


def _cache(cache: Cache, scopes: tuple[FsScope, ...]) -> dict[str, Any]:
    document: dict[str, Any] = {"enable": cache.enable, "max_expired_time": cache.max_expired_time}
    if scopes:
        document["fs_scope"] = [{"name": scope.name, "path": ",".join(scope.paths)} for scope in scopes]
    return document


def _mount(mount: FsMount) -> dict[str, Any]:
    rest = {"mount_path": mount.mount_path, "sub_path": mount.sub_path, "read_only": mount.read_only}
    return {"name": mount.name, **{key: value for key, value in rest.items() if value}}


def _retry(retry: Retry) -> dict[str, Any]:
    document = {"times": retry.times, "delay": retry.delay, "factor": retry.factor, "most": retry.most}
    return {**document, "exit_codes": list(retry.exit_codes)} if retry.exit_codes else document


def _without(all_of: tuple[Any, ...], last: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a step has of its own, before what it has of the pipeline."""
    return all_of[: len(all_of) - len(last)] if last and all_of[-len(last) :] == last else all_of


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value
