"""Pipeline documents: `read` for YAML (and JSON, which is YAML), `read_json` for the body of `POST /runjson`, `dump` back.

Every fault of a document is found in one go and raised as one `Invalid`, each with file, line and column. What only a run
knows (its storage, its parameters) is checked by `run_request`. A dumped document has its references resolved and defaults
left out; reading it gives the same pipeline. Called by the API, `pipeline check`, the DSL and the exporters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from paddleflow.base.names import nearest
from paddleflow.spec.pipeline.drafts import CONTROL, Draft, read_component, read_components, read_env, read_image
from paddleflow.spec.pipeline.faults import DocumentFaults, shown
from paddleflow.spec.pipeline.model import (
    CONTINUE,
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
from paddleflow.spec.pipeline.nodes import YamlNode, from_json, from_text, scalar
from paddleflow.spec.pipeline.options import CacheDraft, read_cache, read_mount, read_mounts
from paddleflow.spec.pipeline.reader import COMPONENT, PIPELINE, Reader, spellings
from paddleflow.spec.pipeline.references import MOST_COMPONENTS, Resolver, count
from paddleflow.spec.pipeline.templates import references
from paddleflow.spec.pipeline.validation import check_component, check_disabled, check_level


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
    if step.secrets:
        document["secrets"] = [dict(use) for use in step.secrets]
    if step.code is not None:
        document["code"] = step.code["folder"] if "folder" in step.code else _plain(step.code)
    if step.requirements:
        document["requirements"] = step.requirements
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


MOST_PARALLELISM = 20
STRATEGIES = (FAIL_FAST, CONTINUE)
KEYS = (
    *("name", "docker_env", "entry_points", "components", "cache", "parallelism", "disabled"),
    *("failure_options", "post_process", "fs_options"),
)
GLOBALS = ("flavour", "queue", "job_type", "env", "username", "description")  #: of /runjson, beside the keys of YAML
TOP = spellings(KEYS)
TOP_JSON = spellings((*KEYS, *GLOBALS))
FAILURE = spellings(("strategy",))
STORAGES = spellings(("main_fs", "extra_fs"))


def read(text: str | bytes, file: str = "") -> Pipeline:
    """The pipeline of a YAML document. `file` is what faults call it."""
    faults = DocumentFaults(file)
    return _Document(from_text(text, faults), faults, TOP).pipeline()


def read_json(document: Mapping[str, Any]) -> Pipeline:
    """The pipeline in the body of `POST /runjson`: the same language in camelCase, with settings for all steps."""
    faults = DocumentFaults()
    return _Document(from_json(document, faults), faults, TOP_JSON).pipeline()


class _Document:
    """One document on its way to a pipeline."""

    def __init__(self, root: YamlNode, faults: DocumentFaults, keys: Mapping[str, str]) -> None:
        self.faults = faults
        self.reader = Reader(faults)
        self.fields = self.reader.fields(root, "", "workflow", keys)
        self.root = root

    def pipeline(self) -> Pipeline:
        fields, reader = self.fields, self.reader
        name = self._name()
        image = read_image(reader, fields["docker_env"], "docker_env") if "docker_env" in fields else ""
        cache = read_cache(reader, fields["cache"], "cache") if "cache" in fields else CacheDraft()
        main_fs, extra_fs = self._storages()
        parallelism, strategy = self._parallelism(), self._strategy()
        env = self._environment()
        entry_points, post = self._components()
        self.faults.raise_any()
        builder = Builder(cache, extra_fs, env)
        pipeline = Pipeline(
            name=name,
            entry_points={key: builder.build(draft) for key, draft in entry_points.items()},
            post_process=builder.step(post, cached=False) if post else None,
            docker_env=image,
            parallelism=parallelism,
            disabled=frozenset(disabled := self._disabled()),
            strategy=strategy,
            main_fs=main_fs,
            extra_fs=extra_fs,
            cache=cache.under(CacheDraft()),
        )
        if disabled:
            check_disabled(pipeline, disabled, self.faults, fields["disabled"].mark, "disabled")
        self.faults.raise_any()
        return pipeline

    def _name(self) -> str:
        node = self.fields.get("name")
        if node is None:
            if isinstance(self.root.value, dict):
                self.faults.add(
                    self.root.mark,
                    "name",
                    "format of pipeline name[] invalid: the workflow has no [name]",
                    "name: my_pipeline",
                )
            return ""
        name = self.reader.text(node, "name")
        if fault := PIPELINE.fault(name):
            self.faults.add(node.mark, "name", f"format of {fault}")
        return name

    def _storages(self) -> tuple[FsMount | None, tuple[FsMount, ...]]:
        node = self.fields.get("fs_options")
        if node is None:
            return None, ()
        found = self.reader.fields(node, "fs_options", "[fs_options]", STORAGES)
        main = found.get("main_fs")
        extra = found.get("extra_fs")
        return (
            read_mount(self.reader, main, "fs_options.main_fs") if main else None,
            read_mounts(self.reader, extra, "fs_options.extra_fs") if extra else (),
        )

    def _parallelism(self) -> int:
        node = self.fields.get("parallelism")
        if node is None:
            return DEFAULT_PARALLELISM
        wish = self.reader.integer(node, "parallelism")
        if wish < 0:
            self.reader.wrong(node, "parallelism", f"a whole number from 1 to {MOST_PARALLELISM}")
        return min(wish, MOST_PARALLELISM) or DEFAULT_PARALLELISM

    def _strategy(self) -> str:
        node = self.fields.get("failure_options")
        found = self.reader.fields(node, "failure_options", "[failure_options]", FAILURE) if node else {}
        if "strategy" not in found:
            return FAIL_FAST
        word = self.reader.text(found["strategy"], "failure_options.strategy")
        if word not in STRATEGIES:
            message = f"failure strategy should be [fail_fast] or [continue], set to [{shown(word)}]"
            self.faults.add(found["strategy"].mark, "failure_options.strategy", message, nearest(word, STRATEGIES))
        return word

    def _disabled(self) -> list[str]:
        node = self.fields.get("disabled")
        return self.reader.words(node, "disabled") if node else []

    def _environment(self) -> dict[str, str]:
        """What /runjson sets for all steps."""
        env = {
            variable: self.reader.text(self.fields[key], key) for key, variable in CONTROL.items() if key in self.fields
        }
        for key in ("username", "description"):
            if key in self.fields:
                self.reader.text(self.fields[key], key)
        if "env" in self.fields:
            env.update(read_env(self.reader, self.fields["env"], "env"))
        return env

    def _components(self) -> tuple[dict[str, Draft], Draft | None]:
        fields, reader, faults = self.fields, self.reader, self.faults
        components = read_components(reader, fields["components"], "components") if "components" in fields else {}
        entry_points: dict[str, Draft] = {}
        if "entry_points" in fields:
            entry_points = read_components(reader, fields["entry_points"], "entry_points")
        node = fields.get("entry_points", self.root)
        if not entry_points and isinstance(node.value, dict):
            faults.add(node.mark, "entry_points", "workflow has no component in [entry_points]")
        resolver = Resolver(components, faults)
        ready = {name: resolver.component(name) or draft for name, draft in components.items()}
        entry_points = {name: resolver.resolve(draft) for name, draft in entry_points.items()}
        post = self._post_process(resolver, entry_points)
        check_level(ready, None, faults, outer=True)
        check_level(entry_points, None, faults)
        total = count(entry_points)
        if total > MOST_COMPONENTS:
            faults.add(
                None, "entry_points", f"workflow has {total:,} components, at most {MOST_COMPONENTS:,} are taken"
            )
        return entry_points, post

    def _post_process(self, resolver: Resolver, entry_points: Mapping[str, Draft]) -> Draft | None:
        node, path = self.fields.get("post_process"), "post_process"
        if node is None:
            return None
        entries = list(self.reader.entries(node, path))
        if len(entries) > 1:
            self.faults.add(
                entries[1][1].key_mark, path, f"post_process can only have 1 step at most, found {len(entries)}"
            )
        drafts = [self._post_step(resolver, entry_points, name, child) for name, child in entries]
        return drafts[0] if drafts else None

    def _post_step(self, resolver: Resolver, entry_points: Mapping[str, Draft], name: str, child: YamlNode) -> Draft:
        path = f"post_process.{name}"
        self.reader.named(COMPONENT, name, child, path)
        written = read_component(self.reader, name, child, path)
        if name in entry_points:
            message = (
                f"a step in post_process has name [{shown(name)}], which is same to name of a step in entry_points"
            )
            self.faults.add(child.key_mark, path, message)
        draft = resolver.resolve(written)
        self._check_post_process(draft, path)
        return draft

    def _check_post_process(self, draft: Draft, path: str) -> None:
        name = shown(draft.name)
        if draft.children is not None:
            self.faults.add(draft.mark, path, "[post_process/postProcess] can only have step, found a dag")
        for has, key, what in (
            (draft.deps, "deps", "deps"),
            (draft.condition, "condition", "condition"),
            (draft.loop_argument is not None, "loop_argument", "loop_argument"),
            (draft.inputs, "artifacts", "input artifacts"),
        ):
            if has:
                self.faults.add(
                    draft.at_key(key), f"{path}.{key}", f"step [{name}] in post_process has {what}", "remove it"
                )
        if draft.cache.enable and "reference" not in draft.fields:
            message = f"step [{name}] in post_process should not use cache"
            self.faults.add(draft.at("cache"), f"{path}.cache", message, "remove it")
        for key, parameter in draft.parameters.items():
            if any(ref.component for ref in references(parameter.value)):
                message = "step in post_process can not use parameters of steps in entry_points"
                self.faults.add(draft.at("parameters", key), f"{path}.parameters.{key}", message)
                draft.parameters[key] = Parameter("")
        if draft.children is None and not draft.inputs:
            check_component(draft, {}, None, self.faults)


class Builder:
    """Builds the components of one pipeline; what several references share is built once."""

    def __init__(self, cache: CacheDraft, extra_fs: tuple[FsMount, ...], env: Mapping[str, str]) -> None:
        self.cache = cache
        self.extra_fs = extra_fs
        self.env = env
        self._children: dict[int, dict[str, Component]] = {}

    def build(self, draft: Draft) -> Component:
        return self.step(draft) if draft.children is None else self._dag(draft, draft.children)

    def _dag(self, draft: Draft, children: dict[str, Draft]) -> Dag:
        built = self._children.get(id(children))
        if built is None:
            built = self._children[id(children)] = {name: self.build(child) for name, child in children.items()}
        return Dag(
            name=draft.name,
            children=built,
            parameters=draft.parameters,
            inputs={name: template.strip() for name, template in draft.inputs.items()},
            outputs={name: template.strip() for name, template in draft.outputs.items()},
            deps=draft.deps,
            condition=draft.condition,
            loop_argument=draft.loop_argument,
            mark=draft.mark,
        )

    def step(self, draft: Draft, *, cached: bool = True) -> Step:
        """`cached` is False for post_process, which is never served from a cache."""
        return Step(
            name=draft.name,
            command=draft.command,
            parameters=draft.parameters,
            inputs={name: template.strip() for name, template in draft.inputs.items()},
            outputs=tuple(draft.outputs),
            deps=draft.deps,
            env={**self.env, **draft.env},
            docker_env=draft.docker_env,
            cache=draft.cache.under(self.cache) if cached else Cache(),
            condition=draft.condition,
            loop_argument=draft.loop_argument,
            extra_fs=draft.extra_fs + self.extra_fs,
            job=draft.job,
            retry=draft.retry,
            timeout=draft.timeout,
            secrets=draft.secrets,
            code=draft.code,
            requirements=draft.requirements,
            mark=draft.mark,
        )
