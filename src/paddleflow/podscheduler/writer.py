"""What becomes of decisions about pods: bindings, reasons, evictions and statuses at the API server.

The same for a scheduler that runs alone and for the engine of a server. A binding whose answer is lost is looked up before anything
else is done about its pod. A binding that was refused gives the place back, and the pod is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound, PaddleFlowError, TooMany, Unavailable
from paddleflow.kube.client import Client
from paddleflow.kube.lease import LeaseLost
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import CLAIMS, PODGROUPS, PODS, QUEUES, VOLUMES, Object, Resource, View, split
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.changeset import PodChangeset
from paddleflow.podscheduler.metrics import Metrics
from paddleflow.podscheduler.pods import Pod
from paddleflow.podscheduler.reasons import LONGEST, TELL_AFTER, Reasons
from paddleflow.podscheduler.statuses import Statuses
from paddleflow.podscheduler.volumes import SELECTED_NODE, Claim, Preparation

IN_FLIGHT = 64  #: bindings at once
LINE = 32  #: pods that wait for their turn before the line is long
REPORTERS = 4  #: writes of reasons at once
REPORT_LOOK = 0.2  #: seconds between two looks at reasons that are to be told
REPORT_AGAIN = 30.0  #: seconds after which reasons that have changed are told again
STATUS_LATEST = 5.0  #: the same while pods are being bound
VOLUMES_WITHIN = 600.0  #: seconds that a pod waits for its volumes once it has a place, as long as with kube-scheduler
VOLUMES_LOOK = 0.1  #: seconds between two looks at them
_log = Log("podscheduler")


async def _at_once() -> None:
    """Nobody else changes the board."""


@dataclass(frozen=True, slots=True)
class WriterTiming:
    """How long the writer waits; each in seconds."""

    tell_after: tuple[float, float] = TELL_AFTER  #: before a reason is told: at first, and at most
    status_every: float = 1.0  #: between two looks at the statuses of queues and groups
    retry: tuple[float, float] = (
        1.0,
        60.0,
    )  #: before a pod whose binding was refused is tried again: at first, and at most


TIMING = WriterTiming()


class Feedback:
    """What the writer says to whoever decides: on the event loop, and perhaps while a thread decides."""

    def __init__(self, failed: Callable[[Pod], None], retry: Callable[[Pod], None]) -> None:
        self.failed = failed  #: the pod has no place any more
        self.retry = retry  #: it may be tried again


class PodWriter:
    """Carries out turns, as long as `run` runs. One for each time that a process leads."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        board: Board,
        feedback: Feedback,
        *,
        volcano: Callable[[], bool],
        claim: Callable[[str], Claim | None],
        free: Callable[[], Awaitable[None]] = _at_once,
        metrics: Metrics | None = None,
        timing: WriterTiming = TIMING,
    ) -> None:
        """`volcano`: whether queues and groups are known; `claim`: a PersistentVolumeClaim as it is now, by its key; `free` waits until
        no thread changes the board."""
        self.board = board
        self.metrics = metrics
        self.seen: dict[str, float] = {}  #: when a pod was seen first, by uid
        self._client, self._recorder, self._clock = client, recorder, clock
        self._feedback, self._volcano, self._claim, self._free = feedback, volcano, claim, free
        self._line: asyncio.Queue[tuple[Pod, str]] = asyncio.Queue()
        self._short = asyncio.Event()
        self._short.set()
        self._reasons = Reasons(timing.tell_after)
        self._timing = timing
        self._reportable = asyncio.Event()
        self._retries: dict[str, float] = {}
        self._statuses = Statuses(board)
        self._statuses_at = 0.0
        self._group: asyncio.TaskGroup | None = None
        self._over = False

    @property
    def line(self) -> int:
        """Pods that wait to be bound."""
        return self._line.qsize()

    async def short_line(self) -> None:
        """Wait until what was decided is on its way, but for a few."""
        await self._short.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for _ in range(IN_FLIGHT):
                    group.create_task(self._bind_from_line())
                group.create_task(self._report_reasons())
                group.create_task(self._forever(self._keep_statuses, self._timing.status_every))
                group.create_task(self._forever(self._report_again, REPORT_AGAIN))
        finally:
            self._over = True

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        for known in (self.seen, self._retries):
            known.pop(uid, None)
        self._reasons.forget(uid)

    def carry_out(self, changes: PodChangeset) -> None:
        """Begin with what a decision asks for."""
        for bind in changes.binds:
            self._line.put_nowait(bind)
        if self.line > LINE:
            self._short.clear()
        for pod, why in changes.waits:
            self._report(pod, why)
        for pod in changes.refused:
            self._give_back(pod, gone=False)
        tasks = [self._bind_with_volumes(*prepared) for prepared in changes.prepared]
        for task in [*tasks, *[self._evict(pod, why) for pod, why in changes.evictions]]:
            assert self._group is not None, "decisions are made while leading"
            self._group.create_task(task)

    # ---- binding

    async def _bind_from_line(self) -> None:
        while True:
            pod, node = await self._line.get()
            if self.line <= LINE:
                self._short.set()
            await self._bind(pod, node)

    async def _bind(self, pod: Pod, node: str) -> None:
        self._reasons.forget(pod.uid)
        try:
            await self._client.bind(pod.name, pod.namespace, pod.uid, node)
            result = "bound"
        except LeaseLost:
            raise
        except NotFound:
            result = "gone"
        except (Unavailable, TooMany, Conflict) as error:
            result = await self._settle(pod, node, error)
        except PaddleFlowError as error:
            _log.warning("binding refused", pod=pod.key, node=node, error=error.message)
            self._recorder.record(_reference(pod), "FailedBinding", error.message, warning=True)
            result = "refused"
        if self.metrics:
            self.metrics.bindings.labels(result).inc()
            seen = self.seen.pop(pod.uid, None)
            if seen is not None and result == "bound":
                self.metrics.latency.observe(time.monotonic() - seen)
        if result != "bound":
            self._give_back(pod, gone=result == "gone")
        else:
            self._retries.pop(pod.uid, None)

    async def _settle(self, pod: Pod, node: str, error: PaddleFlowError) -> str:
        """What became of a binding whose answer is lost, or that was refused because the pod has changed."""
        pause = self._timing.retry[0]
        while True:
            try:
                there = await self._client.get(PODS, pod.name, pod.namespace)
            except NotFound:
                return "gone"
            except LeaseLost:
                raise
            except PaddleFlowError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._timing.retry[1])
                continue
            if there["metadata"]["uid"] != pod.uid:
                return "gone"
            placed = (there.get("spec") or {}).get("nodeName") or ""
            if placed:
                return "bound" if placed == node else "gone"
            _log.warning("binding refused", pod=pod.key, node=node, error=error.message)
            return "refused"

    def _give_back(self, pod: Pod, gone: bool) -> None:
        self._feedback.failed(pod)
        if gone:  # the watch will say what it is now
            self._retries.pop(pod.uid, None)
            return
        pause = self._retries[pod.uid] = min(
            self._retries.get(pod.uid, self._timing.retry[0] / 2) * 2, self._timing.retry[1]
        )

        def again() -> None:
            if not self._over:
                self._feedback.retry(pod)

        asyncio.get_running_loop().call_later(pause, again)

    # ---- volumes

    async def _bind_with_volumes(self, pod: Pod, node: str, wanted: list[Preparation]) -> None:
        """Bind a pod once all of its claims have their volumes; if they do not get them, it waits as before."""
        failure = f"its volumes were not there within {VOLUMES_WITHIN:.0f} s"
        try:
            async with asyncio.timeout(VOLUMES_WITHIN):
                for each in wanted:
                    await self._prepare(each, node)
                for each in wanted:
                    failure = await self._volume_failure(each, node)
                    if failure:
                        break
        except LeaseLost:
            raise
        except TimeoutError:
            pass
        except PaddleFlowError as error:
            failure = error.message
        if not failure:
            self._line.put_nowait((pod, node))
            return
        _log.warning("volumes not bound", pod=pod.key, node=node, error=failure)
        self._recorder.record(_reference(pod), "FailedBinding", failure, warning=True)
        self._give_back(pod, gone=False)

    async def _prepare(self, wanted: Preparation, node: str) -> None:
        """Give a claim its volume, or say where one is to be made for it."""
        space, name = split(wanted.claim)
        if not wanted.volume:
            body = {"metadata": {"uid": wanted.uid, "annotations": {SELECTED_NODE: node}}}
            await self._client.patch(CLAIMS, name, space, body=body)
            return
        volume = await self._client.get(VOLUMES, wanted.volume)
        holder = volume["spec"].get("claimRef") or {}
        if holder.get("uid") == wanted.uid:
            return
        if holder and (holder.get("namespace"), holder.get("name")) != (space, name):
            raise Conflict(
                f"persistentvolume {wanted.volume} was given to {holder.get('namespace')}/{holder.get('name')}"
            )
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        volume["spec"]["claimRef"] = {**kind, "namespace": space, "name": name, "uid": wanted.uid}
        if not holder:
            volume["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bound-by-controller"] = "yes"
        await self._client.update(VOLUMES, volume)

    async def _volume_failure(self, wanted: Preparation, node: str) -> str:
        """Wait until a claim is bound; why it will not be, if it will not."""
        asked = False
        while True:
            claim = self._claim(wanted.claim)
            if claim is None or claim.uid != wanted.uid:
                return f"persistentvolumeclaim {wanted.claim} is gone"
            if claim.volume:
                return ""
            if not wanted.volume:
                asked = asked or claim.selected_node == node
                if asked and claim.selected_node != node:
                    return f"persistentvolumeclaim {wanted.claim}: its provisioner can make no volume for node {node}"
            await asyncio.sleep(VOLUMES_LOOK)

    # ---- reasons and evictions

    def _report(self, pod: Pod, why: str) -> None:
        self._reasons.put(pod, why, self._clock.monotonic())
        self._reportable.set()

    async def _report_reasons(self) -> None:
        """Tell reasons that are due; pods that can start come first."""
        turns = asyncio.Semaphore(REPORTERS)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._reportable.wait()
                await asyncio.sleep(REPORT_LOOK)
                if not self._reasons:
                    self._reportable.clear()
                while not self.line and (due := self._reasons.take(self._clock.monotonic())) is not None:
                    await turns.acquire()
                    group.create_task(self._tell(*due, turns))

    async def _tell(self, pod: Pod, why: str, turns: asyncio.Semaphore) -> None:
        try:
            if not self.board.is_waiting(pod.uid):
                return
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
                "lastTransitionTime": rfc3339(self._clock.now())[:19] + "Z",
            }
            body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
            self._recorder.record(_reference(pod), "FailedScheduling", why, warning=True)
            await self._try(pod.key, self._patch_status(PODS, pod.key, body, "strategic"))
        finally:
            turns.release()

    async def _evict(self, pod: Pod, why: str) -> None:
        """A pod makes way: it is told why, then evicted, with its own grace period, as soon as its disruption budgets allow it."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": why[:LONGEST],
            "lastTransitionTime": rfc3339(self._clock.now())[:19] + "Z",
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._try(pod.key, self._patch_status(PODS, pod.key, body, "strategic"))
        self._recorder.record(_reference(pod), "Preempted", why, warning=True)
        pause = self._timing.retry[0]
        while True:
            try:
                await self._client.evict(pod.name, pod.namespace, pod.uid)
            except (NotFound, Conflict):
                pass  # it is gone, or another has its name
            except LeaseLost:
                raise
            except PaddleFlowError as error:
                _log.warning("eviction failed", pod=pod.key, error=error.message)
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._timing.retry[1])
                continue
            if self.metrics:
                self.metrics.evictions.inc()
            return

    async def _report_again(self) -> None:
        await self._free()
        for pod, why in self.board.reasons():
            self._report(pod, why)

    # ---- statuses

    async def _keep_statuses(self) -> None:
        busy = self.line and self._clock.monotonic() - self._statuses_at < STATUS_LATEST
        if busy or not self._volcano():
            return
        self._statuses_at = self._clock.monotonic()
        await self._free()
        groups = self._statuses.wrong_groups(self._statuses_at, rfc3339(self._clock.now())[:19] + "Z")
        queues = self._statuses.wrong_queues()
        for key, status in groups:
            await self._try(key, self._patch_status(PODGROUPS, key, {"status": status}))
        for name, wanted in queues.items():
            await self._try(name, self._patch_status(QUEUES, name, {"status": wanted}))

    async def _patch_status(self, resource: Resource, key: str, body: Mapping[str, Any], kind: str = "merge") -> Object:
        """Where the definition has no status subresource, the object itself is patched."""
        space, name = split(key)
        try:
            return await self._client.patch(resource, name, space, body=body, kind=kind, subresource="status")
        except NotFound:
            if resource is PODS:
                raise
            return await self._client.patch(resource, name, space, body=body, kind=kind)

    async def _try(self, what: str, write: Coroutine[Any, Any, object]) -> None:
        """A write that nothing depends on: a refusal is logged."""
        try:
            await write
        except LeaseLost:
            raise
        except (NotFound, Conflict):
            pass
        except PaddleFlowError as error:
            _log.warning("status not written", object=what, error=error.message)

    @staticmethod
    async def _forever(act: Callable[[], Coroutine[Any, Any, None]], every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await act()


def _reference(pod: Pod) -> View:
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
