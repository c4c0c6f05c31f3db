"""The `Runtime` protocol: start, observe, stop, logs, adopt, capacity; and the values that go in and out.

Guarantees, checked by ``tests/contract/test_runtime.py`` for every implementation:

* `start` is idempotent by ``Launch.attempt``: asked twice, also by a server started after a crash, it runs once.
* What was started goes on when the server dies, and its end is not lost: `adopt` reports it to the next server.
* Every attempt that was started gives exactly one final observation (`Ended`) until `forget`; it may be reported
  again after a restart.
* `stop` ends the whole process group: SIGTERM, then SIGKILL after the grace time. Stopping what has ended is fine.
* What has ended by the time it is reported may be reported by its `Ended` alone; `started_at` says when it started.

`prefetch` has the rules of an optional part; a runtime can be read, written and used without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.runtimes.prefetch import Prefetching, PrefetchRequest, Returned


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder that must appear at `target` inside the attempt's view of the file system."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one member of a job, once."""

    attempt: AttemptId
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str  #: the job's own folder; the log of the attempt lies in it
    log: str  #: file that takes stdout and stderr, appended
    cwd: str
    work: str = ""  #: folder in which it may leave things; made for it, with those above
    request: Resources = field(default_factory=Resources)
    limit: Resources | None = None  #: None: no limit is enforced
    mounts: tuple[Mount, ...] = ()
    ready_port: int | None = None  #: the attempt is ready when this port listens; None: as soon as it runs
    prefetch: PrefetchRequest | None = None  #: see `prefetch`; None: it has a slot, and passes it to nobody

    @property
    def waits_for_slot(self) -> bool:
        return self.prefetch is not None and self.prefetch.waiting

    def prefetched(self, after: tuple[AttemptId, ...] = ()) -> Launch:
        """The same without a slot of its own."""
        assert self.prefetch is not None, f"{self.attempt} has no slot class"
        return replace(self, prefetch=replace(self.prefetch, waiting=True, after=after))


@dataclass(frozen=True, slots=True)
class Started:
    attempt: AttemptId
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Others may now rely on it (its port listens, or it has none)."""

    attempt: AttemptId
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The one final observation of an attempt.

    `exit_code` is the process's own, 128 + signal when a signal ended it, and None when it never ran or is not known;
    `message` then says why in words for a person (missing executable, memory limit, log flood, lost with the machine).
    """

    attempt: AttemptId
    at: float
    exit_code: int | None
    message: str = ""
    started_at: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    successor: AttemptId | None = None  #: who took its slot, and has started or is about to (see `prefetch`)


Observation = Started | Ready | Ended | Returned


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A place that jobs run on, and what it has."""

    name: str
    address: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a log from `offset`; `next_offset` continues, `size` is how much there is now."""

    data: bytes
    offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What one attempt used at one moment. Counters count from its start; None where the machine does not tell."""

    at: float
    cpu_seconds: float
    memory: int
    disk_read: int | None = None
    disk_write: int | None = None
    net_received: int | None = None
    net_sent: int | None = None
    disk_usage: int | None = None


class Runtime(Protocol):
    """A cluster that can run attempts."""

    @property
    def prefetching(self) -> Prefetching | None:
        """Its prefetch queue; None when every launch must have a slot."""
        ...

    async def open(self) -> None:
        """Connect to what is there; nothing is started by it."""
        ...

    async def close(self) -> None:
        """Let go. What runs goes on running."""
        ...

    async def capacity(self) -> Sequence[NodeInfo]: ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Ask for these to run. A launch that cannot run ends at once with an `Ended` that says why."""
        ...

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None: ...

    def observe(self) -> AsyncIterator[Sequence[Observation]]:
        """Batches of what happened, as it happens. One reader."""
        ...

    async def adopt(self) -> Sequence[Observation]:
        """What this runtime knows of every attempt not yet forgotten: running (`Started`, `Ready`) or `Ended`."""
        ...

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        """These ends are recorded durably elsewhere and need not be reported again."""
        ...

    async def log(self, path: str, offset: int, limit: int) -> LogChunk:
        """Part of a log, also long after its attempt ended. A negative offset counts from the end."""
        ...

    async def sample(self) -> Mapping[AttemptId, Sample]:
        """What the running attempts use now."""
        ...
