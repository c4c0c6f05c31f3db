"""Everything that the scheduler knows of a cluster, and what it decides: pods and groups in, placements out. Pure.

A pod of its own is a job of the scheduling core; the pods of a PodGroup are one job until as many as it asks for are placed, and
those that come later are jobs of their own. All other pods on nodes are counted, in a queue that nobody else is in, and never
evicted. Changes are collected and taken in together before a decision (`take_in`), so that a burst costs one cycle.

The core is the board's own, or that of a server's engine (`engine`): then pods wait beside the jobs of the platform, in one
ledger. What the pods of those jobs take is counted by their jobs already; here they are neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.kube.selectors import Labels, PodTerm
from paddleflow.podscheduler.changeset import PodChangeset
from paddleflow.podscheduler.groups import PodGroup, QueueObject, first_pods, with_pods
from paddleflow.podscheduler.neighbours import Neighbours
from paddleflow.podscheduler.nodes import AnyFilter, KubeNode, PodFilter, filter_of
from paddleflow.podscheduler.placement import GangConstraint, PodConstraint, Scene
from paddleflow.podscheduler.platform_jobs import PlatformJobs
from paddleflow.podscheduler.pods import DEFAULT_QUEUE, PODS, Pod
from paddleflow.podscheduler.volumes import Claim, StorageClass, Volume, Volumes
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    Decision,
    MemberSet,
    Node,
    Preempt,
    Queue,
    Reason,
    Request,
    Start,
    Wait,
)
from paddleflow.scheduling.nodes import times_fitting
from paddleflow.scheduling.rules import Rules

OTHERS = "(other pods)"  #: the queue of pods that were placed by others
NEVER = float("inf")  #: as the start of a job: it has not run long enough to be evicted
#: reasons that are about nodes: how many refuse for what says more
_ON_NODES = ("busy", "gang", "fragmentation", "capacity", "node_labels", "constraint", "next")
_CONSTRAINTS = 8192  #: remembered at a time
_Alike = tuple[Resources, PodFilter, PodConstraint]


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that the core has as one job."""

    job: str
    roles: dict[str, list[Pod]]
    group: str = ""
    placed: dict[str, Assignment] = field(default_factory=dict)  #: by uid; empty while it waits

    def pods(self) -> list[Pod]:
        return [pod for pods in self.roles.values() for pod in pods]


class Board:
    """One cluster."""

    def __init__(self, rules: Rules, placement: str = "pack", engine: Core | None = None) -> None:
        self.core = Core(rules) if engine is None else engine
        self._platform_queues: tuple[Queue, ...] = ()
        self._platform_nodes: Mapping[str, Node] | None = None if engine is None else {}
        self.neighbours = Neighbours()
        self.pods: dict[str, Pod] = {}  #: by key
        self.groups: dict[str, PodGroup] = {}
        self.queues: dict[str, QueueObject] = {}
        self._volumes = Volumes()
        self._placement = placement
        self._nodes: dict[str, KubeNode] = {}
        self._scene = Scene(self.neighbours, self.core.cluster, self._started)
        self._jobs = PlatformJobs(self._scene, self.core, self._avoiders)
        if engine is not None:
            self.core.cluster.interpret = self._jobs.interpret
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, Unit] = {}  # by uid
        self._members: dict[str, dict[str, Pod]] = {}  # pods of each group, by uid
        self._waiting: dict[str, Pod] = {}  # pods of ours that nobody has placed, by uid
        self._held: dict[str, str] = {}  # why a pod is not before the core, by uid
        self._news: dict[str, None] = {}  # those of them that were not told yet
        self._constraints: dict[tuple[object, ...], PodConstraint] = {}
        self._terms: Counter[PodTerm] = Counter()  # required anti-affinity of all pods
        self._changed: dict[str, Pod | None] = {}
        self._touched: set[str] = set()  # groups to look at
        self.stale: set[str] = set()  #: groups whose status may not be true any more; whoever writes it clears them
        self._nodes_changed = self._queues_changed = True
        self._scalars = {PODS}
        self._seq = 0

    # ---- what happens

    def put_pod(self, key: str, pod: Pod | None) -> None:
        self._changed[key] = pod

    def put_node(self, name: str, node: KubeNode | None) -> None:
        if self._nodes.get(name) == node:
            return
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self._nodes_changed = True

    def put_queue(self, name: str, queue: QueueObject | None) -> None:
        if queue is None:
            self.queues.pop(name, None)
        else:
            self.queues[name] = queue
        self._queues_changed = True
        self.stale.update(self.groups)

    def set_platform_queues(self, queues: Iterable[Queue]) -> None:
        """The queues of a server, beside those of the cluster; of two with one name the server's counts."""
        self._platform_queues = tuple(queues)
        self._queues_changed = True

    def set_platform_nodes(self, nodes: Iterable[Node]) -> None:
        """Which nodes take jobs of the platform, by its own rules; pods go by theirs."""
        self._platform_nodes = {node.name: node for node in nodes}
        self._nodes_changed = True

    def put_group(self, key: str, group: PodGroup | None) -> None:
        before = self.groups.get(key)
        self.stale.add(key)
        if group is None:
            self.groups.pop(key, None)
        else:
            self.groups[key] = group
        if (
            before is None
            or group is None
            or (before.queue, before.min_member, before.together) != (group.queue, group.min_member, group.together)
        ):
            self._touched.add(key)

    def put_namespace(self, name: str, labels: Labels | None) -> None:
        if self.neighbours.namespaces.get(name) == labels:
            return
        self.neighbours.set_namespace(name, labels)
        self._reclassify()
        self._stir()

    def put_claim(self, key: str, claim: Claim | None) -> None:
        self._recheck(self._volumes.put_claim(key, claim))

    def put_volume(self, name: str, volume: Volume | None) -> None:
        self._recheck(self._volumes.put_volume(name, volume))

    def put_class(self, name: str, found: StorageClass | None) -> None:
        self._recheck(self._volumes.put_class(name, found))

    def _recheck(self, keys: Iterable[str]) -> None:
        for key in keys:
            pod = self.pods.get(key)
            if pod is not None and pod.uid in self._waiting:
                self._changed.setdefault(key, pod)

    def _stir(self) -> None:
        """Something changed that is neither room nor quota: whoever waits may be able to start."""
        self.core.cluster.version += 1
        self.core.dirty = True

    def _started(self, job: str, assignments: tuple[Assignment, ...]) -> None:
        """The core has placed a job; its pods are neighbours from now on."""
        unit = self._units[job]
        for assignment in assignments:
            pod = unit.roles[assignment.role][assignment.index]
            unit.placed[pod.uid] = assignment
            self.neighbours.put(pod, assignment.node)

    # ---- taking in

    def take_in(self, now: float) -> None:
        """Everything that happened since the last time."""
        changed, self._changed = self._changed, {}
        bound: dict[str, list[Pod]] = {}
        arrived: list[Pod] = []
        for key, pod in changed.items():
            known = self.pods.get(key)
            if known is not None and (pod is None or pod.uid != known.uid or pod.ended):
                self._remove(known)
                known = None
            if pod is None or pod.ended:
                continue
            self._register(pod, known)
            if pod.attempt:
                if pod.node and (known is None or _seen_otherwise(known, pod)):
                    self._host(pod)
            elif pod.node:
                if not self._confirm(pod, known):
                    together = pod.group_key if pod.ours and pod.group else f"/{key}"
                    bound.setdefault(together, []).append(pod)
            elif pod.ours:
                arrived.append(pod)
        self._set_world()
        for pods in bound.values():
            self._count(pods)
        for pod in arrived:
            self._arrive(pod)
        for key in self._touched:
            self._form(key)
        self.stale |= self._touched
        self._touched.clear()

    def _set_world(self) -> None:
        if self._nodes_changed:
            self._nodes_changed = False
            self._learn(node.capacity for node in self._nodes.values())
            nodes = [self._shared(node) for node in self._nodes.values()]
            self.neighbours.set_nodes(nodes)
            self.core.set_nodes(nodes)
        if self._queues_changed:
            self._queues_changed = False
            queues = {DEFAULT_QUEUE: QueueObject(DEFAULT_QUEUE, "root", 1, True, known=False), **self.queues}
            made = {name: each.queue(self._scalars, self._placement) for name, each in queues.items()}
            if self._platform_queues:
                made.pop("root", None)  # Volcano's own, of which it makes one in every cluster
                made |= {each.name: with_pods(each, self._scalars) for each in self._platform_queues}
            self.core.set_queues(made.values())

    def _shared(self, node: KubeNode) -> KubeNode:
        """The node for both: pods look at what it repels, jobs of the platform at what the server says of it."""
        if self._platform_nodes is None:
            return node
        known = self._platform_nodes.get(node.name)
        if known is None:
            return replace(node, schedulable=False)
        return replace(node, schedulable=known.schedulable, taints=known.taints)

    def _learn(self, amounts: Iterable[Resources]) -> None:
        """Names of resources, so that queues which do not name them do not limit them."""
        names = {name for amount in amounts for name, _ in amount.scalars}
        if not names <= self._scalars:
            self._scalars |= names
            self._queues_changed = True

    def _register(self, pod: Pod, known: Pod | None) -> None:
        self.pods[pod.key] = pod
        if pod.group and pod.ours:
            self._members.setdefault(pod.group_key, {})[pod.uid] = pod
            self._touched.add(pod.group_key)
        if known is None:
            self._volumes.use(pod)
            self._learn([pod.request])
            fresh = [term for term in pod.template.anti_affinity if term not in self._terms]
            self._terms.update(pod.template.anti_affinity)
            if fresh:
                self._reclassify(fresh)

    def _confirm(self, pod: Pod, known: Pod | None) -> bool:
        """A bound pod whose place is counted already: whether it is."""
        self._volumes.give_back(pod)
        self._waiting.pop(pod.uid, None)
        self._held.pop(pod.uid, None)
        unit = self._unit_of.get(pod.uid)
        assignment = unit.placed.get(pod.uid) if unit else None
        if unit is None or assignment is None or assignment.node != pod.node:
            if unit is not None:
                self._leave(unit, pod)
            return False
        if known is None or known.labels != pod.labels or known.deleting != pod.deleting:
            self.neighbours.put(pod, pod.node)
            self._stir()
        if known is not None and known.request != pod.request:
            self._leave(unit, pod)
            return False
        unit.roles[assignment.role][assignment.index] = pod
        return True

    def _count(self, pods: list[Pod]) -> None:
        """Pods that are on nodes and that the core does not know: those of one group are one job."""
        group = pods[0].group_key if pods[0].ours else ""
        job = f"podgroup {group}" if group and f"podgroup {group}" not in self._units else ""
        if not job and len(pods) > 1:
            for pod in pods:
                self._count([pod])
            return
        job = job or self._free_name(pods[0])
        unit, sets = self._unit(job, pods, group)
        ours = pods[0].ours
        queue = self._queue_of(pods[0]) if ours else OTHERS
        request = Request(
            job, queue, sets, min(pod.created_at for pod in pods), self._next(), max(pod.priority for pod in pods)
        )
        for role, members in unit.roles.items():
            for index, pod in enumerate(members):
                unit.placed[pod.uid] = Assignment(role, index, pod.node)
                self.neighbours.put(pod, pod.node)
        since = request.submitted_at if ours else NEVER
        self.core.allocate(Allocation(request, tuple(unit.placed.values()), since))
        self._stir()

    def _host(self, pod: Pod) -> None:
        """A pod of one of the platform's jobs: the core has what the job asked for; what the pod takes beyond that is counted."""
        self._jobs.seen(pod.attempt)
        unit = self._unit_of.get(pod.uid)
        if unit is not None:
            self._leave(unit, pod)
        beyond = _beyond(pod.request, self._held_for(pod.attempt))
        unit = self._units[pod.key] = Unit(pod.key, {"0": [pod]})
        self._unit_of[pod.uid] = unit
        unit.placed[pod.uid] = Assignment("0", 0, pod.node)
        request = Request(pod.key, OTHERS, (MemberSet("0", 1, beyond, 1),), pod.created_at, self._next(), pod.priority)
        self.neighbours.put(pod, pod.node)
        self.core.allocate(Allocation(request, tuple(unit.placed.values()), NEVER))
        self._stir()

    def _held_for(self, attempt: str) -> Resources:
        """What the core holds for a member of a job of the platform; nothing when it does not know it, or not any more."""
        try:
            job, (role, _), _ = parse_attempt(AttemptId(attempt))
        except ValueError:
            return Resources()
        held = self.core.allocations.get(job)
        sets = held.request.member_sets if held else ()
        return next((each.each for each in sets if each.role == role), Resources())

    def _free_name(self, pod: Pod) -> str:
        return pod.key if pod.key not in self._units else f"{pod.key} {pod.uid}"

    def _unit(self, job: str, pods: list[Pod], group: str) -> tuple[Unit, tuple[MemberSet, ...]]:
        """Pods as members of a job: those that take the same and may go to the same nodes have one role."""
        roles: dict[object, tuple[str, list[Pod]]] = {}
        for pod in pods:
            alike = self._alike(pod) if not pod.node else pod.request
            roles.setdefault(alike, (str(len(roles)), []))[1].append(pod)
        unit = self._units[job] = Unit(job, dict(roles.values()), group)
        for pod in pods:
            self._unit_of[pod.uid] = unit
        sets = tuple(
            MemberSet(role, len(members), members[0].request, len(members)) for role, members in unit.roles.items()
        )
        return unit, sets

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _remove(self, pod: Pod) -> None:
        """A pod is gone or has ended."""
        self.pods.pop(pod.key, None)
        self._waiting.pop(pod.uid, None)
        self._held.pop(pod.uid, None)
        self._recheck(self._volumes.leave(pod))
        self._terms.subtract(pod.template.anti_affinity)
        for term in pod.template.anti_affinity:
            if self._terms[term] <= 0:
                del self._terms[term]
        if pod.group and pod.ours:
            members = self._members.get(pod.group_key, {})
            members.pop(pod.uid, None)
            if not members:
                self._members.pop(pod.group_key, None)
            self._touched.add(pod.group_key)
        unit = self._unit_of.get(pod.uid)
        if unit is not None:
            self._leave(unit, pod)

    def _leave(self, unit: Unit, pod: Pod) -> None:
        """A pod is no longer part of a job: what it had is free, or the job that waits is not whole any more."""
        if unit.group:
            self.stale.add(unit.group)
        self._recheck(self._volumes.give_back(pod))
        del self._unit_of[pod.uid]
        self.neighbours.drop(pod.uid)
        if not unit.placed:
            self._dissolve(unit)
            return
        unit.placed.pop(pod.uid, None)
        if unit.placed:
            self.core.resized(unit.job, unit.placed.values())
        else:
            self.core.release(unit.job)
            self._units.pop(unit.job, None)
        self._stir()

    def _dissolve(self, unit: Unit) -> None:
        """A job that waits is taken back; its pods wait to be put together again."""
        self._take_back(unit)
        for pod in unit.pods():
            if pod.uid in self._waiting:
                self._changed.setdefault(pod.key, self.pods.get(pod.key))
        if unit.group:
            self._touched.add(unit.group)

    def _take_back(self, unit: Unit) -> None:
        self.core.withdraw(unit.job)
        self._units.pop(unit.job, None)
        for pod in unit.pods():
            self._unit_of.pop(pod.uid, None)

    # ---- what waits

    def _arrive(self, pod: Pod) -> None:
        """A pod that nobody has placed, new or changed."""
        unit = self._unit_of.get(pod.uid)
        if pod.gated or pod.deleting:
            self._waiting.pop(pod.uid, None)
            if unit is not None and not unit.placed:
                self._leave(unit, pod)
            return
        if unit is not None and unit.placed:
            return  # on its way to its node
        before = self._waiting.get(pod.uid)
        self._waiting[pod.uid] = pod
        if unit is not None and before is not None and self._alike_still(before, pod):
            return
        if unit is not None:
            self._leave(unit, pod)
        if pod.group:
            self._touched.add(pod.group_key)
        else:
            self._submit(pod.key, [pod], "")

    def _alike_still(self, before: Pod, now: Pod) -> bool:
        return (
            before.template is now.template
            and before.labels == now.labels
            and before.priority == now.priority
            and before.queue == now.queue
            and not now.template.claims
        )

    def _form(self, key: str) -> None:
        """Put the waiting pods of a group before the core, as a gang if it needs to be one."""
        waiting = [pod for uid, pod in self._members.get(key, {}).items() if uid in self._waiting]
        pending = {unit.job: unit for pod in waiting if (unit := self._unit_of.get(pod.uid)) and not unit.placed}
        group, placed = self.groups.get(key), self.placed_members(key)
        wanted: dict[str, list[Pod]] = {}
        held = ""
        if group is None:
            held = f"there is no PodGroup {key}"
        elif placed >= group.min_member or (placed and group.phase == "Running"):
            wanted = {pod.key: [pod] for pod in waiting}
        elif placed + len(waiting) < group.min_member:
            held = f"PodGroup {key} starts with {group.min_member} pods, {placed + len(waiting)} are there"
        else:
            needed = group.min_member - placed
            whole = next((unit for unit in pending.values() if len(unit.pods()) == needed), None)
            job = f"podgroup {key}" if not placed else f"podgroup {key} (rest)"
            wanted = {whole.job: whole.pods()} if whole else {job: first_pods(waiting, group, needed)}
        for job, unit in pending.items():
            if job not in wanted or len(wanted[job]) != len(unit.pods()):
                self._take_back(unit)
        for pod in waiting if held else ():
            self._hold(pod, held)
        for job, pods in wanted.items():
            if job not in self._units:
                self._submit(job, pods, key)

    def placed_members(self, key: str) -> int:
        """How many pods of a group have a place."""
        found = 0
        for uid in self._members.get(key, {}):
            unit = self._unit_of.get(uid)
            found += unit is not None and uid in unit.placed
        return found

    def _hold(self, pod: Pod, why: str) -> None:
        if self._held.get(pod.uid) != why:
            self._held[pod.uid] = why
            self._news[pod.uid] = None

    def _submit(self, job: str, pods: list[Pod], group: str) -> None:
        for pod in pods:
            fault = self._fault(pod)
            if fault:
                for each in pods:
                    self._hold(each, fault)
                return
        for pod in pods:
            self._held.pop(pod.uid, None)
        unit, sets = self._unit(job, pods, group)
        kinds = {role: self._alike(members[0]) for role, members in unit.roles.items()}
        filters = {filter: None for _, filter, _ in kinds.values()}
        constraints = {id(constraint): constraint for _, _, constraint in kinds.values()}
        request = Request(
            job,
            self._queue_of(pods[0]),
            sets,
            min(pod.created_at for pod in pods),
            self._next(),
            max(pod.priority for pod in pods),
            filter=next(iter(filters)) if len(filters) == 1 else AnyFilter(tuple(filters)),
            constraint=(
                next(iter(constraints.values()))
                if len(filters) == len(constraints) == 1
                else GangConstraint(self._scene, {role: (kind[1], kind[2]) for role, kind in kinds.items()})
            ),
            preempts=all(pod.preempts for pod in pods),
            together=found.together if (found := self.groups.get(group)) is not None else "",
        )
        self.core.submit(request)

    def _queue_of(self, pod: Pod) -> str:
        group = self.groups.get(pod.group_key)
        return pod.queue or (group.queue if group else "") or DEFAULT_QUEUE

    def _fault(self, pod: Pod) -> str:
        """Why a pod cannot be placed whatever the nodes say; empty if nothing is wrong."""
        if pod.template.resource_claims:
            return "it asks for devices by ResourceClaim, which this scheduler does not allocate"
        return self._volumes.fault(pod, self._has_place)

    def _has_place(self, key: str) -> bool:
        pod = self.pods.get(key)
        return pod is not None and bool(pod.node or pod.uid in self._unit_of)

    def _alike(self, pod: Pod) -> _Alike:
        """Equal for pods that stand or fall together."""
        filter = filter_of(pod.template, self._volumes.terms(pod))
        avoiders = self._avoiders(pod)
        key: tuple[object, ...] = (filter, avoiders)
        if not pod.template.plain:
            key = (*key, id(pod.template), pod.namespace, tuple(sorted(pod.labels.items())))
        constraint = self._constraints.get(key)
        if constraint is None or (not pod.template.plain and constraint.sample.template is not pod.template):
            if len(self._constraints) >= _CONSTRAINTS:
                self._constraints.clear()
            constraint = self._constraints[key] = PodConstraint(self._scene, pod, filter, avoiders)
        return pod.request, filter, constraint

    def _avoiders(self, pod: Pod) -> tuple[PodTerm, ...]:
        """The terms of anti-affinity, of whatever pod, that mean this one."""
        namespaces = self.neighbours.namespaces
        return tuple([term for term in self._terms if term.matches(pod.namespace, pod.labels, namespaces)])

    def _reclassify(self, terms: Iterable[PodTerm] | None = None) -> None:
        """Terms of anti-affinity are new, or mean others than before (None): those whom they mean are told apart from now on."""
        namespaces = self.neighbours.namespaces
        self._jobs.reclassify()
        for unit in [unit for unit in self._units.values() if not unit.placed]:
            pods = unit.pods()
            if terms is None or any(
                term.matches(pod.namespace, pod.labels, namespaces) for term in terms for pod in pods
            ):
                self._dissolve(unit)

    # ---- deciding

    def decide(self, now: float, limit: int | None = None) -> PodChangeset:
        """What to do now, for at most `limit` jobs that start."""
        self.take_all_in(now)
        return self.changeset(self.core.decide(now, limit))

    def take_all_in(self, now: float) -> None:
        """Everything that happened, and what follows from it for other pods."""
        self._jobs.sweep()
        while self._changed or self._touched or self._nodes_changed or self._queues_changed:
            self.take_in(now)

    def knows(self, job: str) -> bool:
        """Whether a job of the core is one of pods."""
        return job in self._units

    def changeset(self, decisions: Iterable[Decision]) -> PodChangeset:
        """What the core's decisions about pods ask for."""
        changes = PodChangeset()
        for decision in decisions:
            match decision:
                case Start(job, _):
                    for pod in self._units[job].pods():
                        self._waiting.pop(pod.uid, None)
                        self._begin(pod, self._units[job].placed[pod.uid].node, changes)
                    if self._units[job].group:
                        self._touched.add(self._units[job].group)
                case Wait(job, reason):
                    self._explain(self._units[job], reason, changes)
                case Preempt(job, by, reason):
                    changes.evictions += [(pod, f"preempted for {by}: {reason.text}") for pod in self._whole(job)]
        news, self._news = self._news, {}
        changes.waits += [
            (self._waiting[uid], self._held[uid]) for uid in news if uid in self._waiting and uid in self._held
        ]
        return changes

    def _begin(self, pod: Pod, node: str, changes: PodChangeset) -> None:
        """A pod has its place: it is bound at once, or when its volumes are there."""
        wanted = self._volumes.prepare(pod, self._nodes[node]) if pod.template.claims else []
        if wanted is None:
            changes.refused.append(pod)
        elif wanted:
            changes.prepared.append((pod, node, wanted))
        else:
            changes.binds.append((pod, node))

    @property
    def quiet_until(self) -> float:
        """When time alone may change a decision."""
        return float("-inf") if self._changed or self._touched else self.core.quiet_until

    def _whole(self, job: str) -> list[Pod]:
        """The pods that end with a job: all of its gang, if fewer than it needs would be left."""
        unit = self._units[job]
        pods = [pod for pod in unit.pods() if pod.uid in unit.placed]
        group = self.groups.get(unit.group)
        if group is not None and self.placed_members(unit.group) - len(pods) < group.min_member:
            members = self._members.get(unit.group, {})
            pods = [pod for uid, pod in members.items() if (u := self._unit_of.get(uid)) and uid in u.placed]
        return pods

    def reasons(self) -> list[tuple[Pod, str]]:
        """Why each pod waits, as things stand; for telling again what has changed."""
        changes = PodChangeset()
        for job, reason in self.core.reasons().items():
            if job in self._units:  # else it is one of the platform's, and its engine says why
                self._explain(self._units[job], reason, changes)
        changes.waits += [(pod, why) for uid, why in self._held.items() if (pod := self._waiting.get(uid))]
        return changes.waits

    def _explain(self, unit: Unit, reason: Reason, changes: PodChangeset) -> None:
        pods, text = unit.pods(), reason.text
        if reason.code in _ON_NODES:
            tally = self.tally(pods[0])
            if len(pods) > 1:
                text = f"{len(pods)} pods start together. {text}. One of them alone: {tally}"
            else:
                text = f"{tally} {text}" if reason.code == "busy" else tally
        changes.waits += [(pod, text) for pod in pods]

    def tally(self, pod: Pod) -> str:
        """How many nodes refuse a pod for which reason, as kube-scheduler writes it."""
        request, filter, constraint = self._alike(pod)
        outlook = self.neighbours.outlook(pod, filter)
        found: Counter[str] = Counter()
        states = self.core.cluster.states
        for state in states.values():
            refusal = filter.refusal(state.node)
            if refusal:
                found[f"node(s) {refusal}"] += 1
            elif not times_fitting(request, state.cpu, state.memory, state.group, 1):
                for name in request.beyond(_free(state.cpu, state.memory, state.group)) or ["pods"]:
                    found["Too many pods" if name == PODS else f"Insufficient {name}"] += 1
            elif refusal := constraint.refusal(outlook, state):
                found[f"node(s) {refusal}"] += 1
        causes = ", ".join(f"{count} {why}" for why, count in sorted(found.items(), key=lambda row: (-row[1], row[0])))
        return f"0/{len(states)} nodes are available: {causes or 'none takes pods now'}."

    # ---- what became of it

    def failed(self, pod: Pod) -> None:
        """A pod could not be bound: its place is free again, and it waits for `retry` or for a change."""
        unit = self._unit_of.get(pod.uid)
        if unit is not None and pod.uid in unit.placed:
            self._leave(unit, pod)

    def retry(self, pod: Pod) -> None:
        """A pod that could not be bound waits as before, if it is still there."""
        known = self.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and not known.node:
            self._changed.setdefault(pod.key, known)

    def is_waiting(self, uid: str) -> bool:
        return uid in self._waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waiting_of(self, key: str) -> int:
        """How many pods of a group wait."""
        return sum(uid in self._waiting for uid in self._members.get(key, {}))

    def why(self, key: str) -> str:
        """Why pods of a group wait, if it is known."""
        for uid in self._members.get(key, {}):
            if uid in self._held:
                return self._held[uid]
            unit = self._unit_of.get(uid)
            if unit is not None and not unit.placed:
                return self.core.why(unit.job).text
        return ""


def _seen_otherwise(known: Pod, now: Pod) -> bool:
    return (known.node, known.labels, known.deleting, known.request) != (
        now.node,
        now.labels,
        now.deleting,
        now.request,
    )


def _beyond(request: Resources, held: Resources) -> Resources:
    scalars = {name: max(0, amount - held.scalar(name)) for name, amount in request.scalars}
    return Resources.of(max(0, request.cpu - held.cpu), max(0, request.memory - held.memory), scalars)


def _free(cpu: int, memory: int, group: tuple[tuple[str, int, int], ...]) -> Resources:
    return Resources.of(max(0, cpu), max(0, memory), {name: max(0, whole) for name, whole, _ in group})
