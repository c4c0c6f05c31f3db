"""What a pipeline is made of: steps and DAGs.

A component that is made inside `with DAG(…)`, or inside a function under `@Pipeline(…)`, becomes part of it. Nothing here
is worked out: components hold what was said, `compiler` reads it, and a pipeline may be compiled any number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from paddleflow.pipeline.names import COMPONENT, ROOT, check, is_number, refuse
from paddleflow.pipeline.options import CacheOptions, ExtraFS, Retry
from paddleflow.pipeline.values import (
    Artifact,
    Environment,
    Inputs,
    Loop,
    LoopArgument,
    Outputs,
    Parameters,
)

_around: ContextVar[DAG | None] = ContextVar("around", default=None)  #: the DAG that is being filled


class Component:
    """The base of steps and DAGs."""

    kind: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, Artifact] | None = None,
        outputs: Mapping[str, Artifact] | None = None,
        parameters: Mapping[str, Any] | None = None,
        condition: str | None = None,
        loop_argument: Loop | None = None,
    ) -> None:
        self._name = check(COMPONENT, name, type(self).__name__)
        self.parent: DAG | None = None
        around = _around.get()
        if around is not None:
            around.add(self)
        self._inputs = Inputs(self).fill(inputs)
        self._outputs = Outputs(self).fill(outputs)
        self._parameters = Parameters(self).fill(parameters)
        self.condition = condition
        self.loop_argument = loop_argument
        self._upstreams: list[Component] = []

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        check(COMPONENT, name, type(self).__name__)
        if self.parent is not None and name != self._name:
            self.parent.refuse_taken(name)
        self._name = name

    @property
    def full_name(self) -> str:
        """Dotted, from the pipeline's own DAG on."""
        return self._name if self.parent is None else f"{self.parent.full_name}.{self._name}"

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"{type(self).__name__}[{self._name}]"

    @property
    def type(self) -> str:
        return self.kind

    @property
    def inputs(self) -> Inputs:
        return self._inputs

    @property
    def outputs(self) -> Outputs:
        return self._outputs

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    @property
    def condition(self) -> str | None:
        return self._condition

    @condition.setter
    def condition(self, condition: str | None) -> None:
        if condition is not None and not isinstance(condition, str):
            refuse(f"condition of {self.label} is {condition!r}, it must be text")
        self._condition = condition

    @property
    def loop_argument(self) -> LoopArgument | None:
        return self._loop_argument

    @loop_argument.setter
    def loop_argument(self, argument: Loop | None) -> None:
        self._loop_argument = None if argument is None else LoopArgument(argument, self)

    @property
    def upstreams(self) -> Sequence[Component]:
        """What it was told to come after."""
        return tuple(self._upstreams)

    def after(self, *upstreams: Component) -> Self:
        """Says that this begins when `upstreams` are over."""
        if not upstreams:
            refuse(f"after() of {self.label} names nothing, it must name at least one step or DAG")
        for upstream in upstreams:
            if not isinstance(upstream, Component):
                refuse(f"after() of {self.label} names {upstream!r}, it must name steps or DAGs")
            self._upstreams.append(upstream)
        return self


class Step(Component):
    """A leaf: the base of all steps."""

    kind = "step"
    needs_image: ClassVar[bool] = True  #: that it must name an image where the pipeline names none

    def __init__(
        self,
        name: str,
        docker_env: str | None = None,
        command: str | None = None,
        inputs: Mapping[str, Artifact] | None = None,
        outputs: Mapping[str, Artifact] | None = None,
        parameters: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        cache_options: CacheOptions | None = None,
        condition: str | None = None,
        loop_argument: Loop | None = None,
        extra_fs: ExtraFS | Sequence[ExtraFS] | None = None,
        *,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        code: str | Path | None = None,
        requirements: str | Path | Sequence[str] | None = None,
        secrets: Sequence[str | Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(name, inputs, outputs, parameters, condition, loop_argument)
        self.docker_env = docker_env
        self.command = command
        self._env = Environment(self.label).fill(env)
        self.cache_options = cache_options
        self.extra_fs = extra_fs
        self.retry = Retry(retry) if isinstance(retry, int) else retry
        if timeout is not None and (not is_number(timeout) or timeout <= 0):
            refuse(f"timeout of {self.label} is {timeout!r}, it must be a number of seconds above 0")
        self.timeout = timeout
        self.code = code
        self.requirements = requirements
        self.secrets = secrets

    @property
    def env(self) -> Environment:
        return self._env

    def add_env(self, env: Mapping[str, Any] | None) -> None:
        self._env.fill(env)

    def job_document(self) -> dict[str, Any] | None:
        """The job that it is, where it is not just a command."""
        return None


class ContainerStep(Step):
    """A step that runs a command. These are by name only: `retry`; `timeout` (seconds of one try); `code` (a folder that it runs
    in); `requirements` (lines of a requirements file, or its path); `secrets` (names, as ``NAME`` or ``NAME=VARIABLE``)."""


class DAG(Component):
    """A component made of components: `with DAG("name"): …`. May be nested, repeated and made conditional as a whole."""

    kind = "dag"

    def __init__(self, name: str, condition: str | None = None, loop_argument: Loop | None = None) -> None:
        self._children: list[Component] = []
        super().__init__(name, condition=condition, loop_argument=loop_argument)

    @property
    def label(self) -> str:
        return "the pipeline" if self.parent is None and self.name == ROOT else super().label

    @property
    def entry_points(self) -> dict[str, Component]:
        """What it is made of, by name."""
        return {child.name: child for child in self._children}

    def add(self, component: Component) -> None:
        if component.parent is not None:
            refuse(f"{component.label} is in {component.parent.label} already, it cannot be added to {self.label}")
        self.refuse_taken(component.name)
        component.parent = self
        self._children.append(component)

    def refuse_taken(self, name: str) -> None:
        if name in self.entry_points:
            refuse(f"there are several components named [{name}] in {self.label}, names must differ")

    def __enter__(self) -> DAG:
        self._before = _around.get()
        _around.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _around.set(self._before)


def around() -> DAG | None:
    """The DAG that is being filled here."""
    return _around.get()


@contextmanager
def apart() -> Iterator[None]:
    """Inside, components belong to nothing."""
    token = _around.set(None)
    try:
        yield
    finally:
        _around.reset(token)
