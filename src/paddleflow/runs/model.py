"""What a run is, inside the platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from paddleflow.base.values import dataclass
from paddleflow.spec.pipeline.model import Pipeline, Value

PAUSED = "paused before it"  #: message of a component that waits at a breakpoint
SUCCESS = "Run successfully"


class RunStatus(StrEnum):
    """The states of a run. `initiating` is accepted, and the engine has not taken it up yet; `skipped` is a schedule's slot that was only noted."""

    INITIATING = "initiating"
    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"

    @property
    def final(self) -> bool:
        return self in FINAL_RUNS


FINAL_RUNS = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.TERMINATED, RunStatus.SKIPPED})
ACTIVE_RUNS = frozenset(RunStatus) - FINAL_RUNS


class ComponentStatus(StrEnum):
    """The states of a component. `init` waits for others, `pending` for its turn, its resources or a person."""

    INIT = "init"
    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TERMINATED = "terminated"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def final(self) -> bool:
        return self in FINAL_COMPONENTS


FINAL_COMPONENTS = frozenset(
    {
        ComponentStatus.SUCCEEDED,
        ComponentStatus.FAILED,
        ComponentStatus.TERMINATED,
        ComponentStatus.CANCELLED,
        ComponentStatus.SKIPPED,
    }
)
GOOD = frozenset({ComponentStatus.SUCCEEDED, ComponentStatus.SKIPPED})  #: what comes after may begin


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that passed every check, ready to become rows. `pipeline` is bound: what runs is exactly that."""

    user: str
    pipeline: Pipeline
    document: str  #: the text as it was sent
    source: str  #: a path, <pipeline id>-<version>, or empty: the md5 of the document
    name: str = ""  #: empty: the pipeline's
    description: str = ""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    docker_env: str = ""
    disabled: Sequence[str] = ()
    fs_id: str = ""  #: the main storage, resolved; empty: none
    fs_name: str = ""
    schedule_id: str = ""
    scheduled_at: float | None = None
    breakpoints: Sequence[str] = ()
    retry_of: str = ""
