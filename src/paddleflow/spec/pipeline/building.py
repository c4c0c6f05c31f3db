"""From checked drafts to the model: defaults of the pipeline applied to its steps."""

from __future__ import annotations

from collections.abc import Mapping

from paddleflow.spec.pipeline.drafts import Draft
from paddleflow.spec.pipeline.model import Cache, Component, Dag, FsMount, Step
from paddleflow.spec.pipeline.options import CacheDraft


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
            mark=draft.mark,
        )
