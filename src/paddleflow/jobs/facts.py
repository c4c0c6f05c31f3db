"""The inputs (facts) and outputs (commands) of the job machine. Values only; `machine.advance` joins them."""

from __future__ import annotations

from typing import TypeAlias

from paddleflow.base.values import dataclass
from paddleflow.jobs.model import JobStatus

Key: TypeAlias = tuple[str, int]  #: (role, index)


@dataclass(frozen=True, slots=True)
class Placed:
    """The scheduler gave every member its place."""

    at: float
    members: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class MemberStarted:
    at: float
    key: Key


@dataclass(frozen=True, slots=True)
class MemberDelayed:
    """Something keeps it from starting; the message says what."""

    at: float
    key: Key
    message: str


@dataclass(frozen=True, slots=True)
class MemberReady:
    at: float
    key: Key


@dataclass(frozen=True, slots=True)
class MemberEnded:
    at: float
    key: Key
    exit_code: int | None
    message: str = ""
    started_at: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None


@dataclass(frozen=True, slots=True)
class StopAsked:
    at: float
    message: str
    outcome: JobStatus = JobStatus.TERMINATED


@dataclass(frozen=True, slots=True)
class Evicted:
    """It must make way for another job."""

    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Resized:
    """It gets these members more and those less; `anew`: by ending all and starting the attempt after this one."""

    at: float
    added: tuple[Key, ...]
    removed: tuple[Key, ...]
    message: str = ""
    anew: bool = False


Fact: TypeAlias = Placed | MemberStarted | MemberDelayed | MemberReady | MemberEnded | StopAsked | Evicted | Resized

# ── commands ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Launch:
    """Start these members."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Halt:
    """End these members, politely first."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Its resources are free again."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Ask the scheduler for a new place, not before this moment."""

    not_before: float


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The members that had to go have gone."""


@dataclass(frozen=True, slots=True)
class Replace:
    """All members have gone; the next attempt starts at the places that the scheduler has for it."""


Command: TypeAlias = Launch | Halt | Release | Requeue | Shrunk | Replace
