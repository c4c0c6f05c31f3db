"""Where pods go when more than room decides: each member to the best node that neighbours allow, or none at all. Pure.

`PodConstraint` and `GangConstraint` are what the scheduling core asks (`scheduling.model.Constraint`). Pods without such rules are
placed by the core itself, as long as no pod that is there keeps them away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddleflow.kube.selectors import PodTerm
from paddleflow.podscheduler.neighbours import Neighbours, Outlook
from paddleflow.podscheduler.nodes import PodFilter, RoleFilter, filter_of
from paddleflow.podscheduler.pods import Pod
from paddleflow.scheduling.model import Assignment, NodeFilter
from paddleflow.scheduling.nodes import Cluster, NodeState, Pool, times_fitting
from paddleflow.scheduling.placement import Shortfall, SizeGroup, place

Score = tuple[int, int, int, int, int, str]
SOFT = ("PreferNoSchedule",)


class Scene:
    """What all constraints of one scheduler share."""

    def __init__(
        self, neighbours: Neighbours, cluster: Cluster, started: Callable[[str, tuple[Assignment, ...]], None]
    ) -> None:
        self.neighbours = neighbours
        self.cluster = cluster  #: the real one: in others nobody is anybody's neighbour
        self.started = started


class PodConstraint:
    """What pods that are alike ask of the pods beside them. Compared by identity: `Constraints` has one of each."""

    __slots__ = ("_avoiders", "_filter", "_scene", "_soft", "sample")

    def __init__(self, scene: Scene, sample: Pod, filter: PodFilter, avoiders: tuple[PodTerm, ...]) -> None:
        self._scene = scene
        self._filter = filter
        self._avoiders = avoiders  # terms of anti-affinity, of whatever pod, that mean this one
        self._soft: tuple[int, bool] | None = None  # whether taints ask to prefer other nodes, as of a version
        self.sample = sample

    def by_room(self, cluster: Cluster) -> bool:
        scene = self._scene
        if cluster is not scene.cluster:
            return True
        return self.sample.template.plain and not scene.neighbours.repels(self._avoiders) and not self._discouraged()

    def _discouraged(self) -> bool:
        neighbours = self._scene.neighbours
        if not neighbours.softly_tainted:
            return False
        if self._soft is None or self._soft[0] != neighbours.version:
            found = any(self._filter.untolerated(node, SOFT) for node in neighbours.softly_tainted)
            self._soft = (neighbours.version, found)
        return self._soft[1]

    def started(self, cluster: Cluster, job: str, assignments: tuple[Assignment, ...]) -> None:
        self._scene.started(job, assignments)

    def place(self, cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
        with Trial(self._scene.neighbours, cluster) as trial:
            for size in sizes:
                for role, index in size.members:
                    if not trial.add(self, pool, size, role, index):
                        return Shortfall(len(sizes), 0)
            return trial.keep()

    def best(self, pool: Pool, size: SizeGroup) -> NodeState | None:
        """The best node for one more, as things stand."""
        neighbours, template = self._scene.neighbours, self.sample.template
        outlook = neighbours.outlook(self.sample, self._filter)
        found: tuple[Score, NodeState] | None = None
        each = size.each
        for state in pool.members.values():
            if not times_fitting(each, state.cpu, state.memory, state.group, 1):
                continue
            if outlook.refusal(state.node.labels) or not neighbours.ports_free(template, state.name):
                continue
            score = self._score(state, pool.selector.spread)
            if found is None or score < found[0]:
                found = (score, state)
        return found[1] if found else None

    def refusal(self, outlook: Outlook, state: NodeState) -> str:
        """Why not there, room aside, in kube-scheduler's words."""
        if not self._scene.neighbours.ports_free(self.sample.template, state.name):
            return "didn't have free ports for the requested pod ports"
        return outlook.refusal(state.node.labels)

    def _score(self, state: NodeState, spread: bool) -> Score:
        """Less is better: no taints that ask to stay away, then wishes, then an even spread, then the tightest node."""
        neighbours, template, node = self._scene.neighbours, self.sample.template, state.node
        taints = int(self._filter.untolerated(node, SOFT) is not None) if neighbours.softly_tainted else 0
        wishes = sum([wish.weight for wish in template.preferences if wish.term.matches(node.name, node.labels)])
        for attraction in template.attractions:
            value = node.labels.get(attraction.term.topology_key)
            if value is not None:
                wishes += attraction.weight * neighbours.domain_counts(attraction.term)[value]
        uneven = 0
        for soft in template.soft_spreads:
            value = node.labels.get(soft.topology_key)
            counts = neighbours.spread_counts(self.sample, self._filter, soft, (soft.topology_key,))
            uneven += counts[value] if value is not None else 1 << 20
        sign = -1 if spread else 1
        return (taints, -wishes, uneven, sign * state.weight, sign * state.cpu, state.name)


class GangConstraint:
    """A gang whose members are not alike: each role has nodes and rules of its own."""

    __slots__ = ("_parts", "_scene")

    def __init__(self, scene: Scene, parts: Mapping[str, tuple[NodeFilter, PodConstraint]]) -> None:
        self._scene = scene
        self._parts = parts

    def by_room(self, cluster: Cluster) -> bool:
        return False

    def started(self, cluster: Cluster, job: str, assignments: tuple[Assignment, ...]) -> None:
        self._scene.started(job, assignments)

    def place(self, cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
        with Trial(self._scene.neighbours, cluster) as trial:
            for size in sizes:
                by_role: dict[str, list[tuple[str, int]]] = {}
                for member in size.members:
                    by_role.setdefault(member[0], []).append(member)
                for role, members in by_role.items():
                    filter, constraint = self._parts[role]
                    own = cluster.pool(pool.selector._replace(filter=filter))
                    if constraint.by_room(cluster):
                        fits = trial.add_all(constraint, own, SizeGroup(size.each, members))
                    else:
                        fits = all(trial.add(constraint, own, size, *member) for member in members)
                    if not fits:
                        return Shortfall(len(sizes), 0)
            return trial.keep()


class JobConstraint:
    """What other pods mean for the members of a job of the platform, and what its pod templates ask: a server's engine places them by the
    rules of pods."""

    __slots__ = ("_avoiders", "_differ", "_expect", "_made", "_plain", "_samples", "_scene")

    def __init__(
        self,
        scene: Scene,
        samples: Mapping[str, Pod],
        avoiders: Mapping[str, tuple[PodTerm, ...]],
        expect: Callable[[str, Mapping[str, Pod], tuple[Assignment, ...]], None],
    ) -> None:
        """By role: a pod as the runtime will make it, and the terms of anti-affinity that mean it."""
        self._scene = scene
        self._samples = samples
        self._avoiders = avoiders
        self._expect = expect
        filters = {role: filter_of(sample.template) for role, sample in samples.items()}
        self._differ = len(set(filters.values())) > 1  # the core has one filter for all members
        self._plain = [PodConstraint(scene, sample, filters[role], avoiders[role]) for role, sample in samples.items()]
        self._made: dict[tuple[tuple[str, str], ...], PodConstraint | GangConstraint] = {}

    def by_room(self, cluster: Cluster) -> bool:
        if cluster is not self._scene.cluster:
            return True
        return not self._differ and all(each.by_room(cluster) for each in self._plain)

    def place(self, cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
        labels = pool.selector.labels  # the queue's node selector among them, which is in the pods as well
        found = self._made.get(labels)
        if found is None:
            found = self._made[labels] = self._constraint(labels)
        return found.place(cluster, pool, sizes)

    def _constraint(self, labels: tuple[tuple[str, str], ...]) -> PodConstraint | GangConstraint:
        parts: dict[str, tuple[NodeFilter, PodConstraint]] = {}
        for role, sample in self._samples.items():
            template = sample.template
            selector = tuple(sorted({*template.node_selector, *labels}))
            own = PodFilter(selector, template.node_affinity, template.tolerations)
            parts[role] = RoleFilter(own), PodConstraint(self._scene, sample, own, self._avoiders[role])
        if len(parts) == 1:
            return next(iter(parts.values()))[1]
        return GangConstraint(self._scene, parts)

    def started(self, cluster: Cluster, job: str, assignments: tuple[Assignment, ...]) -> None:
        self._expect(job, self._samples, assignments)


class Trial:
    """Members placed one after the other, each the neighbour of the next. Unless kept, all is as it was at the end."""

    def __init__(self, neighbours: Neighbours, cluster: Cluster) -> None:
        self._neighbours, self._cluster = neighbours, cluster
        self._version = cluster.version
        self._taken: list[tuple[SizeGroup, Assignment]] = []
        self._guests: list[str] = []
        self._kept = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        for uid in self._guests:
            self._neighbours.drop(uid)
        if not self._kept:
            for size, assignment in reversed(self._taken):
                self._cluster.put(self._cluster.states[assignment.node], [(size.each, assignment.devices)])
            self._cluster.version = self._version

    def add(self, constraint: PodConstraint, pool: Pool, size: SizeGroup, role: str, index: int) -> bool:
        state = constraint.best(pool, size)
        if state is None:
            return False
        (devices,) = self._cluster.take(state, size.each, 1)
        self._note(constraint, size, Assignment(role, index, state.name, devices))
        return True

    def add_all(self, constraint: PodConstraint, pool: Pool, size: SizeGroup) -> bool:
        placed = place(self._cluster, pool, [size])
        if isinstance(placed, Shortfall):
            return False
        for assignment in placed:
            self._note(constraint, size, assignment)
        return True

    def _note(self, constraint: PodConstraint, size: SizeGroup, assignment: Assignment) -> None:
        self._taken.append((size, assignment))
        uid = f"trial-{len(self._guests)}"
        self._guests.append(uid)
        self._neighbours.put_as(uid, constraint.sample, assignment.node)

    def keep(self) -> list[Assignment]:
        self._kept = True
        return sorted((assignment for _, assignment in self._taken), key=lambda a: (a.role, a.index))
