"""The PaddleJob controller: reads the caches, asks `paddlejob.reconcile` what to write, has it written.

Counts and messages of a status are held back for a few seconds, so that a job of many pods costs three status writes and not one
for each pod. What the API server refused is remembered until it takes it, and tried again ever more seldom.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from paddleflow.base.clock import Clock
from paddleflow.base.values import dataclass
from paddleflow.errors import Forbidden, PaddleFlowError
from paddleflow.kube.cache import Cache, all_unpacked, packed, unpacked
from paddleflow.kube.client import Client
from paddleflow.kube.controller import DONE, RequeueAfter, Result
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    PADDLEJOBS,
    PODGROUPS,
    PODS,
    SERVICES,
    Object,
    Resource,
    View,
    owner,
    uid,
)
from paddleflow.operator import transforms
from paddleflow.operator.etcd import Etcd
from paddleflow.operator.executor import DEFINITION_TOO_OLD, WriteExecutor, refusal_event
from paddleflow.operator.metrics import OperatorMetrics
from paddleflow.operator.paddlejob.contract import choose_host_port
from paddleflow.operator.paddlejob.gang import held_reason
from paddleflow.operator.paddlejob.job import Job, OperatorOptions, read
from paddleflow.operator.paddlejob.pods import JOB_LABEL, NAME_LABEL
from paddleflow.operator.paddlejob.reconcile import GANG_REASON_AGE
from paddleflow.operator.paddlejob.reconcile import reconcile as reconcile_job
from paddleflow.operator.paddlejob.writes import Children, Event, Writes

SETTLE = 5.0  #: seconds for which changes of counts and messages are collected before a status is written
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0  #: seconds between tries of what was refused


@dataclass(slots=True)
class _Refused:
    """What the API server would not take, and how often it was tried."""

    event: Event
    tries: int = 0


class PaddleJobController:
    """One operator's PaddleJobController."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        options: OperatorOptions,
        namespace: str = "",
        etcd: Etcd | None = None,
    ) -> None:
        self.jobs = _cache(client, PADDLEJOBS, namespace, transforms.job)
        self.pods = _cache(client, PODS, namespace, transforms.pod, NAME_LABEL)
        self.config_maps = _cache(client, CONFIG_MAPS, namespace, transforms.config_map, NAME_LABEL)
        self.services = _cache(client, SERVICES, namespace, transforms.child, JOB_LABEL)
        self.pod_groups = _cache(client, PODGROUPS, namespace, transforms.pod_group)  # people make some, without labels
        self.caches = {
            "PaddleJob": self.jobs,
            "Pod": self.pods,
            "ConfigMap": self.config_maps,
            "Service": self.services,
        }
        self.watched = list(
            self.caches.values()
        )  #: those without which nothing works; PodGroups where Volcano is there
        self.caches["PodGroup"] = self.pod_groups
        self.metrics: OperatorMetrics | None = None
        self._executor = WriteExecutor(client, self.caches)
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._options = options
        self._etcd = etcd
        self._refused: dict[str, _Refused | None] = {}  # by the job's uid; None: the status is not believed any more
        self._held: dict[str, float] = {}  # since when a job's status is held back
        self._uids: dict[str, str] = {}  # of jobs seen so far, to drop what is kept about those that are gone
        self._lifted: set[str] = set()  # jobs whose finalizer was taken off once
        self._gang_reasons: dict[
            str, tuple[float, str]
        ] = {}  # when Volcano was asked, and what it said, by the job's uid
        self._ports: dict[str, tuple[int, int]] = {}  # ranges of jobs on the nodes' network: first port, members

    async def reconcile(self, key: str) -> Result:
        """Reconcile one job."""
        obj = self._job(key)
        if obj is None or self._uids.get(key, uid(obj)) != uid(obj):
            self._forget(self._uids.pop(key, ""))
        if obj is None:
            return DONE
        self._uids[key] = uid(obj)
        job = read(obj)
        refused = self._known_refusal(job)
        await self._ask_volcano(job)
        writes = self._pass(job, refused.event if refused else None)
        try:
            event = await self._carry_out(obj, job, writes)
        except Forbidden as error:  # the role lacks a verb
            event = refusal_event(_about(obj), error)
        if event is not None:
            return await self._remember(obj, job, event)
        if refused is not None:  # nothing is refused any more: the status must follow
            self._refused[job.uid] = None
            return RequeueAfter(0.0)
        return DONE if writes.again is None else RequeueAfter(writes.again)

    def _job(self, key: str) -> Object | None:
        kept = self.jobs.get(key)
        return None if kept is None else unpacked(kept)

    def every_job(self) -> list[Object]:
        return all_unpacked(self.jobs.all())

    def _pass(self, job: Job, refused: Event | None) -> Writes:
        writes = reconcile_job(
            job,
            self._children(job),
            self._clock.now(),
            self._options,
            refused=refused,
            host_port=self._host_port(job),
            gang_reason=self._gang_reasons.get(job.uid, (0.0, ""))[1],
        )
        if refused and refused.reason == DEFINITION_TOO_OLD:
            writes.first = True  # without a memory nothing else may be done
        if writes.creates and not (job.status or writes.first or refused):
            writes.status = None  # the first one comes with the pods that it counts: the next reconcile has them
        self._hold_back(job, writes)
        return writes

    def _hold_back(self, job: Job, writes: Writes) -> None:
        """Take out a status that may come later: such are gathered from the first change on, because with one pod that starts
        the others soon do."""
        if writes.status is None or writes.urgent:
            self._held.pop(job.uid, None)
            return
        now = self._clock.monotonic()
        left = self._held.setdefault(job.uid, now) + SETTLE - now
        if left > 0:
            writes.status = None
            writes.requeue_after(left)
        else:
            del self._held[job.uid]

    def _children(self, job: Job) -> Children:
        return Children(
            pods=all_unpacked(self.pods.by_owner(job.uid)),
            config_maps=all_unpacked(self.config_maps.by_owner(job.uid)),
            services=all_unpacked(self.services.by_owner(job.uid)),
            pod_groups=all_unpacked(self.pod_groups.by_owner(job.uid)),
            unowned_pod_group=self._unowned_pod_group(job),
        )

    def _unowned_pod_group(self, job: Job) -> Object | None:
        kept = self.pod_groups.get(f"{job.namespace}/{job.name}")
        found = None if kept is None else unpacked(kept)
        if found is None or "deletionTimestamp" in found["metadata"] or owner(found) is not None:
            return None
        return found

    async def _ask_volcano(self, job: Job) -> None:
        """Why Volcano holds the gang of a job back: it says so in events of the PodGroup and nowhere else."""
        kept = self.pod_groups.get(f"{job.namespace}/{job.name}")
        group = None if kept is None or job.ended else unpacked(kept)
        if group is None or (group.get("status") or {}).get("phase") != "Pending":
            self._gang_reasons.pop(job.uid, None)
            return
        now = self._clock.monotonic()
        asked, reason = self._gang_reasons.get(job.uid, (float("-inf"), ""))
        if now - asked < (GANG_REASON_AGE if reason else SETTLE):
            return
        with suppress(PaddleFlowError):  # an older role may not list events: the message says where they are
            fields = f"involvedObject.uid={uid(group)}"
            events = (await self._client.list(EVENTS, job.namespace, fields=fields)).items
            reason = held_reason(events)
        self._gang_reasons[job.uid] = now, reason

    async def _carry_out(self, obj: View, job: Job, writes: Writes) -> Event | None:
        """Write everything, in order; what was refused."""
        if writes.status is not None and writes.first and (event := await self._write_status(obj, writes)):
            return event
        if writes.finalizers is not None and (job.deleting or job.uid not in self._lifted):
            await self._executor.set_finalizers(job, writes.finalizers)
            self._lifted.add(job.uid)
        if writes.np is not None and self._etcd is not None:
            await self._etcd.set_workers(job.namespace, job.name, writes.np)
        if writes.deletes:
            await self._executor.delete(writes.deletes)
            self._count("delete", len(writes.deletes))
        event = None
        if writes.creates:
            event = await self._executor.create(obj, writes.creates)
            self._count("create", len(writes.creates))
        if writes.patches:
            await self._executor.patch(writes.patches)
            self._count("patch", len(writes.patches))
        if writes.status is not None and not writes.first and event is None:
            event = await self._write_status(obj, writes)
        for each in writes.events:
            self._recorder.record(_about(obj), each.reason, each.message, warning=each.warning)
        if writes.expired:
            await self._executor.expire(obj)
        return event

    async def _write_status(self, obj: View, writes: Writes) -> Event | None:
        assert writes.status is not None, "the caller checked it"
        event = await self._executor.write_status(obj, writes.status)
        self._count("status", 1)
        return event

    def _count(self, verb: str, amount: int) -> None:
        if self.metrics is not None:
            self.metrics.writes.labels(verb).inc(amount)

    # ---- refusals --------------------------------------------------------------------------------------------------

    def _known_refusal(self, job: Job) -> _Refused | None:
        """What was refused before; after a restart it is read from the status."""
        if job.uid not in self._refused:
            blocked: View = next((c for c in job.status.get("conditions") or () if c["type"] == "Blocked"), {})
            if blocked.get("status") == "True" and blocked["reason"] != "InvalidSpec":
                self._refused[job.uid] = _Refused(Event(blocked["reason"], blocked.get("message", ""), warning=True))
        return self._refused.get(job.uid)

    async def _remember(self, obj: View, job: Job, event: Event) -> Result:
        known = self._refused.get(job.uid) or _Refused(event)
        self._refused[job.uid] = known
        known.event, known.tries = event, known.tries + 1
        self._recorder.record(_about(obj), event.reason, event.message, warning=True)
        if self.metrics is not None:
            self.metrics.refusals.labels(event.reason).inc()
        if event.reason != DEFINITION_TOO_OLD:  # which would not keep this either
            await self._say_blocked(obj, job, event)
        return RequeueAfter(min(_FIRST_RETRY * 2 ** (known.tries - 1), _LONGEST_RETRY))

    async def _say_blocked(self, obj: View, job: Job, event: Event) -> None:
        now = read(self._job(f"{job.namespace}/{job.name}") or obj)
        writes = self._pass(now, event)
        if writes.status is not None and writes.urgent:
            with suppress(Forbidden):  # it may be this that the role lacks; the event names it
                await self._write_status(obj, writes)

    # ---- the nodes' ports ------------------------------------------------------------------------------------------

    def _host_port(self, job: Job) -> int:
        """A range for a job on the nodes' network."""
        if job.spec is None or job.spec.intranet != "Host" or job.ended:
            self._ports.pop(job.uid, None)
            return 0
        members = job.spec.members * len(job.spec.roles())
        first = job.status.get("hostPort")
        if not first and job.uid not in self._ports:
            taken = self._ports.values()
            first = choose_host_port(job.uid, members, self._options.low_port, self._options.high_port, taken)
        if first:
            self._ports[job.uid] = first, members
        return self._ports[job.uid][0]

    def _forget(self, job_uid: str) -> None:
        self._refused.pop(job_uid, None)
        self._held.pop(job_uid, None)
        self._ports.pop(job_uid, None)
        self._gang_reasons.pop(job_uid, None)
        self._lifted.discard(job_uid)


def _cache(
    client: Client, resource: Resource, namespace: str, transform: Callable[[Object], Object], labels: str = ""
) -> Cache[bytes]:
    return Cache(client, resource, namespace, labels=labels, transform=packed(transform))


def _about(obj: View) -> Object:
    return {**obj, "apiVersion": PADDLEJOBS.api_version, "kind": PADDLEJOBS.kind}
