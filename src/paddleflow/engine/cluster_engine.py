"""The cluster engine: takes turns for the jobs of one cluster, as long as it holds the cluster's lease.

Many servers may share a database; only the one with the lease ``engine:<cluster>`` moves the cluster's jobs, and every write of a
turn is guarded by the lease's fencing token. Any error throws the board away; the next round rebuilds it. Wake-ups may be lost:
the engine polls once a second. It reads rows of its own cluster only. `clusters` starts one for each cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.base.quantity import Resources, parse_quantity
from paddleflow.base.values import dataclass
from paddleflow.engine.board import Board
from paddleflow.engine.changeset import Changeset, Written, write_turn
from paddleflow.engine.cycle_thread import CycleThread
from paddleflow.engine.decision_log import folder_of, keep_log
from paddleflow.engine.decision_log import read as read_log
from paddleflow.engine.expected_durations import ExpectedDurations
from paddleflow.engine.job_secrets import reveal
from paddleflow.engine.launch import LaunchContext
from paddleflow.engine.locality import Locality
from paddleflow.engine.ports import Ports, parse_range
from paddleflow.engine.prefetch import NoPrefetch, Prefetch, Prefetcher
from paddleflow.engine.recovery import compare, read_jobs, read_records, rebuild
from paddleflow.engine.run_engine import RunEngine, RunFact, read_active
from paddleflow.engine.run_io import RunIO
from paddleflow.engine.step_admission import Admission
from paddleflow.engine.turn import STARTS_A_TURN, apply_observations, apply_placements, apply_row_changes, decide
from paddleflow.errors import Conflict, PaddleFlowError
from paddleflow.jobs.queries import changed_jobs
from paddleflow.jobs.rows import ChangedJob, members_of
from paddleflow.queues.model import COUNTER, DEFAULT_CLUSTER
from paddleflow.queues.queues import queue_namespaces, queue_node_labels, scheduled_queues
from paddleflow.runs.counters import RunCounters
from paddleflow.runs.rows import ChangedRun, changed_runs
from paddleflow.runtimes.runtime import (
    AttemptObservation,
    NodeChanged,
    NodeInfo,
    NodeObservation,
    NodeRemoved,
    Runtime,
)
from paddleflow.scheduling.model import Node, Reason, Request, Snapshot
from paddleflow.scheduling.record import Entry, Recorded
from paddleflow.scheduling.rules import Rules
from paddleflow.scheduling.suggestions import Suggestion, fitting, suggest, why_not
from paddleflow.settings import SchedulingSettings, Settings
from paddleflow.storage.file_pool import FilePool
from paddleflow.storage.stores import Stores
from paddleflow.store import counters, leases
from paddleflow.store.bus import EVENTS, JOBS, SCHEDULES, Bus
from paddleflow.store.database import Database, Tx
from paddleflow.store.encryption import Keyring

RUNS_LEASE = "runs"  #: of the server that moves runs
ROWS_A_TURN = 2000
RUNS_A_TURN = 200
CLASSES_EXPLAINED = 200  #: in a count of waiting jobs by reason; the jobs of smaller classes count as "other"
PEEKED_ROWS = 64  #: changed rows that are read on the loop; more of them are a scan, and a database thread's work
LONGEST_TURN = 30.0  #: seconds from which on the engine counts as stuck
DISK_EVERY = 0.1  #: seconds that a turn may be ahead of the disk; a power cut takes back no more than that

log = Log("engine")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long an engine waits for what, in seconds."""

    lease: float = 15.0  #: it lasts this long unless it is renewed, which happens three times as often
    poll: float = 1.0  #: between two reads, should a wake-up be lost
    first_pause: float = 0.1  #: before starting again after an error; doubles up to `last_pause`
    last_pause: float = 10.0
    gather: float = 0.01  #: that new jobs wait for more of them while nothing starts anyway


@dataclass(frozen=True, slots=True)
class Parts:
    """What the engines of a server share."""

    database: Database
    clock: Clock
    bus: Bus
    settings: Settings
    data: Path
    holder: str  #: names this server in leases
    files: FilePool = field(default_factory=FilePool)  #: where files of users are read
    timing: Timing = Timing()
    keyring: Keyring = field(default_factory=Keyring.random)  #: what secrets in rows are encrypted with


def _read_changes(tx: Tx, cluster: str, jobs: int, runs: int) -> tuple[list[ChangedJob], list[ChangedRun], int]:
    rows = changed_jobs(tx, cluster, jobs)
    return rows, changed_runs(tx, runs) if runs else [], counters.value(tx, COUNTER)


class ClusterEngine:
    """Moves the jobs of one cluster. `run` never ends by itself."""

    def __init__(
        self,
        parts: Parts,
        runtime: Runtime,
        cluster: str = DEFAULT_CLUSTER,
        *,
        base_env: Mapping[str, str] | None = None,
        run_counters: RunCounters | None = None,
        hosts_runs: bool | None = None,
        prefetch: Callable[[], Prefetcher] | None = None,
    ) -> None:
        self._new_prefetch = prefetch or (NoPrefetch if runtime.prefetching is None else Prefetch)
        self._parts = parts
        self._runtime = runtime
        self._base_env = base_env or {}  #: what every job of this cluster sees
        self.cluster = cluster
        self.hosts_runs = cluster == DEFAULT_CLUSTER if hosts_runs is None else hosts_runs  #: runs advance in its turns
        self._runs_set_aside: dict[str, str] = {}
        self._adopt_runs = False  #: the lease of runs was taken between two turns
        self._lease_name = f"engine:{cluster}"
        self._wake = asyncio.Event()
        self._changed = True  #: others may have written rows that no turn has read
        self._many_changes = False  #: the last read brought many rows, so the next one is left to a database thread
        self._ahead = asyncio.Event()  #: turns were written that may not be on the disk yet
        self._backlogged = False  #: the last new jobs had to wait
        self._observations: list[AttemptObservation] = []  #: what no turn has dealt with yet
        self._durations = ExpectedDurations(parts.database, cluster)
        self._locality = Locality(parts.database, parts.clock, cluster)
        self._board: Board | None = None
        self._run_counters = run_counters or RunCounters()
        self.nodes: Sequence[NodeInfo] = ()
        self.capacities: Sequence[tuple[str, Resources]] = ()  #: name and capacity of each node
        self._node_changes: list[NodeObservation] = []  #: that no turn has applied yet
        self._cycle_thread = CycleThread()
        self._problem = ""  #: what ended the last round; empty once a turn went well
        self._turn_began: float | None = None  #: monotonic; None between turns
        self.first_turn = asyncio.Event()  #: set once the board was rebuilt and decided upon

    def set_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """The nodes as the runtime reports them."""
        self.nodes = nodes
        self.capacities = [(node.name, node.capacity) for node in nodes]

    def why(self, job: str) -> Reason | None:
        """Why a job waits, as of now; None when this server does not know it as waiting, or is deciding just now."""
        board = self._board
        if board is None or self._cycle_thread.busy or job not in board.waiting or job in board.gated:
            return None
        return board.core.why(job)

    async def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many jobs wait, by queue and code of the reason; nothing while this server does not move jobs."""
        await self._cycle_thread.free()
        return {} if self._board is None else self._board.core.waiting(CLASSES_EXPLAINED)

    async def explain(
        self, job: str, queues: Iterable[str], sizes: Iterable[Resources]
    ) -> tuple[Reason, Sequence[Suggestion]] | None:
        """The same with everything that is in its way, and the smallest changes that would start it now."""
        await self._cycle_thread.free()
        board = self._board
        if board is None or job not in board.waiting or job in board.gated:
            return None
        return board.core.explain(job), suggest(board.core, job, queues, sizes)

    async def fitting(self, requests: Sequence[Request]) -> list[Request]:
        """Which of these, that wait elsewhere, would start here now; none while this server does not move jobs."""
        await self._cycle_thread.free()
        return [] if self._board is None else fitting(self._board.core, requests)

    async def why_not(self, request: Request) -> str | None:
        """Why one that waits elsewhere would not start here now; empty when it would, None when that is not known here."""
        await self._cycle_thread.free()
        return None if self._board is None else why_not(self._board.core, request)

    async def snapshot(self, now: float) -> Snapshot | None:
        """Everything that the scheduler would decide by; None while this server does not move jobs."""
        await self._cycle_thread.free()
        return None if self._board is None else _portable(self._board.core.snapshot(now))

    def decisions(self, since: float) -> Iterator[Entry]:
        """The decision log, from the last snapshot before `since`. Reads files: not on the event loop."""
        return read_log(folder_of(self._parts.data, self.cluster), since)

    @property
    def scheduler(self) -> Recorded | None:
        """What decides here; None while this server does not move jobs, or is deciding just now."""
        return None if self._board is None or self._cycle_thread.busy else self._board.core

    async def keep_decisions(self) -> None:
        """Write the decision log, for ever."""
        parts = self._parts
        most = parse_quantity(parts.settings.scheduling.log_size)
        await keep_log(folder_of(parts.data, self.cluster), most, lambda: self.scheduler, parts.clock)

    def health(self, longest_turn: float = LONGEST_TURN) -> str:
        """Why jobs of this cluster do not move; empty when they do, or when another server moves them."""
        if self._runtime.problem:
            return self._runtime.problem
        if self._problem:
            return f"begins anew after an error: {self._problem}"
        lasted = 0.0 if self._turn_began is None else self._parts.clock.monotonic() - self._turn_began
        return f"does not advance: a turn has lasted {lasted:.0f} s" if lasted > longest_turn else ""

    async def run(self) -> None:
        """Take the lease, move jobs, begin anew after errors with growing pauses."""
        pause = self._parts.timing.first_pause
        while True:
            began = self._parts.clock.monotonic()
            try:
                await self._hold_and_move()
            except* (PaddleFlowError, OSError) as group:
                self._problem = "; ".join(_words(group))
                log.warning("engine begins anew", cluster=self.cluster, reason=self._problem)
            except* (
                Exception
            ) as group:  # a fault of ours: the rows are right, so it is tried again, and said at /readyz
                self._problem = "; ".join(_words(group))
                log.error("engine begins anew", cluster=self.cluster, reason="".join(traceback.format_exception(group)))
            finally:
                self._board = self._turn_began = None
            # A task group that is ending by an error forgets a cancellation that comes meanwhile (until Python 3.13).
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError
            if self._parts.clock.monotonic() - began > 60:
                pause = self._parts.timing.first_pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._parts.timing.last_pause)

    async def _hold_and_move(self) -> None:
        parts = self._parts
        token = await self._take_lease()
        lease = self._lease_name, token
        self._runs = self._new_run_engine()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew(token))
                group.create_task(self._forward_wakes())
                group.create_task(self._follow_other_jobs())
                observing = group.create_task(self._observe())
                self._group = group
                self._turn_began = parts.clock.monotonic()
                await self._begin(lease)
                while True:
                    self._turn_began = parts.clock.monotonic()
                    await self._turn(lease)
                    self._turn_began, self._problem = None, ""
                    await self._wait_for_work()
                    if observing.done():
                        observing.result()
        finally:
            if self._board is not None and self._board.foreign is not None:
                self._board.foreign.detach()
            self._board = None  # at once: a thread may still be at work on it
            with contextlib.suppress(PaddleFlowError):
                await parts.database.write(leases.release, *lease)
                if self._runs.lease is not None:
                    await parts.database.write(leases.release, *self._runs.lease)

    async def _take_lease(self) -> int:
        parts = self._parts
        while True:
            now = parts.clock.now()
            token = await parts.database.write(
                leases.acquire, self._lease_name, parts.holder, now, self._parts.timing.lease
            )
            if token is not None:
                return token
            self._problem = ""  # another server moves this cluster
            await asyncio.sleep(self._parts.timing.poll)

    async def _renew(self, token: int) -> None:
        parts = self._parts
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._parts.timing.lease / 3):
                    await self._ahead.wait()
                    await asyncio.sleep(DISK_EVERY)
            self._ahead.clear()
            held = [(self._lease_name, token)] + ([self._runs.lease] if self._runs.lease is not None else [])
            await parts.database.write(_renew_leases, held, parts.clock.now(), parts.timing.lease)
            hosts_none = self._runs.lease is None and self.hosts_runs and self._board is not None
            if hosts_none and await self._take_runs():  # nobody else holds it any more
                self._adopt_runs = True
                self._wake.set()

    async def _take_runs(self) -> bool:
        """Whether this engine moves runs from now on."""
        parts = self._parts
        now = parts.clock.now()
        token = await parts.database.write(leases.acquire, RUNS_LEASE, parts.holder, now, self._parts.timing.lease)
        self._runs.lease = None if token is None else (RUNS_LEASE, token)
        return token is not None

    async def _forward_wakes(self) -> None:
        with self._parts.bus.subscribe(JOBS) as subscription:
            while True:
                await subscription.wait(self._parts.timing.poll)
                if (
                    self._backlogged
                ):  # the next ones will probably wait as well: one look and one commit for many of them
                    await asyncio.sleep(self._parts.timing.gather)
                self._changed = True
                self._wake.set()

    async def _follow_other_jobs(self) -> None:
        """Steps of runs on other clusters: their engines say that something happened."""
        with self._parts.bus.subscribe(EVENTS) as subscription:
            while True:
                await subscription.wait(self._parts.timing.poll)
                if self._runs.other_jobs:
                    self._runs.others_changed = True
                    self._wake.set()

    async def _observe(self) -> None:
        async for batch in self._runtime.observe():
            self._add_observations([seen for seen in batch if not isinstance(seen, NodeChanged | NodeRemoved)])
            if nodes := [seen for seen in batch if isinstance(seen, NodeChanged | NodeRemoved)]:
                self._node_changes += nodes
                self._wake.set()

    def _add_observations(self, seen: Sequence[AttemptObservation]) -> None:
        if seen:
            self._observations.extend(seen)
            self._wake.set()

    async def _wait_for_work(self) -> None:
        """Until something happens or a restart is due."""
        dues = (self._board.next_due() if self._board else None, self._runs.next_due())
        due = min((each for each in dues if each is not None), default=None)
        if due is None:
            await self._wake.wait()
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due - self._parts.clock.now(), 0.0)):
                    await self._wake.wait()
        self._wake.clear()

    async def _begin(self, lease: tuple[str, int]) -> None:
        """Rebuild the board and take up what runs."""
        parts = self._parts
        self._changed = True
        now = parts.clock.now()
        known = await self._runtime.adopt()
        self.set_nodes(await self._runtime.nodes())
        self._launch_context = LaunchContext(
            job_folder=self._runtime.job_folder,
            base_env=self._base_env,
            addresses={node.name: node.address for node in self.nodes},
            rules=parts.settings.jobs,
            member_address=self._runtime.member_address,
            numbers_devices=self._runtime.numbers_devices,
            namespaces=await parts.database.read(queue_namespaces, self.cluster),
            node_labels=await parts.database.read(queue_node_labels, self.cluster),
        )
        queues = await parts.database.read(scheduled_queues, self.cluster)
        rules = rules_of(parts.settings.scheduling)
        records = await parts.database.read(read_records, self.cluster, now - rules.window)
        waiting = await self._durations.spread(records.waiting, queues)
        records = replace(records, waiting=await self._locality.spread(waiting, self.nodes))
        now = parts.clock.now()  # later than all that was read
        foreign = self._runtime.foreign_pods
        nodes = [_scheduled(node, foreign is not None) for node in self.nodes]
        ports = Ports(parse_range(parts.settings.local.ports), begin=secrets.randbelow(65536))
        logged = bool(parse_quantity(parts.settings.scheduling.log_size))

        def rebuilt() -> Board:
            board = rebuild(records, nodes, queues, ports, self._launch_context, now, self._new_prefetch(), rules)
            if logged:
                board.core.begin(now)
            return board

        board = await self._cycle_thread.run(
            rebuilt, sum(len(each.jobs) for each in records.waiting) + len(records.held)
        )
        if foreign is not None:
            foreign.attach(board.core, queues, nodes, self._wake.set, self._cycle_thread.free)
            board.foreign = foreign
        changes = Changeset()
        changes.writes.changes += board.take_failures()
        self._runs = self._new_run_engine()
        facts = await self._restore_runs(now) if self.hosts_runs and await self._take_runs() else []
        await self._expect_unplaced(board, known)
        compare(board, known, changes, now)
        apply_observations(board, known, changes, now)
        await self._runs.begin(board, changes, facts, now)
        await self._decide(board, changes, now)
        self._board = board
        await self._write_and_do(lease, board, changes, now)
        self.first_turn.set()

    async def _turn(self, lease: tuple[str, int]) -> None:
        parts, board = self._parts, self._board
        assert board is not None
        more = True
        while more:
            observed, self._observations = self._observations, []
            rows, runs, version = await self._read_changes(board)
            now = parts.clock.now()  # later than all that was read
            self._apply_node_changes(board)
            changes = Changeset()
            changes.writes.changes += board.take_failures()
            await self._expect_unplaced(board, observed)
            apply_observations(board, observed, changes, now)
            if version != board.queue_version:
                found = await parts.database.read(scheduled_queues, self.cluster)
                (board.core if board.foreign is None else board.foreign).set_queues(found)
                namespaces = await parts.database.read(queue_namespaces, self.cluster)
                labels = await parts.database.read(queue_node_labels, self.cluster)
                self._launch_context = replace(self._launch_context, namespaces=namespaces, node_labels=labels)
                board.queue_version = version
            queues = [account.queue for account in board.core.ledgers.values()]
            known = await self._locality.fill(await self._durations.fill(rows, queues), self.nodes)
            apply_row_changes(board, known, changes, now)
            if self._adopt_runs:
                self._adopt_runs = False
                await self._runs.begin(board, changes, await self._restore_runs(now), now)
            await self._runs.turn(board, changes, rows, runs, now)
            await self._decide(board, changes, now)
            self._backlogged = bool(changes.writes.waits) and not changes.writes.placements
            stood = await self._write_and_do(lease, board, changes, now)
            self._changed |= not stood
            started = len(changes.writes.placements) >= STARTS_A_TURN
            more = bool(self._changed or started or self._observations or self._runs.inbox or board.failures)

    async def _decide(self, board: Board, changes: Changeset, now: float) -> None:
        await self._cycle_thread.run(
            lambda: decide(board, changes, self._launch_context, now), len(board.core.unexplained)
        )

    async def _restore_runs(self, now: float) -> list[RunFact]:
        """Adopt all runs that have not ended; the facts for them."""
        active = await self._parts.database.read(read_active)
        return [fact for run in active for fact in self._runs.adopt(run, now)]

    def _apply_node_changes(self, board: Board) -> None:
        """Nodes that came, went, were cordoned or have another capacity: the scheduler places by them from now on."""
        if not self._node_changes:
            return
        changes, self._node_changes = self._node_changes, []
        nodes = {node.name: node for node in self.nodes}
        for change in changes:
            match change:
                case NodeChanged(node):
                    nodes[node.name] = node
                case NodeRemoved(name):
                    nodes.pop(name, None)
        self.set_nodes(tuple(nodes.values()))
        self._launch_context = replace(self._launch_context, addresses={node.name: node.address for node in self.nodes})
        found = [_scheduled(node, board.foreign is not None) for node in self.nodes]
        (board.core if board.foreign is None else board.foreign).set_nodes(found)

    async def _expect_unplaced(self, board: Board, seen: Sequence[AttemptObservation]) -> None:
        """Jobs that began although the rows say that they wait: an engine before this one had prefetched them."""
        if nodes := board.prefetch.unplaced(board, seen):
            for row in await self._parts.database.read(read_jobs, self.cluster, list(nodes)):
                board.prefetch.expect(board, row, members_of(row.members), nodes[row.id], self._launch_context)

    async def _read_changes(self, board: Board) -> tuple[list[ChangedJob], list[ChangedRun], int]:
        """What others wrote; a turn that only hears of ends does not ask."""
        if not self._changed:
            return [], [], board.queue_version
        self._changed = False
        database, runs = self._parts.database, self._runs.lease is not None and not self._adopt_runs
        if self._many_changes:
            most = ROWS_A_TURN, RUNS_A_TURN
            found = await database.read(_read_changes, self.cluster, most[0], most[1] if runs else 0)
        else:
            most = PEEKED_ROWS, PEEKED_ROWS
            found = await database.peek(_read_changes, self.cluster, most[0], most[1] if runs else 0)
        self._changed = len(found[0]) == most[0] or len(found[1]) == most[1]
        self._many_changes = max(len(found[0]), len(found[1])) >= PEEKED_ROWS
        return found

    def _new_run_engine(self) -> RunEngine:
        parts = self._parts
        admission = Admission({self.cluster: self.capacities}, parts.settings.jobs.skip_resource_validate)
        engine = RunEngine(
            parts.database,
            admission,
            self._run_counters,
            self._durations.seconds,
            self._runs_set_aside,
            self.cluster,
            self._locality.near,
        )
        self._run_io = RunIO(
            parts.database, parts.clock, Stores(parts.data, parts.keyring), parts.files, engine, self._wake.set
        )
        return engine

    def _start_io(self) -> None:
        """Start what runs asked for, beside the turns."""
        requests, self._runs.io_requests = self._runs.io_requests, []
        if requests:
            self._group.create_task(self._run_io.do(requests))

    async def _write_and_do(self, lease: tuple[str, int], board: Board, changes: Changeset, now: float) -> bool:
        """Whether every placement stood; what somebody else changed meanwhile must be looked at again."""
        parts = self._parts
        stood = True
        changes.close()
        if (
            changes.stale
        ):  # before anything is placed: a job may have the id of one that was deleted, and so its attempts
            await self._runtime.forget(changes.stale)
        if changes.writes:
            placed, released = await self._write(lease, changes, now)
            apply_placements(board, changes, placed, self._launch_context, now)
            stood = all(item.job in placed for item in changes.writes.placements)
            self._runs.settle(board, placed, changes)
            parts.bus.wake(EVENTS)
            if released or changes.writes.runs.concerns_others:
                parts.bus.wake(JOBS)
            if any(row["finished_at"] is not None for row in changes.writes.runs.runs):
                parts.bus.wake(SCHEDULES)  # a slot may wait for the end of a run
            _log_changes(changes)
        board.prefetch.launch(board, changes, self._launch_context)
        self._start_io()
        if (
            changes.recalls and self._runtime.prefetching is not None
        ):  # before any is stopped, or its slot would pass on
            await self._runtime.prefetching.withdraw(changes.recalls)
        if changes.ended:  # first, because what is forgotten may travel with what is started
            await self._runtime.forget(changes.ended)
        if changes.launches:
            prepared = [item for item in changes.launches if not item.passive]
            launches, ended = await reveal(parts.database, parts.keyring, prepared, now)
            await self._runtime.start(launches)
            self._add_observations(ended)
        if changes.halts:
            await self._runtime.stop(changes.halts, parts.settings.local.grace)
        self._add_observations(changes.synthetic)
        if board.foreign is not None:
            board.foreign.act()
            if board.core.dirty:  # the cycle was full: more can start, after others had their turn on the loop
                asyncio.get_running_loop().call_soon(self._wake.set)
        return stood

    async def _write(self, lease: tuple[str, int], changes: Changeset, now: float) -> Written:
        """Write the turn down. It does not wait for the disk: no kill loses it, and `_renew`, which does wait, comes soon."""
        parts = self._parts
        try:
            written = await parts.database.write_soon(write_turn, changes.writes, lease, parts.settings.jobs, now)
        except Conflict:
            await self._runs.find_conflicts(changes)
            raise
        self._ahead.set()
        return written


def _renew_leases(tx: Tx, held: Sequence[tuple[str, int]], now: float, ttl: float) -> None:
    """All in one transaction, and so in one commit: what was written before them is on the disk then."""
    for name, token in held:
        if not leases.renew(tx, name, token, now, ttl):
            raise leases.LeaseLost(f"another server took the lease {name}")


def _words(error: BaseException) -> list[str]:
    """What went wrong, without the groups that task groups put around it."""
    if isinstance(error, BaseExceptionGroup):
        return [word for each in error.exceptions for word in _words(each)]
    return [str(error)]


def _log_changes(changes: Changeset) -> None:
    """The engine's part of the log: which jobs were placed, and how jobs ended."""
    for placement in changes.writes.placements:
        log.debug("job placed", job=placement.job, attempt=placement.attempt)
    for change in changes.writes.changes:
        if change.after.status.final:
            log.info("job ended", job=change.after.id, status=str(change.after.status), reason=change.after.message)


def _scheduled(node: NodeInfo, counted: bool) -> Node:
    """A node as the scheduler sees it; `counted`: pods of others are in its ledger, each by itself."""
    taken = Resources() if counted else node.taken
    return Node(node.name, node.capacity, node.labels, node.schedulable, taken, node.taints)


def _portable(snapshot: Snapshot) -> Snapshot:
    """A snapshot that can be played elsewhere: pods of others that are there stay there, and nobody knows who their neighbours are."""
    there: dict[str, Resources] = {}
    allocations = []
    for allocation in snapshot.allocations:
        if allocation.since < float("inf"):
            allocations.append(allocation._replace(request=allocation.request._replace(constraint=None)))
            continue
        each = {member_set.role: member_set.each for member_set in allocation.request.member_sets}
        for role, _, node, _ in allocation.assignments:
            there[node] = there.get(node, Resources()) + each[role]
    nodes = [
        replace(node, reserved=node.reserved + there[node.name]) if node.name in there else node
        for node in snapshot.nodes
    ]
    pending = tuple(request._replace(constraint=None) for request in snapshot.pending)
    return replace(snapshot, nodes=tuple(nodes), allocations=tuple(allocations), pending=pending)


def rules_of(settings: SchedulingSettings) -> Rules:
    """The scheduler's rules as this server has them. A job is never ended or changed in the turn that started it."""
    return Rules(
        preemption=settings.preemption,
        elastic=settings.elastic,
        patience=settings.patience,
        data_wait=settings.data_wait,
        half_life=max(1.0, settings.half_life),
        least_run=max(1.0, settings.least_run),
        window=settings.eviction_window,
        resize_pause=max(1.0, settings.resize_pause),
        restart_pause=max(1.0, settings.restart_pause),
    )
