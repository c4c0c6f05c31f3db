"""Foreign pods on a cluster that a server manages: its engine decides, in one ledger with the jobs of the platform.

Implements `runtimes.foreign_pods.ForeignPods`. The lease is the one of `paddleflow scheduler`, and the server goes first: a
scheduler that runs alone on this cluster gives it back and stands by. Where the server may not do what a scheduler does, nothing is
placed here, and pods of others are counted by the runtime only (`lacking` says what is missing).
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError, Unavailable
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.lease import Lease, LeaseLost
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import CLAIMS, EVENTS, LEASES, NAMESPACES, PODGROUPS, PODS, QUEUES, VOLUMES
from paddleflow.kube.rights import Right, missing_rights, rights
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.caches import Caches, Put
from paddleflow.podscheduler.changeset import PodChangeset
from paddleflow.podscheduler.pods import Pod, PodReader
from paddleflow.podscheduler.writer import Feedback, PodWriter
from paddleflow.runtimes.foreign_pods import Free
from paddleflow.runtimes.kubernetes.pods import SCHEDULER, cluster_label
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Decision, Node, Queue
from paddleflow.scheduling.rules import DEFAULTS

LEASE = "paddleflow-scheduler"
LEASE_NAMESPACE = "kube-system"
OPEN_TIMEOUT = 40.0  #: seconds to list everything, and for another scheduler to make way
_log = Log("podscheduler")


def needed_rights() -> list[Right]:
    """What placing pods of others takes, beside what running jobs does."""
    return [
        *rights("list watch", NAMESPACES),
        *rights("list watch", CLAIMS),
        *rights("list watch", VOLUMES),
        *rights("list watch get", PODS),
        *rights("create", PODS, "", "binding"),
        *rights("create", PODS, "", "eviction"),
        *rights("patch", PODS, "", "status"),
        *rights("create patch", EVENTS),
        *rights("get create update patch", LEASES, LEASE_NAMESPACE),
    ]


def volcano_rights() -> list[Right]:
    """The same where Queue and PodGroup are served."""
    return [
        *rights("list watch", QUEUES),
        *rights("patch", QUEUES, "", "status"),
        *rights("list watch", PODGROUPS),
        *rights("patch", PODGROUPS, "", "status"),
    ]


class ForeignPods:
    """Those of one cluster, from `open` to `close`."""

    def __init__(
        self,
        client: Client,
        plain: Client,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        *,
        cluster: str,
        identity: str,
    ) -> None:
        """`client` writes as the leader; `plain` is for the lease and for events, and has no fence. `identity` is the same for
        all servers of one database."""
        self.caches = Caches(client, PodReader(SCHEDULER, cluster_label(cluster)))
        self.lacking: Sequence[Right] = ()
        self._client, self._plain, self._clock, self._spawn = client, plain, clock, spawn
        self._cluster = cluster
        self._recorder = Recorder(plain, "paddleflow-server", clock)
        self._lease = Lease(plain, LEASE, LEASE_NAMESPACE, identity, clock, goes_first=True)
        self._leads = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._board: Board | None = None
        self._writer: PodWriter | None = None
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._puts: list[Put] = []
        self._changes = PodChangeset()
        self._wake: Callable[[], None] = lambda: None
        client.fence = self._lease.check
        self.caches.subscribe(Board(DEFAULTS), self._forward)

    # ---- open and closed

    def share(self, pods: Cache[Any], nodes: Cache[Any]) -> None:
        """Live on these caches of all pods and nodes, instead of watching the same a second time. Before they are run."""
        pods.feed(self.caches.pods)
        nodes.feed(self.caches.nodes)

    async def open(self) -> None:
        """Watch, and take the lease; afterwards `lacking` says whether pods can be placed."""
        has_volcano, lacking, lacking_there = await asyncio.gather(
            self.caches.find_volcano(),
            missing_rights(self._plain, needed_rights()),
            missing_rights(self._plain, volcano_rights()),
        )
        self.lacking = [*lacking, *lacking_there] if has_volcano else lacking
        if self.lacking:
            _log.warning(
                "pods of others are counted and not placed",
                cluster=self._cluster,
                reason="not allowed to " + ", ".join(map(str, self.lacking)),
            )
            return
        self._tasks = [self._spawn(cache.run()) for cache in self.caches.all if not cache.fed]
        self._tasks += [self._spawn(self._recorder.run()), self._spawn(self._keep_lease())]
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await self.caches.synced()
                await self._leads.wait()
        except TimeoutError as error:
            late = [cache for cache in self.caches.watched if not cache.synced.is_set()]
            why = "; ".join(f"{c.resource.kind}: {c.error.message if c.error else 'not listed yet'}" for c in late)
            raise Unavailable(why or self._held_by_another()) from error

    def _held_by_another(self) -> str:
        return (
            f"cluster {self._cluster}: {self._lease.holder or 'nobody'} holds the lease {LEASE_NAMESPACE}/{LEASE} and places pods; "
            "this server stands back"
        )

    async def _keep_lease(self) -> None:
        async def hold() -> None:
            self._leads.set()
            await asyncio.Event().wait()

        while True:
            with suppress(LeaseLost):
                await self._lease.lead(hold)
            self._leads.clear()
            self._wake()
            _log.warning("lease lost", cluster=self._cluster, lease=LEASE, holder=self._lease.holder)

    async def close(self) -> None:
        self.detach()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._leads.clear()
        await self._client.close()
        await self._plain.close()

    @property
    def usable(self) -> bool:
        """Whether pods can be placed; `Unavailable` while somebody else does it, for then nobody else may decide."""
        if self.lacking:
            return False
        if not self._lease.leads:
            raise Unavailable(self._held_by_another())
        return True

    # ---- with an engine

    def attach(
        self, core: Core, queues: Sequence[Queue], nodes: Sequence[Node], wake: Callable[[], None], free: Free
    ) -> None:
        self.detach()
        board = self._board = Board(core.rules, engine=core)
        self._inbox.clear()
        self._changes = PodChangeset()
        self._puts = self.caches.fill(board)
        board.set_platform_queues(queues)
        board.set_platform_nodes(nodes)
        self._wake = wake
        feedback = Feedback(lambda pod: self._tell(board.failed, pod), lambda pod: self._tell(board.retry, pod))
        self._writer = PodWriter(
            self._client,
            self._recorder,
            self._clock,
            board,
            feedback,
            volcano=self.caches.has_volcano,
            claim=self.caches.claims.get,
            free=free,
        )
        self._writing = self._spawn(self._write(self._writer))

    async def _write(self, writer: PodWriter) -> None:
        try:
            await writer.run()
        except* PaddleFlowError as errors:
            _log.warning("pods are not written", cluster=self._cluster, reason=str(errors.exceptions[0]))
        except* Exception as errors:  # a fault of ours: the engine begins anew, and the other clusters go on
            reason = "".join(traceback.format_exception(errors))
            _log.error("pods are not written", cluster=self._cluster, reason=reason)

    def detach(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._board = self._writer = self._writing = None
        self._wake = lambda: None

    def _tell(self, put: Callable[..., None], *values: object) -> None:
        """A thread may be deciding: it is taken in before the next cycle."""
        self._inbox.append((put, values))
        self._wake()

    def _forward(self, at: int, key: str, old: Any, new: Any) -> None:
        if self._board is None or self._writer is None:
            return
        if isinstance(old, Pod) and new is None:
            self._writer.forget(old.uid)
        self._tell(self._puts[at], key, new)

    def set_queues(self, queues: Sequence[Queue]) -> None:
        if self._board is not None:
            self._inbox.append((self._board.set_platform_queues, (queues,)))

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        if self._board is not None:
            self._inbox.append((self._board.set_platform_nodes, (nodes,)))

    def take_in(self, now: float) -> None:
        board = self._board
        if board is None:
            return
        if not self._lease.leads or self._writing is None or self._writing.done():
            raise Unavailable(self._held_by_another())
        while self._inbox:
            put, values = self._inbox.popleft()
            put(*values)
        board.take_all_in(now)

    def knows(self, job: str) -> bool:
        return self._board is not None and self._board.knows(job)

    def decided(self, decisions: Sequence[Decision]) -> None:
        if self._board is None:
            return
        self._changes.add(self._board.changeset(decisions))

    def act(self) -> None:
        changes, self._changes = self._changes, PodChangeset()
        if self._writer is not None:
            self._writer.carry_out(changes)
