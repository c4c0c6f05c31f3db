"""What every handler works with: the parts of a running server, put together by the composition root."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from paddleflow.access.audit import AuditLog
from paddleflow.access.sessions import Sessions
from paddleflow.api.cluster_view import ClusterView, NoNodes
from paddleflow.api.forecaster import Forecaster
from paddleflow.api.peers import Peers
from paddleflow.base.clock import Clock
from paddleflow.base.quantity import Resources
from paddleflow.jobs.durations import DurationHistory
from paddleflow.jobs.submission import AdmissionCache, AdmittedJob, Nodes, QueueCache
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.scheduling.model import Reason, Snapshot
from paddleflow.scheduling.record import Entry
from paddleflow.scheduling.suggestions import Suggestion
from paddleflow.settings import Settings
from paddleflow.storage.file_pool import FilePool
from paddleflow.store.bus import Bus
from paddleflow.store.database import Database

#: Empty when all is well, otherwise what is wrong, for a person.
Check = Callable[[], Awaitable[str]]
#: Looks again at what the registry shows.
Refresh = Callable[[], Awaitable[None]]


class Engine(Protocol):
    """What handlers ask of the engine of a cluster. None, from any of them: this is not known here at the moment."""

    def why(self, job: str) -> Reason | None:
        """Why a job waits."""
        ...

    async def explain(
        self, job: str, queues: Iterable[str], sizes: Iterable[Resources]
    ) -> tuple[Reason, Sequence[Suggestion]] | None:
        """What is in a waiting job's way, and what would start it, given the queues that its owner may use and the sizes there are."""
        ...

    async def snapshot(self, now: float) -> Snapshot | None:
        """Everything that the scheduler decides by."""
        ...

    def decisions(self, since: float) -> Iterator[Entry]:
        """The decision log, from the last snapshot before `since`. Reads files: not on the event loop."""
        ...


class Engines(Protocol):
    """The engines that run in this server, by the clusters that they run."""

    def engine(self, cluster: str) -> Engine | None:
        """None: another server runs this cluster, or nobody."""
        ...

    @property
    def elsewhere(self) -> Mapping[str, str]:
        """Clusters whose processes only another server can see → that server."""
        ...

    def nodes(self, cluster: str) -> Sequence[NodeInfo]: ...

    def capacities(self) -> Nodes:
        """What the nodes of each cluster have."""
        ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where this server runs jobs, as handlers see it."""

    data: Path  #: folder with the jobs' files
    runtime: Runtime
    engines: Engines
    forecasters: defaultdict[str, Forecaster] = field(default_factory=lambda: defaultdict(Forecaster))  #: by cluster
    durations: DurationHistory = field(default_factory=DurationHistory)  #: what is known of durations
    queues: QueueCache = field(default_factory=QueueCache)  #: for submissions
    admitted: AdmissionCache[AdmittedJob] = field(default_factory=AdmissionCache)  #: likewise


@dataclass(slots=True)
class StreamCount:
    """How many streams of events are open; each counts for the length of a ``with``."""

    open: int = 0

    def __enter__(self) -> None:
        self.open += 1

    def __exit__(self, *error: object) -> None:
        self.open -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The parts of a server that handlers use."""

    settings: Settings
    database: Database
    clock: Clock
    bus: Bus
    workplace: Workplace | None = None  #: None in tests of routes that run nothing
    clusters: ClusterView = field(default_factory=NoNodes)  #: who knows the nodes
    files: FilePool = field(default_factory=FilePool)  #: where files of users are read
    sessions: Sessions = field(init=False)  #: who calls
    audit: AuditLog = field(init=False)  #: who changed what
    peers: Peers | None = None  #: the other servers; None when there can be none
    streams: StreamCount = field(default_factory=StreamCount)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  #: what /metrics shows
    refresh: list[Refresh] = field(default_factory=list)  #: what /metrics awaits before it shows the registry
    closing: asyncio.Event = field(default_factory=asyncio.Event)  #: set when the server begins to stop: streams end
    checks: Mapping[str, Check] = field(default_factory=dict)  #: what /readyz asks besides the database

    def __post_init__(self) -> None:
        object.__setattr__(self, "audit", AuditLog(self.database))
        object.__setattr__(self, "sessions", Sessions(self.database, self.clock, self.settings.access))

    @property
    def jobs_run_here(self) -> Workplace:
        """The workplace of a server that has one."""
        assert self.workplace is not None, "this platform was put together without a cluster"
        return self.workplace
