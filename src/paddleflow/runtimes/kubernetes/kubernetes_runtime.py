"""The `Runtime` of a Kubernetes cluster: one pod per attempt, followed by a watch cache of all pods and one of the nodes.

What makes the promises of the protocol true: the pod's name follows from the attempt (started at most once), pods run without us
(they keep running when the server dies), and a finalizer keeps each pod with its exit code until `forget` (no end is lost, whoever
deletes the pod). An end is reported when the log has been collected, so that whoever reads it then reads all of it.

Several servers may have the same cluster open; only the one that holds the engine's lease calls `adopt` and `observe`, and only while
it observes are logs collected. A lease in the cluster itself keeps away servers of another database: every write is refused
without it.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId
from paddleflow.base.log import Log
from paddleflow.base.quantity import Resources
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge, Unavailable
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.lease import Lease, LeaseLost
from paddleflow.kube.queue import Backoff
from paddleflow.kube.resources import NODES, PODS, Object, Resource, View
from paddleflow.kube.together import together
from paddleflow.runtimes.exec import ExecRequest
from paddleflow.runtimes.foreign_pods import ForeignPods
from paddleflow.runtimes.kubernetes import collection, custom_objects, handover, pods, status, storages
from paddleflow.runtimes.kubernetes.collection import task_of
from paddleflow.runtimes.kubernetes.companions import Companions
from paddleflow.runtimes.kubernetes.pod_exec import PodExec, open_exec, send
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.kubernetes.postponed import Postponed, is_webhook
from paddleflow.runtimes.kubernetes.server_clock import ServerClock
from paddleflow.runtimes.kubernetes.status import OtherPod
from paddleflow.runtimes.kubernetes.storages import StorageGrant, StorageGrants
from paddleflow.runtimes.log_folder import LogFolder, SampleFolder
from paddleflow.runtimes.log_store import Sample
from paddleflow.runtimes.runtime import (
    AttemptObservation,
    Delayed,
    Ended,
    Launch,
    Mount,
    NodeChanged,
    NodeInfo,
    NodeRemoved,
    Observation,
    Ready,
    Started,
)
from paddleflow.spec.operator_kinds import KINDS, OperatorKind, kind_of

OPEN_TIMEOUT = 30.0  #: seconds to list pods and nodes, and to get the lease
CHECK_EVERY = 5.0  #: seconds between two checks of pods that are stuck or lost
IMAGE_GRACE = 120.0  #: seconds that a container may fail to start, for its image, its configuration or its volumes
DRAIN = 10.0  #: seconds that an end waits for its log
LOG_PAUSE = 0.2, 5.0  #: seconds before a log whose stream ended early is asked for again: at first, and at most
EVENTS_AFTER = 3.0  #: seconds after which the events of a pod that has not started are read
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
#: Gives a snapshot of a user's code as a compressed tar file. Reads files: not on the event loop.
CodeSource: TypeAlias = Callable[[str, str], bytes]
_TRIES = 10  #: how often a write is tried again that somebody else's came before
_log = Log("runtimes.kubernetes")


class OpenedForeignPods(ForeignPods, Protocol):
    """Foreign pods that this runtime opens and closes."""

    def share(self, pods: Cache[Any], nodes: Cache[Any]) -> None:
        """Live on these caches, which are not run yet."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def usable(self) -> bool:
        """Whether they can be placed; `Unavailable` while somebody else does."""
        ...


def no_code(user: str, snapshot: str) -> bytes:
    raise NotFound(f"code snapshot[{snapshot}] of user[{user}] does not exist")


async def no_grants(launch: Launch, mounts: Sequence[Mount]) -> Sequence[StorageGrant]:
    raise NotFound(f"storage {mounts[0].storage} does not exist")


class KubernetesRuntime:
    """Implements `Runtime`. `data` is the folder for logs; `settings.cluster` distinguishes its pods from those of others."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        data: Path,
        spawn: Spawn,
        *,
        settings: PodSettings,
        code: CodeSource = no_code,
        grants: StorageGrants = no_grants,
        lease: Lease | None = None,
        foreign_pods: OpenedForeignPods | None = None,
        image_grace: float = IMAGE_GRACE,
        check_every: float = CHECK_EVERY,
    ) -> None:
        """`spawn` is `create_task` of the task group that owns the runtime's loops; `close` ends them. `lease` is the one that
        keeps servers of other databases away; its client must be another one, without a fence."""
        self._client, self._spawn, self._clock = client, spawn, clock
        self._settings, self._cluster = settings, settings.cluster
        self._time = ServerClock(clock, settings.cluster)
        self._code = code
        self._grants = grants
        self._companions = Companions(client, settings)
        self._postponed = Postponed(
            self._start, lambda attempt: attempt in self._known or attempt in self._refused, spawn
        )
        self._lease = lease
        self._foreign_pods = foreign_pods
        self._image_grace, self._check_every = image_grace, check_every
        self.logs = LogFolder(data)
        self.samples = SampleFolder(self.logs)
        self._pods: Cache[Object | OtherPod] = Cache(client, PODS, transform=status.kept(settings.label))
        self._nodes: Cache[Object] = Cache(client, NODES, transform=status.trimmed_node)
        self._objects: dict[Resource, Cache[Object]] = {}  # objects of operators, by kind, each shown as a pod
        self._looking: defaultdict[OperatorKind, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known: dict[AttemptId, Object] = {}  # pods that are not forgotten
        self._forgotten: set[AttemptId] = set()  # of them, those whose pods are being removed
        self._refused: dict[AttemptId, Ended] = {}  # launches that never became a pod
        self._reported: dict[AttemptId, int] = {}  # how many of Started, Ready and Ended were reported
        self._delays: dict[AttemptId, str] = {}  # why one does not start, as it was reported
        self._later: list[Delayed] = []  # found by a check, to be reported
        self._probed: set[AttemptId] = set()  # those whose readiness is probed
        self._dirty: dict[AttemptId, None] = {}
        self._collectors: dict[AttemptId, asyncio.Task[None]] = {}
        self._ends: dict[AttemptId, asyncio.Event] = {}  # of those whose log is collected
        self._kubelets = collection.Kubelets()
        self._deliveries: dict[AttemptId, asyncio.Task[None]] = {}  # of code
        self._taken: defaultdict[str, Resources] = defaultdict(Resources)  # by pods of others, on each node
        self._node_news: dict[str, NodeInfo | None] = {}
        self._node_seen: dict[str, NodeInfo] = {}
        self._active = False  # whether this server moves the cluster's jobs
        self._wake, self._leading = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        if lease is not None:
            client.fence = lease.check
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)
        if foreign_pods is not None:
            foreign_pods.share(self._pods, self._nodes)

    @property
    def prefetching(self) -> None:
        return None

    @property
    def foreign_pods(self) -> ForeignPods | None:
        return self._foreign_pods if self._foreign_pods is not None and self._foreign_pods.usable else None

    @property
    def numbers_devices(self) -> bool:
        return False  # device plugins do

    @property
    def problem(self) -> str:
        found = next((cache.error for cache in (self._pods, self._nodes) if cache.error is not None), None)
        if found is not None:
            return f"cluster {self._cluster}: {found.message}"
        return self._foreign() if self._tasks and self._lease is not None and not self._lease.leads else ""

    def _foreign(self) -> str:
        holder = self._lease.holder if self._lease is not None else ""
        who = f"another PaddleFlow ({holder}) runs it" if holder else "its lease cannot be had"
        return f"cluster {self._cluster}: {who}; this server stands back"

    async def open(self) -> None:
        """Everything that an API server must be asked for is asked at the same time: nothing is decided before."""
        self._tasks = [self._spawn(cache.run()) for cache in (self._pods, self._nodes)]
        if self._lease is not None:
            self._tasks.append(self._spawn(self._keep_lease(self._lease)))
        else:
            self._leading.set()
        try:
            await together(self._learn(), self._open_foreign_pods())
        except PaddleFlowError:
            await self.close()
            raise

    async def _learn(self) -> None:
        """What is in the cluster, and whether it is ours to move."""
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await together(
                    self._pods.synced.wait(),
                    self._nodes.synced.wait(),
                    self._leading.wait(),
                    self._time.compare(self._client),
                    *map(self._kind, KINDS),
                )
        except TimeoutError as error:
            listed = self._pods.synced.is_set() and self._nodes.synced.is_set()
            why = self._foreign() if listed else self.problem or "it does not answer"
            raise Unavailable(why if listed else f"pods and nodes cannot be listed: {why}") from error

    async def _open_foreign_pods(self) -> None:
        await self._leading.wait()  # the server that runs the cluster places them
        if self._foreign_pods is not None:
            await self._foreign_pods.open()

    async def _kind(self, kind: OperatorKind) -> Resource | None:
        """A kind of an operator as the cluster has it, followed from now on; None when it has no such kind, or we no right."""
        async with self._looking[kind]:
            for version in kind.versions:
                resource = custom_objects.resource_of(kind, version)
                if resource in self._objects:
                    return resource
                try:
                    if not await self._client.serves(resource):
                        continue
                    await self._client.list(resource, labels=self._own_label)
                except Forbidden:
                    return None
                cache = Cache(self._client, resource, labels=self._own_label, transform=custom_objects.as_pod)
                cache.subscribe(self._pod_changed)
                self._tasks.append(self._spawn(cache.run()))
                await cache.synced.wait()
                self._objects[resource] = cache
                return resource
            return None

    @property
    def _own_label(self) -> str:
        return f"{pods.CLUSTER_LABEL}={self._settings.label}"

    def _resource(self, found: View) -> Resource:
        """What a view is of."""
        kind = kind_of(found)
        return PODS if kind is None else custom_objects.resource_of(kind, found["apiVersion"].rpartition("/")[2])

    def _cache(self, resource: Resource) -> Cache[Any]:
        return self._pods if resource == PODS else self._objects[resource]

    async def _keep_lease(self, lease: Lease) -> None:
        """Hold the lease in the cluster; lost, it is waited for again."""

        async def hold() -> None:
            self._leading.set()
            await asyncio.Event().wait()

        while True:
            with suppress(LeaseLost):
                await lease.lead(hold)
            self._leading.clear()
            _log.warning("lease lost", cluster=self._cluster, holder=lease.holder)

    async def close(self) -> None:
        tasks = [*self._tasks, *self._collectors.values(), *self._deliveries.values(), *self._postponed.cancel()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._collectors, self._objects = [], {}, {}
        self._leading.clear()
        if self._foreign_pods is not None:
            await self._foreign_pods.close()
        await self._client.close()

    # ---- nodes

    async def nodes(self) -> Sequence[NodeInfo]:
        return [self._node_info(each) for each in self._nodes.all()]

    def _node_info(self, found: View) -> NodeInfo:
        return status.node_info(found, self._taken[found["metadata"]["name"]], self._settings.tolerations)

    def _node_changed(self, name: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._node_seen.pop(name, None)
            self._node_news[name] = None
            self._kubelets.answers(name)  # another one may come by its name
        elif self._node_seen.get(name) != (info := self._node_info(new)):
            self._node_seen[name] = self._node_news[name] = info
        else:
            return  # a heartbeat
        self._wake.set()

    def _count(self, old: OtherPod | None, new: OtherPod | None) -> None:
        """A pod of others came, went, ended or was bound: its node has less or more room for us."""
        for found, sign in ((old, -1), (new, 1)):
            if found is not None and found.node:
                self._taken[found.node] = self._taken[found.node] + found.request * sign
                if (node := self._nodes.get(found.node)) is not None:
                    self._node_changed(found.node, None, node)

    # ---- starting and stopping

    def job_folder(self, job: str) -> str:
        return pods.job_folder(job)

    def member_address(self, job: str, role: str, index: int) -> str:
        return pods.member_address(job, role, index)

    def folder_on_disk(self, job: str) -> None:
        return None

    async def start(self, launches: Sequence[Launch]) -> None:
        wanted = {each.attempt: each for each in launches}
        results = await asyncio.gather(*(self._start(each) for each in wanted.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _start(self, launch: Launch) -> None:
        attempt = launch.attempt
        if launch.ready_port is not None:
            self._probed.add(attempt)
        if attempt in self._known or attempt in self._refused:
            return
        resource: Resource | None = PODS
        if custom_objects.is_custom(launch):
            kind = kind_of(launch.template)
            resource = await self._kind(kind) if kind is not None else None
            why = custom_objects.refusal(launch, kind, resource)
        else:
            why = pods.refusal(launch, self._settings)
        if why or resource is None:
            self._refuse(attempt, why)
            return
        try:
            if resource == PODS:
                await self._create(launch)
            else:
                made = custom_objects.manifest(launch, self._settings, resource)
                self._cache(resource).record_write(await self._client.create(resource, made))
        except AlreadyExists:
            await self._take_up(launch, resource)
        except (Forbidden, Invalid, TooLarge, NotFound) as error:
            self._refuse(attempt, f"the cluster refuses its {resource.kind}: {error.message}")
        except Unavailable as error:
            if not is_webhook(error):
                raise
            self._later += self._delayed(attempt, f"the cluster cannot admit its {resource.kind} yet: {error.message}")
            self._wake.set()
            self._postponed.add(launch)

    async def _create(self, launch: Launch) -> None:
        code = b""
        if launch.code:
            code = await asyncio.to_thread(self._code, launch.user, launch.code)
            if len(code) > pods.MOST_CODE:
                raise TooLarge(
                    f"its code has {len(code):,} bytes when packed, at most {pods.MOST_CODE:,} can be sent to a pod"
                )
        wanted = [mount for _, mount in storages.remote(launch)]
        grants = await self._grants(launch, wanted) if wanted else ()
        await self._companions.create(launch, code, grants)
        made = pods.pod(launch, self._settings, len(code))
        if self._settings.scheduler:
            made = handover.handed_over(made, launch, self._settings)
        self._pods.record_write(await self._client.create(PODS, made))

    async def _take_up(self, launch: Launch, resource: Resource) -> None:
        """A pod of the name is there: ours from before, or somebody else's."""
        name = pods.pod_name(launch.attempt) if resource == PODS else pods.object_name(launch.attempt)
        space = launch.namespace or self._settings.namespace
        there = await self._client.get(resource, name, space)
        ours = (there["metadata"].get("labels") or {}).get(pods.CLUSTER_LABEL) == self._settings.label
        if ours and status.attempt_of(there) == launch.attempt:
            self._cache(resource).record_write(there)
        else:
            self._refuse(launch.attempt, f"a {resource.kind} {space}/{name} is there that is not this job's")

    def _refuse(self, attempt: AttemptId, why: str) -> None:
        self._refused[attempt] = Ended(attempt, self._clock.now(), None, why)
        self._mark(attempt)

    async def execute(self, request: ExecRequest) -> PodExec:
        """Start a further command in the container of an attempt."""
        found = self._known.get(request.attempt)
        if found is None or status.started_at(found) is None or status.ended(found, self._time.now()) is not None:
            raise NotFound(f"attempt {request.attempt} does not run")
        if status.CUSTOM in found["spec"]:
            raise Invalid(f"a {found['kind']} has several pods: use kubectl exec", code="ActionNotAllowed")
        return await open_exec(self._client, found["metadata"]["name"], found["metadata"]["namespace"], request)

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        await asyncio.gather(*(self._stop(each, grace, "stopped") for each in attempts))

    async def _stop(self, attempt: AttemptId, grace: float, why: str) -> None:
        if attempt in self._postponed:
            self._spawn(self._withdraw(attempt, grace, why))
            return
        found = self._known.get(attempt)
        if found is None or status.ended(found, self._time.now()) is not None:
            return
        metadata, resource = found["metadata"], self._resource(found)
        name, space, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        # A grace of 0 would delete the pod without its kubelet, and with it the exit code. What an operator's object owns goes
        # before it: its end is the end of its pods.
        seconds = max(math.ceil(grace), 1) if resource == PODS else None
        how = "Background" if resource == PODS else "Foreground"
        note = {"metadata": {"uid": uid, "annotations": {status.STOPPED: why}}}
        with suppress(NotFound):
            for _ in range(_TRIES):
                try:
                    await self._client.patch(resource, name, space, body=note)
                    left = await self._client.delete(resource, name, space, uid=uid, grace=seconds, propagation=how)
                except Conflict as error:
                    conflict = error
                    if (await self._client.get(resource, name, space))["metadata"]["uid"] != uid:
                        return  # another one of the name
                    continue
                if left.get("kind") == resource.kind:
                    self._cache(resource).record_write(left)
                return
            raise conflict

    async def _withdraw(self, attempt: AttemptId, grace: float, why: str) -> None:
        """Stop what may not have become a pod yet."""
        await self._postponed.end(attempt)
        if attempt in self._known:
            await self._stop(attempt, grace, why)
        elif attempt not in self._refused:
            self._refuse(attempt, why)

    # ---- what happened

    def _pod_changed(self, key: str, old: Object | OtherPod | None, new: Object | OtherPod | None) -> None:
        if isinstance(old, OtherPod) or isinstance(new, OtherPod):
            self._count(old if isinstance(old, OtherPod) else None, new if isinstance(new, OtherPod) else None)
            return
        attempt = status.attempt_of(new or old or {"metadata": {}})
        if not attempt:
            return
        if new is None or not status.held(new):
            gone = self._known.pop(attempt, None)
            if gone is not None and self._active and self._reported.get(attempt, 0) < 3:
                self._refused[attempt] = Ended(
                    attempt, self._clock.now(), None, "its pod was taken away", disrupted=True
                )
        else:
            self._known[attempt] = new
            if self._active:
                self._follow_log(attempt, new)
                self._send_code(attempt, new)
                if "deletionTimestamp" not in new["metadata"] and (why := status.permanent_failure(new)):
                    self._spawn(self._give_up(attempt, why))
        if attempt in self._ends and (new is None or status.ended(new, self._time.now()) is not None):
            self._ends[attempt].set()
        self._mark(attempt)

    async def _give_up(self, attempt: AttemptId, why: str) -> None:
        with suppress(PaddleFlowError):  # the next check tries again
            await self._stop(attempt, 1.0, why)

    def _follow_log(self, attempt: AttemptId, found: View) -> None:
        if attempt in self._collectors:
            return
        metadata = found["metadata"]
        if status.CUSTOM in found["spec"]:
            if status.ended(found, self._time.now()) is not None:
                self._collectors[attempt] = self._spawn(self._collect_all(attempt, found))
        elif status.started_at(found) is not None:
            self._ends[attempt] = asyncio.Event()
            self._collectors[attempt] = self._spawn(self._collect(attempt, metadata["name"], metadata["namespace"]))

    def _send_code(self, attempt: AttemptId, found: View) -> None:
        """A pod that waits for code which is too large for config maps gets it, however often servers die meanwhile."""
        if attempt not in self._deliveries and (asked := status.waits_for_code(found)) is not None:
            self._deliveries[attempt] = self._spawn(self._deliver(attempt, *asked))

    async def _deliver(self, attempt: AttemptId, user: str, snapshot: str) -> None:
        try:
            code = await asyncio.to_thread(self._code, user, snapshot)
            while (found := self._known.get(attempt)) is not None and status.waits_for_code(found) is not None:
                name, space = found["metadata"]["name"], found["metadata"]["namespace"]
                try:
                    await send(self._client, name, space, pods.CODE_CONTAINER, pods.receive_code(len(code)), code)
                except PaddleFlowError as error:
                    self._later += self._delayed(attempt, f"its code cannot be sent: {error.message}")
                    self._wake.set()
                    await asyncio.sleep(1.0)
                else:
                    return
        except PaddleFlowError as error:
            await self._stop(attempt, 1.0, error.message)
        finally:
            self._deliveries.pop(attempt, None)

    def _mark(self, attempt: AttemptId) -> None:
        self._dirty[attempt] = None
        self._wake.set()

    async def observe(self) -> AsyncIterator[Sequence[Observation]]:
        self._begin_moving()
        check_at = self._clock.monotonic() + self._check_every
        while True:
            self._wake.clear()
            if batch := self._take():
                yield batch
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(check_at - self._clock.monotonic(), 0)):
                    await self._wake.wait()
            if self._clock.monotonic() >= check_at:
                await self._check()
                check_at = self._clock.monotonic() + self._check_every

    def _begin_moving(self) -> None:
        """From now on this server moves the cluster's jobs: it collects their logs."""
        self._active = True
        for attempt, found in self._known.items():
            self._follow_log(attempt, found)
            self._send_code(attempt, found)

    def _take(self) -> list[Observation]:
        batch: list[Observation] = []
        for name, info in self._node_news.items():
            batch.append(NodeRemoved(name) if info is None else NodeChanged(info))
        batch += self._later
        dirty, self._node_news, self._dirty, self._later = list(self._dirty), {}, {}, []
        for attempt in dirty:
            batch += self._news(attempt)
        return batch

    def _news(self, attempt: AttemptId) -> list[AttemptObservation]:
        """What was not reported yet."""
        stage = self._reported.get(attempt, 0)
        if stage == 3:
            return []
        found, news = self._known.get(attempt), list[AttemptObservation]()
        end = self._end(attempt)
        if end is not None:
            news = [end]
            self._reported[attempt] = 3
        elif found is not None and (began := status.started_at(found)) is not None:
            ready = status.is_ready(found, attempt in self._probed)
            if stage < 1:
                news.append(Started(attempt, self._time.ours(began), node=status.node_of(found)))
            if ready and stage < 2:
                news.append(Ready(attempt, self._clock.now()))
            self._reported[attempt] = 2 if ready else 1
        elif found is not None and (why := status.stuck(found)):
            news += self._delayed(attempt, f"its container cannot start: {why}")
        return news

    def _delayed(self, attempt: AttemptId, why: str) -> list[Delayed]:
        """Said once for each reason: the kubelet goes to and fro between two words for a failing pull."""
        kind = why.split(":")[0] + why[-80:] if "Image" not in why else "image"
        if self._delays.get(attempt) == kind:
            return []
        self._delays[attempt] = kind
        return [Delayed(attempt, self._clock.now(), why)]

    def _end(self, attempt: AttemptId) -> Ended | None:
        """The end, when its log is whole."""
        if attempt in self._refused:
            return self._refused[attempt]
        found = self._known.get(attempt)
        end = None if found is None else status.ended(found, self._time.now())
        collector = self._collectors.get(attempt)
        if end is None or (collector is not None and not collector.done()):
            return None
        return self._time.ours_of(end)

    async def adopt(self) -> Sequence[AttemptObservation]:
        self._begin_moving()
        now = self._time.now()
        draining = [
            self._collectors[attempt]
            for attempt, found in self._known.items()
            if attempt in self._collectors and status.ended(found, now) is not None
        ]
        if draining:
            await asyncio.wait(draining, timeout=DRAIN)
        known: list[AttemptObservation] = []
        for attempt in [*self._known, *self._refused]:
            self._reported[attempt] = 0
            known += self._news(attempt)
        names = {found["metadata"]["name"] for found in self._known.values()}
        await self._companions.sweep(names, {task_of(attempt).job for attempt in self._known})
        return known

    async def forget(self, attempts: Sequence[AttemptId]) -> None:
        await asyncio.gather(*(self._forget(each) for each in attempts))

    async def _forget(self, attempt: AttemptId) -> None:
        if self._refused.pop(attempt, None) is not None:
            self._reported.pop(attempt, None)
        found = self._known.get(attempt)
        if found is None or self._end(attempt) is None:
            return
        self._reported[attempt] = 3  # the pod's disappearance is no news
        self._forgotten.add(attempt)
        metadata, resource = found["metadata"], self._resource(found)
        name, space, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        job = task_of(attempt).job
        last = not any(task_of(other).job == job for other in self._known.keys() - self._forgotten)
        # The finalizer goes last: whatever fails before, whoever tries again still finds the pod.
        await self._companions.remove(metadata, job if last else "")
        await self._companions.delete(resource, name, space, uid)
        await self._companions.let_go(resource, name, space, uid, metadata.get("finalizers") or [])
        self._known.pop(attempt, None)
        self._forgotten.discard(attempt)
        self._cache(resource).record_delete(found)
        self._collectors.pop(attempt, None)
        self._probed.discard(attempt)
        for table in (self._reported, self._dirty, self._delays, self._ends):
            table.pop(attempt, None)

    async def _check(self) -> None:
        """Pods that will never say more: they cannot start, or their node does not answer."""
        await self._time.compare(self._client)
        now = self._time.now()
        silent: dict[AttemptId, Object] = {}
        for attempt, found in list(self._known.items()):
            if status.ended(found, now) is not None:
                self._mark(attempt)
            elif why := status.permanent_failure(found):
                await self._stop(attempt, 1.0, why)
            elif (waits := status.waits_to_start(found, now)) is None:
                continue
            elif why := status.stuck(found):
                await self._cannot_start(attempt, found, why, now)
            elif waits > EVENTS_AFTER:
                silent[attempt] = found
        for attempt, why in (await collection.last_warnings(self._client, silent)).items():
            if self._known.get(attempt) is silent[attempt]:  # it has not changed meanwhile
                await self._cannot_start(attempt, silent[attempt], why, now)

    async def _cannot_start(self, attempt: AttemptId, found: View, why: str, now: float) -> None:
        """A pod does not start, and this is why."""
        custom, waits = status.CUSTOM in found["spec"], status.waits_to_start(found, now) or 0.0
        if not custom and not status.node_of(found):
            self._later += self._delayed(attempt, f"waits for a node: {why}")
        elif not custom and waits > self._image_grace:
            await self._stop(attempt, 1.0, f"its container cannot start: {why}")
        elif not status.stuck(found):  # else its pod's changes say it
            what = self._resource(found).kind if custom else "container"
            self._later += self._delayed(attempt, f"its {what} cannot start: {why}")
        self._wake.set()

    # ---- logs and use

    async def _collect(self, attempt: AttemptId, name: str, space: str) -> None:
        """Copy the log until the container has ended; a broken stream is resumed."""
        try:
            await self._copy_all(attempt, name, space)
        except OSError as error:  # the disk is full, or worse: the attempt continues without its log
            _log.error("log not written", attempt=attempt, error=str(error))
        self._mark(attempt)

    async def _copy_all(self, attempt: AttemptId, name: str, space: str) -> None:
        pause, node = Backoff(*LOG_PAUSE), ""
        while True:
            found = self._known.get(attempt)
            over = found is None or status.ended(found, self._time.now()) is not None
            node = node if found is None else status.node_of(found)
            seconds = 0.0 if over else self._kubelets.pause(node, self._clock.monotonic())
            if not seconds:
                try:
                    await collection.copy_in_turn(self._client, self.logs, attempt, name, space, self._kubelets, node)
                except PaddleFlowError as error:
                    if over:
                        _log.warning("log incomplete", attempt=attempt, error=error.message)
                    elif isinstance(error, Unavailable):
                        self._kubelets.refuses(node, self._clock.monotonic())
                if over:
                    break
                seconds = pause.next()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ends[attempt].wait()
        await asyncio.to_thread(self.logs.touch, task_of(attempt))

    async def _collect_all(self, attempt: AttemptId, found: View) -> None:
        """Copy the logs of the pods of an operator's object, which has ended."""
        await collection.copy_logs_of_object(self._client, self.logs, attempt, found)
        self._mark(attempt)

    async def sample(self) -> Mapping[AttemptId, Sample]:
        now = self._clock.now()
        running = {
            (found["spec"]["nodeName"], found["metadata"]["uid"]): attempt
            for attempt, found in self._known.items()
            if status.started_at(found) is not None
            and status.ended(found, self._time.now()) is None
            and status.CUSTOM not in found["spec"]
        }
        return await collection.samples(self._client, running, now)
