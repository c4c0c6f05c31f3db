"""What a run's machine is told, and what it asks for. Values only; `number` is that of a component in its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

# ── facts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Begun:
    """Somebody looks after this run: for the first time, or again."""

    at: float


@dataclass(frozen=True, slots=True)
class JobPlaced:
    """A job that was held back has begun, or is about to, in the place of another."""

    at: float
    number: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    at: float
    number: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    at: float
    number: int
    status: str  #: a final JobStatus
    exit_code: int | None = None
    message: str = ""
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The job of a step cannot be: its queue, flavour or storage does not let it."""

    at: float
    number: int
    message: str


@dataclass(frozen=True, slots=True)
class FilesRead:
    """Contents of input artifacts, by name; or why they cannot be read."""

    at: float
    number: int
    contents: Mapping[str, str]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a step does and what it reads, each as one hash, with the hash of every part."""

    first: str = ""
    second: str = ""
    parts: str = "{}"  #: JSON object


@dataclass(frozen=True, slots=True)
class Measured:
    """What is at a path: file, folder or missing; the hash of its content and its size in all."""

    kind: str
    hash: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """An earlier result that serves."""

    run: str
    job: str
    outputs: Mapping[str, str]  #: artifact → path


@dataclass(frozen=True, slots=True)
class CacheAnswered:
    at: float
    number: int
    prints: Fingerprints
    hit: Hit | None
    misses: Sequence[str] = ()  #: parts that differ from the last result
    error: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The folders of a step's outputs are there, and empty; or why not."""

    at: float
    number: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step's outputs are there and were measured."""

    at: float
    number: int
    made: Mapping[str, Measured]


@dataclass(frozen=True, slots=True)
class StopAsked:
    at: float
    force: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class BreakpointsSet:
    at: float
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed: a try may be due, or have run too long."""

    at: float


Fact: TypeAlias = (
    Begun
    | JobPlaced
    | JobStarted
    | JobEnded
    | Refused
    | FilesRead
    | CacheAnswered
    | Prepared
    | Recorded
    | StopAsked
    | BreakpointsSet
    | Ticked
)

# ── commands ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Read:
    """Read these input artifacts (name → paths, joined by commas)."""

    number: int
    paths: Mapping[str, str]
    most: int  #: bytes of each


@dataclass(frozen=True, slots=True)
class LookUp:
    """Is there a result that serves instead of running this step?"""

    number: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the folders of this step's outputs."""

    number: int


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit the job of this step's next try; it is held back while the step is ahead."""

    number: int


@dataclass(frozen=True, slots=True)
class Due:
    """The job of a step that was ahead is held back no longer."""

    number: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The job of a step that was ahead is not wanted any more."""

    number: int
    job: str  #: empty: it was not submitted yet


@dataclass(frozen=True, slots=True)
class Record:
    """Note what this step made."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job of this step."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run has ended."""


Command: TypeAlias = Read | LookUp | Prepare | Submit | Due | Withdraw | Record | Stop | Finish
