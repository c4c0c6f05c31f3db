"""The `Runtime` protocol: what starts, observes and stops attempts on a cluster's nodes, and the values that go in and out.

A `Launch` says what every runtime needs, be it one of processes or of pods; what only one kind has (argument vectors, folders,
cgroups; pod names, volumes) is derived by that runtime. Guarantees, checked by ``tests/contract/test_runtime.py`` for every
implementation:

* `start` is idempotent by ``Launch.attempt``: asked twice, also by a server started after a crash, it runs once.
* What was started keeps running when the server dies, and its end is not lost: `adopt` reports it to the next server.
* Every attempt that was started gives exactly one final observation (`Ended`) until `forget`; it may be reported again after
  a restart.
* `stop` ends all processes of an attempt: SIGTERM, then SIGKILL after the grace time. Stopping what has ended is fine.
* What has ended by the time it is reported may be reported by its `Ended` alone; `started_at` says when it started.
* `Started`, and the `Ended` of what has run, name the node: for an adopted prefetched attempt there is no other source.
* `observe` reports every change of the nodes after `nodes` was called; attempts on a node that is gone end.

`prefetch` has the rules of an optional part; a runtime can be read, written and used without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.runtimes.foreign_pods import ForeignPods
from paddleflow.runtimes.log_store import LogStore, Sample, SampleStore
from paddleflow.runtimes.prefetch import Prefetching, PrefetchRequest, Returned

RUN_VARIABLE = "PF_RUN_ID"  #: of `Launch.env`: the run that the attempt is a step of; only steps have it
SECRETS_VARIABLE = "PF_SECRETS_DIR"  #: folder of an attempt's `Launch.secret_files`, which only its user may read


@dataclass(frozen=True, slots=True)
class Mount:
    """A storage, or a folder of it, that must appear at `target` inside the attempt's view of the file system."""

    storage: str  #: its id
    target: str
    location: str = ""  #: where its files are, as resolved when the job was submitted: a folder of the node, or an URL
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one member of a job, once."""

    attempt: AttemptId
    command: tuple[str, ...]
    env: Mapping[str, str]
    user: str = ""  #: of the platform, for whom it runs
    image: str = ""  #: empty: the node's own file system
    node: str = ""  #: where the scheduler placed it; empty: any
    namespace: str = ""  #: of its queue, where the cluster has namespaces
    queue: str = ""
    priority: str = ""  #: of its job, a word of the API
    node_selector: Mapping[str, str] = field(
        default_factory=dict
    )  #: labels of nodes of its queue, should `node` not count
    gang: int = 1  #: members that start together with it, itself included
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)  #: of its job, where the cluster has such a thing
    request: Resources = field(default_factory=Resources)
    limit: Resources | None = None  #: None: no limit is enforced
    mounts: tuple[Mount, ...] = ()
    working_dir: str = (
        ""  #: as the attempt sees it, or below its code; empty: a work folder that the job's members share
    )
    code: str = ""  #: snapshot of `user` that is unpacked before the command and is its working directory
    requirements: str = ""  #: lines of a requirements file whose packages the command finds installed
    files: Mapping[str, str] = field(default_factory=dict)  #: small ones, by their name in `Runtime.job_folder`
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)  #: as `env`; must not be shown or kept
    secret_files: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  #: by name, in the folder SECRETS_VARIABLE
    ports: tuple[int, ...] = ()  #: given to it alone
    address: str = (
        ""  #: where the other members of its job reach it, by `Runtime.member_address`; empty: there are none
    )
    ready_port: int | None = None  #: the attempt is ready when this port listens; None: as soon as it runs
    prefetch: PrefetchRequest | None = None  #: see `prefetch`; None: it has a slot, and passes it to nobody
    template: Mapping[str, Any] = field(
        default_factory=dict
    )  #: of a Pod, as the user wrote it; what only pods can honour

    @property
    def waits_for_slot(self) -> bool:
        return self.prefetch is not None and self.prefetch.waiting


@dataclass(frozen=True, slots=True)
class Started:
    attempt: AttemptId
    at: float
    pid: int = 0  #: of its main process on its node; 0 where that is not known
    node: str = field(default="", kw_only=True)  #: where it runs; empty where that is not known


@dataclass(frozen=True, slots=True)
class Delayed:
    """It cannot start at the moment; `message` says why in words for a person. It may still start, or end."""

    attempt: AttemptId
    at: float
    message: str


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
    node: str = field(default="", kw_only=True)  #: where it ran; empty where that is not known, and when it never ran
    #: The cluster took it away (its node was drained or lost, its pod evicted or deleted): no fault of its own.
    disrupted: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node that jobs run on, and what it has."""

    name: str
    address: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True  #: False: cordoned; what runs there keeps running
    taken: Resources = field(default_factory=Resources)  #: of its capacity, by others than this platform
    taints: tuple[str, ...] = ()  #: that keep this platform's attempts away
    version: str = ""  #: of the kubelet, where there is one


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node came, was cordoned or uncordoned, or has other labels or another capacity now."""

    node: NodeInfo


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node is gone. The ends of its attempts are reported as well."""

    name: str


AttemptObservation = Started | Delayed | Ready | Ended | Returned
NodeObservation = NodeChanged | NodeRemoved
Observation = AttemptObservation | NodeObservation


class Runtime(Protocol):
    """A cluster that can run attempts."""

    @property
    def logs(self) -> LogStore: ...

    @property
    def samples(self) -> SampleStore: ...

    @property
    def prefetching(self) -> Prefetching | None:
        """Its prefetch queue; None when every launch must have a slot."""
        ...

    @property
    def foreign_pods(self) -> ForeignPods | None:
        """Pods of others that its engine places too; None where there are none. `Unavailable` while somebody else places them."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot start or see anything at the moment, for a person; empty when it can."""
        ...

    async def open(self) -> None:
        """Connect to what is there; nothing is started by it."""
        ...

    async def close(self) -> None:
        """Disconnect. What runs keeps running."""
        ...

    async def nodes(self) -> Sequence[NodeInfo]:
        """All nodes as of now; `observe` reports what changes."""
        ...

    def job_folder(self, job: str) -> str:
        """The folder that the members of a job share, as they see it; `Launch.files` appear in it."""
        ...

    def member_address(self, job: str, role: str, index: int) -> str:
        """Where the other members of a job reach this one; empty: at the address of its node."""
        ...

    @property
    def numbers_devices(self) -> bool:
        """Whether the scheduler says which devices a member gets; False: something on the node does."""
        ...

    def folder_on_disk(self, job: str) -> Path | None:
        """The same on the disk of this machine, for reading what the job left: ``work`` is the work folder, ``code`` the
        snapshot that it ran with, if any. None: its files are elsewhere."""
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Ask for these to run. A launch that cannot run ends at once with an `Ended` that says why."""
        ...

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None: ...

    def observe(self) -> AsyncIterator[Sequence[Observation]]:
        """Batches of what happened, as it happens. One reader."""
        ...

    async def adopt(self) -> Sequence[AttemptObservation]:
        """What this runtime knows of every attempt not yet forgotten: running (`Started`, `Ready`) or `Ended`."""
        ...

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        """These ends are recorded durably elsewhere and need not be reported again."""
        ...

    async def sample(self) -> Mapping[AttemptId, Sample]:
        """What the running attempts use now."""
        ...
