"""What every handler works with: the parts of a running server, put together by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from paddleflow.access.sessions import Sessions
from paddleflow.api.cluster_view import ClusterView, NoNodes
from paddleflow.api.forecaster import Forecaster
from paddleflow.base.clock import Clock
from paddleflow.base.quantity import Resources
from paddleflow.jobs.durations import DurationHistory
from paddleflow.jobs.submission import AdmissionCache, AdmittedJob, QueueCache
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.scheduling.model import Reason, Snapshot
from paddleflow.scheduling.suggestions import Suggestion
from paddleflow.settings import Settings
from paddleflow.storage.file_pool import FilePool
from paddleflow.store.bus import Bus
from paddleflow.store.database import Database

#: Empty when all is well, otherwise what is wrong, for a person.
Check = Callable[[], Awaitable[str]]
#: Looks again at what the registry shows.
Refresh = Callable[[], Awaitable[None]]

#: What is in a waiting job's way and what would start it (given the queues its owner may use and the sizes there are);
#: None when that is not known here.
Explain = Callable[[str, Iterable[str], Iterable[Resources]], tuple[Reason, Sequence[Suggestion]] | None]


@dataclass(frozen=True, slots=True)
class Workplace:
    """The cluster that this server runs jobs on, as handlers see it."""

    data: Path  #: folder with the jobs' files
    runtime: Runtime
    nodes: Callable[[], Sequence[NodeInfo]]
    why: Callable[[str], Reason | None]  #: why a job waits; None when that is not known here
    explain: Explain = lambda job, queues, sizes: None
    snapshot: Callable[[float], Snapshot | None] = lambda now: None  #: what the scheduler sees; None: it is not here
    forecaster: Forecaster = field(default_factory=Forecaster)  #: when waiting jobs start
    durations: DurationHistory = field(default_factory=DurationHistory)  #: what is known of durations
    queues: QueueCache = field(default_factory=QueueCache)  #: for submissions
    admitted: AdmissionCache[AdmittedJob] = field(default_factory=AdmissionCache)  #: likewise


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
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  #: what /metrics shows
    refresh: list[Refresh] = field(default_factory=list)  #: what /metrics awaits before it shows the registry
    closing: asyncio.Event = field(default_factory=asyncio.Event)  #: set when the server begins to stop: streams end
    checks: Mapping[str, Check] = field(default_factory=dict)  #: what /readyz asks besides the database

    def __post_init__(self) -> None:
        object.__setattr__(self, "sessions", Sessions(self.database, self.clock, self.settings.access))

    @property
    def jobs_run_here(self) -> Workplace:
        """The workplace of a server that has one."""
        assert self.workplace is not None, "this platform was put together without a cluster"
        return self.workplace
