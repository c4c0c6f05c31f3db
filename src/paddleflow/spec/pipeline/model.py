"""What a pipeline document says, once it is read, checked, and its references are resolved.

Everybody who looks at a pipeline (engine, exporters, graphs, differences) looks at these values and never at YAML. Values
only: no check, no default that depends on the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from paddleflow.base.values import dataclass

Value: TypeAlias = "str | int | float | list[Value]"  #: of a parameter

ENTRY_POINTS = "entry_points"
POST_PROCESS = "post_process"
DEFAULT_PARALLELISM = 10
FAIL_FAST = "fail_fast"
CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something stands in the document; lines and columns count from 1. Line 0: nowhere, as in JSON."""

    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value given to a component. `type` is empty where the document states none: then any value may replace it."""

    value: Value
    type: str = ""  #: "" | string | float | int | list | path


@dataclass(frozen=True, slots=True)
class FsScope:
    """Paths of a storage whose change makes a cached result stale."""

    name: str
    paths: tuple[str, ...] = ("/",)


@dataclass(frozen=True, slots=True)
class Cache:
    """Whether a step may be served from an earlier one."""

    enable: bool = False
    max_expired_time: int = -1  #: seconds; -1: for ever
    fs_scope: tuple[FsScope, ...] = ()


@dataclass(frozen=True, slots=True)
class FsMount:
    """A storage as steps see it."""

    name: str
    mount_path: str = ""  #: empty: the platform's own place for it
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed step is tried again, and for which exits."""

    times: int = 0
    delay: float = 1.0  #: seconds before the first new try
    factor: float = 2.0  #: each further one waits so many times longer
    most: float = 300.0  #: but never longer than this
    exit_codes: tuple[int, ...] = ()  #: only after these; empty: after any failure


@dataclass(frozen=True, slots=True)
class Step:
    """A leaf: one command, or one job of any kind."""

    name: str
    command: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)  #: artifact name → template
    outputs: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()  #: siblings by name, those of its templates included
    env: Mapping[str, str] = field(default_factory=dict)
    docker_env: str = ""  #: its own; once a run is bound: the image that it uses
    cache: Cache = Cache()  #: with the pipeline's own already applied
    condition: str = ""
    loop_argument: str | list[Any] | None = None
    extra_fs: tuple[FsMount, ...] = ()  #: its own, then the pipeline's
    job: Mapping[str, Any] | None = (
        None  #: a job document of the platform, in the words of the job API; None: a single job
    )
    retry: Retry = Retry()
    timeout: float = 0.0  #: seconds that one try may run; 0: as long as it likes
    secrets: tuple[Mapping[str, str], ...] = ()  #: name, env and file of each, as the job API has them
    code: Mapping[str, Any] | None = None  #: as the job API has it; ``folder`` instead of a snapshot: not sent yet
    requirements: str = ""  #: lines of a requirements file; its packages are installed for the step
    mark: Mark = field(default=Mark(), compare=False)


@dataclass(frozen=True, slots=True)
class Dag:
    """A component made of components."""

    name: str
    children: Mapping[str, Component]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)  #: artifact name → template of a child's output
    deps: tuple[str, ...] = ()
    condition: str = ""
    loop_argument: str | list[Any] | None = None
    mark: Mark = field(default=Mark(), compare=False)


Component: TypeAlias = Step | Dag


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole document."""

    name: str
    entry_points: Mapping[str, Component]
    post_process: Step | None = None
    docker_env: str = ""
    parallelism: int = DEFAULT_PARALLELISM
    disabled: frozenset[str] = frozenset()  #: dotted names from the entry points on
    strategy: str = FAIL_FAST
    main_fs: FsMount | None = None
    extra_fs: tuple[FsMount, ...] = ()
    cache: Cache = Cache()
