"""What every handler works with: the parts of a running server, put together by the composition root."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from paddleflow.access.audit import AuditLog
from paddleflow.access.sessions import Sessions
from paddleflow.access.user_folders import UIDS, UserFolders
from paddleflow.api.cluster_view import CheckCluster, ClusterView, NoNodes
from paddleflow.api.fair_use import Computing, SharedAnswer, UserQueue
from paddleflow.api.peers import Peers
from paddleflow.api.store_checks import StoreChecks
from paddleflow.base.clock import Clock
from paddleflow.base.quantity import Resources
from paddleflow.base.user_limit import UserLimit
from paddleflow.base.values import dataclass
from paddleflow.errors import Fault
from paddleflow.jobs.code import FOLDER as CODE
from paddleflow.jobs.durations import DurationHistory
from paddleflow.jobs.environment import FOLDER as ENVIRONMENTS
from paddleflow.jobs.forecaster import Forecaster
from paddleflow.jobs.submission import AdmissionCache, AdmittedJob, Nodes, QueueCache
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.log_folder import LogFolder, SampleFolder
from paddleflow.runtimes.log_store import LogStore, SampleStore
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.scheduling.model import Reason, Request, Snapshot
from paddleflow.scheduling.record import Entry
from paddleflow.scheduling.suggestions import Suggestion
from paddleflow.settings import Settings
from paddleflow.storage.file_pool import FilePool
from paddleflow.storage.places import AREAS
from paddleflow.storage.stores import Stores
from paddleflow.storage.unfinished_uploads import UnfinishedUploads
from paddleflow.store.bus import Bus
from paddleflow.store.database import Database
from paddleflow.store.encryption import Keyring

CLUSTERS_FOLDER = "clusters"  #: of the data folder: what this server keeps of jobs elsewhere, by cluster

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

    async def why_not(self, request: Request) -> str | None:
        """Why a job that waits on another cluster would not start here now; empty when it would, None when that is not known."""
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

    def runtime(self, cluster: str) -> Runtime | None:
        """Where the jobs of a cluster run; None: this server has nothing to do with it at the moment."""
        ...

    def trouble(self, cluster: str) -> str:
        """Why the jobs of a cluster do not move; empty when they do, or when another server moves them."""
        ...

    def capacities(self) -> Nodes:
        """What the nodes of each cluster have."""
        ...


@dataclass(frozen=True, slots=True)
class Compute:
    """Where this server runs jobs, as handlers see it."""

    data: Path  #: folder with the jobs' files
    runtime: Runtime
    engines: Engines
    forecasters: defaultdict[str, Forecaster] = field(default_factory=lambda: defaultdict(Forecaster))  #: by cluster
    durations: DurationHistory = field(default_factory=DurationHistory)  #: what is known of durations
    queues: QueueCache = field(default_factory=QueueCache)  #: for submissions
    admitted: AdmissionCache[AdmittedJob] = field(default_factory=AdmissionCache)  #: likewise
    files: Path | None = None  #: folder that servers share; None: there is one server

    @property
    def kept(self) -> Path:
        return self.files or self.data

    def logs(self, cluster: str) -> LogStore:
        """The logs of a cluster's jobs; those that were collected stay when the cluster is away."""
        found = self.runtime_of(cluster)
        return found.logs if found else LogFolder(self.kept / CLUSTERS_FOLDER / cluster)

    def samples(self, cluster: str) -> SampleStore:
        found = self.runtime_of(cluster)
        return found.samples if found else SampleFolder(LogFolder(self.kept / CLUSTERS_FOLDER / cluster))

    def folder_on_disk(self, cluster: str, job: str) -> Path | None:
        found = self.runtime_of(cluster)
        return found.folder_on_disk(job) if found else None

    async def remove_logs(self, jobs: Sequence[str]) -> None:
        """Of jobs that are gone, wherever they ran."""
        await self.runtime.logs.remove(jobs)
        folder = self.kept / CLUSTERS_FOLDER
        for each in await asyncio.to_thread(lambda: sorted(folder.iterdir()) if folder.is_dir() else []):
            await self.logs(each.name).remove(jobs)

    def runtime_of(self, cluster: str) -> Runtime | None:
        """Where the jobs of a cluster run; None: this server has nothing to do with it at the moment."""
        return self.runtime if cluster == DEFAULT_CLUSTER else self.engines.runtime(cluster)


@dataclass(frozen=True, slots=True)
class Streaming:
    """How often streams look for something new, in seconds, and how much they take at once."""

    poll_events: float = 2.0  #: between two queries of a stream of events when no wake-up comes; they may be lost
    push_jobs: float = 3.0  #: between two pushes of the websocket
    events_at_once: int = 500
    poll_log: float = 0.2  #: between two reads of a log that is followed; up to a second when nothing is written
    ask_job: float = 5.0  #: between two questions whether the job of a log still runs, when no wake-up comes
    log_chunk: int = 2**18  #: bytes


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
    compute: Compute | None = None  #: None in tests of routes that run nothing
    clusters: ClusterView = field(default_factory=NoNodes)  #: who knows the nodes
    check_cluster: CheckCluster | None = None  #: None: clusters are recorded without a look at them
    files: FilePool = field(default_factory=FilePool)  #: where files of users are read
    computing: Computing = field(default_factory=Computing)  #: where what takes long is computed
    large_pages: UserQueue = field(default_factory=lambda: UserQueue(1))  #: of jobs; they take the interpreter as long
    keyring: Keyring = field(default_factory=Keyring.random)  #: what secrets in rows are encrypted with
    store_checks: StoreChecks = field(default_factory=StoreChecks)  #: where stores are tried out
    uploads: UnfinishedUploads = field(default_factory=UnfinishedUploads)  #: to storages on the server's disk
    sessions: Sessions = field(init=False)  #: who calls
    audit: AuditLog = field(init=False)  #: who changed what
    user_folders: UserFolders = field(init=False)  #: where files are kept by user
    peers: Peers | None = None  #: the other servers; None when there can be none
    streaming: Streaming = field(default_factory=Streaming)
    streams: StreamCount = field(default_factory=StreamCount)
    exec_sessions: UserLimit = field(
        default_factory=lambda: UserLimit("sessions of job exec", 16, 64, code="TooManySessions")
    )
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  #: what /metrics shows
    refresh: list[Refresh] = field(default_factory=list)  #: what /metrics awaits before it shows the registry
    closing: asyncio.Event = field(default_factory=asyncio.Event)  #: set when the server begins to stop: streams end
    checks: Mapping[str, Check] = field(default_factory=dict)  #: what /readyz asks besides the database
    faults: SharedAnswer[list[Fault]] = field(default_factory=SharedAnswer)  #: what /readyz says
    metrics: SharedAnswer[bytes] = field(default_factory=SharedAnswer)  #: what /metrics says

    def __post_init__(self) -> None:
        object.__setattr__(self, "audit", AuditLog(self.database))
        data, files = self.settings.data_folder, self.settings.files_folder
        folders = (data / AREAS, data / ENVIRONMENTS, data / UIDS, files / CODE)
        object.__setattr__(self, "user_folders", UserFolders(self.database, folders))
        object.__setattr__(self, "sessions", Sessions(self.database, self.clock, self.settings.access))

    @property
    def stores(self) -> Stores:
        """Opens storages."""
        return Stores(self.settings.data_folder, self.keyring)

    @property
    def jobs_run_here(self) -> Compute:
        """What runs the jobs of a server that has it."""
        assert self.compute is not None, "this platform was put together without a cluster"
        return self.compute
