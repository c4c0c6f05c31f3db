"""Jobs of the platform whose pod templates ask something of other pods, placed by the rules of pods in the engine's one ledger."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.jobs.neighbour_rules import JOB_LABEL, near_text
from paddleflow.jobs.node_rules import rules_of_template
from paddleflow.jobs.rows import WaitingClass, needs_text, requests_of
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.runtimes.kubernetes.pods import ATTEMPT, CLUSTER_LABEL
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Decision, Node, Queue, Start, Wait
from paddleflow.scheduling.rules import Rules
from tests import pod_strategies
from tests.pod_placement_reference import World

NOW = 1_800_000_000.0
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SMALL = Resources.of(500, 2**20)


def selector(**labels: str) -> dict[str, Any]:
    return {"matchLabels": labels}


def term(key: str, **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": selector(**labels)}


class Scene:
    """A server's board, with its jobs and pods of others."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        rules = Rules(patience=float("inf"))
        self.core = Core(rules)
        self.board = Board(rules, engine=self.core)
        self.reader = PodReader(platform="here")
        self.now = NOW
        self.seq = 0
        self.labels: dict[str, dict[str, str]] = {}
        self.board.set_platform_queues([Queue("q", None)])
        for obj in nodes:
            self.board.put_node(obj["metadata"]["name"], read_node(obj))
        self.board.set_platform_nodes([self._seen_by_server(obj) for obj in nodes])
        for name, labels in pod_strategies.NAMESPACES.items():
            self.board.put_namespace(name, labels)

    @staticmethod
    def _seen_by_server(obj: dict[str, Any]) -> Node:
        node = read_node(obj)
        hard = tuple(str(taint) for taint in node.repels if taint.effect != "PreferNoSchedule")
        return Node(node.name, node.capacity, node.labels, not obj["spec"].get("unschedulable"), taints=hard)

    def submit(
        self,
        job: str,
        *roles: tuple[str, int, dict[str, Any]],
        each: Resources = SMALL,
        space: str = "d",
        least: int | None = None,
    ) -> None:
        """Members by role, with the spec of their template and their labels as `labels`."""
        needs = []
        for role, count, template_spec in roles:
            spec = dict(template_spec)
            labels = spec.pop("labels", {})
            template = {"kind": "Pod", "spec": spec}
            rules = rules_of_template(template)
            rules = type(rules)(rules.labels, rules.tolerates, rules.affinity, near_text(template, space, labels))
            needs.append((role, count, each, least, least is not None, rules))
        self.seq += 1
        waiting = WaitingClass(
            "q", "ada", "standalone", "NORMAL", needs_text(tuple(needs)), 1, 0.0, False, 0, "pending", "",
            [(self.seq, job, NOW + self.seq)], None, (),
        )  # fmt: skip
        for request in requests_of(waiting):
            self.core.submit(request)

    def guest(
        self, name: str, node: str, *, attempt: str = "", space: str = "d", affinity: Any = None, **labels: str
    ) -> None:
        """A pod that somebody else placed, or one of a job of the platform."""
        metadata = {"name": name, "namespace": space, "uid": f"uid-{name}", "labels": labels, "annotations": {}}
        if attempt:
            metadata |= {"annotations": {ATTEMPT: attempt}, "labels": {**labels, CLUSTER_LABEL: "here"}}
        spec = {
            "nodeName": node,
            "affinity": affinity,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}],
        }
        self.board.put_pod(f"{space}/{name}", self.reader.read({"metadata": metadata, "spec": spec, "status": {}}))

    def decide(self) -> dict[str, list[str] | str]:
        """The nodes of each job that starts now, by role and index; why the others wait."""
        self.now += 1
        self.board.take_all_in(self.now)
        decisions = self.core.decide(self.now)
        self.board.changeset([each for each in decisions if self.board.knows(_job_of(each))])
        found: dict[str, list[str] | str] = {}
        for each in decisions:
            match each:
                case Start(job, assignments):
                    found[job] = [a.node for a in sorted(assignments, key=lambda a: (a.role, a.index))]
                case Wait(job, reason):
                    found[job] = reason.code
        return found


def _job_of(decision: Decision) -> str:
    return decision.job


def node(name: str, zone: str, cpu: str = "4", **labels: str) -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    found = {"kubernetes.io/hostname": name, "zone": zone, **labels}
    return {"metadata": {"name": name, "labels": found}, "spec": {}, "status": {"allocatable": room}}


NODES = [node("a0", "a"), node("a1", "a"), node("b0", "b"), node("c0", "c")]


def test_spread_constraints_hold_among_the_members_of_a_job() -> None:
    scene = Scene(NODES)
    constraint = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": selector(app="train")}
    spec = {"topologySpreadConstraints": [constraint], "labels": {"app": "train"}}
    scene.submit("job", ("worker", 6, spec))
    (nodes,) = scene.decide().values()
    assert sorted(each[0] for each in nodes) == ["a", "a", "b", "b", "c", "c"]
    scene = Scene(NODES[:2])
    keyed = {**constraint, "minDomains": 2}
    scene.submit("job", ("worker", 2, {**spec, "topologySpreadConstraints": [keyed]}))
    assert scene.decide() == {"job": "constraint"}
    soft = {**keyed, "whenUnsatisfiable": "ScheduleAnyway"}
    soft.pop("minDomains")
    scene.submit("soft", ("worker", 2, {**spec, "topologySpreadConstraints": [soft]}))
    assert len(scene.decide()["soft"]) == 2


def test_a_soft_spread_is_kept_where_it_can_be() -> None:
    scene = Scene(NODES)
    scene.guest("there", "a0", app="train")
    soft = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector(app="train"),
    }
    scene.submit("job", ("worker", 2, {"topologySpreadConstraints": [soft], "labels": {"app": "train"}}))
    assert scene.decide() == {"job": ["b0", "c0"]}


def test_preferences_order_the_nodes() -> None:
    nodes = [*NODES, node("fast", "a", disk="ssd")]
    scene = Scene(nodes)
    wish = {"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
    prefers = {"affinity": {"nodeAffinity": {PREFERRED: [wish]}}}
    scene.submit("job", ("worker", 9, prefers))
    (on,) = scene.decide().values()
    assert on.count("fast") == 8, "as long as there is room"
    near = {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term("zone", app="db")}]}}}
    away = {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term("zone", app="db")}]}}}
    scene = Scene(nodes)
    scene.guest("db", "b0", app="db")
    scene.submit("near", ("worker", 1, near))
    scene.submit("away", ("worker", 1, away))
    found = scene.decide()
    assert found["near"] == ["b0"]
    assert found["away"] != ["b0"]


def test_required_affinity_and_anti_affinity_of_pods_hold() -> None:
    scene = Scene(NODES)
    alone = {
        "affinity": {"podAntiAffinity": {REQUIRED: [term("kubernetes.io/hostname", app="train")]}},
        "labels": {"app": "train"},
    }
    scene.submit("job", ("worker", 4, alone))
    assert scene.decide() == {"job": ["a0", "a1", "b0", "c0"]}
    scene.submit("more", ("worker", 1, alone))
    assert scene.decide() == {"more": "constraint"}
    scene.guest("db", "c0", app="db")
    beside = {"affinity": {"podAffinity": {REQUIRED: [term("zone", app="db")]}}}
    scene.submit("beside", ("worker", 1, beside))
    assert scene.decide()["beside"] == ["c0"]


def test_only_pods_are_given_reasons() -> None:
    scene = Scene(NODES)
    scene.submit("large", ("worker", 9, {}), each=Resources.of(4000, 2**20))
    assert isinstance(scene.decide()["large"], str)
    scene.now += 60.0
    assert scene.board.reasons() == [], "jobs of the platform are the engine's matter"


def test_members_that_differ_go_by_their_own_templates() -> None:
    scene = Scene([*NODES, node("fast", "c", disk="ssd")])
    driver = {"nodeSelector": {"disk": "ssd"}, "labels": {"role": "driver"}}
    worker = {"affinity": {"podAffinity": {REQUIRED: [term("zone", role="driver")]}}, "labels": {"role": "worker"}}
    scene.submit("job", ("driver", 1, driver), ("worker", 2, worker))
    (nodes,) = scene.decide().values()
    assert nodes[0] == "fast"
    assert set(nodes[1:]) <= {"c0", "fast"}


def test_the_label_of_one_job_tells_jobs_that_are_alike_apart() -> None:
    scene = Scene(NODES)
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    keyed = {"topologySpreadConstraints": [{**constraint, "matchLabelKeys": [JOB_LABEL]}], "labels": {"app": "train"}}
    for job in ("one", "two"):
        scene.submit(job, ("worker", 2, keyed))
    for nodes in scene.decide().values():
        assert len({each[0] for each in nodes}) == 2
    apart = {
        "affinity": {"podAntiAffinity": {REQUIRED: [{**term("zone", app="train"), "mismatchLabelKeys": [JOB_LABEL]}]}}
    }
    scene = Scene(NODES)
    for job in ("one", "two", "three", "four"):
        scene.submit(job, ("worker", 2, {**apart, "labels": {"app": "train"}}))
    found = scene.decide()
    zones = [{each[0] for each in nodes} for nodes in found.values() if isinstance(nodes, list)]
    assert len(zones) == 3
    assert found["four"] == "constraint"
    assert all(not one & other for at, one in enumerate(zones) for other in zones[:at])


def test_jobs_without_rules_stay_away_from_pods_that_want_no_such_neighbour() -> None:
    alone = {"podAntiAffinity": {REQUIRED: [term("zone", app="train")]}}
    scene = Scene(NODES)
    scene.guest("db", "a0", affinity=alone)
    scene.submit("job", ("worker", 2, {"labels": {"app": "train"}}), each=Resources.of(3000, 2**20))
    scene.submit("other", ("worker", 1, {"labels": {"app": "serve"}}), each=Resources.of(3000, 2**20))
    found = scene.decide()
    assert sorted(found["job"]) == ["b0", "c0"]
    assert found["other"] == ["a0"], "a job that it does not mean packs as ever"
    scene.submit("late", ("worker", 1, {"labels": {"app": "train"}}), each=Resources.of(3000, 2**20))
    assert scene.decide() == {"late": "constraint"}
    scene.board.put_pod("d/db", None)
    assert scene.decide() == {"late": ["a1"]}


def test_pods_stay_away_from_members_of_jobs_without_rules_before_their_pods_are_seen() -> None:
    scene = Scene(NODES[:2])
    scene.submit("job", ("worker", 1, {"labels": {"app": "train"}}))
    (nodes,) = scene.decide().values()
    alone = {"affinity": {"podAntiAffinity": {REQUIRED: [term("kubernetes.io/hostname", app="train")]}}}
    scene.submit("alone", ("worker", 1, alone))
    (other,) = scene.decide().values()
    assert isinstance(other, list)
    assert set(other).isdisjoint(nodes)


def test_members_that_come_later_stay_away_too() -> None:
    alone = {"podAntiAffinity": {REQUIRED: [term("kubernetes.io/hostname", app="train")]}}
    scene = Scene(NODES[:3])
    scene.guest("db", "a0", affinity=alone)
    scene.submit("job", ("worker", 9, {"labels": {"app": "train"}}), each=Resources.of(2000, 2**20), least=1)
    found = scene.decide()
    scene.now += 3600.0
    scene.decide()
    on = [each.node for each in scene.core.allocations["job"].assignments]
    assert sorted(on) == ["a1", "a1", "b0", "b0"], found


def test_members_that_differ_in_their_nodes_go_where_each_may_run() -> None:
    scene = Scene([*NODES, node("fast", "c", disk="ssd")])
    scene.submit(
        "job", ("driver", 1, {"nodeSelector": {"disk": "ssd"}}), ("worker", 1, {"nodeSelector": {"zone": "b"}})
    )
    assert scene.decide() == {"job": ["fast", "b0"]}


def test_members_count_until_their_pods_are_seen_and_not_twice() -> None:
    scene = Scene(NODES)
    alone = {"affinity": {"podAntiAffinity": {REQUIRED: [term("zone", app="train")]}}, "labels": {"app": "train"}}
    scene.submit("job", ("worker", 1, alone))
    (nodes,) = scene.decide().values()
    on = nodes[0]
    for uid in ("job.worker-0", "uid-pod"):
        assert [each for each in scene.board.neighbours.on[on] if each == uid] == [uid]
        scene.guest("pod", on, attempt="job.worker-0.1", app="train")
        scene.board.take_all_in(scene.now)
    assert set(scene.board.neighbours.on[on]) == {"uid-pod"}
    scene.submit("other", ("worker", 1, alone))
    (placed,) = scene.decide().values()
    assert isinstance(placed, list)
    assert placed[0][0] != on[0]
    scene.core.release("other")
    scene.board.take_all_in(scene.now)
    assert placed[0] not in scene.board.neighbours.on, "it holds nothing, so no pod will come"


def term_of(rules: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [rules]}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{}]},
        {"topologySpreadConstraints": {}, "affinity": []},
        {"affinity": {"podAffinity": {REQUIRED: {}}, "podAntiAffinity": []}},
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [{}]}}]}}},
        term_of({}),
        term_of({"labelSelector": {"matchExpressions": [{"operator": "In"}]}}),
    ],
)
def test_what_is_no_document_of_the_api_stops_nobody(spec: dict[str, Any]) -> None:
    scene = Scene(NODES)
    scene.submit("broken", ("worker", 1, spec))
    scene.submit("sound", ("worker", 1, {}))
    found = scene.decide()
    assert isinstance(found["sound"], list)
    assert isinstance(found["broken"], list) or found["broken"] == "constraint"


@settings(max_examples=60, deadline=None)
@given(
    nodes=pod_strategies.nodes(),
    jobs=st.lists(st.tuples(pod_strategies.pods(0), st.integers(1, 3)), min_size=1, max_size=5),
    guests=st.lists(st.tuples(pod_strategies.pods(0), st.integers(0, 5)), max_size=3),
)
def test_no_member_goes_where_kube_scheduler_would_refuse_its_pod(
    nodes: list[dict[str, Any]], jobs: list[tuple[dict[str, Any], int]], guests: list[tuple[dict[str, Any], int]]
) -> None:
    for each in nodes:
        each["status"]["allocatable"]["pods"] = (
            "50"  # jobs ask for amounts, and their pods are counted when they are seen
        )
    scene, world = Scene(nodes), World(nodes, pod_strategies.NAMESPACES)
    for number, (pod, choice) in enumerate(guests):
        pod["metadata"] |= {"name": f"guest-{number}", "uid": f"guest-{number}"}
        pod["spec"].pop("ports", None)
        if allowed := sorted(world.allowed(pod)):
            name = allowed[choice % len(allowed)]
            made = copy.deepcopy(pod)
            made["spec"] |= {"nodeName": name}
            world.place(pod, name)
            scene.board.put_pod(
                f"{pod['metadata']['namespace']}/guest-{number}", scene.reader.read({**made, "status": {}})
            )
    members: dict[str, dict[str, Any]] = {}
    names = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
    for number, (pod, count) in enumerate(jobs):
        job, space = f"job-{number}", pod["metadata"]["namespace"]
        spec = {name: pod["spec"][name] for name in names if name in pod["spec"]}
        container = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
        members[job] = {"metadata": pod["metadata"], "spec": {**spec, "containers": [container]}}
        scene.submit(job, ("worker", count, {**spec, "labels": pod["metadata"]["labels"]}), space=space)
    for job, placed in scene.decide().items():
        for name in placed if isinstance(placed, list) else ():
            assert world.refusal(members[job], name) == "", f"{job} on {name}"
            world.place(members[job], name)
