"""`Pipeline`: a decorator that turns a function into pipelines, and the pipeline that comes of it.

@Pipeline(name="hello", docker_env="python:3.12")
def hello(who="world"):
    ContainerStep(name="greet", command="echo hello {{who}}", parameters={"who": who})

hello("Ada").submit().wait()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from paddleflow.pipeline import compiler
from paddleflow.pipeline.components import DAG, Component, Step, apart
from paddleflow.pipeline.names import PIPELINE, ROOT, check, refuse
from paddleflow.pipeline.options import CacheOptions, FailureOptions, FSOptions
from paddleflow.pipeline.values import Environment
from paddleflow.sdk.client import PaddleFlow, connect
from paddleflow.sdk.legacy.calls import translated

if TYPE_CHECKING:  # the client imports an area when it is first asked for
    from paddleflow.sdk.runs import Run

P = ParamSpec("P")


class Pipeline:
    """A pipeline, and the decorator that makes them. Options given here are those of every pipeline it makes."""

    def __init__(
        self,
        name: str,
        parallelism: int | None = None,
        docker_env: str | None = None,
        env: Mapping[str, Any] | None = None,
        cache_options: CacheOptions | None = None,
        failure_options: FailureOptions | None = None,
        fs_options: FSOptions | None = None,
    ) -> None:
        self._name = check(PIPELINE, name, "Pipeline")
        if parallelism is not None and (isinstance(parallelism, bool) or parallelism < 1):
            refuse(f"Pipeline[{name}]: parallelism is {parallelism!r}, it must be 1 or more")
        self.parallelism = parallelism
        self.docker_env = docker_env
        self.cache_options = cache_options
        self.failure_options = failure_options
        self.fs_options = fs_options
        self._env = Environment(f"Pipeline[{name}]").fill(env)
        self._root: DAG | None = None
        self._post_process: Step | None = None

    def __call__(self, function: Callable[P, object]) -> Callable[P, Pipeline]:
        """The function as one that makes a pipeline: what it builds when called becomes the pipeline's."""

        @wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> Pipeline:
            made = Pipeline(
                self.name,
                self.parallelism,
                self.docker_env,
                self._env,
                self.cache_options,
                self.failure_options,
                self.fs_options,
            )
            made._post_process = self._post_process
            with apart():
                made._root = DAG(ROOT)
                with made._root:
                    function(*args, **kwargs)
            return made

        return build

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = check(PIPELINE, name, "Pipeline")

    @property
    def env(self) -> Environment:
        """Variables of every step; a step's own go over them."""
        return self._env

    def add_env(self, env: Mapping[str, Any] | None) -> None:
        self._env.fill(env)

    @property
    def entry_points(self) -> dict[str, Component]:
        """Its components by name, without the step that comes after all."""
        return {} if self._root is None else self._root.entry_points

    def set_post_process(self, step: Step) -> None:
        """The step that runs when all others are over, whatever their result."""
        if not isinstance(step, Step):
            refuse(f"Pipeline[{self.name}]: post_process is {step!r}, it must be a step")
        self._post_process = step

    def get_post_process(self) -> Step | None:
        return self._post_process

    def compile(self, save_path: str | Path | None = None) -> dict[str, Any]:
        """The document, also written to `save_path` (.json, .yaml, .yml). The same program gives the same document."""
        if self._root is None or not self._root.entry_points:
            refuse(f"there is no step or DAG in Pipeline[{self.name}]")
        found = compiler.document(self, self._root)
        if save_path is not None:
            compiler.write(found, save_path)
        return found

    def submit(
        self,
        client: PaddleFlow | None = None,
        parameters: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        desc: str | None = None,
        fs_name: str | None = None,
        username: str | None = None,
        disabled: Sequence[str] = (),
        docker_env: str | None = None,
        strategy: str | None = None,
        breakpoints: Sequence[str] = (),
    ) -> Run:
        """Starts a run and gives it to hand: `.wait()`, `.logs()`, `.artifacts`, `.status`, `.stop()`.

        Without a client it is the one of `paddleflow.connect()`. `parameters` go over those of the steps: `name` for
        every step that has it, `step.name` for one.
        """
        return (client or connect()).runs.create(
            yaml=self._text(),
            name=name,
            desc=desc,
            fs=fs_name,
            user=username,
            parameters=parameters,
            disabled=_dotted(disabled),
            docker_env=docker_env,
            strategy=strategy,
            breakpoints=_dotted(breakpoints),
        )

    @translated
    def run(
        self,
        config: str | None = None,
        username: str | None = None,
        fs_name: str | None = None,
        run_name: str | None = None,
        desc: str | None = None,
        disabled: Sequence[str] | None = None,
    ) -> tuple[bool, str]:
        """Starts a run; `(True, its id)`. `config` is an ini file as older clients have it."""
        run = self.submit(
            connect(config=config),
            name=run_name,
            desc=desc,
            fs_name=fs_name,
            username=username,
            disabled=disabled or (),
        )
        return True, run.id

    @translated
    def create(
        self, config: str | None = None, username: str | None = None, desc: str | None = None
    ) -> tuple[bool, dict[str, str]]:
        """Registers the pipeline; `(True, {"name", "pplID", "pplVerID"})`."""
        made = connect(config=config).pipelines.create(yaml=self._text(), desc=desc, user=username)
        return True, {"name": made.name, "pplID": made.pipeline_id, "pplVerID": made.version_id}

    @translated
    def update(
        self, pipeline_id: str, config: str | None = None, username: str | None = None, desc: str | None = None
    ) -> tuple[bool, dict[str, str]]:
        """Registers a new version of a pipeline; `(True, {"pipelineID", "pipelineVersionID"})`."""
        made = connect(config=config).pipelines.update(pipeline_id, yaml=self._text(), desc=desc, user=username)
        return True, {"pipelineID": made.pipeline_id, "pipelineVersionID": made.version_id}

    def _text(self) -> bytes:
        return compiler.as_yaml(self.compile()).encode()


def _dotted(names: Sequence[str]) -> list[str]:
    """Names as the platform has them, without the root's, which full names of this side begin with."""
    return [name.removeprefix(f"{ROOT}.") for name in names]
