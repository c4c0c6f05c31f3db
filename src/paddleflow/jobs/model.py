"""What a job is, inside the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.jobs.node_rules import ANY_NODE, NodeRules
from paddleflow.spec.job import ANY, SUCCEEDED


class JobStatus(StrEnum):
    """The states of a job. ``init`` is accepted but not looked at, ``pending`` waits or is being started."""

    INIT = "init"
    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    PREEMPTING = "preempting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TERMINATED = "terminated"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    PREEMPTED = "preempted"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset(
    {
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
        JobStatus.TERMINATED,
        JobStatus.CANCELLED,
        JobStatus.SKIPPED,
        JobStatus.PREEMPTED,
    }
)
ACTIVE = frozenset(JobStatus) - FINAL
NODE = "node/"  #: begins what a job was evicted by if that was a node that it lost, and not another job


class Dependency(NamedTuple):
    """A job that another one runs after."""

    job: str
    ending: str  #: how it must end: `succeeded`, `any` or `failed`

    def is_met(self, status: JobStatus) -> bool:
        """Whether a job that ended like this lets the other one start."""
        return self.ending == ANY or (status is JobStatus.SUCCEEDED) == (self.ending == SUCCEEDED)


class TaskStatus(StrEnum):
    """The states of one member. ``waiting`` has its place but an earlier stage is not ready yet."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def final(self) -> bool:
        return self in {TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.STOPPED}


class RestartPolicy(StrEnum):
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class MountedStorage:
    """A storage as a member sees it: resolved at submission, so that later changes do not move a running job."""

    id: str
    name: str
    source: str  #: folder on this machine
    mount_path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """The code that a member runs with, as its working directory: a snapshot, or a folder of this machine."""

    snapshot: str
    path: str
    workdir: str  #: below it


@dataclass(frozen=True, slots=True)
class UsedSecret:
    """A secret that a member is given, by name: as a variable, a file, or both."""

    name: str
    env: str
    file: str


@dataclass(frozen=True, slots=True)
class Member:
    """One role of a job, with everything resolved."""

    role: str
    replicas: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    request: Resources
    limit: Resources | None  #: None: nothing is enforced
    storages: tuple[MountedStorage, ...] = ()
    least: int | None = (
        None  #: the job starts with so many, and `replicas` is the most that it may get; None: all or none
    )
    in_place: bool = False  #: members come and go while the others run; otherwise all start anew at the new size
    nodes: NodeRules = ANY_NODE  #: what its pod template says of nodes
    #: the fields as they were sent (name, flavour, image, command, …), for those who ask later
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> Code | None:
        found = self.document.get("code")
        if found is None:
            return None
        return Code(found.get("snapshot", ""), found.get("path", ""), found.get("workdir", ""))

    @property
    def secrets(self) -> tuple[UsedSecret, ...]:
        return tuple(
            UsedSecret(use["name"], use.get("env", ""), use.get("file", "")) for use in self.document.get("secrets", ())
        )


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that passed every check, ready to become rows."""

    id: str  #: empty: it gets one when it is written
    name: str
    user: str
    queue: str
    cluster: str  #: of the queue
    kind: str
    framework: str
    priority: str
    members: tuple[Member, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    template: Mapping[str, Any] | None
    request: Resources  #: of all members together
    ttl: float | None
    after: tuple[str, ...] = ()  #: jobs that must end first, as they were given
    waits_for: tuple[Dependency, ...] = ()  #: those of them that have not ended yet
    array: str = ""  #: id of the array that it belongs to
