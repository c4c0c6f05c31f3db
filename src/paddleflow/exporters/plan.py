"""What a pipeline comes to, for engines that know neither its templates nor its loops. Pure.

Loops over lists that are known become one task for each element, dags become groups. Texts have their templates filled in;
parameters that stand in the document as plain values stay open (`marks`), so that they can be changed in the target. The
layout of artifacts below the main storage is the platform's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from paddleflow.base.values import dataclass
from paddleflow.exporters.placeholders import RUN, SHARED, USER, placeholder
from paddleflow.exporters.scopes import NotKnown, Scope
from paddleflow.spec.faults import Faults
from paddleflow.spec.pipeline.model import Component, FsMount, Pipeline, Retry, Step, Value
from paddleflow.spec.pipeline.templates import render_text

MOST_TASKS = 2000
#: words of this platform's scheduling, which other engines do without
_OURS = ("PF_JOB_QUEUE_NAME", "PF_JOB_FLAVOUR", "PF_JOB_LIMIT_FLAVOUR", "PF_JOB_PRIORITY", "PF_JOB_RESTART_POLICY")

#: Writes a condition in the target's language, with open places; `NotExpressible` if it cannot be said there.
WriteCondition: TypeAlias = Callable[[Scope, str], str]


class NotExpressible(Exception):
    """The target's language cannot express a condition; says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """A step, or one element of its loop."""

    name: str
    full_name: str
    deps: tuple[str, ...]  #: names of tasks and groups beside it
    command: str
    env: Mapping[str, str]
    image: str
    outputs: tuple[str, ...]  #: paths that it makes
    mounts: tuple[FsMount, ...]
    retry: Retry
    timeout: float
    condition: str  #: as the target's own; empty: none
    left_out: str = ""  #: why it does not run; empty: it runs
    read: Mapping[str, str] = field(default_factory=dict)  #: those of `outputs` that a condition reads, by their names


@dataclass(frozen=True, slots=True)
class DagGroup:
    """A dag, or one element of its loop."""

    name: str
    full_name: str
    deps: tuple[str, ...]
    children: tuple[Node, ...]
    condition: str
    left_out: str = ""


Node: TypeAlias = Task | DagGroup


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """A whole pipeline."""

    pipeline: Pipeline
    nodes: tuple[Node, ...]
    post_process: Task | None
    parameters: Mapping[str, Value]  #: that can be changed in the target, by dotted name
    notes: tuple[str, ...]  #: what was left out without changing what the pipeline does

    def tasks(self) -> Iterator[Task]:
        """All tasks, the post-process last."""
        yield from _tasks(self.nodes)
        if self.post_process is not None:
            yield self.post_process


def _tasks(nodes: tuple[Node, ...]) -> Iterator[Task]:
    for node in nodes:
        if isinstance(node, Task):
            yield node
        else:
            yield from _tasks(node.children)


@dataclass(slots=True)
class Planner:
    """Makes a plan."""

    pipeline: Pipeline
    faults: Faults
    write_condition: WriteCondition
    notes: dict[str, None] = field(default_factory=dict)
    count: int = 0

    def plan(self) -> ExportPlan:
        """Twice: only when all loops and conditions were looked at is it known which parameters decide a loop, and must not
        be left open, and which artifacts are read by a condition."""
        top = Scope.top(self.pipeline)
        Planner(self.pipeline, Faults(""), self.write_condition)._build(top)
        top.shared.parameters.clear()
        return self._build(top)

    def _build(self, top: Scope) -> ExportPlan:
        nodes = self._level(self.pipeline.entry_points, top)
        post = None
        if self.pipeline.post_process is not None:
            step = self.pipeline.post_process
            scope = Scope.of_post_process(top, step)
            left_out = "it is disabled" if step.name in self.pipeline.disabled else ""
            post = self._task(scope, step, (), left_out)
        if self.count > MOST_TASKS:
            self.faults.add("", f"loops come to {self.count} tasks, at most {MOST_TASKS} are exported")
        return ExportPlan(self.pipeline, nodes, post, dict(top.shared.parameters), tuple(self.notes))

    def _level(self, children: Mapping[str, Component], parent: Scope) -> tuple[Node, ...]:
        instances = {name: self._instances(child, parent) for name, child in children.items()}
        names = {name: tuple(scope.instance for scope in scopes) or (name,) for name, scopes in instances.items()}
        nodes: list[Node] = []
        for name, child in children.items():
            deps = tuple(each for dep in child.deps for each in names[dep])
            scopes = instances[name]
            left_out = "it is disabled" if parent.dotted(name) in self.pipeline.disabled else ""
            if not scopes:
                scopes = [Scope.of(parent, child)]
                left_out = left_out or "its loop has no elements"
            nodes.extend(self._node(scope, child, deps, left_out) for scope in scopes)
        return tuple(nodes)

    def _instances(self, child: Component, parent: Scope) -> list[Scope]:
        if child.loop_argument is None:
            return [Scope.of(parent, child)]
        try:
            items = Scope.of(parent, child).loop_items()
        except NotKnown as error:
            self.faults.add(
                parent.dotted(child.name), f"loop_argument depends on {error}, which is known only at run time"
            )
            return [Scope.of(parent, child)]
        return [Scope.of(parent, child, seq, item) for seq, item in enumerate(items)]

    def _node(self, scope: Scope, component: Component, deps: tuple[str, ...], left_out: str) -> Node:
        if isinstance(component, Step):
            return self._task(scope, component, deps, left_out)
        condition = "" if left_out else self._condition(scope, component)
        children = () if left_out else self._level(component.children, scope)
        return DagGroup(scope.instance, scope.full_name, deps, children, condition, left_out)

    def _task(self, scope: Scope, step: Step, deps: tuple[str, ...], left_out: str) -> Task:
        self.count += 1
        where = scope.dotted_name
        if step.job is not None:
            kind = step.job.get("framework", "single")
            self.faults.add(where, f"job: a job of this platform (framework {kind}) has no counterpart there")
        if step.cache.enable:
            self.notes[f"{where}: cache is left out, so the step always runs"] = None
        return Task(
            name=scope.instance,
            full_name=scope.full_name,
            deps=deps,
            command=render_text(step.command, scope.open),
            env=self._env(scope, step),
            image=step.docker_env,
            outputs=tuple(scope.output_path(name) for name in step.outputs),
            mounts=tuple(mount for mount in (self.pipeline.main_fs, *step.extra_fs) if mount is not None),
            retry=step.retry,
            timeout=step.timeout,
            condition="" if left_out else self._condition(scope, step),
            left_out=left_out,
            read={name: scope.output_path(name) for name in step.outputs if scope.is_read(name)},
        )

    def _env(self, scope: Scope, step: Step) -> dict[str, str]:
        env = {name: render_text(value, scope.open) for name, value in step.env.items()}
        if env.get("PF_JOB_TYPE", "").lower() == "distributed":
            self.faults.add(
                scope.dotted_name, "env PF_JOB_TYPE=distributed: a distributed job has no counterpart there"
            )
        for name in [name for name in env if name in _OURS]:
            self.notes[f"{scope.dotted_name}: env {name} is left out, it is a word of this platform"] = None
            del env[name]
        env |= {"PF_RUN_ID": placeholder(RUN), "PF_STEP_NAME": step.name, "PF_USER_NAME": placeholder(USER)}
        env["PF_LOOP_ARGUMENT"] = scope.loop_text
        env |= {f"PF_INPUT_ARTIFACT_{name.upper()}": scope.input_path(name) for name in step.inputs}
        env |= {f"PF_OUTPUT_ARTIFACT_{name.upper()}": scope.output_path(name) for name in step.outputs}
        if self.pipeline.main_fs is not None:
            env["PF_WORK_DIR"] = placeholder(SHARED)
        return env

    def _condition(self, scope: Scope, component: Component) -> str:
        if not component.condition.strip():
            return ""
        try:
            return self.write_condition(scope, component.condition)
        except NotExpressible as error:
            self.faults.add(scope.dotted_name, f"condition {error}")
            return ""
