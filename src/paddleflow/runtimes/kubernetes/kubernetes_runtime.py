"""The `Runtime` of a Kubernetes cluster: one pod per attempt, followed by a watch cache.

What makes the promises of the protocol true: the pod's name follows from the attempt (started at most once), pods run without us
(they go on when the server dies), and a finalizer keeps each pod with its exit code until `forget` (no end is lost, whoever
deletes the pod). An end is reported when the log has been collected, so that whoever reads it then reads all of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from paddleflow.base.clock import Clock
from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.log import Log
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge, Unavailable
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import CONFIG_MAPS, NODES, PODS, Object, View
from paddleflow.runtimes.kubernetes import pods
from paddleflow.runtimes.kubernetes.log_folder import LogFolder, SampleFolder
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.runtimes.runtime import (
    AttemptObservation,
    Ended,
    Launch,
    NodeChanged,
    NodeInfo,
    NodeRemoved,
    Observation,
    Ready,
    Started,
)

OPEN_TIMEOUT = 30.0  #: seconds to list pods and nodes
CHECK_EVERY = 5.0  #: seconds between two checks of pods that are stuck or lost
IMAGE_GRACE = 120.0  #: seconds that a container may fail to start, for its image or its configuration
DRAIN = 10.0  #: seconds that an end waits for its log
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
_log = Log("runtimes.kubernetes")


def task_of(attempt: AttemptId) -> TaskAddress:
    job, key, _ = parse_attempt(attempt)
    return TaskAddress(job, *key)


class KubernetesRuntime:
    """Implements `Runtime`. `data` is the folder for logs; `cluster` tells its pods from those of others in the namespace."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        data: Path,
        spawn: Spawn,
        *,
        namespace: str,
        cluster: str,
        default_image: str = "",
        image_grace: float = IMAGE_GRACE,
        check_every: float = CHECK_EVERY,
    ) -> None:
        """`spawn` is `create_task` of the task group that owns the runtime's loops; `close` ends them."""
        self._client = client
        self._spawn = spawn
        self._clock = clock
        self._namespace = namespace
        self._cluster = cluster
        self._default_image = default_image
        self._image_grace = image_grace
        self._check_every = check_every
        self.logs = LogFolder(data)
        self.samples = SampleFolder(self.logs)
        self._pods: Cache[Object] = Cache(
            client, PODS, namespace, labels=f"{pods.CLUSTER_LABEL}={cluster}", transform=pods.trimmed
        )
        self._nodes: Cache[Object] = Cache(client, NODES, transform=pods.trimmed_node)
        self._known: dict[AttemptId, Object] = {}  # pods that are not forgotten
        self._refused: dict[AttemptId, Ended] = {}  # launches that never became a pod
        self._reported: dict[AttemptId, int] = {}  # how many of Started, Ready and Ended were reported
        self._probed: set[AttemptId] = set()  # those whose readiness is probed
        self._dirty: dict[AttemptId, None] = {}
        self._collectors: dict[AttemptId, asyncio.Task[None]] = {}
        self._node_news: dict[str, NodeInfo | None] = {}
        self._node_seen: dict[str, NodeInfo] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def prefetching(self) -> None:
        return None

    @property
    def problem(self) -> str:
        found = next((cache.error for cache in (self._pods, self._nodes) if cache.error is not None), None)
        return "" if found is None else f"cluster {self._cluster}: {found.message}"

    async def open(self) -> None:
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)
        self._tasks = [self._spawn(cache.run()) for cache in (self._pods, self._nodes)]
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await self._pods.synced.wait()
                await self._nodes.synced.wait()
        except TimeoutError as error:
            await self.close()
            why = next(
                (cache.error.message for cache in (self._pods, self._nodes) if cache.error), "it does not answer"
            )
            raise Unavailable(f"cluster {self._cluster}: pods and nodes cannot be listed: {why}") from error

    async def close(self) -> None:
        tasks = [*self._tasks, *self._collectors.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._collectors = [], {}
        await self._client.close()

    # ---- nodes

    async def nodes(self) -> Sequence[NodeInfo]:
        return [pods.node_info(each) for each in self._nodes.all()]

    def _node_changed(self, name: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._node_seen.pop(name, None)
            self._node_news[name] = None
        elif self._node_seen.get(name) != (info := pods.node_info(new)):
            self._node_seen[name] = self._node_news[name] = info
        else:
            return  # a heartbeat
        self._wake.set()

    # ---- starting and stopping

    def job_folder(self, job: str) -> str:
        return pods.job_folder(job)

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
        why = pods.refusal(launch, self._default_image)
        if why:
            self._refuse(attempt, why)
            return
        try:
            if (files := pods.config_map(launch, self._namespace, self._cluster)) is not None:
                with suppress(AlreadyExists):
                    await self._client.create(CONFIG_MAPS, files)
            made = pods.pod(launch, self._namespace, self._cluster, self._default_image)
            self._pods.record_write(await self._client.create(PODS, made))
        except AlreadyExists:
            there = await self._client.get(PODS, pods.pod_name(attempt), self._namespace)
            if (
                pods.attempt_of(there) != attempt
                or there["metadata"].get("labels", {}).get(pods.CLUSTER_LABEL) != self._cluster
            ):
                self._refuse(
                    attempt, f"a pod {self._namespace}/{pods.pod_name(attempt)} is there that is not this job's"
                )
            else:
                self._pods.record_write(there)
        except (Forbidden, Invalid, TooLarge, NotFound) as error:
            self._refuse(attempt, f"the cluster refuses its pod: {error.message}")

    def _refuse(self, attempt: AttemptId, why: str) -> None:
        self._refused[attempt] = Ended(attempt, self._clock.now(), None, why)
        self._mark(attempt)

    async def stop(self, attempts: Sequence[AttemptId], grace: float) -> None:
        await asyncio.gather(*(self._stop(each, grace, "stopped") for each in attempts))

    async def _stop(self, attempt: AttemptId, grace: float, why: str) -> None:
        found = self._known.get(attempt)
        if found is None or pods.ended(found, self._clock.now()) is not None:
            return
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        with suppress(NotFound, Conflict):
            note = {"metadata": {"uid": uid, "annotations": {pods.STOPPED: why}}}
            await self._client.patch(PODS, name, self._namespace, body=note)
            # A grace of 0 would delete the pod without its kubelet, and with it the exit code.
            left = await self._client.delete(PODS, name, self._namespace, uid=uid, grace=max(math.ceil(grace), 1))
            if left.get("kind") == PODS.kind:
                self._pods.record_write(left)

    # ---- what happened

    def _pod_changed(self, key: str, old: Object | None, new: Object | None) -> None:
        attempt = pods.attempt_of(new or old or {"metadata": {}})
        if not attempt:
            return
        if new is None or not pods.held(new):
            if self._known.pop(attempt, None) is not None and self._reported.get(attempt, 0) < 3:
                self._refused[attempt] = Ended(attempt, self._clock.now(), None, "its pod was taken away")
        else:
            self._known[attempt] = new
            if pods.started_at(new) is not None and attempt not in self._collectors:
                self._collectors[attempt] = self._spawn(self._collect(attempt, new["metadata"]["name"]))
        self._mark(attempt)

    def _mark(self, attempt: AttemptId) -> None:
        self._dirty[attempt] = None
        self._wake.set()

    async def observe(self) -> AsyncIterator[Sequence[Observation]]:
        while True:
            self._wake.clear()
            if batch := self._take():
                yield batch
                continue
            try:
                async with asyncio.timeout(self._check_every):
                    await self._wake.wait()
            except TimeoutError:
                await self._check()

    def _take(self) -> list[Observation]:
        batch: list[Observation] = []
        for name, info in self._node_news.items():
            batch.append(NodeRemoved(name) if info is None else NodeChanged(info))
        dirty, self._node_news, self._dirty = list(self._dirty), {}, {}
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
        elif found is not None and (began := pods.started_at(found)) is not None:
            ready = pods.is_ready(found, attempt in self._probed)
            if stage < 1:
                news.append(Started(attempt, began, node=pods.node_of(found)))
            if ready and stage < 2:
                news.append(Ready(attempt, self._clock.now()))
            self._reported[attempt] = 2 if ready else 1
        return news

    def _end(self, attempt: AttemptId) -> Ended | None:
        """The end, when its log is whole."""
        if attempt in self._refused:
            return self._refused[attempt]
        found = self._known.get(attempt)
        end = None if found is None else pods.ended(found, self._clock.now())
        collector = self._collectors.get(attempt)
        if end is None or (collector is not None and not collector.done()):
            return None
        return end

    async def adopt(self) -> Sequence[AttemptObservation]:
        await asyncio.sleep(0)
        now = self._clock.now()
        draining = [
            self._collectors[attempt]
            for attempt, found in self._known.items()
            if attempt in self._collectors and pods.ended(found, now) is not None
        ]
        if draining:
            await asyncio.wait(draining, timeout=DRAIN)
        known: list[AttemptObservation] = []
        for attempt in [*self._known, *self._refused]:
            self._reported[attempt] = 0
            news = self._news(attempt)
            known += news
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
        del self._known[attempt]
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        with suppress(NotFound, Conflict):
            await self._client.patch(PODS, name, self._namespace, body={"metadata": {"uid": uid, "finalizers": None}})
            await self._client.delete(PODS, name, self._namespace, uid=uid, grace=0)
        with suppress(NotFound, Conflict):
            await self._client.delete(CONFIG_MAPS, name, self._namespace)
        self._pods.record_delete(found)
        self._collectors.pop(attempt, None)
        self._probed.discard(attempt)
        self._reported.pop(attempt, None)
        self._dirty.pop(attempt, None)

    async def _check(self) -> None:
        """Pods that will never say more: they cannot start, or their node does not answer."""
        now = self._clock.now()
        for attempt, found in list(self._known.items()):
            if pods.ended(found, now) is not None:
                self._mark(attempt)
                continue
            why, made = pods.stuck(found), pods.moment(found["metadata"].get("creationTimestamp"))
            if (
                why
                and made is not None
                and now - made > self._image_grace
                and "deletionTimestamp" not in found["metadata"]
            ):
                await self._stop(attempt, 1.0, f"its container cannot start: {why}")

    # ---- logs and use

    async def _collect(self, attempt: AttemptId, name: str) -> None:
        """Copy the log until the container has ended; a broken stream is taken up again."""
        try:
            await self._copy_all(attempt, name)
        except OSError as error:  # the disk is full, or worse: the attempt goes on without its log
            _log.error("log not written", attempt=attempt, error=str(error))
        self._mark(attempt)

    async def _copy_all(self, attempt: AttemptId, name: str) -> None:
        task = task_of(attempt)
        have = await asyncio.to_thread(self.logs.begin, task, attempt)
        while True:
            over = attempt not in self._known or pods.ended(self._known[attempt], self._clock.now()) is not None
            try:
                have = await self._copy(attempt, name, have)
                if over:
                    break
            except PaddleFlowError as error:
                if over:
                    _log.warning("log incomplete", attempt=attempt, error=error.message)
                    break
            await asyncio.sleep(0.2)
        await asyncio.to_thread(self.logs.touch, task)

    async def _copy(self, attempt: AttemptId, name: str, have: int) -> int:
        """Append what comes after the first `have` bytes of the container's log; how many there are then."""
        position = 0
        async with aclosing(self._client.follow_log(name, self._namespace, container=pods.CONTAINER)) as parts:
            async for part in parts:
                fresh = part[max(have - position, 0) :]
                position += len(part)
                if fresh:
                    await asyncio.to_thread(self.logs.append, task_of(attempt), fresh)
                    have += len(fresh)
        return have

    async def sample(self) -> Mapping[AttemptId, Sample]:
        now = self._clock.now()
        running = {
            (found["spec"]["nodeName"], found["metadata"]["uid"]): attempt
            for attempt, found in self._known.items()
            if pods.started_at(found) is not None and pods.ended(found, now) is None
        }
        nodes = sorted({node for node, _ in running})
        pages = await asyncio.gather(*(self._summary(node) for node in nodes))
        found: dict[AttemptId, Sample] = {}
        for node, page in zip(nodes, pages, strict=True):
            for each in page.get("pods") or ():
                attempt = running.get((node, each.get("podRef", {}).get("uid", "")))
                measured = (each.get("memory") or {}).get("workingSetBytes")  # not in the first seconds
                if attempt is not None and measured:
                    found[attempt] = _sample(each, now)
        return found

    async def _summary(self, node: str) -> View:
        """What the kubelet of a node counts; empty when it does not answer, or the role may not ask."""
        try:
            return await self._client.raw(f"{NODES.path(name=node)}/proxy/stats/summary?only_cpu_and_memory=true")
        except PaddleFlowError:
            return {}


def _sample(each: Mapping[str, Any], now: float) -> Sample:
    cpu, memory = (each.get(name) or {} for name in ("cpu", "memory"))
    return Sample(
        at=now,
        cpu_seconds=int(cpu.get("usageCoreNanoSeconds") or 0) / 1e9,
        memory=int(memory.get("workingSetBytes") or 0),
    )
