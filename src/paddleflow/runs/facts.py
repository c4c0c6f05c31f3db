"""The facts that a run's machine is given, and the commands it answers with. Values only; `number` is a component's in its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from paddleflow.base.values import dataclass

# ── facts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Adopted:
    """An engine has adopted this run: for the first time, or after a restart."""

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
class JobRefused:
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
class Measurement:
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
class OutputsPrepared:
    """The folders of a step's outputs are there, and empty; or why not."""

    at: float
    number: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutputsRecorded:
    """A step's outputs are there and were measured; or which of them is missing or cannot be read."""

    at: float
    number: int
    made: Mapping[str, Measurement]
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutputsProgress:
    """A step's outputs take long to measure: so many bytes were read by now."""

    at: float
    number: int
    done: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    at: float
    force: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class BreakpointsSet:
    at: float
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed: a try may be due, or have run too long."""

    at: float


Fact: TypeAlias = (
    Adopted
    | JobPlaced
    | JobStarted
    | JobEnded
    | JobRefused
    | FilesRead
    | CacheAnswered
    | OutputsPrepared
    | OutputsRecorded
    | OutputsProgress
    | StopRequested
    | BreakpointsSet
    | TimePassed
)

# ── commands ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Read these input artifacts (name → paths, joined by commas)."""

    number: int
    paths: Mapping[str, str]
    most: int  #: bytes of each


@dataclass(frozen=True, slots=True)
class LookUpCache:
    """Is there a result that serves instead of running this step?"""

    number: int


@dataclass(frozen=True, slots=True)
class PrepareOutputs:
    """Make the folders of this step's outputs."""

    number: int


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit the job of this step's next try; it is held back while the step is prefetched."""

    number: int


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """The job of a prefetched step is held back no longer."""

    number: int


@dataclass(frozen=True, slots=True)
class WithdrawJob:
    """The job of a prefetched step is not wanted any more."""

    number: int
    job: str  #: empty: it was not submitted yet


@dataclass(frozen=True, slots=True)
class RecordOutputs:
    """Note what this step made."""

    number: int


@dataclass(frozen=True, slots=True)
class StopJob:
    """End the job of this step."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class FinishRun:
    """The run has ended."""


Command: TypeAlias = (
    ReadFiles
    | LookUpCache
    | PrepareOutputs
    | SubmitJob
    | ReleaseJob
    | WithdrawJob
    | RecordOutputs
    | StopJob
    | FinishRun
)
